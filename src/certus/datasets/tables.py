"""Tables from files and data frames: types and encodings of columns, and the data set.

All problems of a table are reported in one message. A column is dropped, with a reason, if it is constant, if
the options say so, or if it is an identifier: words that differ in every row, or whole numbers that differ in
every row of a column with the name of an identifier.

A numeric column x becomes (x − mean) / deviation, both of the training rows, so that moving it by one
standard deviation costs 1. A categorical column becomes one 0/1 column for each category, with weight ½:
changing the category moves two of them by 1 each and costs ½ + ½ = 1, as much as one standard deviation.

The domain keeps one-hot columns in [0, 1] and leaves numbers free. It is a relaxation: a moved point may
be "half one category, half another". Every true category lies in it, so a bound over it also bounds those.
Data frames of pandas, polars and Arrow are read through narwhals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.data import EncodedColumn, RowEncoding, Samples
from certus.datasets.arrays import (
    FEWEST_ROWS,
    Array,
    Targets,
    digest_arrays,
    labelled,
    single,
    split_rows,
    why_not,
)
from certus.datasets.base import GAP, ColumnRecipe, Recipe, SplitDataset, ambiguous_gaps, split_samples
from certus.datasets.raw_table import (
    READERS,
    Column,
    Numeric,
    RawColumn,
    RawTable,
    TableProblem,
    kind_of,
    numbers_in,
    refuse,
    separator_hint,
    two_ways,
)
from certus.domains import Box, Domain, Unbounded
from certus.errors import ArgumentError, UnsupportedError, require, truncate
from certus.storage.files import open_regular
from certus.table_options import TableOptions

MOST_LABELS = 50
MOST_CATEGORIES = 100
_FEW = 20  # rows below which every row may have its own word
_NAMES_ITSELF = re.compile(r"(.*[_ ]|^)(id|uuid|guid|key|nr|index)|unnamed: \d+|.*[a-z]ID|row", re.IGNORECASE)


@dataclass
class TableFindings:
    """Problems of a table found so far."""

    table: RawTable
    problems: list[TableProblem]

    def add(self, rule: str, content: str) -> None:
        self.problems.append(TableProblem(rule, content))

    def at(self, label: str, rows: Array, what: object, rule: str, remedy: str = "") -> None:
        """Add a problem of some cells: the first of them, and their number."""
        more = f", and {len(rows) - 1} more like it" if len(rows) > 1 else ""
        self.add(rule, f"{what} in {self.table.place(label, int(rows[0]))}{more}{remedy}")


def make_data(
    raw: RawTable, options: TableOptions, *, seed: int = 0, standardize: bool = True
) -> SplitDataset:
    """Make a data set of a table: infer types, split, and scale by the training rows."""
    name = _target_name(raw, options)
    findings = TableFindings(raw, [])
    if len(raw.columns) < 2:
        findings.add("have a feature beside its target", f"only the column {name!r}{separator_hint([name])}")
        refuse(raw.source, findings.problems)
    if len(raw) < FEWEST_ROWS:
        findings.add(f"have at least {FEWEST_ROWS} rows", str(len(raw)))
        refuse(raw.source, findings.problems)
    for option, names in (("drop", options.dropped), ("categorical", options.categories)):
        for each in names:
            if each not in raw.columns or each == name:
                columns = truncate(", ".join(label for label in raw.columns if label != name), 1000)
                raise ArgumentError(f"`{option}` must name columns of {raw.source}: {columns}; got {each!r}.")
    learnt = [
        _learn(label, column, options, findings) for label, column in raw.columns.items() if label != name
    ]
    targets, kind = _learn_targets(name, raw.columns[name], findings)
    encoded = [one for one in learnt if one.kind != "dropped"]
    if not encoded and not findings.problems:
        reasons = "; ".join(f"{one.name} is {one.reason}" for one in learnt[:4])
        findings.add("have a feature that is of use", f"none ({reasons})")
    refuse(raw.source, findings.problems)
    assert targets is not None
    rows = _split(raw, options, targets, seed)
    recipe = Recipe(tuple(_with_median(one, raw, rows) for one in learnt), name, kind)
    bare = [one.bare(raw.columns[one.name]) for one in recipe.kept]
    data = table(
        raw.source,
        recipe.features(raw),
        targets,
        rows,
        sha256=digest_arrays(contents(bare, targets)),
        standardize=standardize,
    )
    return replace(data, recipe=recipe)


def _target_name(raw: RawTable, options: TableOptions) -> str:
    name = list(raw.columns)[-1] if options.target is None else options.target
    if name not in raw.columns:
        columns = truncate(", ".join(raw.columns), 1000)
        raise ArgumentError(f"`target` must be a column of {raw.source}: {columns}; got {name!r}.")
    return name


def _learn(label: str, raw: RawColumn, options: TableOptions, findings: TableFindings) -> ColumnRecipe:
    gaps, distinct = raw.gaps, raw.distinct
    recipe = ColumnRecipe(label, "dropped", int(gaps.sum()), distinct)
    if label in options.dropped:
        return replace(recipe, reason="asked for")
    if distinct == 0 or (distinct == 1 and not gaps.any()):
        return replace(recipe, reason="empty" if distinct == 0 else "constant")
    if options.missing == "refuse" and gaps.any():
        findings.at(label, np.flatnonzero(gaps), "none", "have no missing values", _FILL)
    if label in options.categories:
        return _as_category(recipe, raw, findings)
    kind = ("date" if raw.days else "number") if raw.cells is None else kind_of(raw.cells)
    if kind is None:
        return _learn_words(recipe, raw, findings)
    if raw.cells is not None and two_ways(raw.cells):
        rows = np.flatnonzero(~gaps)
        cell = raw.cells[int(rows[0])]
        findings.at(
            label, rows[:1], repr(cell), "have dates that can be read one way only, such as 2024-03-01"
        )
    values = raw.numbers if raw.numbers is not None else numbers_in(raw.cells or (), kind)
    _check_finite(label, raw, values, findings)
    present = values[~gaps]
    own = distinct == len(present) and bool((present == np.round(present)).all())
    if kind == "number" and own and _NAMES_ITSELF.fullmatch(label):
        return replace(recipe, reason="an identifier: every row has its own")
    return replace(recipe, kind=kind)


_FILL = "; leave --missing at median, or fill them"


def _check_finite(label: str, raw: RawColumn, values: Array, findings: TableFindings) -> None:
    bad = np.flatnonzero(np.isinf(values))
    if len(bad):
        findings.at(label, bad, raw.words[int(bad[0])], "hold finite numbers")


def _learn_words(recipe: ColumnRecipe, raw: RawColumn, findings: TableFindings) -> ColumnRecipe:
    """Infer the encoding of a column of words: categories, an identifier, or numbers with typing errors."""
    assert raw.cells is not None
    _check_slips(recipe.name, raw, findings)
    present = [cell for cell in raw.cells if cell is not None]
    numbers = sum(READERS["number"](cell) is not None for cell in present)
    if recipe.distinct == len(present) > _FEW and numbers == 0:
        return replace(recipe, reason="an identifier: every row has its own")
    return _as_category(recipe, raw, findings)


def _as_category(recipe: ColumnRecipe, raw: RawColumn, findings: TableFindings) -> ColumnRecipe:
    if recipe.distinct > MOST_CATEGORIES:
        words = [
            row for row, cell in enumerate(raw.words) if cell is not None and READERS["number"](cell) is None
        ]
        at = (words or [0])[0]
        line = f" (line {findings.table.lines[at]})" if len(findings.table.lines) else ""
        findings.add(
            f"have at most {MOST_CATEGORIES} categories in a column that is not numeric",
            f"{recipe.distinct} in column {recipe.name!r}, such as {raw.words[at]!r} in row {at + 1}{line}; "
            f"--drop it if it names or identifies, or repair its numbers",
        )
    categories = sorted({cell for cell in raw.words if cell is not None})
    if recipe.missing and GAP in categories:
        findings.problems.append(ambiguous_gaps(recipe.name))
    return replace(recipe, kind="category", categories=(*categories, *([GAP] if recipe.missing else [])))


def _check_slips(label: str, raw: RawColumn, findings: TableFindings) -> None:
    """Report typing errors that would turn a column of numbers or dates into categories."""
    cells = raw.cells or ()
    present = [row for row, cell in enumerate(cells) if cell is not None]
    for kind, read in READERS.items():
        slips = [row for row in present if read(cells[row] or "") is None]
        if 2 * len(slips) < len(present):
            what = "dates" if kind.startswith("date") else "numbers"
            count = len(present) - len(slips)
            findings.at(
                label,
                np.array(slips),
                repr(cells[slips[0]]),
                f"hold {what} in a column most of whose cells are {what}",
                f", where {count} of {len(present)} are. Repair the cell; if they are categories, name the "
                "column in --categorical",
            )
            return


def _learn_targets(label: str, raw: RawColumn, findings: TableFindings) -> tuple[Targets | None, str]:
    """Infer labels or numbers, and the type of their cells."""
    gaps, before = raw.gaps, len(findings.problems)
    if gaps.any():
        rule = "have no missing values in the target column: remove the rows without one"
        findings.at(label, np.flatnonzero(gaps), "none", rule)
    kind = "number" if raw.cells is None else kind_of(raw.cells)
    if kind is None or kind.startswith("date"):
        if kind is None:
            _check_slips(label, raw, findings)
        rule = f"have numbers, or at most {MOST_LABELS} different labels, in the target column {label!r}"
        if raw.distinct > MOST_LABELS and len(findings.problems) == before:
            findings.add(rule, f"{raw.distinct} labels")
        kind = "label"
    if raw.distinct < 2:
        findings.add("have at least 2 different targets", str(raw.distinct))
    values = None
    if kind != "label":
        values = raw.numbers if raw.numbers is not None else numbers_in(raw.cells or (), kind)
        _check_finite(label, raw, values, findings)
    if len(findings.problems) > before:
        return None, kind
    if values is None:
        return labelled(findings.table.source, np.array(list(raw.words))), kind
    distinct = np.unique(values)
    if len(distinct) <= MOST_LABELS and (distinct == np.round(distinct)).all():
        # Named as whole numbers whether the file says 3 or 3.0.
        names = tuple(f"{value:.0f}" for value in distinct)
        return replace(labelled(findings.table.source, values), class_names=names), kind
    return Targets(values), kind


def _with_median(one: ColumnRecipe, raw: RawTable, rows: Mapping[str, Tensor]) -> ColumnRecipe:
    """Add the median of the training rows, for gaps; 0 if none of them has a value."""
    if one.kind in ("dropped", "category"):
        return one
    values = one.values(raw.columns[one.name])[rows["train"].numpy()]
    present = values[~np.isnan(values)]
    return replace(one, median=float(np.median(present)) if len(present) else 0.0)


def _split(raw: RawTable, options: TableOptions, targets: Targets, seed: int) -> dict[str, Tensor]:
    by, way = options.split_by, options.split
    if by is None:
        labels = None if targets.classes is None else targets.values
        return split_rows(raw.source, len(raw), seed, way or "random", labels)
    if by not in raw.columns:
        known = truncate(", ".join(raw.columns), 1000)
        raise ArgumentError(f"`split_by` must be a column of {raw.source}: {known}; got {by!r}.")
    column = raw.columns[by]
    gaps = np.flatnonzero(column.gaps)
    if len(gaps):
        refuse(
            raw.source,
            [TableProblem("have a value to split by in every row", f"none in {raw.place(by, int(gaps[0]))}")],
        )
    kind = ("date" if column.days else "number") if column.cells is None else kind_of(column.cells)
    way = way or ("time" if (kind or "").startswith("date") else "group")
    if way == "time":
        if kind is None:
            raise ArgumentError(
                f"`split_by` must be a column of dates or numbers to split by time; got {by!r}."
            )
        moments = column.numbers if column.numbers is not None else numbers_in(column.cells or (), kind)
        return split_rows(raw.source, len(raw), seed, "time", moments)
    codes = np.unique(np.array(list(column.words)), return_inverse=True)[1]
    return split_rows(raw.source, len(raw), seed, "group", codes)


ONE_HOT_WEIGHT = 0.5


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
    """Make a data set of (n, features) float32 inputs, with the columns in the order given.

    Args:
        standardize: False leaves numeric columns and the targets of a regression as they are.
        later: name → row numbers of later samples; like all others they are scaled by the training rows.
    """
    train = rows["train"].numpy()
    means, scales = _feature_scale(columns, train, standardize)
    categorical = torch.tensor([flag for column in columns for flag in _one_hot_flags(column)])
    target_scale = _scale(targets.values, train) if standardize and targets.classes is None else None
    values = targets.values if target_scale is None else _standardise(targets.values, *target_scale)
    everything = Samples(
        single(name, encode_columns(columns, means.numpy(), scales.numpy())),
        Targets(values, targets.classes).tensor(name),
        encoding=RowEncoding(_groups(columns), means, scales),
    )
    return SplitDataset(
        name=name,
        **split_samples(everything, rows),
        domain=_domain(categorical),
        classes=targets.classes,
        units=_units(standardize, bool(categorical.any())),
        weights=torch.where(categorical, ONE_HOT_WEIGHT, 1.0) if categorical.any() else None,
        feature_names=tuple(label for column in columns for label in _labels(column)),
        class_names=targets.class_names,
        input_scale=(means, scales) if standardize else None,
        target_scale=target_scale,
        later={key: everything[which] for key, which in (later or {}).items()},
        rows=rows,
        sha256=sha256,
    )


def contents(columns: Sequence[Column], targets: Targets) -> dict[str, Array]:
    """Return the source's numbers, codes and category names, for its digest."""
    arrays: dict[str, Array] = {"targets": targets.values, "classes": np.array(targets.class_names or ())}
    for column in columns:
        if isinstance(column, Numeric):
            arrays[f"column:{column.name}"] = column.values
        else:
            arrays[f"column:{column.name}"] = column.codes
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


