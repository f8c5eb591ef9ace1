"""Safeguarded per-sample Barzilai-Borwein ascent, the default: few gradients, none after convergence.

    x ← Π_Z(x + stride · (target(x) − x))

The stride is the secant estimate of the best one, 1/(1 − κ) with κ = ⟨Δx, Δtarget⟩/‖Δx‖²: the curvature
of the loss along the last move, as a share of the penalty's. The first stride is 1, exact for a linear loss.
A step that does not raise f enough is taken back and shortened, so every sample is monotone; a sample whose
gap is within the tolerance leaves the batch, and its gradients are no longer paid for. It leaves with one
step more in hand, ``onward``, which the last gradient paid for and nothing has measured. The batch shrinks
in sixteenths: convolutions keep memory for every batch size they meet, and meeting all of them would cost
more than a few finished samples that ride along.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from certus.batches import inner, per_sample
from certus.errors import require, require_count
from certus.surrogate.maximizers.base import Callback, Maximizer, converged, solution_at
from certus.surrogate.objective import Evaluation, Objective
from certus.surrogate.solution import InnerSolution, Status, assemble

_SUFFICIENT = 1e-4  # share of the promised gain that a step must deliver (Armijo)
_SHORTENED = 0.25  # what is left of a stride that failed
_SHORTEST, _LONGEST = 1e-2, 3.0  # secant strides stay between these
_SHARES = 16  # of the batch: the sizes it may shrink to
_HOPELESS = 1e-8  # a stride that has failed down to here will not succeed


@dataclass(frozen=True)
class BarzilaiBorwein(Maximizer):
    """Monotone ascent with secant strides, stopped sample by sample.

    Args:
        tolerance: ε of Algorithm 1, in units of the loss: a sample stops when its gap is at most this. The
            gap is a bound where the curvature is bounded, and else the estimate ‖∇f‖²/2γ.
        max_gradients: the most gradients that one sample may cost.
    """

    tolerance: float = 5e-3
    max_gradients: int = 8

    def __post_init__(self) -> None:
        require(self.tolerance >= 0, "tolerance", "not be negative", self.tolerance)
        require_count("max_gradients", self.max_gradients)

    def maximize(self, objective: Objective, callback: Callback | None = None) -> InnerSolution:
        at = objective.evaluate(objective.origin)
        stride = torch.ones_like(at.value)
        blocked = ~at.finite  # met a point that is not finite
        everywhere = _Trace(at) if callback is not None else None
        places = torch.arange(len(stride), device=stride.device)
        climbing = torch.ones_like(blocked)
        share = max(1, len(stride) // _SHARES)
        finished: list[tuple[Tensor, InnerSolution]] = []

        for spent in count(1):
            gap = objective.gap(at)
            met = (gap <= self.tolerance) & at.finite
            stuck = (at.gain <= _resolution(at.value)) | (stride < _HOPELESS) | ~at.finite
            stop = climbing & (met | stuck | (spent >= self.max_gradients))
            if stop.any():
                status = torch.where(stuck, Status.STALLED, Status.MAX_STEPS)
                status = torch.where(blocked, Status.NONFINITE, status)
                status = torch.where(met, converged(objective), status)[stop]
                part, there, length = objective.select(stop), at.select(stop), stride[stop]
                onward = _step(part, there, length)
                onward = torch.where(per_sample(blocked[stop], onward), there.point, onward)
                reached = solution_at(part, there, gap[stop], spent, status, onward)
                finished.append((places[stop], reached))
                climbing = climbing & ~stop
                left = int(climbing.sum())
                if left == 0:
                    return assemble(finished)
                size = share * -(-left // share)
                if size < len(climbing):
                    kept = climbing.int().argsort(descending=True, stable=True)[:size]
                    objective, at, places = objective.select(kept), at.select(kept), places[kept]
                    stride, blocked, climbing = stride[kept], blocked[kept], climbing[kept]

            new = objective.evaluate(_step(objective, at, stride))
            promised = _SUFFICIENT * stride.clamp_max(1) * at.gain
            rises = new.finite & (new.value >= at.value + promised)
            stride = torch.where(rises, _secant_stride(at, new), _SHORTENED * stride)
            blocked = blocked | ~new.finite
            at = at.replaced_by(new, where=rises)
            if callback is not None and everywhere is not None:
                everywhere.update(places[climbing], at.select(climbing))
                callback(spent, everywhere.point, everywhere.value)
        raise AssertionError("the loop above returns")


def _step(objective: Objective, at: Evaluation, stride: Tensor) -> Tensor:
    """(batch, …) ``stride`` times the way to the target, within Z."""
    move = per_sample(stride, at.point) * (at.target - at.point)
    return objective.domain.project(at.point + move)


def _secant_stride(old: Evaluation, new: Evaluation) -> Tensor:
    """(batch,) 1/(1 − κ), kept within bounds; the longest where the secant sees no concavity."""
    move = new.point - old.point
    share = inner(move, new.target - old.target) / inner(move, move)
    stride = torch.where(share < 1 - 1 / _LONGEST, 1 / (1 - share), _LONGEST)
    return stride.clamp_min(_SHORTEST)


def _resolution(value: Tensor) -> Tensor:
    """(batch,) the smallest increase of f that this floating-point type can show."""
    return 4 * torch.finfo(value.dtype).eps * value.abs()


class _Trace:
    """Points and values of the whole batch, of which only some samples still move."""

    def __init__(self, at: Evaluation) -> None:
        self.point, self.value = at.point.clone(), at.value.clone()

    def update(self, places: Tensor, at: Evaluation) -> None:
        self.point, self.value = self.point.clone(), self.value.clone()
        self.point[places], self.value[places] = at.point, at.value
