"""How a table is understood: the kind of every column, what is dropped and why, and all that is wrong.

Whatever is wrong is said in one message. A column is dropped, with a word, if it is constant, if it was asked
for, or if it is an identifier: words of which every row has its own, or whole numbers of which every row has
its own in a column that is called one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from certus.data.arrays import Array
from certus.data.base import DataSet
from certus.data.cell_kinds import READERS, kind_of, numbers_in, two_ways
from certus.data.csv_file import separator_hint
from certus.data.raw_table import RawColumn, RawTable, TableProblem, refuse
from certus.data.recipe import GAP, ColumnRecipe, Recipe, ambiguous_gaps
from certus.data.splits import FEWEST_ROWS, digest_arrays, split_rows
from certus.data.tables import contents, table
from certus.data.targets import Targets, labelled
from certus.errors import ArgumentError, shortened
from certus.table_options import TableOptions

MOST_LABELS = 50
MOST_CATEGORIES = 100
_FEW = 20  # rows below which every row may have its own word
_NAMES_ITSELF = re.compile(r"(.*[_ ]|^)(id|uuid|guid|key|nr|index)|unnamed: \d+|.*[a-z]ID|row", re.IGNORECASE)


@dataclass
class TableFindings:
    """Problems so far."""

    table: RawTable
    problems: list[TableProblem]

    def add(self, rule: str, found: str) -> None:
        self.problems.append(TableProblem(rule, found))

    def at(self, label: str, rows: Array, what: object, rule: str, remedy: str = "") -> None:
        """A problem of some cells: the first of them, and how many there are."""
        more = f", and {len(rows) - 1} more like it" if len(rows) > 1 else ""
        self.add(rule, f"{what} in {self.table.place(label, int(rows[0]))}{more}{remedy}")


def make_data(raw: RawTable, options: TableOptions, *, seed: int = 0, standardize: bool = True) -> DataSet:
    """A table as a data set: understood, split, and scaled by its training rows."""
    name = _target_name(raw, options)
    found = TableFindings(raw, [])
    if len(raw.columns) < 2:
        found.add("have a feature beside its target", f"only the column {name!r}{separator_hint([name])}")
        refuse(raw.source, found.problems)
    if len(raw) < FEWEST_ROWS:
        found.add(f"have at least {FEWEST_ROWS} rows", str(len(raw)))
        refuse(raw.source, found.problems)
    for option, names in (("drop", options.dropped), ("categorical", options.categories)):
        for each in names:
            if each not in raw.columns or each == name:
                columns = shortened(", ".join(label for label in raw.columns if label != name), 1000)
                raise ArgumentError(f"`{option}` must name columns of {raw.source}: {columns}; got {each!r}.")
    learnt = [_learn(label, column, options, found) for label, column in raw.columns.items() if label != name]
    targets, kind = _learn_targets(name, raw.columns[name], found)
    kept = [one for one in learnt if one.kind != "dropped"]
    if not kept and not found.problems:
        reasons = "; ".join(f"{one.name} is {one.reason}" for one in learnt[:4])
        found.add("have a feature that is of use", f"none ({reasons})")
    refuse(raw.source, found.problems)
    assert targets is not None
    rows = _split(raw, options, targets, seed)
    recipe = Recipe(tuple(_with_median(one, raw, rows) for one in learnt), name, kind)
    bare = [one.bare(raw.columns[one.name]) for one in recipe.kept]
    made = table(
        raw.source,
        recipe.features(raw),
        targets,
        rows,
        sha256=digest_arrays(contents(bare, targets)),
        standardize=standardize,
    )
    return replace(made, recipe=recipe)


def _target_name(raw: RawTable, options: TableOptions) -> str:
    name = list(raw.columns)[-1] if options.target is None else options.target
    if name not in raw.columns:
        known = shortened(", ".join(raw.columns), 1000)
        raise ArgumentError(f"`target` must be a column of {raw.source}: {known}; got {name!r}.")
    return name


def _learn(label: str, raw: RawColumn, options: TableOptions, found: TableFindings) -> ColumnRecipe:
    gaps, distinct = raw.gaps, raw.distinct
    recipe = ColumnRecipe(label, "dropped", int(gaps.sum()), distinct)
    if label in options.dropped:
        return replace(recipe, reason="asked for")
    if distinct == 0 or (distinct == 1 and not gaps.any()):
        return replace(recipe, reason="empty" if distinct == 0 else "constant")
    if options.missing == "refuse" and gaps.any():
        found.at(label, np.flatnonzero(gaps), "none", "have no missing values", _FILL)
    if label in options.categories:
        return _as_category(recipe, raw, found)
    kind = ("date" if raw.days else "number") if raw.cells is None else kind_of(raw.cells)
    if kind is None:
        return _learn_words(recipe, raw, found)
    if raw.cells is not None and two_ways(raw.cells):
        rows = np.flatnonzero(~gaps)
        cell = raw.cells[int(rows[0])]
        found.at(label, rows[:1], repr(cell), "have dates that can be read one way only, such as 2024-03-01")
    values = raw.numbers if raw.numbers is not None else numbers_in(raw.cells or (), kind)
    _check_finite(label, raw, values, found)
    present = values[~gaps]
    own = distinct == len(present) and bool((present == np.round(present)).all())
    if kind == "number" and own and _NAMES_ITSELF.fullmatch(label):
        return replace(recipe, reason="an identifier: every row has its own")
    return replace(recipe, kind=kind)


_FILL = "; leave --missing at median, or fill them"


def _check_finite(label: str, raw: RawColumn, values: Array, found: TableFindings) -> None:
    bad = np.flatnonzero(np.isinf(values))
    if len(bad):
        found.at(label, bad, raw.words[int(bad[0])], "hold finite numbers")


def _learn_words(recipe: ColumnRecipe, raw: RawColumn, found: TableFindings) -> ColumnRecipe:
    """A column of words: categories, an identifier, or numbers with a slip."""
    assert raw.cells is not None
    _check_slips(recipe.name, raw, found)
    present = [cell for cell in raw.cells if cell is not None]
    numbers = sum(READERS["number"](cell) is not None for cell in present)
    if recipe.distinct == len(present) > _FEW and numbers == 0:
        return replace(recipe, reason="an identifier: every row has its own")
    return _as_category(recipe, raw, found)


def _as_category(recipe: ColumnRecipe, raw: RawColumn, found: TableFindings) -> ColumnRecipe:
    if recipe.distinct > MOST_CATEGORIES:
        words = [
            row for row, cell in enumerate(raw.words) if cell is not None and READERS["number"](cell) is None
        ]
        at = (words or [0])[0]
        line = f" (line {found.table.lines[at]})" if len(found.table.lines) else ""
        found.add(
            f"have at most {MOST_CATEGORIES} categories in a column that is not numeric",
            f"{recipe.distinct} in column {recipe.name!r}, such as {raw.words[at]!r} in row {at + 1}{line}; "
            f"--drop it if it names or identifies, or repair its numbers",
        )
    known = sorted({cell for cell in raw.words if cell is not None})
    if recipe.missing and GAP in known:
        found.problems.append(ambiguous_gaps(recipe.name))
    return replace(recipe, kind="category", categories=(*known, *([GAP] if recipe.missing else [])))


def _check_slips(label: str, raw: RawColumn, found: TableFindings) -> None:
    """A slip of the pen must not turn a column of numbers, or of dates, into categories."""
    cells = raw.cells or ()
    present = [row for row, cell in enumerate(cells) if cell is not None]
    for kind, read in READERS.items():
        slips = [row for row in present if read(cells[row] or "") is None]
        if 2 * len(slips) < len(present):
            what = "dates" if kind.startswith("date") else "numbers"
            count = len(present) - len(slips)
            found.at(
                label,
                np.array(slips),
                repr(cells[slips[0]]),
                f"hold {what} in a column most of whose cells are {what}",
                f", where {count} of {len(present)} are. Repair the cell; if they are categories, name the "
                "column in --categorical",
            )
            return


def _learn_targets(label: str, raw: RawColumn, found: TableFindings) -> tuple[Targets | None, str]:
    """Labels or numbers, and the kind of their cells."""
    gaps, before = raw.gaps, len(found.problems)
    if gaps.any():
        rule = "have no missing values in the target column: remove the rows without one"
        found.at(label, np.flatnonzero(gaps), "none", rule)
    kind = "number" if raw.cells is None else kind_of(raw.cells)
    if kind is None or kind.startswith("date"):
        if kind is None:
            _check_slips(label, raw, found)
        rule = f"have numbers, or at most {MOST_LABELS} different labels, in the target column {label!r}"
        if raw.distinct > MOST_LABELS and len(found.problems) == before:
            found.add(rule, f"{raw.distinct} labels")
        kind = "label"
    if raw.distinct < 2:
        found.add("have at least 2 different targets", str(raw.distinct))
    values = None
    if kind != "label":
        values = raw.numbers if raw.numbers is not None else numbers_in(raw.cells or (), kind)
        _check_finite(label, raw, values, found)
    if len(found.problems) > before:
        return None, kind
    if values is None:
        return labelled(found.table.source, np.array(list(raw.words))), kind
    distinct = np.unique(values)
    if len(distinct) <= MOST_LABELS and (distinct == np.round(distinct)).all():
        # Named as whole numbers whether the file says 3 or 3.0.
        names = tuple(f"{value:.0f}" for value in distinct)
        return replace(labelled(found.table.source, values), class_names=names), kind
    return Targets(values), kind


def _with_median(one: ColumnRecipe, raw: RawTable, rows: Mapping[str, Tensor]) -> ColumnRecipe:
    """With the median of the training rows, for gaps; 0 where none of them has a value."""
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
        known = shortened(", ".join(raw.columns), 1000)
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
