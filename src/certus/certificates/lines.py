"""Means over the samples: what one γ, or one attack, says of all of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from certus.certificates.levels import Level
from certus.certificates.proven.gap import Rule
from certus.outward import mean_down, mean_up


@dataclass(frozen=True)
class Line:
    """What one γ says of all ρ: the worst case is at most γρ + ``bound``, and at ρ̂ at least ``loss``.

    Attributes:
        bound: E φ̄_γ; rules: shares of the samples by the rule that proves their part.
        rho_hat, loss: E c(T̂_γ), rounded up, and E ℓ(T̂_γ), rounded down (eqn:tol-n).
    """

    gamma: float
    bound: float
    rho_hat: float
    loss: float
    rules: dict[str, float]

    @staticmethod
    def of(level: Level) -> Line:
        counts = torch.bincount(level.rule.long(), minlength=len(Rule)) / len(level.rule)
        return Line(
            level.gamma,
            mean_up(level.bound),
            mean_up(level.transport_cost),
            mean_down(level.loss),
            {rule.name.lower(): round(float(counts[rule]), 6) for rule in Rule if counts[rule] > 0},
        )


@dataclass(frozen=True)
class Push:
    """The samples moved by an attack that keeps each within cost ρ (eqn:certify-tests, left side).

    Attributes:
        transport_cost, loss: means, of the cost rounded up and of the loss rounded down.
    """

    rho: float
    transport_cost: float
    loss: float
