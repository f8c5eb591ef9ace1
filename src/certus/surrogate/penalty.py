"""γ that follows a target transport cost ρ, one small step per batch.

The dual γ ↦ γρ + E[φ_γ] (eqn:constrained) is convex with the derivative ρ − E[c(T_γ, Z)]: where the data
are moved by more than ρ the penalty must rise, where by less it must fall. The step is taken on log γ and
relative to ρ, so that it has the same effect on every scale,

    log γ ← log γ + rate · min(E[c(T_γ, Z)]/ρ − 1, 1)

Where ρ asks for a γ close to the threshold sγ = L⁺, E[c(T_γ, Z)] explodes as γ falls, and γ swings around.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import distributed

from certus.domains import Unbounded
from certus.errors import require
from certus.surrogate.objective import Objective
from certus.surrogate.solution import InnerSolution

_RATE = 0.1


class PenaltyControl:
    """The state of γ: None until the first batch."""

    def __init__(self, rho: float, gamma_min: float) -> None:
        for name, value in (("rho", rho), ("gamma_min", gamma_min)):
            valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
            require(valid, name, "be positive and finite", value)
        self.rho, self.gamma_min = rho, gamma_min
        self.gamma: float | None = None

    @property
    def at_floor(self) -> bool:
        return self.gamma is not None and self.gamma <= self.gamma_min

    def start(self, objective: Objective, weights: torch.Tensor | None = None) -> None:
        """First guess: the γ that would be right if the loss were linear, at the price of one gradient.

        A linear loss moves a point by δ/γ, δ its move at γ = 1, at a cost of c(δ)/γ².
        """
        linear = replace(objective, domain=Unbounded()).evaluate(objective.origin)
        cost = objective.cost.value(linear.target, objective.origin)
        mean = _mean(cost, linear.finite & torch.isfinite(cost), weights)
        guess = math.sqrt(mean / self.rho) if mean is not None and mean > 0 else 1.0
        self.gamma = max(guess, self.gamma_min)

    def update(self, found: InnerSolution, weights: torch.Tensor | None = None) -> None:
        """One step on log γ, from the mean transport cost of this batch over all processes."""
        assert self.gamma is not None
        finite = torch.isfinite(found.value) & torch.isfinite(found.transport_cost)
        mean = _mean(found.transport_cost, finite, weights)
        if mean is not None:
            excess = min(mean / self.rho - 1, 1.0)
            self.gamma = max(self.gamma * math.exp(_RATE * excess), self.gamma_min)


def _mean(values: torch.Tensor, known: torch.Tensor, weights: torch.Tensor | None) -> float | None:
    """The mean of the known ones over all processes, from sums and weights; None of nothing."""
    known_here = known.cpu()
    share = known_here.double() if weights is None else known_here * weights.cpu().double()
    sums = (torch.where(known_here, values.cpu().double(), 0.0) * share).sum()
    total = torch.stack([sums, share.sum()])
    if distributed.is_available() and distributed.is_initialized():
        total = total.to(values.device)  # processes share devices that have float64: MPS knows one only
        distributed.all_reduce(total)
    return float(total[0] / total[1]) if total[1] > 0 else None
