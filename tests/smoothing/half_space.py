"""A linear base classifier in noise: h, the worst case and the bound are known exactly.

For the classifier sign(x₁) and labels ±1 the margin is s = y·x₁, h = Φ(−s/σ), and moving x₁ by r against
the label gives Φ(−s/σ + r/σ): the half-space attains what Neyman and Pearson allow.
Scores a = Φ⁻¹(h) are −s/σ.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import norm

Array = np.ndarray[Any, np.dtype[np.float64]]

SIGMA = 0.5


def margins(count: int, seed: int) -> Array:
    """Some are on the wrong side."""
    return np.random.default_rng(seed).normal(0.6, 0.5, count)


def quantile_margins(count: int = 200) -> Array:
    """The same distribution by its quantiles: a stand-in for the population."""
    return np.asarray(norm.ppf((np.arange(count) + 0.5) / count, 0.6, 0.5))


def best_moves(scores: Array, kappa: float) -> Array:
    """How far each moves, in units of σ, to gain most after paying κs²: by a dense grid, then polished."""
    steps = np.linspace(0, min(8.0, 1 / math.sqrt(kappa)), 1201)
    gains = norm.cdf(scores[:, None] + steps) - kappa * steps**2
    return np.asarray(steps[gains.argmax(1)])


def worst_error(scores: Array, rho: float, sigma: float = SIGMA) -> float:
    """The worst mean error within ρ, attained: the moves of the κ whose mean cost is ρ, mixed at a jump."""
    low, high = 1e-6, 1e6
    for _ in range(40):
        middle = math.sqrt(low * high)
        if (best_moves(scores, middle) ** 2).mean() * sigma**2 > rho:
            low = middle
        else:
            high = middle
    far, near = best_moves(scores, low), best_moves(scores, high)
    dear, cheap = (far**2).mean() * sigma**2, (near**2).mean() * sigma**2
    share = 0.0 if dear == cheap else np.clip((rho - cheap) / (dear - cheap), 0, 1)
    value = share * norm.cdf(scores + far).mean() + (1 - share) * norm.cdf(scores + near).mean()
    return float(value)


def dual(values: Any, rho: float, sigma: float = SIGMA) -> float:
    """min_κ κρ/σ² + mean F_κ for a function κ → (n,) values."""

    def total(log: float) -> float:
        return float(math.exp(log) * rho / sigma**2 + values(math.exp(log)).mean())

    grid = np.linspace(-6, 6, 40)
    start = grid[int(np.argmin([total(log) for log in grid]))]
    found = minimize_scalar(total, bounds=(start - 0.3, start + 0.3), method="bounded")
    return float(found.fun)
