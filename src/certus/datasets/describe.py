"""A table as it is read: each column with examples before and after, problems and warnings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from certus.datasets.catalogue import raw_table
from certus.datasets.cells import Reading
from certus.datasets.encoding import ColumnRecipe
from certus.datasets.raw_table import RawColumn
from certus.datasets.tables import learn_table, make_data
from certus.errors import require
from certus.table_options import TABLES, TableOptions

_EXAMPLES = 3


@dataclass(frozen=True)
class DescribedColumn:
    """A column as it is read.

    Attributes:
        kind: its type; role: "feature", "target" or "dropped".
        before, after: three different cells, and what they are read as.
        becomes: its encoding, or why it is dropped.
    """

    name: str
    role: str
    kind: str
    missing: int
    distinct: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    becomes: str


@dataclass(frozen=True)
class TableDescription:
    """A table as it is read.

    Attributes:
        problems: why it cannot be used, the worst first, each with its remedy; warnings: what looks wrong.
    """

    source: str
    rows: int
    columns: tuple[DescribedColumn, ...]
    problems: tuple[str, ...]
    warnings: tuple[str, ...]


def describe_table(spec: str, options: TableOptions | None = None, seed: int = 0) -> TableDescription:
    """Read csv:FILE or parquet:FILE without training, and describe every column.

    Args:
        seed: of the split that warnings of duplicates refer to.
    """
    options = options or TableOptions()
    require(spec.startswith(TABLES), "spec", "be csv:FILE or parquet:FILE", repr(spec))
    raw = raw_table(spec, options)
    learnt = learn_table(raw, options)
    recipes = {recipe.name: recipe for recipe in learnt.columns}
    if not len(learnt.problems):
        data = make_data(raw, options, seed=seed)
        assert data.recipe is not None
        recipes, warnings = {recipe.name: recipe for recipe in data.recipe.columns}, data.notes
    else:
        warnings = (raw.remark,) * bool(raw.remark)
    columns, classes = [], None if learnt.targets is None else learnt.targets.classes
    for name, column in raw.columns.items():
        role, recipe = "target", learnt.target
        if name != learnt.target.name:
            recipe = recipes[name]
            role = "dropped" if recipe.kind == "dropped" else "feature"
        columns.append(_described(recipe, column, role, options, classes))
    return TableDescription(raw.source, len(raw), tuple(columns), tuple(learnt.problems.texts), warnings)


def _described(
    recipe: ColumnRecipe, raw: RawColumn, role: str, options: TableOptions, classes: int | None
) -> DescribedColumn:
    reading = None if recipe.discrete or recipe.kind == "label" else raw.read(options, recipe.style)
    cells = tuple(_various(list(raw.counts)))
    kind, after = recipe.kind, tuple(recipe.category(cell) if recipe.discrete else cell for cell in cells)
    if isinstance(reading, Reading):
        kind = reading.kind
        write = recipe.style.date if kind == "date" else "{:.12g}".format
        if kind == "date":
            write = type(recipe.style)().date
        after = tuple(write(reading.values[cell]) for cell in cells)
    elif kind == "dropped":
        kind = "words" if raw.distinct else "empty"
    becomes = recipe.becomes
    if role == "target":
        becomes = f"target: {'numbers' if classes is None else f'{classes} classes'}"
    elif recipe.kind == "dropped" and not recipe.reason:
        becomes = "not decided: see the problems"
    return DescribedColumn(recipe.name, role, kind, recipe.missing, recipe.distinct, cells, after, becomes)


def _various(cells: Sequence[str]) -> list[str]:
    """Examples that differ most: the first, the longest and the shortest cell."""
    chosen = dict.fromkeys([*cells[:1], *sorted(cells[1:], key=len)[-1:], *sorted(cells[1:], key=len)[:1]])
    return [*chosen, *(cell for cell in cells if cell not in chosen)][:_EXAMPLES]
