"""Upper confidence bounds on means of n independent samples ψ ∈ [0, B], and DKW's on distribution functions.

Each holds but with probability δ. Assumed: the samples are independent, and nothing was tuned on them; for
betting, whose bet on a sample depends on those before, also that their order was fixed without looking at
them, as a random permutation is and that of a stored file may not be.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from certus.kernel.passes import Refused
from certus.kernel.rounding import FEW, SOME, mean_up, slack, up

_MOST = 0.9  # largest fraction of the wealth in one bet


def random_order(count: int, seed: int) -> Tensor:
    """The numbers 0 … n − 1 in the random order of a seed, by the counter-based generator Philox. (n,) int64.

    >>> random_order(8, seed=0).tolist()
    [0, 2, 1, 5, 4, 3, 6, 7]
    """
    keys = np.random.Philox(key=np.array([seed, 0], dtype=np.uint64)).random_raw(count)
    return torch.from_numpy(np.asarray(keys, dtype=np.uint64).argsort(kind="stable"))


def mean_at_most(inequality: str, values: Tensor, ceiling: float, failure: float, claim: float) -> float:
    """Bound E ψ from above by "betting", for a claim, or by "bernstein" or "hoeffding", without one."""
    if inequality == "betting":
        return betting(values, ceiling, failure, claim)
    if inequality not in ("bernstein", "hoeffding"):
        raise Refused(f"there is no inequality {inequality}")
    return (hoeffding if inequality == "hoeffding" else empirical_bernstein)(values, ceiling, failure)


def hoeffding(values: Tensor, ceiling: float, failure: float) -> float:
    """mean + B√(ln(1/δ)/2n), at least, and at most B."""
    values = _checked(values, ceiling, failure)
    return min(ceiling, up(mean_up(values) + hoeffding_margin(len(values), ceiling, failure), SOME))


def hoeffding_margin(count: int, ceiling: float, failure: float) -> float:
    """B√(ln(1/δ)/2n), up to rounding."""
    if not (count >= 1 and 0 < failure < 1 and 0 < ceiling < math.inf):
        raise Refused(f"{count} samples up to {ceiling}, failure {failure}")
    return ceiling * math.sqrt(_log(1 / failure) / (2 * count))


def empirical_bernstein(values: Tensor, ceiling: float, failure: float) -> float:
    """mean + √(2V ln(2/δ)/n) + 7B ln(2/δ)/(3(n − 1)), at least, and at most B (Maurer and Pontil).

    V = Σ(ψ − mean)²/(n − 1) is at most the same with any number in place of the mean, so with a rounded one.
    """
    values = _checked(values, ceiling, failure)
    count, log = len(values), _log(2 / failure)
    if count < 2:
        return ceiling
    variance = mean_up((values - values.mean()) ** 2) * count / (count - 1)
    wide = math.sqrt(2 * variance * log / count) + 7 * ceiling * log / (3 * (count - 1))
    return min(ceiling, up(mean_up(values) + wide, SOME))


def betting(values: Tensor, ceiling: float, failure: float, claim: float) -> float:
    """The claim u, proven to be at least E ψ (Waudby-Smith and Ramdas).

    Let w = 1 − ψ/B and m = 1 − u/B. If E ψ = u, the wealth Π (1 + λ_t(w_t − m)) is a martingale ≥ 0, since
    the bets λ_t ∈ [0, 0.9] depend on w_1 … w_{t−1} only; so it ever reaches 1/δ with probability at most δ
    (Ville). The bets do not depend on u: the wealth grows with u, and where it reaches 1/δ for some u < E ψ
    it does so for E ψ. All claims for which it does therefore hold together, those that were chosen after
    seeing the samples included. The (n,) values are in an order that does not depend on them.
    """
    _checked(values, ceiling, failure)
    if claim >= ceiling:
        return ceiling
    if not (claim >= 0 and log_wealth(values, ceiling, failure, claim) >= _log(1 / failure)):
        raise Refused(f"a mean of at most {claim} of {len(values)} values up to {ceiling}, at {failure}")
    return claim


def log_wealth(values: Tensor, ceiling: float, failure: float, claim: float) -> float:
    """Return a lower bound on the logarithm of the largest wealth of a bettor, for a claim 0 ≤ u < B."""
    gains = 1 - _checked(values, ceiling, failure).numpy() / ceiling
    count, times = len(gains), np.arange(2, len(gains) + 2)
    means = (gains.cumsum() + 0.5) / times
    spread = (((gains - means) ** 2).cumsum() + 0.25) / times
    before = np.concatenate([[0.25], spread[:-1]])
    bets = np.minimum(np.sqrt(2 * _log(1 / failure) / (count * before)), _MOST)
    # w and m are off by 2⁻⁵² each, and m is raised by more: a step is right to few units of its last place.
    steps = np.log1p(bets * (gains - (1 - claim / ceiling + slack(0))))
    return float((steps.cumsum() - slack(count) * np.abs(steps).cumsum()).max())


def dkw(count: int, failure: float) -> float:
    """√(ln(1/δ)/2n), at least, for δ ≤ ½ (Massart).

    P(τ ≤ t) is at most P_n(τ ≤ t) + dkw for all t at once, and E (1 − γτ)₊, their mean over t, for all γ.
    """
    if not (count >= 1 and 0 < failure <= 0.5):
        raise Refused(f"DKW needs at least 1 sample and 0 < failure <= 0.5; got {count}, failure {failure}")
    return up(math.sqrt(_log(1 / failure) / (2 * count)), SOME)


def _log(number: float) -> float:
    """ln of a number ≥ 1, at least."""
    return up(math.log(number), SOME) + FEW


def _checked(values: Tensor, ceiling: float, failure: float) -> Tensor:
    valid = 0 < ceiling < math.inf and 0 < failure < 1 and len(values) > 0
    if not valid or not bool(((values >= 0) & (values <= ceiling)).all()):
        raise Refused(
            "a mean needs values from 0 to a finite ceiling and 0 < failure < 1; "
            f"got {len(values)} values, ceiling {ceiling}, failure {failure}"
        )
    return values.double()
