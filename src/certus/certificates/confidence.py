"""Proposals for the kernel's confidence bounds: means, success probabilities, and the γ grid of error rates.

The population's error rate is at most the smaller of two bounds, each with half of the failure probability.
Let τ be a lower bound on the least cost of an error of a sample. *DKW* raises the sample's knapsack by
√(ln(1/δ)/2n), for all ρ at once, whatever the error rate is. *Betting*, with failure probability δ/|Γ| for
each γ of a grid Γ that was fixed beforehand, bounds E (1 − γτ)₊; the smallest γρ + U_n(γ) counts, for all ρ
at once. It adds little if errors are rare or samples many.

Γ is geometric and depends on the range of ρ and on n only. γρ ≥ ¼ can only prove error rates at which DKW is
as good; γρ ≤ 4/n is below the resolution of n samples. A finer grid leaves less of δ to each γ: the loss from
missing the best γ is quadratic in the log of the step, and the two balance where that log is proportional to
n^(−1/4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from scipy.optimize import brentq
from scipy.special import betaincinv
from torch import Tensor

from certus.errors import require, require_count
from certus.kernel import binomial, concentration
from certus.kernel.error_rates import error_gains
from certus.kernel.passes import Refused
from certus.kernel.rounding import SOME, up

_NARROW = 1e-14  # of B: where the search for a mean ends
MARGINS = (1e-14, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-6, 1e-3)  # by which a claim stays away from its limit


def first_proven(check: Callable[[float], float], claims: Iterable[float]) -> float | None:
    """Return the kernel's result for the first claim that it accepts."""
    for claim in claims:
        try:
            return check(claim)
        except Refused:
            continue
    return None


def hoeffding(values: Tensor, ceiling: float, failure: float) -> float:
    """mean + B√(ln(1/δ)/2n)."""
    _check(values, ceiling, failure)
    return concentration.hoeffding(values, ceiling, failure)


def empirical_bernstein(values: Tensor, ceiling: float, failure: float) -> float:
    """mean + √(2V ln(2/δ)/n) + 7B ln(2/δ)/(3(n − 1)), V the sample variance (Maurer and Pontil)."""
    _check(values, ceiling, failure)
    return concentration.empirical_bernstein(values, ceiling, failure)


def betting(values: Tensor, ceiling: float, failure: float) -> float:
    """The least mean that betting proves (Waudby-Smith and Ramdas). It depends on the order of samples."""
    _check(values, ceiling, failure)

    goal = up(math.log(1 / failure), 2 * SOME)

    def surplus(claim: float) -> float:
        return concentration.log_wealth(values, ceiling, failure, claim) - goal

    mean, largest = float(values.double().mean()), math.nextafter(ceiling, 0.0)
    if mean >= largest or surplus(largest) <= 0:
        return ceiling
    low, high = (mean, largest) if surplus(mean) < 0 else (0.0, mean)
    least = brentq(surplus, low, high, xtol=_NARROW * ceiling)
    claims = (least + margin * ceiling for margin in MARGINS)
    proven = first_proven(partial(concentration.betting, values, ceiling, failure), claims)
    return ceiling if proven is None else proven


def dkw(count: int, failure: float) -> float:
    """√(ln(1/δ)/2n), for δ ≤ ½ (Massart)."""
    require(0 < failure <= 0.5, "failure", "lie in (0, 0.5]", failure)
    return concentration.dkw(count, failure)


def clopper_pearson(successes: int, count: int, failure: float) -> float:
    """Lower confidence bound on a success probability: p with P(Bin(n, p) ≥ k) = δ, rounded down.

    >>> round(clopper_pearson(8, 10, 0.05), 4), clopper_pearson(0, 10, 0.05)
    (0.4931, 0.0)
    """
    require_count("count", count)
    require(0 < failure < 1, "failure", "lie between 0 and 1", failure)
    require(0 <= successes <= count, "successes", f"lie between 0 and {count}", successes)
    claims = success_claims(successes, count, failure)
    return first_proven(partial(binomial.clopper_pearson, successes, count, failure), claims) or 0.0


def success_claims(successes: int, count: int, failure: float) -> Iterator[float]:
    """Yield probabilities that Clopper and Pearson's bound may prove, the largest first."""
    levels = (failure * (1 - margin) for margin in MARGINS if successes)
    return (float(betaincinv(successes, count - successes + 1, level)) for level in levels)


Inequality = Callable[[Tensor, float, float], float]
INEQUALITIES: dict[str, Inequality] = {
    "betting": betting,
    "bernstein": empirical_bernstein,
    "hoeffding": hoeffding,
}


def _check(values: Tensor, ceiling: float, failure: float) -> None:
    require(0 < ceiling < math.inf, "clip", "be positive and finite", ceiling)
    require(0 < failure < 1, "failure", "lie between 0 and 1", failure)
    require(len(values) > 0, "values", "not be empty", "none")
    inside = bool(((values >= 0) & (values <= ceiling)).all())
    require(
        inside, "values", f"lie between 0 and {ceiling}", f"{float(values.min())} to {float(values.max())}"
    )


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
    return {gamma: betting(error_gains(costs, gamma), 1.0, each) for gamma in gammas}
