"""Standard streams and interruption of a command."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import Any, TextIO

NOTHING_KEPT = "nothing is kept; the same command starts again."

_ASCII = dict(zip("–−━‘’“”×·⁺₀", "---''\"\"x*+0", strict=True))
_ASCII |= {"…": "...", "∞": "inf", "√": "sqrt", "²": "^2", "±": "+-", "≤": "<=", "≥": ">=", "→": "->"}
_ASCII |= {"γ": "gamma", "ρ": "rho", "ε": "epsilon", "λ": "lambda", "φ": "phi", "Θ": "Theta", "θ": "theta"}


def speak_plainly() -> None:
    """Let stdout and stderr spell out the characters that their encoding lacks."""
    codecs.register_error("certus", _spell_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="certus")


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


def outlive_readers() -> None:
    """Let a command end as it would have ended, with its own exit code, when nothing reads its output.

    Click and rich turn a closed pipe into exit code 1, which would say that a check failed.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream is getattr(sys, f"__{name}__"):
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
    """Turn Ctrl-C into an ``Interruption`` with this line."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interruption(line()) from None
