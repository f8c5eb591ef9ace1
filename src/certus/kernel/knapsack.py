"""The worst error rate under a mean transport cost ρ, by weak duality at a given γ.

For the 0–1 loss φ_γ(z₀) = (1 − γτ)₊, τ the least cost of an error of the sample. Hence for every γ ≥ 0, and
every lower bound τ ≥ 0 on these costs, ∞ where no error is possible,

    sup {P(error) : W_c(P, P̂_n) ≤ ρ} ≤ γρ + E_n (1 − γτ)₊.

The least right-hand side is a fractional knapsack, at the inverse cost of the last error that ρ pays for: a
proposal; any γ is valid. At γ = 0 it is the share of samples with finite τ, the limit of small γ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from certus.kernel.passes import Refused
from certus.kernel.rounding import FEW, SOME, mean_up


def error_gains(costs: Tensor, gamma: float) -> Tensor:
    """At least (1 − γτ)₊ of (n,) costs τ, and at most 1. Returns (n,) float64."""
    if not 0 <= gamma < math.inf or not bool((costs >= 0).all()):
        raise Refused(f"costs of errors must be at least 0, and gamma finite; got gamma = {gamma}")
    gains = 1 - gamma * costs.double().where(torch.isfinite(costs), 0.0)
    # 1 − γτ is off by 2⁻⁵² where γτ ≤ 1.
    return (gains + FEW).clamp(0, 1).where(torch.isfinite(costs), 0.0)


def worst_error_rate(costs: Tensor, rho: float, gamma: float, weights: Tensor | None = None) -> float:
    """γρ + E_n (1 − γτ)₊, at least, and at most 1; (n,) weights have mean 1, and also weigh the costs."""
    if not 0 <= rho < math.inf or (weights is not None and not bool((weights >= 0).all())):
        raise Refused(f"rho and weights must be at least 0; got rho = {rho}")
    return min(1.0, dual_bound({gamma: mean_up(error_gains(costs, gamma), weights)}, rho))


def dual_bound(means: Mapping[float, float], rho: float) -> float:
    """min_γ γρ + U_γ, at least, where U_γ ≥ E φ_γ for each γ ≥ 0 of a grid: a bound on the worst mean."""
    if min(means, default=0.0) < 0:
        raise Refused(f"gamma must be at least 0; got {min(means)}")
    bounds = (gamma * rho + mean + SOME * (gamma * rho + abs(mean)) for gamma, mean in means.items())
    return min(bounds, default=math.inf)
