"""Tables and sentences as plain text: nothing in them is obeyed by a terminal, and nothing is cut."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from certus.printable import printable

Shown = Table | str
"""What is shown is a list of these: tables, and sentences of one line each."""


class PlainConsole(Console):
    """Prints text as it is, without markup or cuts; what a terminal would obey is written out."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, soft_wrap=True, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        shown = [printable(one) if isinstance(one, str) else one for one in objects]
        super().print(*shown, **options)


class PlainTable(Table):
    """Cells in which nothing breaks a line or is obeyed by a terminal."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        shown = [printable(one).replace("\n", "\\n") if isinstance(one, str) else one for one in cells]
        super().add_row(*shown, **options)


def make_table(*columns: str) -> Table:
    """A plain table: names on the left, numbers on the right."""
    made = PlainTable(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        shown = printable(column).replace("\n", "\\n")
        made.add_column(shown, justify="left" if index == 0 else "right", overflow="fold", no_wrap=index == 0)
    return made


def number(value: object, digits: int = 4) -> str:
    """A number for a table; a dash for what was not measured."""
    if value is None:
        return "–"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def as_text(parts: Iterable[Shown]) -> str:
    """What a command prints of these, without colours; as wide as the terminal, 80 columns if there is none.

    >>> made = make_table("name", "size")
    >>> made.add_row("a", "12")
    >>> print(as_text([made, "Sizes are in metres."]))
    name  size
    a       12
    Sizes are in metres.
    """
    written = io.StringIO()
    console = PlainConsole(file=written, color_system=None, force_jupyter=False)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())


def cells_of(table: Table) -> tuple[list[str], list[list[str]]]:
    """The head of a table, and its rows."""
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    return [str(column.header) for column in table.columns], [list(row) for row in zip(*columns, strict=True)]
