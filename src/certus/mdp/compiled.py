"""Compilation by numba where it is installed (the extra ``rl``); without it the same functions run, slower.

A function that is compiled here is plain Python over numbers and arrays, so both ways give the same result
up to the last bits of ``sin``, ``cos`` and ``exp``.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import TypeVar


class UncompiledWarning(UserWarning):
    """Without numba the simulator is some hundred times slower."""


F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """The function, compiled at its first call; its machine code is kept beside the source file."""
    try:
        import numba
    except ImportError:
        return function
    return numba.njit(cache=True, error_model="numpy")(function)  # type: ignore[return-value]  # called alike


def warn_if_uncompiled() -> None:
    """Say what would make a long loop fast."""
    if importlib.util.find_spec("numba") is None:
        warnings.warn(
            "numba is not installed, so the simulator runs uncompiled, a hundred times slower: "
            "pip install 'certus[rl]'.",
            UncompiledWarning,
            stacklevel=3,
        )
