"""The data set type, and the encoding of a table's columns.

What becomes of each column of a table: learnt once, and applied to every table that is read later.

New rows are read as the first ones were: with their categories, their medians and their kinds. A category
that was not there counts as unknown, all of its columns 0; a number that is missing gets the training median.
Both are said, with their share. A column that is not there is named.

What a data set is here: inputs and targets, split by a seed, with the domain they live in.

Images of 8 bits as a data set: scaled to [0, 1], channels first, in the box of all images.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
    """One column of the table.

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
        """What becomes of it, in words."""
        if self.kind == "dropped":
            return f"dropped: {self.reason}"
        if self.kind == "category":
            return f"{len(self.categories)} one-hot columns"
        told = "day and season (3 numbers)" if self.kind.startswith("date") else "a number"
        return f"{told}; gaps get {self.median:.4g}, and a column that says so" if self.missing else told

    def bare(self, raw: RawColumn) -> Column:
        """The column as it is, NaN or the gap's own category where something is missing."""
        if self.kind != "category":
            return Numeric(self.name, self.values(raw))
        known = {category: code for code, category in enumerate(self.categories)}
        codes = [known.get(GAP if cell is None else cell, -1) for cell in raw.words]
        return Categorical(self.name, np.array(codes, dtype=np.int64), self.categories)

    def gaps_are_ambiguous(self, raw: RawColumn) -> bool:
        """Whether ``GAP`` is a word and a missing one, in these rows and those that the recipe is of."""
        word = GAP in raw.words or (GAP in self.categories and not self.missing)
        return word and (self.missing > 0 or bool(raw.gaps.any()))

    def values(self, raw: RawColumn) -> Array:
        """(n,) the numbers, NaN where there is none."""
        if raw.numbers is not None:
            return raw.numbers
        assert raw.cells is not None
        return numbers_in(raw.cells, self.kind)

    def features(self, raw: RawColumn) -> list[Column]:
        """What the network sees of it."""
        if self.kind == "category":
            return [self.bare(raw)]
        values = self.values(raw)
        gaps = np.isnan(values)
        filled = np.where(gaps, self.median, values)
        found: list[Column] = [Numeric(self.name, filled)]
        if self.kind.startswith("date"):
            for part, wave in zip(("winter", "spring"), season(torch.from_numpy(filled)), strict=True):
                found.append(Numeric(f"{self.name} ({part})", wave.numpy(), part_of=self.name))
        if self.missing:
            mark = Categorical(
                f"{self.name}?", gaps.astype(np.int64), ("known", "missing"), part_of=self.name
            )
            found.append(mark)
        return found


@dataclass(frozen=True)
class Recipe:
    """All columns of a table but the target, in its order.

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
        """What the network sees of a table."""
        return [made for one in self.kept for made in one.features(table.columns[one.name])]

    def check(self, table: RawTable) -> None:
        """Raise ``ArgumentError`` with all that keeps a new table from being read."""
        lacks = [one.name for one in self.kept if one.name not in table.columns]
        problems = []
        if lacks:
            rule = f"have the columns that the run was trained with; {_listed(lacks)} missing"
            problems.append(TableProblem(rule, f"only {_listed(list(table.columns), most=8)}"))
        for one in self.kept:
            if one.name not in table.columns:
                continue
            if one.kind != "category":
                problems += _unreadable(table, one)
            elif one.gaps_are_ambiguous(table.columns[one.name]):
                problems.append(ambiguous_gaps(one.name, " of this table and that of the run"))
        refuse(table.source, problems)

    def unknown(self, table: RawTable) -> list[str] | None:
        """The words of a new table that are not among the categories; None where columns are missing."""
        if any(one.name not in table.columns for one in self.kept):
            return None
        categorical = [one for one in self.kept if one.kind == "category"]
        cells = ((one.categories, cell) for one in categorical for cell in table.columns[one.name].words)
        return [cell for known, cell in cells if cell is not None and cell not in known]

    def notes(self, table: RawTable) -> tuple[str, ...]:
        """What is to be said of a new table, with shares."""
        found = [table.remark] if table.remark else []
        for one in self.kept:
            raw = table.columns[one.name]
            if one.kind == "category":
                cells = [GAP if cell is None else cell for cell in raw.words]
                unknown = sorted(set(cells) - set(one.categories))
                if unknown:
                    share = sum(cell in unknown for cell in cells) / len(cells)
                    told = f"a category that no row of the run had: {_listed(unknown)}"
                    found.append(f"{share:.2%} of {one.name!r} count as unknown, {told}.")
            elif not one.missing and raw.gaps.any():
                share, fill = float(raw.gaps.mean()), f"the training median, {one.median:.4g}"
                found.append(f"{share:.2%} of {one.name!r} are missing: they get {fill}.")
        return tuple(found)


def ambiguous_gaps(label: str, of: str = "") -> TableProblem:
    """Of a column with the word ``GAP`` beside gaps.

    Args:
        of: which tables the column is looked at in, in words.
    """
    rule = f"have no category {GAP!r} in a column with missing values, which are a category of that name"
    return TableProblem(rule, f"both in column {label!r}{of}; fill the gaps, or rename the category")


def _unreadable(table: RawTable, one: ColumnRecipe) -> list[TableProblem]:
    """Cells of a new table that are not of their column's kind, or not finite."""
    raw = table.columns[one.name]
    values = one.values(raw)
    bad = np.flatnonzero(np.isinf(values) | (np.isnan(values) & ~raw.gaps))
    if not len(bad):
        return []
    at, reads = int(bad[0]), "dates" if one.kind.startswith("date") else "numbers"
    more = f", and {len(bad) - 1} more like it" if len(bad) > 1 else ""
    found = f"{raw.words[at]!r} in {table.place(one.name, at)}{more}"
    return [TableProblem(f"hold {reads} in column {one.name!r}", found)]


def _listed(names: Sequence[str], most: int = _SHOWN) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(truncate(name, 80) for name in names[:most])}{more}"


@dataclass(frozen=True, eq=False)
class SplitDataset:
    """A named data set: disjoint samples for training, for calibration, and for the final test.

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


PIXELS = "pixels in [0, 1]"


def image_set(
    name: str, pixels: Bytes, targets: Targets, rows: dict[str, Tensor], sha256: str
) -> SplitDataset:
    """A data set of images.

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
