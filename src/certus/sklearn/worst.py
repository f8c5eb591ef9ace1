"""The worst distribution that was found near a sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class WorstCase:
    """Moved rows with weights, at mean transport cost at most ρ from the sample.

    Attributes:
        X, y: (m, features) and (m,) moved samples; m is n, or a multiple of it where it takes a mixture.
        weights: (m,) positive, with sum 1.
        loss: the mean loss there, *attained*; bound: what no distribution within ρ exceeds, *proven*.
    """

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    rho: float
    loss: float
    bound: float