def _standardise(values: Array, mean: float, scale: float) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):  # refused by ``single``, with a better message
        return (values - mean) / scale


def _feature_scale(columns: Sequence[Column], train: Array, standardize: bool) -> tuple[Tensor, Tensor]:
    """Return means and scales of the encoded features, (features,) each; 0 and 1 if not standardised."""
    scales: list[tuple[float, float]] = []
    for column in columns:
        if isinstance(column, Numeric):
            scales.append(_scale(column.values, train) if standardize else (0.0, 1.0))
        else:
            scales.extend([(0.0, 1.0)] * len(column.categories))
    means, deviations = zip(*scales, strict=True)
    return torch.tensor(means, dtype=torch.float64), torch.tensor(deviations, dtype=torch.float64)


def encode_columns(columns: Sequence[Column], means: Array, scales: Array) -> Array:
    """Encode columns as a (n, features) float32 matrix. An unknown category leaves its group at 0."""
    first = columns[0]
    count = len(first.values if isinstance(first, Numeric) else first.codes)
    matrix = np.zeros((count, len(means)), dtype=np.float32)
    start = 0
    for column in columns:
        if isinstance(column, Numeric):
            with np.errstate(over="ignore"):
                matrix[:, start] = _standardise(column.values, means[start], scales[start])
            start += 1
        else:
            known = np.flatnonzero(column.codes >= 0)
            matrix[known, start + column.codes[known].astype(np.int64)] = 1
            start += len(column.categories)
    return matrix


