"""Standard streams of a command: results alone on stdout, and readers that stop early, as ``head`` does."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import Any, TextIO

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
            setattr(
                sys,
                name,
                io.TextIOWrapper(
                    pipe,
                    encoding=stream.encoding,
                    errors=stream.errors,
                    line_buffering=stream.line_buffering,
                    write_through=stream.write_through,
                ),
            )


@contextmanager
def results_apart() -> Iterator[None]:
    """Send to stderr what other code prints inside, such as a model file: stdout is for ``results``."""
    token = _results.set(sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _results.reset(token)


def results() -> TextIO:
    """The stream for results of a command."""
    return _results.get() or sys.stdout
