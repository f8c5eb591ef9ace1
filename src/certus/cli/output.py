"""Output of the command line: results to stdout, everything else to stderr, and one line if interrupted."""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, TextIO

from certus._format import escape_controls
from certus.display.text import PlainConsole
from certus.errors import ArgumentError, require
from certus.storage.write import WriteError, resolve_target

NOTHING_STORED = "nothing was stored; run the same command to start again."

_ASCII = dict(zip("–−━‘’“”×·⁺₀", "---''\"\"x*+0", strict=True))
_ASCII |= {"…": "...", "∞": "inf", "√": "sqrt", "²": "^2", "±": "+-", "≤": "<=", "≥": ">=", "→": "->"}
_ASCII |= {"γ": "gamma", "ρ": "rho", "ε": "epsilon", "λ": "lambda", "φ": "phi", "Θ": "Theta", "θ": "theta"}


def _spell_out(error: UnicodeError) -> tuple[str, int]:
    """Return ``rho`` for ρ, or ``\\u2603`` for a character without a spelling.

    >>> codecs.register_error("certus", _spell_out)
    >>> "ρ – ☃".encode("latin-1", errors="certus")
    b'rho - \\\\u2603'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    spelled = (_ASCII.get(sign) or sign.encode("ascii", "backslashreplace").decode() for sign in missing)
    return "".join(spelled), error.end


_results: ContextVar[TextIO | None] = ContextVar("_results", default=None)


class _Pipe(io.FileIO):
    """A file descriptor that discards its output once the reader has closed the pipe."""

    def write(self, content: Any, /) -> int:
        try:
            return super().write(content)
        except BrokenPipeError:
            with open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), self.fileno())
            return len(content)


def prepare_streams() -> None:
    """Let stdout and stderr spell out characters that their encoding lacks, and outlive their readers: click
    and rich turn a closed pipe into exit code 1, which would say that a check failed."""
    codecs.register_error("certus", _spell_out)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="certus")
            if stream is getattr(sys, f"__{name}__"):
                stream.flush()
                pipe = io.BufferedWriter(_Pipe(stream.fileno(), "w", closefd=False))
                same = ("encoding", "errors", "line_buffering", "write_through")
                settings = {setting: getattr(stream, setting) for setting in same}
                setattr(sys, name, io.TextIOWrapper(pipe, **settings))


@contextmanager
def results_apart() -> Iterator[None]:
    """Redirect to stderr what other code prints, such as a model file: stdout is for ``results``."""
    token = _results.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _results.reset(token)


def results() -> TextIO:
    """Return the stream for the results of a command."""
    return _results.get() or sys.stdout


class Interruption(BaseException):
    """Ctrl-C, with the line to print; a ``BaseException``, so that nothing catches it on the way."""


@contextmanager
def if_interrupted(line: Callable[[], str]) -> Iterator[None]:
    """Turn Ctrl-C in the block into an ``Interruption`` with the line."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interruption(line()) from None


class _ResultConsole(PlainConsole):
    @property  # type: ignore[misc]  # it is never set here
    def file(self) -> IO[str]:
        return results()


console = _ResultConsole()
"""Console for results, on stdout."""

messages = PlainConsole(stderr=True)
"""Console for progress and remarks, on stderr."""


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
        raise ArgumentError(f"`{option}` must be a file that can be written: {reason}") from None
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


# --- Tables in files ------------------------------------------------------------------------------------

_FORMULA = re.compile(r"'*[=+\-@\t\r]")

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def plain_cell(text: str) -> str:
    """Escape text for a CSV file: a single quote goes before text that a spreadsheet program would execute.

    >>> [plain_cell(text) for text in ("=1+1", "'=1", "-5", "a=1")]
    ["'=1+1", "''=1", '-5', 'a=1']
    """
    from certus.datasets.cells import plain_number

    return f"'{text}" if _FORMULA.match(text) and plain_number(text) is None else text


def as_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Return a header and lines as CSV; text is escaped by ``plain_cell``."""
    lines: list[str] = []
    # With both signs of a line's end, a cell that holds either is quoted.
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n")
    for row in rows:
        writer.writerow([plain_cell(cell) if isinstance(cell, str) else cell for cell in row])
    return "".join(line.removesuffix("\r\n") + "\n" for line in lines)


def flat_rows(rows: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """Return a header and a line for each row; entries of an object become columns, such as ``error_low``."""
    parts = {name: value for row in rows for name, value in row.items() if isinstance(value, dict)}
    columns = [(name, key) for name in rows[0] for key in parts.get(name, (None,))]
    header = [name if key is None else f"{name}_{key}" for name, key in columns]
    lines = [
        [row[name] if key is None or row[name] is None else row[name][key] for name, key in columns]
        for row in rows
    ]
    return [header, *lines]


def as_latex(columns: Mapping[str, Sequence[str]]) -> str:
    """A ``tabular`` environment that needs no package.

    >>> print(as_latex({"run": ["a_b"], "error": ["0.100"]}), end="")
    \\begin{tabular}{lr}
    \\hline
    run & error \\\\
    \\hline
    a\\_b & 0.100 \\\\
    \\hline
    \\end{tabular}
    """
    cells = [list(columns), *zip(*columns.values(), strict=True)]
    head, *lines = [" & ".join(map(latex_text, row)) + r" \\" for row in cells]
    begin = rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}"
    return "\n".join([begin, r"\hline", head, r"\hline", *lines, r"\hline", r"\end{tabular}", ""])


def latex_text(text: str) -> str:
    """Escape text for LaTeX; minus signs become mathematical ones."""
    escaped = "".join(_LATEX.get(sign, sign) for sign in escape_controls(text).replace("\n", " "))
    return re.sub(r"(?:^|(?<= ))[+-][0-9.]+", lambda number: f"${number[0]}$", escaped)
