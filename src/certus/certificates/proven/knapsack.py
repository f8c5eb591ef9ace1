"""The error rate that moving the data at mean cost ρ can bring about: a fractional knapsack.

For the 0–1 loss φ_γ(z₀) = (1 − γτ)₊, with τ the least cost of an error, so that by linear programming duality

    inf_γ γρ + E_n (1 − γτ)₊ = max {(1/n) Σ wᵢ : (1/n) Σ wᵢτᵢ ≤ ρ, 0 ≤ w ≤ 1}

and the adversary spends ρ on the samples of smallest τ first. With a lower bound on every τ the value is an
upper bound on the worst error rate over W_c ≤ ρ; with costs of errors that were found, it is attained.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from certus.errors import require


def worst_error(costs: Tensor, rhos: Sequence[float], weights: Tensor | None = None) -> list[float]:
    """The largest share of errors at each ρ ≥ 0; ``costs`` is (n,), ≥ 0, ∞ where no error can be bought.

    Args:
        weights: (n,) with a mean of 1, for samples that count differently: they share the price as well.

    >>> worst_error(torch.tensor([0.0, 0.2, 0.4, float("inf")], dtype=torch.float64), [0.0, 0.05, 0.1, 9.0])
    [0.25, 0.5, 0.625, 0.75]
    """
    count, unknown = len(costs), torch.isnan(costs)
    require(
        not bool(unknown.any()), "costs", "be numbers or infinite", f"NaN at {int(unknown.sum())} samples"
    )
    known = torch.isfinite(costs)
    finite, order = costs[known].double().sort()
    if weights is not None:
        return [_weighted_share(finite, weights[known].double()[order] / count, rho) for rho in rhos]
    spent = torch.cat([finite.new_zeros(1), finite.cumsum(0)]) / count
    shares = []
    for rho in rhos:
        whole = int((spent <= rho).sum()) - 1  # samples that are paid for in full
        part = 0.0
        if whole < len(finite):
            part = float((rho - spent[whole]) * count / finite[whole])
        shares.append((whole + min(max(part, 0.0), 1.0)) / count)
    return shares


def _weighted_share(costs: Tensor, masses: Tensor, rho: float) -> float:
    """Masses of the cheapest errors, the last of them in part, that ρ pays for."""
    spent, gained = (costs * masses).cumsum(0), masses.cumsum(0)
    whole = int((spent <= rho).sum())  # samples that are paid for in full
    share, left = (0.0, rho) if whole == 0 else (float(gained[whole - 1]), rho - float(spent[whole - 1]))
    if whole < len(costs):
        share += min(max(left, 0.0) / float(costs[whole]), float(masses[whole]))
    return share