def _groups(columns: Sequence[Column]) -> tuple[EncodedColumn, ...]:
    """Return the inputs that belong to each column of the table."""
    groups: dict[str, list[Column]] = {}
    places: dict[str, list[int]] = {}
    start = 0
    for column in columns:
        width, owner = len(_one_hot_flags(column)), column.part_of or column.name
        groups.setdefault(owner, []).append(column)
        places.setdefault(owner, []).extend(range(start, start + width))
        start += width
    encodings = []
    for name, parts in groups.items():
        if not isinstance(parts[0], Numeric):
            encodings.append(EncodedColumn(name, "category", tuple(places[name])))
            continue
        numbers = sum(isinstance(part, Numeric) for part in parts)
        kind = "number" if numbers == 1 else "date"
        encodings.append(
            EncodedColumn(name, kind, tuple(places[name][:numbers]), tuple(places[name][numbers:]))
        )
    return tuple(encodings)


def _one_hot_flags(column: Column) -> list[bool]:
    return [False] if isinstance(column, Numeric) else [True] * len(column.categories)


def _labels(column: Column) -> list[str]:
    if isinstance(column, Numeric):
        return [column.name]
    return [f"{column.name}={category}" for category in column.categories]


def _domain(categorical: Tensor) -> Domain:
    if not categorical.any():
        return Unbounded()
    return Box(torch.where(categorical, 0.0, -math.inf), torch.where(categorical, 1.0, math.inf))


