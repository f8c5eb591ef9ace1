"""Where the command line writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from certus.errors import ArgumentError, require
from certus.figures.canvas import require_format
from certus.printable import printable
from certus.runs.owners import require_file_of_nobody
from certus.storage.writing import WriteError, replaceable


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


def require_folder(name: str, path: Path, verb: str = "be") -> None:
    """Raise ``ArgumentError`` unless the path is a folder that can be written to, or could be made."""
    nearest = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    require(nearest.is_dir(), name, f"{verb} a folder", path)
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as reason:
        require(False, name, f"{verb} a folder that can be written to", f"{path} ({reason.strerror})")


def require_file(option: str, path: Path) -> None:
    """Raise ``ArgumentError`` unless the path is a file that can be replaced, or could be made."""
    try:
        target = replaceable(path)
    except WriteError as reason:
        raise ArgumentError(f"`{option}` must be a file. {reason}") from None
    require_file_of_nobody(option, target)
    require_folder(option, target.parent, "lie in")


def require_picture(option: str, path: Path) -> None:
    """``require_file``, for a picture in a format that can be drawn."""
    require_file(option, path)
    require_format(option, path)


def same_place(one: str | Path, other: str | Path) -> bool:
    """Whether two paths mean one place; a loop of links means itself, and what is no path means none."""
    try:
        return os.path.realpath(one) == os.path.realpath(other)
    except ValueError:  # a NUL byte
        return False


def require_two(output: Path | None, plot: Path | None) -> None:
    """Raise ``ArgumentError`` where the result and its picture would be one file."""
    same = output is not None and plot is not None and same_place(output, plot)
    require(not same, "--plot", "be another file than --output", plot)


def number(value: object, digits: int = 4) -> str:
    """A number for a table; a dash for what was not measured."""
    if value is None:
        return "–"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def make_table(*columns: str) -> Table:
    """A plain table: names on the left, numbers on the right."""
    made = PlainTable(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        shown = printable(column).replace("\n", "\\n")
        made.add_column(shown, justify="left" if index == 0 else "right", overflow="fold", no_wrap=index == 0)
    return made
