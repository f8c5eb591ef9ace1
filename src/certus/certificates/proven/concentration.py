"""Concentration inequalities for means, distribution functions and error rates of n independent samples.

Hoeffding's and the empirical Bernstein bound do not depend on the order of the samples. Betting does: its bet
on the next sample depends on those before. Independent draws may be in any order that was fixed without
looking
at them; the rows of a stored file may not be, so they are permuted first, by a seed
(``certus.data.random_order``).

The population's error rate is at most the smaller of two bounds, each with half of the failure probability.
Let τ be a lower bound on the least cost of an error of a sample. Then (1 − γτ)₊ ∈ [0, 1] is a fixed function
of
one sample, and for every γ the worst error rate within ρ of the population is at most γρ + E (1 − γτ)₊.

*DKW.* (1 − γτ)₊ is an average of indicators 1{τ ≤ t}, and the one-sided inequality of Dvoretzky, Kiefer,
Wolfowitz and Massart, P₀(τ ≤ t) ≤ P_n(τ ≤ t) + √(ln(1/δ)/2n) for all t, raises the sample's knapsack by that
much, for all γ and ρ at once, whatever the error rate is.

*Betting.* For each γ of a grid Γ that was fixed beforehand, with failure probability δ/|Γ|, betting bounds
E (1 − γτ)₊; the smallest γρ + U_n(γ) counts, for all ρ at once. It adds little if errors are rare or samples
many.

Γ is geometric and depends on the range of ρ and on n only. γρ ≥ ¼ can only prove error rates at which DKW is
as
good; γρ ≤ 4/n is below the resolution of n samples. A finer grid leaves less of δ to each γ: the loss from
missing the best γ is quadratic in the log of the step, and the two balance where that log is proportional to
n^(−1/4).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from torch import Tensor

from certus.errors import require, require_count
from certus.rounding import FEW, SOME, slack, up

_MOST = 0.9  # largest fraction of the wealth in one bet
_NARROW = 1e-10  # where the search ends; a larger value gives a looser bound, never a wrong one


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
    holds, so
    it reaches 1/δ with probability at most δ (Ville). The bets λ_t ∈ [0, 0.9] depend on the past only, and
    not on m:
    the wealth falls as m grows, and bisection finds the largest refuted m. The result depends on the order
    of the
    samples.
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
    """Lower confidence bound on a success probability: p with P(Bin(n, p) ≥ k) = δ, rounded down.

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
    """The values as fractions of B, checked."""
    require(0 < ceiling < math.inf, "clip", "be positive and finite", ceiling)
    require(0 < failure < 1, "failure", "lie between 0 and 1", failure)
    require(len(values) > 0, "values", "not be empty", "none")
    inside = bool(((values >= 0) & (values <= ceiling)).all())
    require(
        inside, "values", f"lie between 0 and {ceiling}", f"{float(values.min())} to {float(values.max())}"
    )
    return values.double() / ceiling


_LARGEST, _SMALLEST = 1 / 4, 4.0  # largest γρ_min, and smallest nγρ_max
_STEP = 4.0  # the log of the ratio of neighbours, times n^(1/4)


def error_gammas(rhos: tuple[float, float], count: int) -> tuple[float, ...]:
    """The grid Γ for ``count`` samples and ρ between the two entries of ``rhos``, both positive.

    >>> [round(gamma, 2) for gamma in error_gammas((0.01, 0.1), count=256)]
    [25.0, 9.2, 3.38, 1.24, 0.46, 0.17, 0.06]
    """
    low, high = rhos
    require(0 < low <= high < math.inf, "rhos", "be positive, finite and in order", rhos)
    require_count("count", count)
    largest, smallest, step = _LARGEST / low, _SMALLEST / (count * high), _STEP * count**-0.25
    more = max(0, math.ceil(math.log(largest / smallest) / step))
    return tuple(largest * math.exp(-step * index) for index in range(more + 1))


def error_means(costs: Tensor, gammas: tuple[float, ...], failure: float) -> dict[float, float]:
    """γ → upper bound on E (1 − γτ)₊, simultaneously valid with probability at least 1 − failure.

    Args:
        costs: (n,) τ of independent samples, in an order that does not depend on them; ∞ if no error is
            possible.
    """
    each = failure / len(gammas)
    # Rounding may have made every (1 − γτ)₊ smaller by some 2⁻⁵², and so their mean.
    return {gamma: up(betting((1 - gamma * costs).clamp(0, 1), 1.0, each), SOME) + FEW for gamma in gammas}
