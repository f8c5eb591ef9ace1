"""The worst error rate under a mean transport cost ρ: a fractional knapsack.

For the 0–1 loss φ_γ(z₀) = (1 − γτ)₊, with τ the least cost of an error, so that by linear programming duality

    inf_γ γρ + E_n (1 − γτ)₊ = max {(1/n) Σ wᵢ : (1/n) Σ wᵢτᵢ ≤ ρ, 0 ≤ w ≤ 1}

and the adversary spends ρ on the samples of smallest τ first. With a lower bound on every τ the value is an
upper
bound on the worst error rate over W_c ≤ ρ; with the costs of errors that were found, it is attained.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from certus.errors import require


def worst_error(costs: Tensor, rhos: Sequence[float], weights: Tensor | None = None) -> list[float]:
    """The largest error rate at each ρ ≥ 0; ``costs`` is (n,), ≥ 0, and ∞ where no error is possible.

    Args:
        weights: (n,) sample weights with mean 1, which also weigh the costs.

    >>> worst_error(torch.tensor([0.0, 0.2, 0.4, float("inf")], dtype=torch.float64), [0.0, 0.05, 0.1, 9.0])
    [0.25, 0.5, 0.625, 0.75]
    """
    count, unknown = len(costs), torch.isnan(costs)
    require(not bool(unknown.any()), "costs", "not be NaN", f"NaN at {int(unknown.sum())} samples")
    possible = torch.isfinite(costs)
    finite, order = costs[possible].double().sort()
    if weights is not None:
        return [_weighted_share(finite, weights[possible].double()[order] / count, rho) for rho in rhos]
    spent = torch.cat([finite.new_zeros(1), finite.cumsum(0)]) / count
    shares = []
    for rho in rhos:
        whole = int((spent <= rho).sum()) - 1  # samples that ρ pays for in full
        part = 0.0
        if whole < len(finite):
            part = float((rho - spent[whole]) * count / finite[whole])
        shares.append((whole + min(max(part, 0.0), 1.0)) / count)
    return shares


def _weighted_share(costs: Tensor, masses: Tensor, rho: float) -> float:
    """Total mass of the cheapest errors that ρ pays for, the last one in part."""
    spent, gained = (costs * masses).cumsum(0), masses.cumsum(0)
    whole = int((spent <= rho).sum())  # samples that ρ pays for in full
    share, left = (0.0, rho) if whole == 0 else (float(gained[whole - 1]), rho - float(spent[whole - 1]))
    if whole < len(costs):
        share += min(max(left, 0.0) / float(costs[whole]), float(masses[whole]))
    return share
