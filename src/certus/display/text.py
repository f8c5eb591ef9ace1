"""Tables and sentences as plain text: nothing in them is obeyed by a terminal, and nothing is cut.

A table that is too wide folds between words, never inside a number or a name. If even its longest words do
not fit beside each other, it is told row by row: the first cell on a line of its own, the others below it,
each behind the head of its column.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table

from certus._format import printable

Shown = Table | str
"""What is shown is a list of these: tables, and sentences of one line each."""


class PlainConsole(Console):
    """Prints text as it is, without markup or cuts; what a terminal would obey is written out."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, soft_wrap=True, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        shown = [printable(one) if isinstance(one, str) else one for one in objects]
        super().print(*shown, **options)


_GAP = 2  # blanks between two columns
_NONE = ("", "–")  # cells that need not be told


class PlainTable(Table):
    """Cells in which nothing breaks a line or is obeyed by a terminal; see above for what does not fit."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        shown = [printable(one).replace("\n", "\\n") if isinstance(one, str) else one for one in cells]
        super().add_row(*shown, **options)

    def fits(self, width: int) -> bool:
        """Whether so many columns of a terminal hold it, folded between words."""
        return sum(self._least) + _GAP * (len(self.columns) - 1) <= width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.fits(options.max_width):
            yield "\n".join(self._row_by_row(options.max_width))
            return
        widths, least = self._widest, self._least
        while sum(widths) + _GAP * (len(widths) - 1) > options.max_width:
            widest = max(
                (place for place in range(len(widths)) if widths[place] > least[place]),
                key=widths.__getitem__,
            )
            widths[widest] -= 1
        fitted = PlainTable(box=None, pad_edge=False, header_style=self.header_style)
        fitted.columns = [replace(one, width=width) for one, width in zip(self.columns, widths, strict=True)]
        fitted.rows = self.rows
        yield from Table.__rich_console__(fitted, console, options)

    @property
    def _widest(self) -> list[int]:
        return [max(map(cell_len, _texts(column))) for column in self.columns]

    @property
    def _least(self) -> list[int]:
        """The longest word of each column; of the first, which names its row, the longest cell."""
        first, *rest = self.columns
        words = ([word for text in _texts(column) for word in text.split()] for column in rest)
        return [max(map(cell_len, _texts(first))), *(max(map(cell_len, ones), default=0) for ones in words)]

    def _row_by_row(self, width: int) -> list[str]:
        (first, *heads), rows = cells_of(self)
        lines = []
        for name, *cells in rows:
            lines += [name if any(map(str.isalpha, name)) else f"{first} {name}", " "]
            for told in (
                f" {head} {cell}," for head, cell in zip(heads, cells, strict=True) if cell not in _NONE
            ):
                if lines[-1].strip() and cell_len(lines[-1] + told) > width:
                    lines.append(" ")
                lines[-1] += told
            lines[-1] = lines[-1].rstrip(", ")
        return [line for line in lines if line]


def make_table(*columns: str, words: Collection[str] = ()) -> PlainTable:
    """A plain table: names begin on the left, numbers end on the right.

    Args:
        words: columns that hold words, not numbers; they begin on the left, as the first does.
    """
    made = PlainTable(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        shown = printable(column).replace("\n", "\\n")
        begins = index == 0 or column in words
        made.add_column(shown, justify="left" if begins else "right", overflow="fold", no_wrap=index == 0)
    return made


def _texts(column: Column) -> list[str]:
    return [str(column.header), *map(str, column.cells)]


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
