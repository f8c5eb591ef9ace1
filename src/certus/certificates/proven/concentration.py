"""Confidence bounds on a mean, and on a distribution function, from n independent samples.

Hoeffding's and the empirical Bernstein bound do not see the order of the samples. Betting does: it takes them
one by one, and what it stakes on the next depends on those before. Independent draws may stand in any order
that was fixed without looking at them; a stored file may not be in such an order, so that whoever bets on its
rows permutes them first, by a seed (``certus.subsets.random_order``).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from torch import Tensor

from certus.errors import require, require_count
from certus.outward import SOME, slack, up

_MOST = 0.9  # the largest share of its wealth that a bet may risk
_NARROW = 1e-10  # how far the search goes on: a larger one proves less, never anything wrong


def hoeffding(values: Tensor, ceiling: float, failure: float) -> float:
    """mean + B√(ln(1/δ)/2n)."""
    scaled = _scaled(values, ceiling, failure)
    return ceiling * min(1.0, float(scaled.mean()) + math.sqrt(math.log(1 / failure) / (2 * len(scaled))))


def empirical_bernstein(values: Tensor, ceiling: float, failure: float) -> float:
    """mean + √(2V ln(2/δ)/n) + 7B ln(2/δ)/(3(n − 1)), V the sample variance (Maurer and Pontil)."""
    scaled = _scaled(values, ceiling, failure)
    count, log = len(scaled), math.log(2 / failure)
    if count < 2:
        return ceiling
    wide = math.sqrt(2 * float(scaled.var()) * log / count) + 7 * log / (3 * (count - 1))
    return ceiling * min(1.0, float(scaled.mean()) + wide)


def betting(values: Tensor, ceiling: float, failure: float) -> float:
    """The least mean that a bettor against larger ones has not refuted (Waudby-Smith and Ramdas).

    With w = 1 − ψ/B and a claim E w ≤ m, the wealth Π (1 + λ_t(w_t − m)) is a supermartingale if the claim
    holds, so it reaches 1/δ with probability at most δ (Ville). The bets λ_t ∈ [0, 0.9] depend on the past
    alone, and not on m: the wealth falls as m grows, and bisection finds the largest m that is refuted. The
    order of the samples is part of the procedure.
    """
    gains = (1 - _scaled(values, ceiling, failure)).numpy()
    count, goal = len(gains), math.log(1 / failure)
    times = np.arange(2, count + 2)
    means = (gains.cumsum() + 0.5) / times
    spread = (((gains - means) ** 2).cumsum() + 0.25) / times
    before = np.concatenate([[0.25], spread[:-1]])
    bets = np.minimum(np.sqrt(2 * goal / (count * before)), _MOST)
    low, width = 0.0, 1.0
    while width > _NARROW:
        # Seventeen claims at a time: those that are refuted come first.
        claims = low + width * np.arange(17) / 16
        steps = np.log1p(bets * (gains - claims[:, None]))
        wealth = (steps.cumsum(1) - slack(count) * np.abs(steps).cumsum(1)).max(1)
        refuted = int((wealth >= up(goal, SOME)).sum())
        if refuted == 0:
            break
        low, width = float(claims[refuted - 1]), width / 16
    return ceiling * (1 - low)


def dkw(count: int, failure: float) -> float:
    """√(ln(1/δ)/2n), for δ ≤ ½ (Massart)."""
    require(0 < failure <= 0.5, "failure", "lie in (0, 0.5]", failure)
    return math.sqrt(math.log(1 / failure) / (2 * count))


def clopper_pearson(successes: int, count: int, failure: float) -> float:
    """The least probability of a success that is not refuted: p with P(Bin(n, p) ≥ k) = δ, rounded down.

    >>> round(clopper_pearson(8, 10, 0.05), 4), clopper_pearson(0, 10, 0.05)
    (0.4931, 0.0)
    """
    require_count("count", count)
    require(0 < failure < 1, "failure", "lie between 0 and 1", failure)
    require(0 <= successes <= count, "successes", f"lie between 0 and {count}", successes)
    if successes == 0:
        return 0.0
    many = np.arange(1, count + 1)
    # ln C(n, j) for j ≥ k: a sum of at most n logarithms, each below ln n.
    ways = np.concatenate([[0.0], np.log((count - many + 1) / many).cumsum()])[successes:]
    hits = np.arange(successes, count + 1)
    goal = math.log(failure) - SOME * count * (1 + math.log(count))
    low, high = 0.0, successes / count
    for _ in range(60):
        middle = (low + high) / 2
        terms = ways + hits * math.log(middle) + (count - hits) * math.log1p(-middle)
        most = float(terms.max())
        tail = most + math.log(float(np.exp(terms - most).sum()))
        low, high = (middle, high) if tail <= goal else (low, middle)
    return low


Inequality = Callable[[Tensor, float, float], float]
INEQUALITIES: dict[str, Inequality] = {
    "betting": betting,
    "bernstein": empirical_bernstein,
    "hoeffding": hoeffding,
}


def _scaled(values: Tensor, ceiling: float, failure: float) -> Tensor:
    """The values as shares of B, checked."""
    require(0 < ceiling < math.inf, "clip", "be positive and finite", ceiling)
    require(0 < failure < 1, "failure", "lie between 0 and 1", failure)
    require(len(values) > 0, "values", "not be empty", "none")
    inside = bool(((values >= 0) & (values <= ceiling)).all())
    require(
        inside, "values", f"lie between 0 and {ceiling}", f"{float(values.min())} to {float(values.max())}"
    )
    return values.double() / ceiling
