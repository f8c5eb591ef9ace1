"""The paper's ascent: a fixed number of steps whose lengths fall as 1/√t (sec:toy, sec:mnist-real).

    x ← Π_Z(x + (target(x) − x)/√t),   t = 1, …, steps

For c = ‖z − z₀‖₂² the step is (1/2γ)/√t times ∇f. Taken literally, 1/√t times ∇f diverges for large γ;
measured in units of 1/2γ it is exact for a linear loss, and it is what the authors ran.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from certus.errors import require, require_count
from certus.surrogate.maximizers.base import Callback, Maximizer, converged, solution_at
from certus.surrogate.objective import Objective
from certus.surrogate.solution import InnerSolution, Status


@dataclass(frozen=True)
class PaperAscent(Maximizer):
    """The paper's schedule, exactly: every sample takes every step, up or down.

    It costs ``steps`` gradients that move the point, and one more that measures where it arrived. A step
    to a point where the loss is not finite is not taken, and the sample stays where it was.

    Args:
        steps: T_adv; 15 in the paper, 16 in its authors' code.
        tolerance: what ``Status.CONVERGED`` means for the final gap; the schedule never stops early.
    """

    steps: int = 15
    tolerance: float = 5e-3

    def __post_init__(self) -> None:
        require_count("steps", self.steps)
        require(self.tolerance >= 0, "tolerance", "not be negative", self.tolerance)

    def maximize(self, objective: Objective, callback: Callback | None = None) -> InnerSolution:
        at = objective.evaluate(objective.origin)
        finite = at.finite
        for step in range(1, self.steps + 1):
            move = (at.target - at.point) / math.sqrt(step)
            new = objective.evaluate(objective.domain.project(at.point + move))
            finite = finite & new.finite
            at = at.replaced_by(new, where=finite)
            if callback is not None:
                callback(step, at.point.clone(), at.value.clone())
        gap = objective.gap(at)
        status = torch.where(gap <= self.tolerance, converged(objective), Status.MAX_STEPS)
        status = torch.where(finite, status, Status.NONFINITE)
        return solution_at(objective, at, gap, self.steps + 1, status, onward=at.point)
