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


def worst_error(costs: Tensor, rhos: Sequence[float]) -> list[float]:
    """The largest share of errors at each ρ ≥ 0; ``costs`` is (n,), ≥ 0, ∞ where no error can be bought.

    >>> worst_error(torch.tensor([0.0, 0.2, 0.4, float("inf")], dtype=torch.float64), [0.0, 0.05, 0.1, 9.0])
    [0.25, 0.5, 0.625, 0.75]
    """
    count, unknown = len(costs), torch.isnan(costs)
    require(
        not bool(unknown.any()), "costs", "be numbers or infinite", f"NaN at {int(unknown.sum())} samples"
    )
    finite = costs[torch.isfinite(costs)].double().sort().values
    spent = torch.cat([finite.new_zeros(1), finite.cumsum(0)]) / count
    shares = []
    for rho in rhos:
        whole = int((spent <= rho).sum()) - 1  # samples that are paid for in full
        part = 0.0
        if whole < len(finite):
            part = float((rho - spent[whole]) * count / finite[whole])
        shares.append((whole + min(max(part, 0.0), 1.0)) / count)
    return shares
