"""Compilation by numba where it is installed (the extras ``rl`` and ``trees``).

A compiled function is plain Python over numbers and arrays; without numba it runs uncompiled, slower, with
the same result up to the last bits of ``sin``, ``cos`` and ``exp``.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar


class UncompiledWarning(UserWarning):
    """Warning that numba is missing: loops are then some hundred times slower."""


Real: TypeAlias = Any  # a number or an array of doubles: compiled loops pass the first, NumPy both
F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Return the function, compiled at its first call; its machine code is cached beside the source file, or
    nowhere if no folder for it can be written."""
    try:
        import numba
    except ImportError:
        return function
    try:
        return numba.njit(cache=True, error_model="numpy")(function)  # type: ignore[return-value]  # called alike
    except RuntimeError:
        return numba.njit(error_model="numpy")(function)  # type: ignore[return-value]  # called alike


def warn_if_uncompiled() -> None:
    """Warn that a long loop runs uncompiled."""
    if importlib.util.find_spec("numba") is None:
        warnings.warn(
            "numba is not installed, so the simulator runs uncompiled, a hundred times slower: "
            "pip install 'certus[rl]'.",
            UncompiledWarning,
            stacklevel=3,
        )
