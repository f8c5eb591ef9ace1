"""Encoding of tables: recipes of columns, matrices of encoded rows, and rows in words again.

A numeric column x becomes (x − mean) / deviation, both of the training rows, so that moving it by one
standard deviation costs 1. A categorical column becomes one 0/1 column for each category, with weight ½:
changing the category moves two of them by 1 each and costs ½ + ½ = 1, as much as one standard deviation.

The domain keeps one-hot columns in [0, 1] and leaves numbers free. Training may use "half one category, half
another"; certificates are about rows.

A ``Recipe`` is learnt once, from the training table, and applied to every table that is read later: with the
same categories, medians and types of columns. An unknown category has all of its inputs at 0, unless there is
a category "(other)"; a missing number gets the training median. Both are reported with their shares. Missing
columns are named.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.data import EncodedColumn, RowEncoding, Samples, season
from certus.datasets.base import (
    Array,
    SplitDataset,
    Targets,
    as_float32,
    split_samples,
)
from certus.datasets.cells import (
    Ambiguous,
    Reading,
    Style,
    parse_date,
)
from certus.datasets.raw_table import RawColumn, RawTable, TableProblems
from certus.domains import Box, Unbounded
from certus.errors import ArgumentError, truncate
from certus.table_options import TableOptions

MISSING_CATEGORY = "(missing)"
"""The category of a missing word."""
OTHER_CATEGORY = "(other)"
"""The category of all words beyond the most frequent ones."""
ONE_HOT_WEIGHT = 0.5


@dataclass(frozen=True, eq=False)
class Column:
    """A column of (n,) finite numbers, or of (n,) codes into ``categories``, −1 for unknown ones."""

    name: str
    values: Array
    categories: tuple[str, ...] | None = None
    part_of: str = ""  # the column of the table that it was derived from
    kind: str = "number"  # "date" for the day of one, "season" for what follows from a date

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
    kind: str  # "number", "money", "percent", "date", "boolean", "category" or "dropped"
    missing: int  # missing values in the table that it was learnt from
    distinct: int  # different values there
    categories: tuple[str, ...] = ()  # of a category or a boolean, in order
    median: float = 0.0  # of the training rows of a number; missing values get it
    reason: str = ""  # why it is dropped
    style: Style = field(default_factory=Style)  # of its cells
    dates: tuple[str, ...] = ()  # the features of a date
    spellings: Mapping[str, str] = field(default_factory=dict)  # of a boolean: cell → category

    @property
    def discrete(self) -> bool:
        return self.kind in ("category", "boolean")

    @property
    def becomes(self) -> str:
        """Description of the encoding."""
        if self.kind == "dropped":
            return f"dropped: {self.reason}"
        if self.discrete:
            other = ", the rarest as (other)" if OTHER_CATEGORY in self.categories else ""
            return f"{len(self.categories)} one-hot columns{other}"
        parts = {"trend": "day", "season": "season"}
        text = " and ".join(parts[part] for part in self.dates) if self.kind == "date" else "a number"
        if self.kind == "date":
            text += f" ({('trend' in self.dates) + 2 * ('season' in self.dates)} numbers)"
        missing = f"; missing ones become {self.shown(self.median)}, with an indicator column"
        return text + missing if self.missing else text

    def shown(self, value: float) -> str:
        """Write a number as the column does."""
        return self.style.date(round(value)) if self.kind == "date" else self.style.number(value)

    def category(self, cell: str | None) -> str:
        """The category of a cell, which need not be among ``categories``."""
        word = MISSING_CATEGORY if cell is None else self.spellings.get(cell, cell)
        return OTHER_CATEGORY if word not in self.categories and OTHER_CATEGORY in self.categories else word

    def read(self, raw: RawColumn, options: TableOptions | None = None) -> Array:
        """Return (n,) float64 numbers, NaN where a cell is missing or of another type."""
        options = options or TableOptions()
        reading = raw.read(options, self.style)
        if isinstance(reading, Reading) and (reading.kind == "date") == (self.kind == "date"):
            return raw.parse(reading)
        cells = {cell: _single(cell, self.kind == "date", options, self.style) for cell in raw.counts}
        return Reading(self.kind, {cell: math.nan if v is None else v for cell, v in cells.items()}).numbers(
            raw.words
        )

    def unencoded(self, raw: RawColumn, options: TableOptions | None = None) -> Column:
        """Return the column with NaN or the category of missing values where a value is missing."""
        if not self.discrete:
            return Column(self.name, self.read(raw, options))
        codes_of = {category: code for code, category in enumerate(self.categories)}
        codes = [codes_of.get(self.category(cell), -1) for cell in raw.words]
        return Column(self.name, np.array(codes, dtype=np.int64), self.categories)

    def encode(self, raw: RawColumn, options: TableOptions | None = None) -> list[Column]:
        """Return the encoded columns."""
        column = self.unencoded(raw, options)
        if self.discrete:
            return [column]
        missing = np.isnan(column.values)
        filled = np.where(missing, self.median, column.values)
        columns = [Column(self.name, filled, kind="date" if self.dates else "number")]
        if "season" in self.dates:
            waves = zip(("winter", "spring"), season(torch.from_numpy(filled)), strict=True)
            columns += [
                Column(f"{self.name} ({part})", wave.numpy(), None, self.name, "season")
                for part, wave in waves
            ]
        if self.dates and "trend" not in self.dates:
            columns = [replace(each, part_of=self.name) for each in columns[1:]]
        if self.missing:
            marks = missing.astype(np.int64)
            columns.append(Column(f"{self.name}?", marks, ("known", "missing"), part_of=self.name))
        return columns


def _single(cell: str, date: bool, options: TableOptions, style: Style) -> float | None:
    """A cell of a column that is not all of one type."""
    if date:
        return parse_date(cell, style.day_first is not False, options.date_format)
    reading = RawColumn([cell]).read(options, style)
    return reading.values.get(cell) if isinstance(reading, Reading) and reading.kind != "date" else None


@dataclass(frozen=True)
class Recipe:
    """Encoding of all columns of a table except the target, in their order."""

    columns: tuple[ColumnRecipe, ...]
    target: str  # the column that is predicted
    target_recipe: ColumnRecipe  # its ``kind`` is "label" for words, "boolean" for yes and no

    @property
    def encoded(self) -> tuple[ColumnRecipe, ...]:
        return tuple(column for column in self.columns if column.kind != "dropped")

    def encode(self, table: RawTable, options: TableOptions | None = None) -> list[Column]:
        """Return the encoded columns of a table."""
        return [
            each for column in self.encoded for each in column.encode(table.columns[column.name], options)
        ]

    def check(self, table: RawTable, options: TableOptions | None = None) -> None:
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
            if column.discrete:
                word = MISSING_CATEGORY in raw.words or (
                    MISSING_CATEGORY in column.categories and not column.missing
                )
                if word and (column.missing or raw.missing.any()):
                    add_ambiguous_category(problems, column.name, " of this table and that of the run")
                continue
            reading = raw.read(options or TableOptions(), column.style)
            if isinstance(reading, Ambiguous):
                problems.add_ambiguous(column.name, reading)
                continue
            if (
                isinstance(reading, Reading)
                and reading.kind != column.kind
                and "percent" in (reading.kind, column.kind)
            ):
                first = np.flatnonzero(~raw.missing)
                unit = "percentages" if column.kind == "percent" else "no percentages"
                problems.add_cells(
                    f"hold {unit} in column {column.name!r}, as the run's table did", column.name, first
                )
                continue
            values = column.read(raw, options)
            bad = np.flatnonzero(np.isinf(values) | (np.isnan(values) & ~raw.missing))
            content = "dates" if column.kind == "date" else "numbers"
            remedy = gap_remedy(raw, bad)
            problems.add_cells(f"hold {content} in column {column.name!r}", column.name, bad, remedy)
        problems.refuse()

    def unknown(self, table: RawTable) -> list[str] | None:
        """List the words of a new table that are not among the categories; None where columns are missing."""
        if any(column.name not in table.columns for column in self.encoded):
            return None
        return [
            cell
            for column in self.encoded
            if column.discrete
            for cell in table.columns[column.name].words
            if cell is not None and column.spellings.get(cell, cell) not in column.categories
        ]

    def notes(self, table: RawTable) -> tuple[str, ...]:
        """Describe unknown categories and missing numbers of a new table, with their shares."""
        notes = [table.remark] if table.remark else []
        for column in self.encoded:
            raw = table.columns[column.name]
            if column.discrete:
                cells = [column.category(cell) for cell in raw.words]
                unknown = sorted(set(cells) - set(column.categories))
                if unknown:
                    share = sum(cell in unknown for cell in cells) / len(cells)
                    reason = f"a category that no row of the run had: {_listed(unknown)}"
                    notes.append(f"{share:.2%} of {column.name!r} count as unknown, {reason}.")
            elif not column.missing and raw.missing.any():
                share, fill = float(raw.missing.mean()), f"the training median, {column.shown(column.median)}"
                notes.append(f"{share:.2%} of {column.name!r} are missing: they get {fill}.")
        return tuple(notes)


def gap_remedy(raw: RawColumn, rows: Array) -> str:
    """The option for a cell that may mark missing values: the most frequent of those that do not fit."""
    cells = Counter(raw.words[row] for row in rows.tolist() if raw.words[row] is not None)
    if not cells:
        return ""
    cell, count = cells.most_common(1)[0]
    assert cell is not None
    short = len(cell) <= 12 and (cell[:1] in "<>" or not any(sign.isdigit() for sign in cell))
    again = f" ({count} times)" if count > 1 else ""
    return f". If {cell!r}{again} marks a missing value, give --na={shlex.quote(cell)}" if short else ""


def add_ambiguous_category(problems: TableProblems, label: str, where: str = "") -> None:
    rule = f"have no category {MISSING_CATEGORY!r} in a column with missing values, which form that category"
    problems.add(rule, f"both in column {label!r}{where}; fill the missing values, or rename the category", 1)


def _listed(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(truncate(name, 80) for name in names[:most])}{more}"


def decode_rows(data: SplitDataset, inputs: Tensor) -> dict[str, list[str]]:
    """Write (n, features) encoded rows in the columns, units and formats of the table that they come from.

    Columns that are no features are left out. A missing value is an empty cell, an unknown category "(new)".
    """
    recipe, encoding = data.recipe, data.train.encoding
    if recipe is None or encoding is None:
        raise ArgumentError(f"`data` must be a table with named columns; got {data.name}.")
    raw = inputs.detach().cpu().double() * encoding.scales + encoding.means
    columns: dict[str, list[str]] = {}
    for column, encoded in zip(recipe.encoded, encoding.columns, strict=True):
        part = raw[:, list(encoded.inputs)]
        if column.discrete:
            words = [*column.categories, "(new)"]
            codes = torch.where(part.amax(1) > 0.5, part.argmax(1), len(column.categories))
            cells = ["" if words[code] == MISSING_CATEGORY else words[code] for code in codes.tolist()]
        elif encoded.kind == "season":
            cells = [f"{_day_of_year(*pair):%d %B}" for pair in part.tolist()]
        else:
            cells = [column.shown(value) for value in part[:, 0].tolist()]
        if encoded.mark:
            gaps = raw[:, encoded.mark[1]] > 0.5
            cells = ["" if gap else cell for gap, cell in zip(gaps.tolist(), cells, strict=True)]
        columns[column.name] = cells
    return columns


def _day_of_year(winter: float, spring: float) -> Any:
    """A date of 1970 with these cosine and sine of its season."""
    import datetime

    turn = math.atan2(spring, winter) / (2 * math.pi) % 1
    return datetime.date(1970, 1, 1) + datetime.timedelta(days=int(turn * 365))


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
            rows = np.flatnonzero(column.values >= 0)
            matrix[rows, start + column.values[rows].astype(np.int64)] = 1
        start += len(column.features)
    return matrix


def _encoded_columns(columns: Sequence[Column]) -> tuple[EncodedColumn, ...]:
    """Return the inputs that belong to each column of the table."""
    inputs: dict[str, tuple[list[int], list[int]]] = {}
    kinds: dict[str, str] = {}
    start = 0
    for column in columns:
        kinds.setdefault(column.part_of or column.name, column.kind)
        numbers, one_hot = inputs.setdefault(column.part_of or column.name, ([], []))
        places = numbers if column.categories is None else one_hot
        places += range(start, start + len(column.features))
        start += len(column.features)
    return tuple(
        EncodedColumn(name, kinds[name], tuple(numbers), tuple(one_hot))
        if numbers
        else EncodedColumn(name, "category", tuple(one_hot))
        for name, (numbers, one_hot) in inputs.items()
    )
