"""Where the command line writes: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from certus.cli.streams import results
from certus.display.text import Part, PlainConsole
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


def show_parts(parts: Iterable[Part]) -> None:
    """Tables and sentences, in their order, as results."""
    for part in parts:
        console.print(part)


def print_json(content: object) -> None:
    """One JSON document on stdout."""
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
    """``require_file``, for a picture in a format that can be drawn."""
    from certus.display.canvas import require_format

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
