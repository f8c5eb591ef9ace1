"""Where the command line writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import IO

from certus.cli.streams import results
from certus.display.text import Part, PlainConsole, make_table
from certus.errors import ArgumentError, require
from certus.storage.write import WriteError, resolve_target


class _ResultConsole(PlainConsole):
    @property  # type: ignore[misc]  # it is never set here
    def file(self) -> IO[str]:
        return results()


console = _ResultConsole()
"""For results that people read."""

messages = PlainConsole(stderr=True)
"""For progress and remarks."""


def print_parts(parts: Iterable[Part]) -> None:
    """Print tables and sentences as results."""
    for part in parts:
        console.print(part)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    words: Collection[str] = (),
    to: PlainConsole = console,
) -> None:
    """Print a table with these columns; ``words`` are those that hold no numbers."""
    table = make_table(*columns, words=words)
    for row in rows:
        table.add_row(*row)
    to.print(table)


def print_json(content: object) -> None:
    """Print one JSON document on stdout."""
    print(json.dumps(content, indent=2, allow_nan=False), file=results())


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
    from certus.runs.directory import require_unowned_file

    try:
        target = resolve_target(path)
    except WriteError as reason:
        raise ArgumentError(f"`{option}` must be a file. {reason}") from None
    require_unowned_file(option, target)
    require_folder(option, target.parent, "lie in")


def require_picture(option: str, path: Path) -> None:
    """Raise ``ArgumentError`` unless the path is a file for a picture, in a format that can be drawn."""
    from certus.display.canvas import require_format

    require_file(option, path)
    require_format(option, path)


def same_place(first: str | Path, second: str | Path) -> bool:
    """Whether two paths lead to the same file or folder; False for text that is not a path."""
    try:
        return os.path.realpath(first) == os.path.realpath(second)
    except ValueError:  # a NUL byte
        return False
