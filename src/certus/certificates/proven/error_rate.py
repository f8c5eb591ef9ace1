"""The population's error rate: at most the smaller of two bounds, each with half of the failure allowed.

Let τ be a lower bound on the least cost of an error of a sample. Then (1 − γτ)₊ ∈ [0, 1] is a fixed function
of one sample, and for every γ the worst error rate within ρ of the population is at most γρ + E (1 − γτ)₊.

*DKW.* (1 − γτ)₊ is an average of indicators 1{τ ≤ t}, and the one-sided inequality of Dvoretzky, Kiefer,
Wolfowitz and Massart, P₀(τ ≤ t) ≤ P_n(τ ≤ t) + √(ln(1/δ)/2n) for all t, moves the knapsack of the sample up
by that much, for all γ and ρ at once. It costs the same whatever the error rate is.

*Betting.* For each γ of a grid Γ that was fixed beforehand, with failure δ/|Γ|, betting bounds E (1 − γτ)₊;
the smallest γρ + U_n(γ) counts, for all ρ at once. It costs little where errors are rare, or samples many.

Γ is geometric and follows from the ρ asked for and n alone. γρ ≥ ¼ can only prove error rates at which DKW is
as good; γρ ≤ 4/n is less than what n samples can tell. A finer grid leaves less of δ to each γ: the loss from
missing the best γ is quadratic in the log of the step, and the two balance where that log is proportional to
n^(−1/4).
"""

from __future__ import annotations

import math

from torch import Tensor

from certus.certificates.proven.concentration import betting
from certus.errors import require, require_count
from certus.outward import FEW, SOME, up

_LARGEST, _SMALLEST = 1 / 4, 4.0  # of γρ_min, and of nγρ_max
_STEP = 4.0  # the log of the ratio of neighbours, times n^(1/4)


def error_gammas(rhos: tuple[float, float], count: int) -> tuple[float, ...]:
    """Γ for ``count`` samples and ρ from the first to the second of ``rhos``, both positive.

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
    """γ → upper bound on E (1 − γτ)₊, all of them right with probability at least 1 − failure.

    Args:
        costs: (n,) τ of independent samples, in an order that does not depend on them; ∞ where no error can
            be.
    """
    each = failure / len(gammas)
    # Rounding may have made every (1 − γτ)₊ smaller by some 2⁻⁵², and so their mean.
    return {gamma: up(betting((1 - gamma * costs).clamp(0, 1), 1.0, each), SOME) + FEW for gamma in gammas}
