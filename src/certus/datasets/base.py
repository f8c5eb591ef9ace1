"""The data set type, and the recipe that encodes the columns of a table.

A recipe is learnt once, from the training table, and applied to every table that is read later: with the
same categories, medians and types of columns. An unknown category has all of its inputs at 0; a missing
number gets the training median. Both are reported with their shares. A missing column is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.data import Samples, season
from certus.datasets.arrays import Array, Bytes, Targets
from certus.datasets.raw_table import (
    Categorical,
    Column,
    Numeric,
    RawColumn,
    RawTable,
    TableProblem,
    numbers_in,
    refuse,
)
from certus.domains import Box, Domain
from certus.errors import truncate

GAP = "(missing)"
"""The category of a missing word."""

_SHOWN = 3


@dataclass(frozen=True)
class ColumnRecipe:
    """Encoding of one column of a table.

    Attributes:
        kind: one of ``READERS``, "category" or "dropped".
        missing, distinct: gaps and different values in the table that it was learnt from.
        categories: of a category, in order.
        median: of the training rows of a number; a gap gets it.
        reason: why it is dropped.
    """

    name: str
    kind: str
    missing: int
    distinct: int
    categories: tuple[str, ...] = ()
    median: float = 0.0
    reason: str = ""

    @property
    def becomes(self) -> str:
        """Description of the encoding."""
        if self.kind == "dropped":
            return f"dropped: {self.reason}"
        if self.kind == "category":
            return f"{len(self.categories)} one-hot columns"
        text = "day and season (3 numbers)" if self.kind.startswith("date") else "a number"
        return f"{text}; gaps get {self.median:.4g}, and a column that says so" if self.missing else text

    def bare(self, raw: RawColumn) -> Column:
        """Return the column unencoded, with NaN or the category of gaps where a value is missing."""
        if self.kind != "category":
            return Numeric(self.name, self.values(raw))
        codes_of = {category: code for code, category in enumerate(self.categories)}
        codes = [codes_of.get(GAP if cell is None else cell, -1) for cell in raw.words]
        return Categorical(self.name, np.array(codes, dtype=np.int64), self.categories)

    def gaps_are_ambiguous(self, raw: RawColumn) -> bool:
        """Whether ``GAP`` is both a category and a missing value, in these rows or in those of the recipe."""
        word = GAP in raw.words or (GAP in self.categories and not self.missing)
        return word and (self.missing > 0 or bool(raw.gaps.any()))

    def values(self, raw: RawColumn) -> Array:
        """Return (n,) numbers, NaN where a value is missing."""
        if raw.numbers is not None:
            return raw.numbers
        assert raw.cells is not None
        return numbers_in(raw.cells, self.kind)

    def features(self, raw: RawColumn) -> list[Column]:
        """Return the encoded columns."""
        if self.kind == "category":
            return [self.bare(raw)]
        values = self.values(raw)
        gaps = np.isnan(values)
        filled = np.where(gaps, self.median, values)
        columns: list[Column] = [Numeric(self.name, filled)]
        if self.kind.startswith("date"):
            for part, wave in zip(("winter", "spring"), season(torch.from_numpy(filled)), strict=True):
                columns.append(Numeric(f"{self.name} ({part})", wave.numpy(), part_of=self.name))
        if self.missing:
            mark = Categorical(
                f"{self.name}?", gaps.astype(np.int64), ("known", "missing"), part_of=self.name
            )
            columns.append(mark)
        return columns


@dataclass(frozen=True)
class Recipe:
    """Encoding of all columns of a table except the target, in their order.

    Attributes:
        target: the column that is predicted.
        target_kind: one of ``READERS`` where its cells are numbers, "label" for words.
    """

    columns: tuple[ColumnRecipe, ...]
    target: str
    target_kind: str

    @property
    def kept(self) -> tuple[ColumnRecipe, ...]:
        return tuple(column for column in self.columns if column.kind != "dropped")

    def features(self, table: RawTable) -> list[Column]:
        """Return the encoded columns of a table."""
        return [feature for one in self.kept for feature in one.features(table.columns[one.name])]

    def check(self, table: RawTable) -> None:
        """Raise ``ArgumentError`` with all problems of a new table."""
        lacks = [column.name for column in self.kept if column.name not in table.columns]
        problems = []
        if lacks:
            rule = f"have the columns that the run was trained with; {_listed(lacks)} missing"
            problems.append(TableProblem(rule, f"only {_listed(list(table.columns), most=8)}"))
        for column in self.kept:
            if column.name not in table.columns:
                continue
            if column.kind != "category":
                problems += _unreadable(table, column)
            elif column.gaps_are_ambiguous(table.columns[column.name]):
                problems.append(ambiguous_gaps(column.name, " of this table and that of the run"))
        refuse(table.source, problems)

    def unknown(self, table: RawTable) -> list[str] | None:
        """List the values of a new table that are not among the categories; None where columns are
        missing."""
        if any(column.name not in table.columns for column in self.kept):
            return None
        categorical = [column for column in self.kept if column.kind == "category"]
        cells = (
            (column.categories, cell) for column in categorical for cell in table.columns[column.name].words
        )
        return [cell for known, cell in cells if cell is not None and cell not in known]

    def notes(self, table: RawTable) -> tuple[str, ...]:
        """Describe unknown categories and missing numbers of a new table, with their shares."""
        notes = [table.remark] if table.remark else []
        for column in self.kept:
            raw = table.columns[column.name]
            if column.kind == "category":
                cells = [GAP if cell is None else cell for cell in raw.words]
                unknown = sorted(set(cells) - set(column.categories))
                if unknown:
                    share = sum(cell in unknown for cell in cells) / len(cells)
                    reason = f"a category that no row of the run had: {_listed(unknown)}"
                    notes.append(f"{share:.2%} of {column.name!r} count as unknown, {reason}.")
            elif not column.missing and raw.gaps.any():
                share, fill = float(raw.gaps.mean()), f"the training median, {column.median:.4g}"
                notes.append(f"{share:.2%} of {column.name!r} are missing: they get {fill}.")
        return tuple(notes)


def ambiguous_gaps(label: str, of: str = "") -> TableProblem:
    """Problem of a column that has both the category ``GAP`` and missing values.

    Args:
        of: which tables the column is looked at in, in words.
    """
    rule = f"have no category {GAP!r} in a column with missing values, which are a category of that name"
    return TableProblem(rule, f"both in column {label!r}{of}; fill the gaps, or rename the category")


def _unreadable(table: RawTable, column: ColumnRecipe) -> list[TableProblem]:
    """List cells of a new table that are not of the type of their column, or not finite."""
    raw = table.columns[column.name]
    values = column.values(raw)
    bad = np.flatnonzero(np.isinf(values) | (np.isnan(values) & ~raw.gaps))
    if not len(bad):
        return []
    at, reads = int(bad[0]), "dates" if column.kind.startswith("date") else "numbers"
    more = f", and {len(bad) - 1} more like it" if len(bad) > 1 else ""
    content = f"{raw.words[at]!r} in {table.place(column.name, at)}{more}"
    return [TableProblem(f"hold {reads} in column {column.name!r}", content)]


def _listed(names: Sequence[str], most: int = _SHOWN) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(truncate(name, 80) for name in names[:most])}{more}"


@dataclass(frozen=True, eq=False)
class SplitDataset:
    """A named data set with disjoint train, calibration and test samples.

    The fields without a default are enough for a data set of your own making; ``load`` fills in all of them.

    Attributes:
        domain: the set Z that its inputs live in.
        classes: number of labels, or None for regression.
        units: what a distance of 1 between two inputs means, in words.
        weights: (features,) weights for ``WeightedL2``; None means that plain ``SquaredL2`` fits.
        feature_names: one name for each column of a table.
        class_names: what the labels 0, 1, … are called in the source.
        input_scale: (mean, scale), both (features,) float64, with inputs = (raw − mean) / scale; None if raw.
        target_scale: (mean, scale) of a regression, with targets = (raw − mean) / scale; None if raw.
        later: named samples drawn after those above, for measuring a shift that really happened.
        rows: the int64 row numbers, in the source, of "train", "calibration" and "test".
        sha256: digest of the source's inputs and targets, all of them, before splitting and scaling.
        recipe: what became of each column of a table of words, numbers and gaps; None for others.
        notes: what is to be said of a table that was read by another one's recipe.
    """

    name: str
    train: Samples
    calibration: Samples
    test: Samples
    domain: Domain
    classes: int | None
    units: str = "units of the inputs"
    weights: Tensor | None = None
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    input_scale: tuple[Tensor, Tensor] | None = None
    target_scale: tuple[float, float] | None = None
    later: Mapping[str, Samples] = field(default_factory=dict)
    rows: dict[str, Tensor] = field(default_factory=dict)
    sha256: str = ""
    recipe: Recipe | None = None
    notes: tuple[str, ...] = ()


def split_samples(samples: Samples, rows: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the samples of "train", "calibration" and "test", for the fields of ``SplitDataset``."""
    return {name: samples[rows[name]] for name in ("train", "calibration", "test")}


PIXELS = "pixels in [0, 1]"


def image_set(
    name: str, pixels: Bytes, targets: Targets, rows: dict[str, Tensor], sha256: str
) -> SplitDataset:
    """Make a data set of 8-bit images, scaled to [0, 1], channels first.

    Args:
        pixels: (n, height, width) or (n, channels, height, width) uint8; grey images get a channel of 1.
        targets: of all n images.
    """
    images = torch.from_numpy(pixels if pixels.ndim != 3 else pixels[:, None])
    values = targets.tensor(name)

    def part(rows: Tensor) -> Samples:
        # Chosen as bytes and scaled afterwards: a quarter of the memory is moved about.
        return Samples(images[rows].float().div_(255), values[rows])

    return SplitDataset(
        name=name,
        train=part(rows["train"]),
        calibration=part(rows["calibration"]),
        test=part(rows["test"]),
        domain=Box(0.0, 1.0),
        classes=targets.classes,
        units=PIXELS,
        class_names=targets.class_names,
        rows=rows,
        sha256=sha256,
    )
