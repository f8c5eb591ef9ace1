"""Which features a model is fragile in: the worst case if one of them moves, and nothing else does.

sup {E_P ℓ : W_c(P, P_n) ≤ by²},       c(x, x₀) = (x_j − x₀_j)²/s_j²,  ∞ if another feature moves
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from certus.certificates import certify_straight
from certus.costs import Masked, WeightedL2, feature_mask
from certus.errors import require_number
from certus.losses import Criterion
from certus.split import Split


@dataclass(frozen=True)
class FeatureBracket:
    """What moving one feature can do.

    Attributes:
        feature: its name.
        loss_low, loss_high: the worst mean loss is at least (*attained*) and at most (*proven*) this.
        error_low, error_high: the same of the error rate; None for a regression.
    """

    feature: str
    loss_low: float
    loss_high: float
    error_low: float | None
    error_high: float | None


def fragile(
    module: nn.Module,
    data: Split,
    criterion: Criterion,
    *,
    spreads: np.ndarray,
    names: Sequence[str],
    by: float,
) -> list[FeatureBracket]:
    """Brackets for each feature, by the loss that was attained, the largest first."""
    require_number("by", by)
    inner = WeightedL2(torch.from_numpy(1 / spreads**2))
    found = []
    for place, name in enumerate(names):
        cost = Masked(inner, feature_mask(len(names), [place]))
        at = certify_straight(module, data, rho=by**2, criterion=criterion, cost=cost).bracket(by**2)
        found.append(FeatureBracket(name, at.loss_low, at.loss_high, at.error_low, at.error_high))
    return sorted(found, key=lambda one: -one.loss_low)