def _units(standardize: bool, categorical: bool) -> str:
    numbers = "standard deviations" if standardize else "units of the features"
    return f"{numbers}, a changed category counting as 1" if categorical else numbers


_DAY = 86_400_000_000.0  # microseconds


def from_frame(
    frame: Any,
    *,
    target: str | None = None,
    seed: int = 0,
    standardize: bool = True,
    options: TableOptions | None = None,
    name: str = "frame",
) -> SplitDataset:
    """Make a data set of a pandas, polars or Arrow frame, as ``load`` does of a CSV file.

    Args:
        target: the column to predict; the last one by default.
        options: how gaps, categories and splits are treated.

    >>> import pandas
    >>> frame = pandas.DataFrame({"age": [20.0, None, 40.0] * 10, "town": list("abc") * 10, "y": [0, 1] * 15})
    >>> from_frame(frame, target="y").feature_names
    ('age', 'age?=known', 'age?=missing', 'town=a', 'town=b', 'town=c')
    """
    chosen = options or TableOptions()
    chosen = chosen if target is None else replace(chosen, target=target)
    return make_data(frame_table(frame, name), chosen, seed=seed, standardize=standardize)


def parquet_table(path: Path) -> RawTable:
    """Read the columns of a Parquet file."""
    source = f"parquet:{path}"
    try:
        from pyarrow import parquet
    except ImportError:
        raise UnsupportedError("Parquet files need pyarrow: pip install 'certus[frames]'.") from None
    try:
        with open_regular(path) as stream:
            frame = parquet.read_table(stream)
    except Exception as problem:  # whatever Arrow makes of damage
        raise ArgumentError(
            f"`{source}` must be a readable Parquet file; got {why_not(problem)}."
        ) from problem
    return frame_table(frame, source)


