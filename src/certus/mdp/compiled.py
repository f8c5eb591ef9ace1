"""Compilation by numba where it is installed (the extra ``rl``); without it the same functions run, slower.

A function that is compiled here is plain Python over numbers and arrays, so both ways give the same result
up to the last bits of ``sin``, ``cos`` and ``exp``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """The function, compiled at its first call; its machine code is kept beside the source file."""
    try:
        import numba
    except ImportError:
        return function
    return numba.njit(cache=True, error_model="numpy")(function)  # type: ignore[return-value]  # called alike
