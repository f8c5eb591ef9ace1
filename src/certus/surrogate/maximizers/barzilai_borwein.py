"""Safeguarded per-sample Barzilai-Borwein ascent, the default: few gradients, none after convergence.

    x ← Π_Z(x + stride · (target(x) − x))

The stride is the secant estimate of the best one, 1/(1 − κ) with κ = ⟨Δx, Δtarget⟩/‖Δx‖²: the curvature
of the loss along the last move, as a share of the penalty's. The first stride is 1, exact for a linear loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from certus.batches import inner, per_sample
from certus.surrogate.maximizers.monotone import MonotoneAscent
from certus.surrogate.objective import Evaluation, Objective

_SHORTENED = 0.25  # what is left of a stride that failed
_SHORTEST, _LONGEST = 1e-2, 3.0  # secant strides stay between these


@dataclass(frozen=True)
class BarzilaiBorwein(MonotoneAscent):
    """Monotone ascent with secant strides, stopped sample by sample.

    Args:
        tolerance: ε of Algorithm 1, in units of the loss: a sample stops when its gap is at most this. The
            gap is a bound where the curvature is bounded, and else the estimate ‖∇f‖²/2γ.
        max_gradients: the most gradients that one sample may cost.
    """

    def _evaluate(self, objective: Objective, point: Tensor) -> Evaluation:
        return objective.evaluate(point)

    def _first_length(self, objective: Objective, at: Evaluation) -> Tensor:
        return torch.ones_like(at.value)

    def _step(self, objective: Objective, at: Evaluation, length: Tensor) -> Tensor:
        """``length`` times the way to the target, within Z."""
        move = per_sample(length, at.point) * (at.target - at.point)
        return objective.domain.project(at.point + move)

    def _next_length(
        self, objective: Objective, old: Evaluation, new: Evaluation, length: Tensor, rises: Tensor
    ) -> Tensor:
        """1/(1 − κ), kept within bounds; the longest where the secant sees no concavity."""
        move = new.point - old.point
        share = inner(move, new.target - old.target) / inner(move, move)
        stride = torch.where(share < 1 - 1 / _LONGEST, 1 / (1 - share), _LONGEST)
        return torch.where(rises, stride.clamp_min(_SHORTEST), _SHORTENED * length)
