"""Design of a smoothed certificate: the grid of γ, the coefficients of each γ, and its share of δ.

All of it is fixed before the certified samples are seen, from a few calibration samples. With their errors K
of m draws, and ĥ = (K + ½)/(m + 1) in place of h, the plug-in bound κρ/σ² + mean F_κ(Φ⁻¹(ĥ)) tells which κ
matter for the requested ρ. A bad guess loosens the bounds, and never invalidates them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from certus.smoothing.binomial import Floats
from certus.smoothing.coefficients import guessed_spread, lifted, propose
from certus.smoothing.confidence import GammaDesign, spend_alpha
from certus.smoothing.neyman_pearson import NeymanPearsonBound, worst_failure_probability
from certus.smoothing.voting import VotingRule

_RATIO = 1.4  # of neighbouring κ
_LOWEST, _HIGHEST = 1e-4, 1e4
_BETWEEN = 9  # ρ that the grid serves, from the smallest to the largest asked for


def make_design(
    rule: VotingRule,
    errors: Floats,
    draws: int,
    rhos: Sequence[float],
    sigma: float,
    price: float | None = None,
    *,
    samples: int,
    failure: float,
) -> list[GammaDesign]:
    """Γ, its coefficients and their shares of δ, the leader first.

    Args:
        errors: (calibration,) errors of ``draws`` noisy copies; sums of losses between 0 and 1 do as well.
        rhos: those of interest.
        price: λ, at which labels change; None: never.
        samples, failure: n and δ of the bets to come.
    """
    spread = guessed_spread(errors, draws)
    designs = [
        GammaDesign(kappa / sigma**2, lifted(propose(envelope, spread), envelope))
        for kappa in reversed(_penalties(rule, errors, draws, rhos, sigma, price))
        for envelope in [NeymanPearsonBound.of(rule, kappa, _label_floor(kappa, sigma, price))]
    ]
    return spend_alpha(designs, errors, _served(rhos, sigma), samples, failure)


def _penalties(
    rule: VotingRule, errors: Floats, draws: int, rhos: Sequence[float], sigma: float, price: float | None
) -> list[float]:
    """κ that are best for some ρ on the calibration samples, in increasing order."""
    known, times = np.unique(errors, return_counts=True)
    scores = ndtri((known + 0.5) / (draws + 1))
    count = 1 + math.ceil(math.log(_HIGHEST / _LOWEST) / math.log(_RATIO))
    candidates = [_LOWEST * _RATIO**index for index in range(count)]
    means = []
    for kappa in candidates:
        values = worst_failure_probability(rule, kappa, scores, overshoot=1e-3)
        values = np.maximum(values, _label_floor(kappa, sigma, price))
        means.append(float(np.minimum(values, 1.0) @ times / times.sum()))
    best = {
        min(range(count), key=lambda index: candidates[index] * rho / sigma**2 + means[index])
        for rho in _served(rhos, sigma)
    }
    return [candidates[index] for index in sorted(best)]


def _served(rhos: Sequence[float], sigma: float) -> list[float]:
    """ρ that the plan is made for: those asked for, but 0, and some between them."""
    positive = [rho for rho in rhos if rho > 0] or [sigma**2]
    return [*positive, *np.geomspace(min(positive), max(positive), _BETWEEN).tolist()]


def _label_floor(kappa: float, sigma: float, price: float | None) -> float:
    """(1 − γλ)₊: what a changed label brings."""
    return 0.0 if price is None else max(0.0, 1 - kappa / sigma**2 * price)
