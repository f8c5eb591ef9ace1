"""Encodings of tables, learnt from their cells, and data sets of encoded tables.

All problems of a table are reported in one message. A column is dropped, with a reason, if it is constant, if
the options say so, or if it is an identifier: words that differ in every row, or whole numbers that differ in
every row of a column with the name of an identifier.

A numeric column x becomes (x − mean) / deviation, both of the training rows, so that moving it by one
standard deviation costs 1. A categorical column becomes one 0/1 column for each category, with weight ½:
changing the category moves two of them by 1 each and costs ½ + ½ = 1, as much as one standard deviation.

The domain keeps one-hot columns in [0, 1] and leaves numbers free. It is a relaxation: a moved point may
be "half one category, half another". Every true category lies in it, so a bound over it also bounds those.

A ``Recipe`` is learnt once, from the training table, and applied to every table that is read later: with the
same categories, medians and types of columns. An unknown category has all of its inputs at 0; a missing
number gets the training median. Both are reported with their shares. A missing column is named.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.data import EncodedColumn, RowEncoding, Samples, season
from certus.datasets.base import (
    FEWEST_ROWS,
    Array,
    SplitDataset,
    Targets,
    as_float32,
    digest_arrays,
    in_fifths,
    labelled,
    split_by,
    split_samples,
)
from certus.datasets.raw_table import (
    READERS,
    RawColumn,
    RawTable,
    TableProblems,
    frame_table,
    plain_number,
    separator_hint,
)
from certus.domains import Box, Unbounded
from certus.errors import ArgumentError, require, truncate
from certus.table_options import TableOptions

MISSING_CATEGORY = "(missing)"
"""The category of a missing word."""
MOST_LABELS = 50
MOST_CATEGORIES = 100
ONE_HOT_WEIGHT = 0.5
_FEW = 20  # rows below which every row may have its own word
_IDENTIFIER = re.compile(r"(.*[_ ]|^)(id|uuid|guid|key|nr|index)|unnamed: \d+|.*[a-z]ID|row", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Column:
    """A column of (n,) finite numbers, or of (n,) codes into ``categories``, −1 for unknown ones."""

    name: str
    values: Array
    categories: tuple[str, ...] | None = None
    part_of: str = ""  # the column of the table that it was derived from

    @property
    def features(self) -> list[str]:
        """Name of each input that encodes it."""
        if self.categories is None:
            return [self.name]
        return [f"{self.name}={category}" for category in self.categories]


@dataclass(frozen=True)
class ColumnRecipe:
    """Encoding of one column of a table."""

    name: str
    kind: str  # one of ``READERS``, "category" or "dropped"
    missing: int  # missing values in the table that it was learnt from
    distinct: int  # different values there
    categories: tuple[str, ...] = ()  # of a category, in order
    median: float = 0.0  # of the training rows of a number; missing values get it
    reason: str = ""  # why it is dropped

    @property
    def becomes(self) -> str:
        """Description of the encoding."""
        if self.kind == "dropped":
            return f"dropped: {self.reason}"
        if self.kind == "category":
            return f"{len(self.categories)} one-hot columns"
        text = "day and season (3 numbers)" if self.kind.startswith("date") else "a number"
        missing = f"; missing ones become {self.median:.4g}, with an indicator column"
        return text + missing if self.missing else text

    def unencoded(self, raw: RawColumn) -> Column:
        """Return the column with NaN or the category of missing values where a value is missing."""
        if self.kind != "category":
            return Column(self.name, raw.parse(self.kind))
        codes_of = {category: code for code, category in enumerate(self.categories)}
        codes = [codes_of.get(MISSING_CATEGORY if cell is None else cell, -1) for cell in raw.words]
        return Column(self.name, np.array(codes, dtype=np.int64), self.categories)

    def encode(self, raw: RawColumn) -> list[Column]:
        """Return the encoded columns."""
        column = self.unencoded(raw)
        if self.kind == "category":
            return [column]
        missing = np.isnan(column.values)
        filled = np.where(missing, self.median, column.values)
        columns = [Column(self.name, filled)]
        if self.kind.startswith("date"):
            for part, wave in zip(("winter", "spring"), season(torch.from_numpy(filled)), strict=True):
                columns.append(Column(f"{self.name} ({part})", wave.numpy(), part_of=self.name))
        if self.missing:
            marks = missing.astype(np.int64)
            columns.append(Column(f"{self.name}?", marks, ("known", "missing"), part_of=self.name))
        return columns


@dataclass(frozen=True)
class Recipe:
    """Encoding of all columns of a table except the target, in their order."""

    columns: tuple[ColumnRecipe, ...]
    target: str  # the column that is predicted
    target_kind: str  # one of ``READERS`` where its cells are numbers, "label" for words

    @property
    def encoded(self) -> tuple[ColumnRecipe, ...]:
        return tuple(column for column in self.columns if column.kind != "dropped")

    def encode(self, table: RawTable) -> list[Column]:
        """Return the encoded columns of a table."""
        return [feature for column in self.encoded for feature in column.encode(table.columns[column.name])]

    def check(self, table: RawTable) -> None:
        """Raise ``ArgumentError`` with all problems of a new table."""
        problems = TableProblems(table)
        lacks = [column.name for column in self.encoded if column.name not in table.columns]
        if lacks:
            rule = f"have the columns that the run was trained with; {_listed(lacks)} missing"
            problems.add(rule, f"only {_listed(list(table.columns), most=8)}")
        for column in self.encoded:
            if column.name in lacks:
                continue
            raw = table.columns[column.name]
            if column.kind == "category":
                word = MISSING_CATEGORY in raw.words or (
                    MISSING_CATEGORY in column.categories and not column.missing
                )
                if word and (column.missing or raw.missing.any()):
                    _add_ambiguous(problems, column.name, " of this table and that of the run")
                continue
            values = raw.parse(column.kind)
            bad = np.flatnonzero(np.isinf(values) | (np.isnan(values) & ~raw.missing))
            content = "dates" if column.kind.startswith("date") else "numbers"
            problems.add_cells(f"hold {content} in column {column.name!r}", column.name, bad)
        problems.refuse()

    def unknown(self, table: RawTable) -> list[str] | None:
        """List the words of a new table that are not among the categories; None where columns are missing."""
        if any(column.name not in table.columns for column in self.encoded):
            return None
        return [
            cell
            for column in self.encoded
            if column.kind == "category"
            for cell in table.columns[column.name].words
            if cell is not None and cell not in column.categories
        ]

    def notes(self, table: RawTable) -> tuple[str, ...]:
        """Describe unknown categories and missing numbers of a new table, with their shares."""
        notes = [table.remark] if table.remark else []
        for column in self.encoded:
            raw = table.columns[column.name]
            if column.kind == "category":
                cells = [MISSING_CATEGORY if cell is None else cell for cell in raw.words]
                unknown = sorted(set(cells) - set(column.categories))
                if unknown:
                    share = sum(cell in unknown for cell in cells) / len(cells)
                    reason = f"a category that no row of the run had: {_listed(unknown)}"
                    notes.append(f"{share:.2%} of {column.name!r} count as unknown, {reason}.")
            elif not column.missing and raw.missing.any():
                share, fill = float(raw.missing.mean()), f"the training median, {column.median:.4g}"
                notes.append(f"{share:.2%} of {column.name!r} are missing: they get {fill}.")
        return tuple(notes)


def _add_ambiguous(problems: TableProblems, label: str, where: str = "") -> None:
    rule = f"have no category {MISSING_CATEGORY!r} in a column with missing values, which form that category"
    problems.add(rule, f"both in column {label!r}{where}; fill the missing values, or rename the category")


def _listed(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(truncate(name, 80) for name in names[:most])}{more}"


def from_frame(
    frame: Any,
    *,
    target: str | None = None,
    seed: int = 0,
    standardize: bool = True,
    options: TableOptions | None = None,
    name: str = "frame",
) -> SplitDataset:
    """Make a data set from a pandas, polars or Arrow frame, as ``load`` does from a CSV file.

    Args:
        target: the column to predict; the last one by default.
        options: treatment of missing values, categories and splits.

    >>> import pandas
    >>> frame = pandas.DataFrame({"age": [20.0, None, 40.0] * 10, "town": list("abc") * 10, "y": [0, 1] * 15})
    >>> from_frame(frame, target="y").feature_names
    ('age', 'age?=known', 'age?=missing', 'town=a', 'town=b', 'town=c')
    """
    chosen = options or TableOptions()
    chosen = chosen if target is None else replace(chosen, target=target)
    return make_data(frame_table(frame, name), chosen, seed=seed, standardize=standardize)


def make_data(
    raw: RawTable, options: TableOptions, *, seed: int = 0, standardize: bool = True
) -> SplitDataset:
    """Make a data set of a table: infer types, split, and scale by the training rows."""
    target = list(raw.columns)[-1] if options.target is None else options.target
    _require_column(raw, "target", target)
    problems = TableProblems(raw)
    if len(raw.columns) < 2:
        hint = separator_hint([target])
        problems.add("have a feature beside its target", f"only the column {target!r}{hint}")
    elif len(raw) < FEWEST_ROWS:
        problems.add(f"have at least {FEWEST_ROWS} rows", str(len(raw)))
    problems.refuse()
    for option, names in (("drop", options.dropped), ("categorical", options.categories)):
        for name in names:
            _require_column(raw, option, name, "name columns", but=target)
    columns = [
        _learn(label, column, options, problems) for label, column in raw.columns.items() if label != target
    ]
    targets, kind = _learn_targets(target, raw.columns[target], problems)
    if all(column.kind == "dropped" for column in columns) and not len(problems):
        reasons = "; ".join(f"{column.name} is {column.reason}" for column in columns[:4])
        problems.add("have at least one usable feature", f"none ({reasons})")
    problems.refuse()
    assert targets is not None
    rows = _split(raw, options, targets, seed)
    recipe = Recipe(tuple(_with_median(column, raw, rows) for column in columns), target, kind)
    unencoded = [column.unencoded(raw.columns[column.name]) for column in recipe.encoded]
    sha256 = digest_arrays(contents(unencoded, targets))
    data = table(raw.source, recipe.encode(raw), targets, rows, sha256=sha256, standardize=standardize)
    return replace(data, recipe=recipe)


def _require_column(
    raw: RawTable, option: str, name: str, rule: str = "be a column", but: str | None = None
) -> None:
    labels = [label for label in raw.columns if label != but]
    if name not in labels:
        columns = truncate(", ".join(labels), 1000)
        raise ArgumentError(f"`{option}` must {rule} of {raw.source}: {columns}; got {name!r}.")


def _learn(label: str, raw: RawColumn, options: TableOptions, problems: TableProblems) -> ColumnRecipe:
    """Infer the encoding of a column: a number, a date, a category, or none."""
    missing, distinct = raw.missing, raw.distinct
    recipe = ColumnRecipe(label, "dropped", int(missing.sum()), distinct)
    identifier = replace(recipe, reason="an identifier, different in every row")
    if label in options.dropped:
        return replace(recipe, reason="asked for")
    if distinct == 0 or (distinct == 1 and not missing.any()):
        return replace(recipe, reason="empty" if distinct == 0 else "constant")
    if options.missing == "refuse":
        remedy = "; leave --missing at median, or fill them"
        problems.add_cells("have no missing values", label, np.flatnonzero(missing), remedy)
    if label in options.categories:
        return _as_category(recipe, raw, problems)
    kind, count = raw.kind, int((~missing).sum())
    if kind is None:
        _check_slips(label, raw, problems)
        numbers = any(cell is not None and plain_number(cell) is not None for cell in raw.words)
        return identifier if distinct == count > _FEW and not numbers else _as_category(recipe, raw, problems)
    values = raw.parse(kind)
    present = values[~missing]
    if kind == "date, day first":
        month_first = raw.parse("date, month first")[~missing]
        if not np.isnan(month_first).any() and (month_first != present).any():
            rule = "have dates that can be read one way only, such as 2024-03-01"
            problems.add_cells(rule, label, np.flatnonzero(~missing)[:1])
    problems.add_cells("hold finite numbers", label, np.flatnonzero(np.isinf(values)))
    every_row_differs = distinct == count and bool((present == np.round(present)).all())
    if kind == "number" and every_row_differs and _IDENTIFIER.fullmatch(label):
        return identifier
    return replace(recipe, kind=kind)


def _as_category(recipe: ColumnRecipe, raw: RawColumn, problems: TableProblems) -> ColumnRecipe:
    words = raw.words
    if recipe.distinct > MOST_CATEGORIES:
        rows = (row for row, cell in enumerate(words) if cell is not None and plain_number(cell) is None)
        at = next(rows, 0)
        problems.add(
            f"have at most {MOST_CATEGORIES} categories in a column that is not numeric",
            f"{recipe.distinct} in column {recipe.name!r}, such as {words[at]!r} in "
            f"{problems.table.place(at)}; --drop the column if it is an identifier, or correct its numbers",
        )
    categories = sorted({cell for cell in words if cell is not None})
    if recipe.missing and MISSING_CATEGORY in categories:
        _add_ambiguous(problems, recipe.name)
    return replace(
        recipe, kind="category", categories=(*categories, *([MISSING_CATEGORY] if recipe.missing else []))
    )


def _check_slips(label: str, raw: RawColumn, problems: TableProblems) -> None:
    """Report typing errors that would turn a column of numbers or dates into categories."""
    present = {row: cell for row, cell in enumerate(raw.words) if cell is not None}
    for kind, read in READERS.items():
        slips = [row for row, cell in present.items() if read(cell) is None]
        if 2 * len(slips) < len(present):
            content = "dates" if kind.startswith("date") else "numbers"
            rule = f"hold {content} in a column most of whose cells are {content}"
            remedy = (
                f", where {len(present) - len(slips)} of {len(present)} are. Repair the cell; if they are "
                "categories, name the column in --categorical"
            )
            problems.add_cells(rule, label, np.array(slips), remedy)
            return


def _learn_targets(label: str, raw: RawColumn, problems: TableProblems) -> tuple[Targets | None, str]:
    """Infer labels or numbers, and the type of their cells; None if there is a problem."""
    before = len(problems)
    rule = "have no missing values in the target column: remove the rows without one"
    problems.add_cells(rule, label, np.flatnonzero(raw.missing))
    kind = "number" if raw.cells is None else raw.kind
    if kind is None:
        _check_slips(label, raw, problems)
    if kind is None or kind.startswith("date"):
        if raw.distinct > MOST_LABELS and len(problems) == before:
            rule = f"have numbers, or at most {MOST_LABELS} different labels, in the target column {label!r}"
            problems.add(rule, f"{raw.distinct} labels")
        kind = "label"
    if raw.distinct < 2:
        problems.add("have at least 2 different targets", str(raw.distinct))
    values = np.array(list(raw.words)) if kind == "label" else raw.parse(kind)
    if kind != "label":
        problems.add_cells("hold finite numbers", label, np.flatnonzero(np.isinf(values)))
    if len(problems) > before:
        return None, kind
    if kind == "label":
        return labelled(problems.table.source, values), kind
    distinct = np.unique(values)
    if len(distinct) <= MOST_LABELS and (distinct == np.round(distinct)).all():
        # Named as whole numbers whether the file says 3 or 3.0.
        names = tuple(f"{value:.0f}" for value in distinct)
        return replace(labelled(problems.table.source, values), class_names=names), kind
    return Targets(values), kind


def _with_median(column: ColumnRecipe, raw: RawTable, rows: Mapping[str, Tensor]) -> ColumnRecipe:
    """Add the median of the training rows, for missing values; 0 if none of them has a value."""
    if column.kind in ("dropped", "category"):
        return column
    values = raw.columns[column.name].parse(column.kind)[rows["train"].numpy()]
    present = values[~np.isnan(values)]
    return replace(column, median=float(np.median(present)) if len(present) else 0.0)


def _split(raw: RawTable, options: TableOptions, targets: Targets, seed: int) -> dict[str, Tensor]:
    source, by, way = raw.source, options.split_by, options.split
    if by is None:
        if way != "stratified":
            return in_fifths(source, len(raw), seed)
        rule = "be stratified for labels only"
        require(targets.classes is not None, "split", rule, f"{source}, a regression")
        return split_by(source, seed, way, targets.values)
    _require_column(raw, "split_by", by)
    column = raw.columns[by]
    problems = TableProblems(raw)
    problems.add_cells("have a value to split by in every row", by, np.flatnonzero(column.missing))
    problems.refuse()
    kind = column.kind
    way = way or ("time" if (kind or "").startswith("date") else "group")
    if way == "group":
        return split_by(source, seed, way, np.array(list(column.words)))
    if kind is None:
        rule = "be a column of dates or numbers to split by time"
        raise ArgumentError(f"`split_by` must {rule}; got {by!r}.")
    return split_by(source, seed, way, column.parse(kind))


def table(
    name: str,
    columns: Sequence[Column],
    targets: Targets,
    rows: dict[str, Tensor],
    *,
    sha256: str,
    standardize: bool = True,
    later: Mapping[str, Tensor] | None = None,
) -> SplitDataset:
    """Make a data set of (n, features) float32 inputs. All rows, also those of ``later`` samples, are scaled
    by the training rows; without ``standardize``, numbers and targets stay as they are."""
    train = rows["train"].numpy()
    scaling: list[tuple[float, float]] = []
    for column in columns:
        numeric = standardize and column.categories is None
        scaling += [_scale(column.values, train)] if numeric else [(0.0, 1.0)] * len(column.features)
    means, scales = (torch.tensor(part, dtype=torch.float64) for part in zip(*scaling, strict=True))
    target_scale = _scale(targets.values, train) if standardize and targets.classes is None else None
    values = targets.values if target_scale is None else standardise(targets.values, *target_scale)
    samples = Samples(
        as_float32(name, encode_columns(columns, means.numpy(), scales.numpy())),
        Targets(values, targets.classes).tensor(name),
        encoding=RowEncoding(_encoded_columns(columns), means, scales),
    )
    categorical = torch.tensor([column.categories is not None for column in columns for _ in column.features])
    mixed = bool(categorical.any())
    lower, upper = torch.where(categorical, 0.0, -math.inf), torch.where(categorical, 1.0, math.inf)
    units = "standard deviations" if standardize else "units of the features"
    return SplitDataset(
        name=name,
        **split_samples(samples, rows),
        domain=Box(lower, upper) if mixed else Unbounded(),
        classes=targets.classes,
        units=f"{units}, a changed category counting as 1" if mixed else units,
        weights=torch.where(categorical, ONE_HOT_WEIGHT, 1.0) if mixed else None,
        feature_names=tuple(feature for column in columns for feature in column.features),
        class_names=targets.class_names,
        input_scale=(means, scales) if standardize else None,
        target_scale=target_scale,
        later={key: samples[which] for key, which in (later or {}).items()},
        sha256=sha256,
    )


def contents(columns: Sequence[Column], targets: Targets) -> dict[str, Array]:
    """Return the source's numbers, codes and category names, for its digest."""
    arrays: dict[str, Array] = {"targets": targets.values, "classes": np.array(targets.class_names or ())}
    for column in columns:
        arrays[f"column:{column.name}"] = column.values
        if column.categories is not None:
            arrays[f"categories:{column.name}"] = np.array(column.categories)
    return arrays


