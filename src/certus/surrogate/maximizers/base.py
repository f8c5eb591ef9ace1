"""What a maximiser of the inner problem is: an objective goes in, an ``InnerSolution`` comes out.

Algorithm 1 (alg:thealg) asks for an ε-approximate maximiser of ℓ(θ; z) − γ c(z, z₀), started at z₀.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from certus.costs import Support
from certus.surrogate.objective import Evaluation, Objective
from certus.surrogate.solution import InnerSolution, Status

Callback = Callable[[int, Tensor, Tensor], None]
"""``callback(step, point, value)``: after each step, the (batch, …) points and (batch,) values of f."""


class Maximizer(ABC):
    """Maximises f over Z, sample by sample, starting at z₀."""

    @abstractmethod
    def maximize(self, objective: Objective, callback: Callback | None = None) -> InnerSolution:
        """An approximate maximiser for each sample of the objective's batch."""

    @property
    def compares_values(self) -> bool:
        """Whether it compares values of the loss, which must then be the same at every look."""
        return False

    def careful(self) -> Maximizer:
        """One that is good enough to measure with: itself, unless it stops early."""
        return self


def converged(objective: Objective) -> Status:
    """The status of a sample that met the stopping rule."""
    return Status.CONVERGED if objective.support is Support.EXACT else Status.HEURISTIC


def solution_at(
    objective: Objective, at: Evaluation, gap: Tensor, gradients: int, status: Tensor, onward: Tensor
) -> InnerSolution:
    """What is known about the points reached, each at the same price in gradients."""
    return InnerSolution(
        inputs=at.point,
        onward=onward,
        targets=objective.targets,
        value=at.value,
        transport_cost=at.cost,
        gradient_norm=objective.gradient_norm(at),
        gap=gap,
        gradients=torch.full_like(status, gradients, dtype=torch.long),
        status=status,
        gap_evidence=objective.gap_evidence,
        assumptions=objective.assumptions,
    )
