"""Ctrl-C ends a command with one line: what is kept, and the command that resumes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

_Command = TypeVar("_Command", bound=Callable[..., object])


class Interruption(BaseException):
    """The user pressed Ctrl-C; its text is the line to say. Not an error: nothing may catch it on the way."""


@contextmanager
def if_interrupted(line: Callable[[], str]) -> Iterator[None]:
    """Say this line if Ctrl-C comes inside."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interruption(line()) from None


def interruptible(command: _Command) -> _Command:
    """A command that, if it says nothing better itself, keeps nothing when it is interrupted."""

    @functools.wraps(command)
    def guarded(*arguments: object, **options: object) -> object:
        with if_interrupted(lambda: "nothing is kept; the same command starts again."):
            return command(*arguments, **options)

    return guarded  # type: ignore[return-value]  # called alike
