"""Lambert's W on x ≥ 0: the w ≥ 0 with w·e^w = x."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from certus.mdp.compiled import compiled

Real: TypeAlias = Any
"""A number or an array of doubles: compiled loops pass the first, NumPy both."""

_STEPS = 6  # enough for the last digit of every double x ≥ 0


def lambert_w(x: Real) -> Real:
    """W(x) for a number or an array x ≥ 0, by Halley's method from log(1 + x).

    >>> round(float(lambert_w(np.e)), 12)
    1.0
    """
    w = np.log1p(x)
    for _ in range(_STEPS):
        excess = w - x * np.exp(-w)
        w = w - excess / (1 + w - (w + 2) * excess / (2 * w + 2))
    return w


lambert_w_fast = compiled(lambert_w)
