"""Kinds of columns, inferred from their cells, and data sets of tables.

All problems of a table are in one message, the worst first. A column is dropped, with a reason, if it is
constant, if the options say so, if it is a date (unless ``date_features`` ask for it), or if it is an
identifier: words that differ in every row, or whole numbers that do and have the name of an identifier or, in
more than 200 rows, are consecutive, sorted, or of one length of at least six digits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from certus.datasets.base import (
    FEWEST_ROWS,
    PARTS,
    Array,
    SplitDataset,
    Targets,
    digest_arrays,
    in_fifths,
    labelled,
    split_by,
)
from certus.datasets.cells import (
    Ambiguous,
    Reading,
    is_code,
    looks_numeric,
    parse_date,
    read_booleans,
)
from certus.datasets.encoding import (
    MISSING_CATEGORY,
    OTHER_CATEGORY,
    Column,
    ColumnRecipe,
    Recipe,
    add_ambiguous_category,
    contents,
    gap_remedy,
    table,
)
from certus.datasets.raw_table import RawColumn, RawTable, TableProblems, frame_table
from certus.errors import ArgumentError, require, truncate
from certus.table_options import TableOptions

MOST_LABELS = 50
_FEW = 20  # rows below which every row may have its own word
_MANY = 200  # rows above which whole numbers may be an identifier without its name
_IDENTIFIER = re.compile(r"(.*[_ ]|^)(id|uuid|guid|key|nr|index)|unnamed: \d+|.*[a-z]ID|row", re.IGNORECASE)


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
        add_ambiguous_category(problems, recipe.name)
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
                f", where {present - len(slips)} of {present} are{gap_remedy(raw, np.array(slips))}. "
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