def frame_table(frame: Any, source: str) -> RawTable:
    """Return the columns of a frame: numbers and days unchanged, all others as words."""
    try:
        import narwhals
    except ImportError:
        raise UnsupportedError("Frames need narwhals: pip install 'certus[frames]'.") from None
    try:
        known = narwhals.from_native(frame, eager_only=True)
    except TypeError:
        rule = "be a pandas, polars or Arrow frame"
        raise ArgumentError(f"`frame` must {rule}; got {type(frame)}.") from None
    labels = [str(label) for label in known.columns]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    require(not twice, source, "have different column names", ", ".join(twice))
    return RawTable(source, {str(label): _column(narwhals, source, known[label]) for label in known.columns})


def _column(narwhals: Any, source: str, series: Any) -> RawColumn:
    kind = series.dtype
    if kind.is_integer() and _beyond_floats(series):
        gaps = series.is_null().to_list()
        return RawColumn(
            [None if gap else str(value) for value, gap in zip(series.to_list(), gaps, strict=True)]
        )
    if kind.is_numeric():
        values = series.cast(narwhals.Float64).to_numpy()
        return RawColumn(numbers=np.array(values, dtype=np.float64))
    if isinstance(kind, narwhals.Date | narwhals.Datetime):
        gaps = series.is_null().to_numpy().astype(bool)
        moments = series.cast(narwhals.Datetime("us")).dt.timestamp("us").to_numpy()
        days = np.where(gaps, np.nan, np.where(gaps, 0, moments).astype(np.float64) / _DAY)
        return RawColumn(numbers=days, days=True)
    if kind.is_nested():
        raise ArgumentError(f"`{source}` must hold numbers, words or dates; got {kind} in {series.name!r}.")
    cells = series.to_list()
    if any(isinstance(cell, complex) for cell in cells):
        raise ArgumentError(f"`{source}` must hold real numbers; got complex ones in {series.name!r}.")
    return RawColumn([_word(cell) for cell in cells])


def _beyond_floats(series: Any) -> bool:
    """Whether whole numbers exceed those that float64 distinguishes."""
    return any(value is not None and abs(int(value)) > 2**53 for value in (series.min(), series.max()))


def _word(cell: Any) -> str | None:
    """Return a cell as a word; None, NaN and NaT are gaps."""
    missing = cell is None or cell != cell
    return None if missing or str(cell).strip() == "" else str(cell).strip()