def _scale(values: Array, train: Array) -> tuple[float, float]:
    """Return mean and standard deviation of the training rows; 1 in place of a deviation of 0."""
    fitted = values[train]
    # In units of the largest, so that no square overflows: an infinite deviation would turn all into zeros.
    unit = float(np.abs(fitted).max()) or 1.0
    mean, deviation = float((fitted / unit).mean()) * unit, float((fitted / unit).std()) * unit
    # The computed deviation of a constant need not be exactly 0, and that of tiny numbers may well be.
    constant = fitted.min() == fitted.max() or deviation == 0
    return mean, 1.0 if constant else deviation


def standardise(values: Array, mean: float, scale: float) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):  # refused by ``as_float32``, with a better message
        return (values - mean) / scale


def encode_columns(columns: Sequence[Column], means: Array, scales: Array) -> Array:
    """Encode columns as a (n, features) float32 matrix. An unknown category leaves its group at 0."""
    matrix = np.zeros((len(columns[0].values), len(means)), dtype=np.float32)
    start = 0
    for column in columns:
        if column.categories is None:
            with np.errstate(over="ignore"):
                matrix[:, start] = standardise(column.values, means[start], scales[start])
        else:
            known = np.flatnonzero(column.values >= 0)
            matrix[known, start + column.values[known].astype(np.int64)] = 1
        start += len(column.features)
    return matrix


def _encoded_columns(columns: Sequence[Column]) -> tuple[EncodedColumn, ...]:
    """Return the inputs that belong to each column of the table."""
    inputs: dict[str, tuple[list[int], list[int]]] = {}
    start = 0
    for column in columns:
        numbers, one_hot = inputs.setdefault(column.part_of or column.name, ([], []))
        places = numbers if column.categories is None else one_hot
        places += range(start, start + len(column.features))
        start += len(column.features)
    return tuple(
        EncodedColumn(name, "number" if len(numbers) == 1 else "date", tuple(numbers), tuple(one_hot))
        if numbers
        else EncodedColumn(name, "category", tuple(one_hot))
        for name, (numbers, one_hot) in inputs.items()
    )
