"""Where the command line writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from certus.errors import require
from certus.printable import printable

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]


class PlainConsole(Console):
    """Prints text as it is, without markup or cuts; what a terminal would obey is written out."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, soft_wrap=True)

    def print(self, *objects: Any, **options: Any) -> None:
        shown = [printable(one) if isinstance(one, str) else one for one in objects]
        super().print(*shown, **options)


class PlainTable(Table):
    """Cells in which nothing breaks a line or is obeyed by a terminal."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        shown = [printable(one).replace("\n", "\\n") if isinstance(one, str) else one for one in cells]
        super().add_row(*shown, **options)


console = PlainConsole()
"""For results that people read."""

messages = PlainConsole(stderr=True)
"""For progress and remarks."""


def print_json(content: object) -> None:
    """One JSON document on stdout."""
    print(json.dumps(content, indent=2, allow_nan=False))


def require_folder(name: str, path: Path) -> None:
    """Raise ``ArgumentError`` unless the path is a folder that can be written to, or could be made."""
    nearest = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    require(nearest.is_dir(), name, "be a folder", path)
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as reason:
        require(False, name, "be a folder that can be written to", f"{path} ({reason.strerror})")


def number(value: object, digits: int = 4) -> str:
    """A number for a table; a dash for what was not measured."""
    if value is None:
        return "–"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def make_table(*columns: str) -> Table:
    """A plain table: names on the left, numbers on the right."""
    made = PlainTable(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        made.add_column(
            column, justify="left" if index == 0 else "right", overflow="fold", no_wrap=index == 0
        )
    return made
