"""Fair budgets: how far other attacks may move, so that they move as far as WRM did.

    ε² = ρ̂_n(θ_WRM) = E_n[c(T_γ(θ_WRM; Z), Z)]  for p = 2, and for c = ‖·‖_p²          [eqn:fgm-fair]
    ε = E_n‖T_γ(θ_WRM; Z) − Z‖_p                 for p = 1, ∞ and other costs          [eq:inf-from-2]

Both are *estimated*, by the ascent. The paper's figures give ε in units of C_p = E‖X‖_p.
"""

from __future__ import annotations

from certus.attacks.balls import check_norm
from certus.errors import require, require_count
from certus.losses import AnyLoss
from certus.norms import Lp
from certus.split import Split
from certus.surrogate import WRM


def fair_epsilon(wrm: WRM, loss: AnyLoss, data: Split, norm: float, batch_size: int = 256) -> float:
    """The ε that gives an attack in the norm p the reach of this WRM on these data.

    >>> import torch
    >>> slope = torch.tensor([3.0, 4.0])
    >>> data = Split(torch.zeros(4, 2), torch.zeros(4, dtype=torch.long))
    >>> fair_epsilon(WRM(0.5), lambda x, y: x @ slope, data, norm=2.0)      # ‖slope‖/2γ
    5.0
    """
    check_norm(norm)
    require_count("batch_size", batch_size)
    require(len(data) > 0, "data", "not be empty", f"{len(data)} samples")
    total, length = 0.0, Lp(norm)
    squared = norm == 2 or _is_own(wrm, norm)
    for first in range(0, len(data), batch_size):
        batch = data[first : first + batch_size]
        move = wrm.solve(loss, batch.inputs, batch.targets).inputs - batch.inputs
        lengths = length(move).cpu().double()
        total += float((lengths**2 if squared else lengths).sum())
    mean = total / len(data)
    return mean**0.5 if squared else mean


def _is_own(wrm: WRM, norm: float) -> bool:
    """Whether the cost is the square of this norm."""
    balls = wrm.cost.stepping(wrm.domain)
    return balls.own and balls.p == norm


def typical_length(data: Split, norm: float) -> float:
    """C_p = E‖X‖_p, the unit of ε in the paper's figures.

    >>> import torch
    >>> typical_length(Split(torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([0, 1])), norm=2.0)
    3.0
    """
    check_norm(norm)
    require(len(data) > 0, "data", "not be empty", f"{len(data)} samples")
    return float(Lp(norm)(data.inputs).cpu().double().mean())
