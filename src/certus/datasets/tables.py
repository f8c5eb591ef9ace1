"""Encodings of tables, learnt from their cells, and data sets of encoded tables.

All problems of a table are in one message, the worst first. A column is dropped, with a reason, if it is
constant, if the options say so, if it is a date (unless ``date_features`` ask for it), or if it is an
identifier: words that differ in every row, or whole numbers that do and have the name of an identifier or, in
more than 200 rows, are consecutive, sorted, or of one length of at least six digits.

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
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.data import EncodedColumn, RowEncoding, Samples, season
from certus.datasets.base import (
    FEWEST_ROWS,
    PARTS,
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
from certus.datasets.cells import (
    Ambiguous,
    Reading,
    Style,
    is_code,
    looks_numeric,
    parse_date,
    read_booleans,
)
from certus.datasets.raw_table import RawColumn, RawTable, TableProblems, frame_table
from certus.domains import Box, Unbounded
from certus.errors import ArgumentError, require, truncate
from certus.table_options import TableOptions

MISSING_CATEGORY = "(missing)"
"""The category of a missing word."""
OTHER_CATEGORY = "(other)"
"""The category of all words beyond the most frequent ones."""
MOST_LABELS = 50
ONE_HOT_WEIGHT = 0.5
_FEW = 20  # rows below which every row may have its own word
_MANY = 200  # rows above which whole numbers may be an identifier without its name
_IDENTIFIER = re.compile(r"(.*[_ ]|^)(id|uuid|guid|key|nr|index)|unnamed: \d+|.*[a-z]ID|row", re.IGNORECASE)


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
                    _add_ambiguous_category(problems, column.name, " of this table and that of the run")
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
            remedy = _gap_remedy(raw, bad)
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


def _gap_remedy(raw: RawColumn, rows: Array) -> str:
    """The option for a cell that may mark missing values: the most frequent of those that do not fit."""
    cells = Counter(raw.words[row] for row in rows.tolist() if raw.words[row] is not None)
    if not cells:
        return ""
    cell, count = cells.most_common(1)[0]
    assert cell is not None
    short = len(cell) <= 12 and (cell[:1] in "<>" or not any(sign.isdigit() for sign in cell))
    again = f" ({count} times)" if count > 1 else ""
    return f". If {cell!r}{again} marks a missing value, give --na={shlex.quote(cell)}" if short else ""


def _add_ambiguous_category(problems: TableProblems, label: str, where: str = "") -> None:
    rule = f"have no category {MISSING_CATEGORY!r} in a column with missing values, which form that category"
    problems.add(rule, f"both in column {label!r}{where}; fill the missing values, or rename the category", 1)


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
    return make_data(frame_table(frame, name, chosen), chosen, seed=seed, standardize=standardize)


@dataclass(frozen=True)
class LearntTable:
    """Encoding of each column of a table, and its problems.

    Attributes:
        columns: of all but the target, without medians; target: None where it has a problem.
        problems: why it is refused, the worst first.
    """

    columns: tuple[ColumnRecipe, ...]
    target: ColumnRecipe
    targets: Targets | None
    problems: TableProblems


def learn_table(raw: RawTable, options: TableOptions) -> LearntTable:
    """Infer the type of every column; raise for options that do not fit."""
    target = list(raw.columns)[-1] if options.target is None else options.target
    _require_column(raw, "target", target)
    problems = TableProblems(raw)
    if len(raw.columns) < 2:
        content = f"only the column {target!r}; give --separator if it is not {options.separator or ','!r}"
        problems.add("have a feature beside its target", content)
    elif len(raw) < FEWEST_ROWS:
        problems.add(f"have at least {FEWEST_ROWS} rows", str(len(raw)))
    problems.refuse()
    named = {"drop": options.dropped, "keep": options.kept, "categorical": options.categories}
    for option, names in named.items():
        for name in names:
            _require_column(raw, option, name, "name columns", but=target)
    columns = [
        _learn(label, column, options, problems) for label, column in raw.columns.items() if label != target
    ]
    targets, recipe = _learn_targets(target, raw.columns[target], options, problems)
    if all(column.kind == "dropped" for column in columns) and not len(problems):
        reasons = "; ".join(f"{column.name} is {column.reason}" for column in columns[:4])
        problems.add("have at least one usable feature", f"none ({reasons})")
    return LearntTable(tuple(columns), recipe, targets, problems)


def make_data(
    raw: RawTable, options: TableOptions, *, seed: int = 0, standardize: bool = True
) -> SplitDataset:
    """Make a data set of a table: infer types, split, and scale by the training rows."""
    learnt = learn_table(raw, options)
    learnt.problems.refuse()
    targets = learnt.targets
    assert targets is not None
    rows = _split(raw, options, targets, seed)
    columns = tuple(_with_median(column, raw, rows, options) for column in learnt.columns)
    recipe = Recipe(columns, learnt.target.name, learnt.target)
    unencoded = [column.unencoded(raw.columns[column.name], options) for column in recipe.encoded]
    sha256 = digest_arrays(contents(unencoded, targets))
    data = table(
        raw.source, recipe.encode(raw, options), targets, rows, sha256=sha256, standardize=standardize
    )
    notes = [raw.remark] * bool(raw.remark)
    return replace(data, recipe=recipe, notes=(*notes, *warnings_of(raw, recipe, unencoded, targets, rows)))


def _require_column(
    raw: RawTable, option: str, name: str, rule: str = "be a column", but: str | None = None
) -> None:
    labels = [label for label in raw.columns if label != but]
    if name not in labels:
        columns = truncate(", ".join(labels), 1000)
        raise ArgumentError(f"`{option}` must {rule} of {raw.source}: {columns}; got {name!r}.")


def _learn(label: str, raw: RawColumn, options: TableOptions, problems: TableProblems) -> ColumnRecipe:
    """Infer the encoding of a column: a number, a date, a boolean, a category, or none."""
    missing, distinct = raw.missing, raw.distinct
    recipe = ColumnRecipe(label, "dropped", int(missing.sum()), distinct)
    identifier = replace(recipe, reason="an identifier, different in every row (--keep keeps it)")
    if label in options.dropped:
        return replace(recipe, reason="asked for")
    if distinct == 0 or (distinct == 1 and not missing.any()):
        return replace(recipe, reason="empty" if distinct == 0 else "constant")
    if options.missing == "refuse":
        remedy = "; leave --missing at median, or fill them"
        problems.add_cells("have no missing values", label, np.flatnonzero(missing), remedy)
    if label in options.categories:
        return _as_category(recipe, raw, options, problems)
    if spellings := read_booleans(raw.counts):
        return _as_category(replace(recipe, spellings=spellings), raw, options, problems)
    reading, count = raw.read(options), int((~missing).sum())
    if isinstance(reading, Ambiguous):
        problems.add_ambiguous(label, reading)
        return recipe
    kept = label in options.kept
    if reading is None:
        if _check_slips(label, raw, options, problems):
            return recipe
        if distinct == count > _FEW and not kept:
            return identifier
        return _as_category(recipe, raw, options, problems)
    recipe = replace(recipe, kind=reading.kind, style=reading.style)
    values = raw.parse(reading)
    problems.add_cells("hold finite numbers", label, np.flatnonzero(np.isinf(values)))
    if reading.kind == "date":
        if not options.dates:
            reason = "a date, which can order and split (--split-by); --date-features trend,season uses it"
            return replace(recipe, kind="dropped", reason=reason)
        return replace(recipe, dates=options.dates)
    if not kept and reading.kind == "number" and _is_identifier(label, values[~missing]):
        return identifier
    return recipe


def _is_identifier(label: str, values: Array) -> bool:
    """Whether whole numbers that all differ look like an identifier."""
    whole = bool(np.isfinite(values).all() and (values == np.round(values)).all())
    if not whole or len(np.unique(values)) < len(values):
        return False
    if _IDENTIFIER.fullmatch(label):
        return True
    steps = np.diff(values)
    consecutive = values.max() - values.min() == len(values) - 1
    ordered = bool((steps > 0).all() or (steps < 0).all())
    lengths = {len(f"{abs(value):.0f}") for value in (values.min(), values.max())}
    return len(values) > _MANY and (consecutive or ordered or (len(lengths) == 1 and lengths.pop() >= 6))


def _as_category(
    recipe: ColumnRecipe, raw: RawColumn, options: TableOptions, problems: TableProblems
) -> ColumnRecipe:
    words = Counter({recipe.spellings.get(cell, cell): 0 for cell in raw.counts})
    for cell, count in raw.counts.items():
        words[recipe.spellings.get(cell, cell)] += count
    if recipe.missing and MISSING_CATEGORY in words:
        _add_ambiguous_category(problems, recipe.name)
    chosen = sorted(words)
    if len(chosen) > options.max_categories:
        ranked = sorted(words, key=lambda word: (-words[word], word))
        chosen = [*sorted(set(ranked[: options.max_categories - 1]) - {OTHER_CATEGORY}), OTHER_CATEGORY]
    kind = "boolean" if recipe.spellings else "category"
    return replace(recipe, kind=kind, categories=(*chosen, *([MISSING_CATEGORY] if recipe.missing else [])))


def _check_slips(label: str, raw: RawColumn, options: TableOptions, problems: TableProblems) -> bool:
    """Report typing errors that would turn a column of numbers or dates into categories; return whether."""
    if any(map(is_code, raw.counts)):
        return False
    present = sum(raw.counts.values())
    tests = (
        ("numbers", looks_numeric),
        ("dates", lambda cell: parse_date(cell, True, options.date_format) is not None),
    )
    for content, fits in tests:
        wrong = {cell for cell in raw.counts if not fits(cell)}
        slips = [row for row, cell in enumerate(raw.words) if cell in wrong]
        rule = f"hold {content} in a column most of whose cells are {content}"
        if not slips and content == "numbers":  # each is a number, but under no one convention
            rule = "write its numbers in one convention, 1,234.5 or 1.234,5"
            rows = [row for row, cell in enumerate(raw.words) if cell is not None and "," in cell]
            problems.add_cells(rule, label, np.array(rows), "; correct the others, or --drop the column")
            return True
        if 2 * len(slips) < present:
            remedy = (
                f", where {present - len(slips)} of {present} are{_gap_remedy(raw, np.array(slips))}. "
                "Repair the cell; if they are categories, name the column in --categorical"
            )
            problems.add_cells(rule, label, np.array(slips), remedy)
            return True
    return False


def _learn_targets(
    label: str, raw: RawColumn, options: TableOptions, problems: TableProblems
) -> tuple[Targets | None, ColumnRecipe]:
    """Infer labels or numbers, and the type of their cells; None if there is a problem."""
    before = len(problems)
    rule = "have no missing values in the target column: remove the rows without one"
    problems.add_cells(rule, label, np.flatnonzero(raw.missing))
    recipe = ColumnRecipe(label, "label", int(raw.missing.sum()), raw.distinct)
    if spellings := read_booleans(raw.counts):
        recipe = replace(recipe, kind="boolean", spellings=spellings)
    reading = None if spellings else raw.read(options)
    if isinstance(reading, Ambiguous):
        problems.add_ambiguous(label, reading)
    elif reading is None and not spellings:
        _check_slips(label, raw, options, problems)
    words = reading is None or (isinstance(reading, Reading) and reading.kind == "date")
    if words and raw.distinct > MOST_LABELS and len(problems) == before:
        rule = f"have numbers, or at most {MOST_LABELS} different labels, in the target column {label!r}"
        problems.add(rule, f"{raw.distinct} labels")
    if raw.distinct < 2:
        problems.add("have at least 2 different targets", str(raw.distinct))
    if isinstance(reading, Reading) and not words:
        recipe = replace(recipe, kind=reading.kind, style=reading.style)
        values = raw.parse(reading)
        problems.add_cells("hold finite numbers", label, np.flatnonzero(np.isinf(values)))
    if len(problems) > before:
        return None, recipe
    if words:
        names = np.array([recipe.spellings.get(str(word), str(word)) for word in raw.words])
        return labelled(problems.table.source, names), recipe
    distinct = np.unique(values)
    if len(distinct) <= MOST_LABELS and (distinct == np.round(distinct)).all():
        # Named as whole numbers whether the file says 3 or 3.0.
        whole = tuple(f"{value:.0f}" for value in distinct)
        return replace(labelled(problems.table.source, values), class_names=whole), recipe
    return Targets(values), recipe


_SURE = 0.995  # of a single column: a leak
_MOST_TRIED = 5000  # rows


def warnings_of(
    raw: RawTable, recipe: Recipe, columns: Sequence[Column], targets: Targets, rows: Mapping[str, Tensor]
) -> Iterator[str]:
    """Yield what looks like a leak, an identifier or a duplicate across splits."""
    train = rows["train"].numpy()[:_MOST_TRIED]
    for column, values in zip(recipe.encoded, columns, strict=True):
        share = _single_score(
            values.values[train], values.categories is not None, targets.values[train], targets.classes
        )
        if share >= _SURE:
            what = "balanced accuracy" if targets.classes else "R²"
            yield (
                f"Leak? {column.name!r} alone predicts {recipe.target!r} with {what} {share:.3f}. If it is "
                f"known only afterwards, --drop {column.name}."
            )
        present = len(raw) - column.missing
        if column.kind == "number" and column.distinct == present > _FEW and _whole(raw.columns[column.name]):
            yield f"Identifier? Every row has its own {column.name!r}; --drop {column.name} if it is one."
        elif column.kind == "category" and column.distinct > max(_FEW, present // 2):
            yield (
                f"Identifier? {column.name!r} has {column.distinct} different words in {present} rows; "
                f"--drop {column.name} if they are names."
            )
    keys = list(zip(*(raw.columns[column.name].words for column in recipe.encoded), strict=True))
    seen = {keys[row] for row in rows["train"].tolist()}
    for part in PARTS[1:]:
        again = sum(keys[row] in seen for row in rows[part].tolist())
        if again and 4 * len({*keys}) > len(keys):  # in a table of few values rows repeat by chance
            yield f"Duplicates: {again} of {len(rows[part])} {part} rows have a twin among the training rows."


def _whole(raw: RawColumn) -> bool:
    return all("." not in word and "," not in word for word in raw.counts)


def _single_score(values: Array, discrete: bool, targets: Array, classes: int | None) -> float:
    """Return balanced accuracy or R² of one column as the only feature, on rows left out of the fit."""
    from sklearn.metrics import balanced_accuracy_score, r2_score
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    half = len(values) // 2
    numbers = np.nan_to_num(values.astype(np.float64), nan=-1e30)
    inputs = (numbers[:, None] == np.unique(numbers)[None]).astype(float) if discrete else numbers[:, None]
    fewest = min(len(np.unique(part)) for part in (targets[:half], targets[half:]))
    if half < _FEW or fewest < 2 or 5 * (classes or 1) > half:
        return 0.0
    with np.errstate(all="ignore"):
        inputs = inputs.clip(-3e38, 3e38)
    kind = DecisionTreeRegressor if classes is None else DecisionTreeClassifier
    tree = kind(max_leaf_nodes=64, random_state=0).fit(inputs[:half], targets[:half])
    guesses = tree.predict(inputs[half:])
    score = r2_score if classes is None else balanced_accuracy_score
    if classes is not None and not set(np.unique(guesses)) <= set(np.unique(targets[half:])):
        return float(np.mean(guesses == targets[half:])) - 0.01
    return float(score(targets[half:], guesses))


def _with_median(
    column: ColumnRecipe, raw: RawTable, rows: Mapping[str, Tensor], options: TableOptions
) -> ColumnRecipe:
    """Add the median of the training rows, for missing values; 0 if none of them has a value."""
    if column.kind == "dropped" or column.discrete:
        return column
    values = column.read(raw.columns[column.name], options)[rows["train"].numpy()]
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
    reading = column.read(options)
    if isinstance(reading, Ambiguous):
        problems.add_ambiguous(by, reading)
    problems.refuse()
    dated = isinstance(reading, Reading) and reading.kind == "date"
    way = way or ("time" if dated else "group")
    if way == "group":
        return split_by(source, seed, way, np.array(list(column.words)))
    if not isinstance(reading, Reading):
        rule = "be a column of dates or numbers to split by time"
        raise ArgumentError(f"`split_by` must {rule}; got {by!r}.")
    return split_by(source, seed, way, column.parse(reading))


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
