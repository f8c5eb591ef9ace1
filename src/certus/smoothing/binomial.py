"""Binomial and normal probabilities, rounded outwards where a proof needs it.

Logarithms are summed before they are exponentiated. With u = 2⁻⁵³, an exponent is off by a few u times the
sizes of its terms, which are at most 2 ln C(m, k) − ln b for a probability b = C(m, k) hᵏ(1 − h)^(m−k).
Summed over k with the weights b that is at most 2m ln 2 + ln(m + 1), so that a mean of numbers between 0 and
1 is off by less than 10⁻¹⁵·(4m + 40): far below ``MANY`` for m ≤ 10,000.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from certus.errors import require_count
from certus.rounding import MANY, SOME, down, up

Floats = np.ndarray[Any, np.dtype[np.float64]]

MOST_DRAWS = 10_000
_CELLS = 2**22  # of one table of probabilities: 32 MB


def normal_cdf(points: Floats) -> Floats:
    """Φ at each point, as float64 has it: within ``SOME`` of itself between −8 and 8."""
    scaled = torch.from_numpy(np.asarray(points, dtype=np.float64)) / -math.sqrt(2)
    return np.asarray((torch.special.erfc(scaled) / 2).numpy())  # ndtr has no digits left in the tail


def binomial_probabilities(chances: Floats, count: int) -> Floats:
    """P(Bin(m, h) = k). Shapes (cells,) → (cells, m + 1)."""
    hits = np.arange(count + 1)
    logs = np.concatenate([[0.0], np.log(np.arange(1, count + 1)).cumsum()])
    choose = logs[count] - logs - logs[::-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        yes, no = np.log(chances)[:, None] * hits, np.log1p(-chances)[:, None] * (count - hits)
    # 0·ln 0 = 0: nothing is asked of an outcome that is asked for no times.
    return np.asarray(np.exp(choose + np.where(hits == 0, 0.0, yes) + np.where(hits == count, 0.0, no)))


def binomial_mean(values: Floats, chances: Floats) -> Floats:
    """E v_K for K ~ Bin(m, h), from (m + 1,) values v. Shapes (cells,) → (cells,); in parts, to save room."""
    step = max(1, _CELLS // len(values))
    parts = [
        binomial_probabilities(chances[start : start + step], len(values) - 1) @ values
        for start in range(0, len(chances), step)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def binomial_tail(least: int, count: int, chances: Floats) -> Floats:
    """P(Bin(m, h) ≥ k), as float64 has it."""
    return binomial_mean((np.arange(count + 1) >= least).astype(np.float64), chances)


def clopper_pearson_lower(hits: int, count: int, failure: float) -> float:
    """The lower Clopper–Pearson bound on h from k hits in m draws, rounded down.

    It is the h at which so many hits have the probability δ; below it they have less.

    >>> round(clopper_pearson_lower(100, 100, 0.001), 4), clopper_pearson_lower(0, 100, 0.001)
    (0.9333, 0.0)
    """
    require_count("draws", count)
    if hits == 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        chance = binomial_tail(hits, count, np.array([middle]))[0]
        if up(float(chance), MANY) + SOME <= failure:
            low = middle
        else:
            high = middle
    return down(low, SOME)


def normal_quantile_lower(chance: float) -> float:
    """Φ⁻¹ of a number between ½ and 1, rounded down; 0 up to ½.

    >>> round(normal_quantile_lower(0.975), 4), normal_quantile_lower(0.3)
    (1.96, 0.0)
    """
    low, high = 0.0, 8.0
    for _ in range(60):
        middle = (low + high) / 2
        if up(float(normal_cdf(np.array([middle]))[0]), SOME) <= chance:
            low = middle
        else:
            high = middle
    return low


def largest_binomial_probability(hits: int, count: int) -> float:
    """sup_h P(Bin(n, h) = k), which is at h = k/n, rounded up; 0 where there is no such outcome."""
    if count < 0 or not 0 <= hits <= count:
        return 0.0
    share = hits / count if count else 0.0
    chance = math.comb(count, hits) if hits in (0, count) else None
    if chance is not None:
        return 1.0
    return min(1.0, up(float(binomial_probabilities(np.array([share]), count)[0, hits]), MANY))
