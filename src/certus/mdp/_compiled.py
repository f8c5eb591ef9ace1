"""Compilation by numba where it is installed (the extra ``rl``), and Lambert's W for compiled code.

A compiled function is plain Python over numbers and arrays; without numba it runs uncompiled, slower, with
the same result up to the last bits of ``sin``, ``cos`` and ``exp``.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np


class UncompiledWarning(UserWarning):
    """Warning that numba is missing: the simulator is then some hundred times slower."""


F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Return the function, compiled at its first call; its machine code is cached beside the source file."""
    try:
        import numba
    except ImportError:
        return function
    return numba.njit(cache=True, error_model="numpy")(function)  # type: ignore[return-value]  # called alike


def warn_if_uncompiled() -> None:
    """Warn that a long loop runs uncompiled."""
    if importlib.util.find_spec("numba") is None:
        warnings.warn(
            "numba is not installed, so the simulator runs uncompiled, a hundred times slower: "
            "pip install 'certus[rl]'.",
            UncompiledWarning,
            stacklevel=3,
        )


Real: TypeAlias = Any  # a number or an array of doubles: compiled loops pass the first, NumPy both


def lambert_w(x: Real) -> Real:
    """W(x) for a number or an array x ≥ 0, by Halley's method from log(1 + x).

    >>> round(float(lambert_w(np.e)), 12)
    1.0
    """
    w = np.log1p(x)
    for _ in range(6):  # enough for the last digit of every double x ≥ 0
        excess = w - x * np.exp(-w)
        w = w - excess / (1 + w - (w + 2) * excess / (2 * w + 2))
    return w


lambert_w_fast = compiled(lambert_w)
