"""The loop of a monotone ascent: every sample climbs by itself, and leaves the batch when it has arrived.

A step that does not raise f enough is taken back and shortened, so every sample is monotone. A sample whose
gap is within the tolerance leaves the batch, and costs no more gradients. Its last gradient allows one more
step, to ``onward``; f is not measured there. The batch shrinks in sixteenths: convolutions keep memory for
every batch size they meet, and meeting all of them would cost more than a few finished samples that ride
along.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from certus.batches import per_sample
from certus.errors import require, require_count
from certus.surrogate.maximizers.base import Callback, Maximizer, converged, solution_at
from certus.surrogate.objective import Evaluation, Objective
from certus.surrogate.solution import InnerSolution, Status, assemble

_SUFFICIENT = 1e-4  # share of the promised gain that a step must deliver (Armijo)
_SHARES = 16  # of the batch: the sizes it may shrink to
_HOPELESS = 1e-8  # a length that has failed down to here will not succeed


@dataclass(frozen=True)
class MonotoneAscent(Maximizer):
    """Steps of a (batch,) length, in units of 1/2γ; what a step is, and its next length, is the subclass's.

    Args:
        tolerance: ε of Algorithm 1, in units of the loss: a sample stops when its gap is at most this.
        max_gradients: the most gradients that one sample may cost.
    """

    tolerance: float = 5e-3
    max_gradients: int = 8

    @property
    def compares_values(self) -> bool:
        return True

    def careful(self) -> MonotoneAscent:
        return type(self)(min(self.tolerance, 1e-4), max(self.max_gradients, 32))

    def __post_init__(self) -> None:
        require(self.tolerance >= 0, "tolerance", "not be negative", self.tolerance)
        require_count("max_gradients", self.max_gradients)

    @abstractmethod
    def _evaluate(self, objective: Objective, point: Tensor) -> Evaluation:
        """The objective at these points, for one gradient per sample."""

    @abstractmethod
    def _first_length(self, objective: Objective, at: Evaluation) -> Tensor:
        """(batch,) lengths to begin with."""

    @abstractmethod
    def _next_length(
        self, objective: Objective, old: Evaluation, new: Evaluation, length: Tensor, rises: Tensor
    ) -> Tensor:
        """(batch,) lengths after a step from ``old`` to ``new``: from there where f rises, else again."""

    def _aim(self, objective: Objective, at: Evaluation, length: Tensor) -> Evaluation:
        """The same points, with a target and a gain that may depend on the length."""
        return at

    def _gap(self, objective: Objective, at: Evaluation, length: Tensor) -> Tensor:
        """(batch,) bound or estimate of sup f − f."""
        return objective.gap(at)

    @abstractmethod
    def _step(self, objective: Objective, at: Evaluation, length: Tensor) -> Tensor:
        """(batch, …) points of Z to try next."""

    def maximize(self, objective: Objective, callback: Callback | None = None) -> InnerSolution:
        at = self._evaluate(objective, objective.origin)
        length = self._first_length(objective, at)
        blocked = ~at.finite  # met a point that is not finite
        everywhere = _Trace(at) if callback is not None else None
        places = torch.arange(len(length), device=length.device)
        climbing = torch.ones_like(blocked)
        share = max(1, len(length) // _SHARES)
        finished: list[tuple[Tensor, InnerSolution]] = []

        for spent in count(1):
            at = self._aim(objective, at, length)
            gap = self._gap(objective, at, length)
            met = (gap <= self.tolerance) & at.finite
            stuck = (at.gain <= _resolution(at.value)) | (length < _HOPELESS) | ~at.finite
            stop = climbing & (met | stuck | (spent >= self.max_gradients))
            if stop.any():
                status = torch.where(stuck, Status.STALLED, Status.MAX_STEPS)
                status = torch.where(blocked, Status.NONFINITE, status)
                status = torch.where(met, converged(objective), status)[stop]
                part, there = objective.select(stop), at.select(stop)
                onward = self._step(part, there, length[stop])
                if blocked.any():
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
                    length, blocked, climbing = length[kept], blocked[kept], climbing[kept]

            new = self._evaluate(objective, self._step(objective, at, length))
            promised = _SUFFICIENT * length.clamp_max(1) * at.gain
            rises = new.finite & (new.value >= at.value + promised)
            length = self._next_length(objective, at, new, length, rises)
            blocked = blocked | ~new.finite
            at = at.replaced_by(new, where=rises)
            if callback is not None and everywhere is not None:
                everywhere.update(places[climbing], at.select(climbing))
                callback(spent, everywhere.point, everywhere.value)
        raise AssertionError("the loop above returns")


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
