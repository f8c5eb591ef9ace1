"""Tables and sentences as plain text, escaped for terminals and never cut.

A table that is too wide folds between words, never inside a number or a name. If even its longest words do
not fit beside each other, it is printed row by row: the first cell on a line of its own, the others below it,
each after the header of its column.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from certus._format import escape_controls


class PlainConsole(Console):
    """A console without markup, highlighting or wrapping, which escapes control characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, soft_wrap=True, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        escaped = [escape_controls(item) if isinstance(item, str) else item for item in objects]
        super().print(*escaped, **options)


_GAP = 2  # blanks between two columns
_EMPTY = ("", "–")


class PlainTable(Table):
    """A table whose cells break no line and hold no control character; see the module for wide ones."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        texts = [_one_line(cell) if isinstance(cell, str) else cell for cell in cells]
        super().add_row(*texts, **options)

    @property
    def body(self) -> list[tuple[str, ...]]:
        """The cells, row by row."""
        return list(zip(*(map(str, column.cells) for column in self.columns), strict=True))

    def fits(self, width: int) -> bool:
        """Whether the table, folded between words, has at most this width."""
        least, _ = self._widths()
        return sum(least) + _GAP * (len(least) - 1) <= width

    def _widths(self) -> tuple[list[int], list[int]]:
        """Return the least and the natural widths of columns; the first names its row and is not folded."""
        texts = [[str(column.header), *map(str, column.cells)] for column in self.columns]
        natural = [max(map(cell_len, column)) for column in texts]
        words = [max(map(cell_len, " ".join(column).split()), default=0) for column in texts]
        return [natural[0], *words[1:]], natural

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # Rich alone shrinks the widest columns without regard to their words, which it then breaks.
        least, widths = self._widths()
        if not self.fits(options.max_width):
            yield "\n".join(self._row_by_row(options.max_width))
            return
        while sum(widths) + _GAP * (len(widths) - 1) > options.max_width:
            shrinking = [index for index in range(len(widths)) if widths[index] > least[index]]
            widths[max(shrinking, key=widths.__getitem__)] -= 1
        for column, width in zip(self.columns, widths, strict=True):
            column.width = width
        yield from super().__rich_console__(console, options)

    def _row_by_row(self, width: int) -> list[str]:
        first, *headers = [str(column.header) for column in self.columns]
        lines = []
        for name, *cells in self.body:
            lines += [name if any(map(str.isalpha, name)) else f"{first} {name}", " "]
            for header, cell in zip(headers, cells, strict=True):
                entry = f" {header} {cell},"
                if cell in _EMPTY:
                    continue
                if lines[-1].strip() and cell_len(lines[-1] + entry) > width:
                    lines.append(" ")
                lines[-1] += entry
            lines[-1] = lines[-1].rstrip(", ")
        return [line for line in lines if line]


Part = PlainTable | str
"""A result is shown as a list of parts: tables, and sentences of one line each."""


def make_table(*columns: str, rows: Iterable[Iterable[str]] = (), words: Collection[str] = ()) -> PlainTable:
    """Return a table with these columns and rows: numbers are right-aligned, the first column and those of
    words left-aligned."""
    table = PlainTable(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        side: Literal["left", "right"] = "left" if index == 0 or column in words else "right"
        table.add_column(_one_line(column), justify=side, overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*row)
    return table


def _one_line(text: str) -> str:
    return escape_controls(text).replace("\n", "\\n")


def number(value: object, digits: int = 4) -> str:
    """Format a number for a table; a dash stands for None."""
    if value is None:
        return "–"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def as_text(parts: Iterable[Part]) -> str:
    """Return tables and sentences as a command prints them, without colours, as wide as the terminal or 80.

    >>> table = make_table("name", "size", rows=[("a", "12")])
    >>> print(as_text([table, "Sizes are in metres."]))
    name  size
    a       12
    Sizes are in metres.
    """
    written = io.StringIO()
    console = PlainConsole(file=written, color_system=None, force_jupyter=False)
    for part in parts:
        console.print(part)
    return "\n".join(line.rstrip() for line in written.getvalue().splitlines())
