"""The largest entry of each window: Lipschitz, but not smooth."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from certus.kernel.passes import ForwardBound, GradientBound, Place, Refused, Totals, norm
from certus.kernel.primitive import Memory, Primitive, Rounded, Shape
from certus.kernel.rounding import FEW, slack, up


@dataclass(frozen=True, eq=False)
class MaxPool(Primitive):
    """The maximum over windows that are products of intervals, for every channel.

    Attributes:
        windows: for each spatial axis, (outputs, entries) positions that an output is the maximum of; −1 for
            none. Every window has at least one.
        in_shape: (channels, *sizes).
    """

    windows: tuple[Tensor, ...]
    in_shape: Shape
    out_shape: Shape = field(init=False)
    overlap: int = field(init=False)

    def __post_init__(self) -> None:
        if any(bool((window < 0).all(1).any()) for window in self.windows):
            raise Refused("a window of a maximum is empty")
        members = [self._members(axis) for axis in range(len(self.windows))]
        object.__setattr__(self, "out_shape", (self.in_shape[0], *map(len, self.windows)))
        object.__setattr__(self, "overlap", math.prod(int(member.sum(0).max()) for member in members))

    def _members(self, axis: int) -> Tensor:
        """(outputs, inputs) 1 where a position of one axis belongs to a window."""
        window, size = self.windows[axis], self.in_shape[1 + axis]
        members = torch.zeros(len(window), size + 1, dtype=torch.float64)
        return members.scatter_(1, torch.where(window < 0, size, window), 1.0)[:, :size]

    @property
    def gain(self) -> float:
        """√overlap: as many windows share an entry, at most."""
        return up(math.sqrt(self.overlap), FEW)

    @property
    def smooth(self) -> bool:
        return False

    def apply(self, points: Tensor) -> Tensor:
        """The maximum over a product of intervals, axis by axis."""
        for axis, window in enumerate(self.windows, start=2):
            # An entry of the same window in place of each −1 leaves the maximum as it is.
            filled = torch.where(window < 0, window.amax(1, keepdim=True), window)
            chosen = points.index_select(axis, filled.flatten())
            points = chosen.unflatten(axis, tuple(window.shape)).amax(axis + 1)
        return points

    def _spread(self, rows: Tensor) -> Tensor:
        """The transpose of summing each window. (batch, *out) → (batch, *in)."""
        for axis in range(len(self.windows)):
            rows = torch.movedim(torch.movedim(rows, axis + 2, -1) @ self._members(axis), -1, axis + 2)
        return rows

    def forward(
        self, before: ForwardBound, radius: Tensor | None, values: Primitive
    ) -> tuple[ForwardBound, Memory]:
        unit = self.apply(before.unit)
        lipschitz = torch.minimum(before.lipschitz * self.gain, norm(unit))
        center = None if before.center is None else self.apply(before.center)
        error = None if before.error is None else self.apply(before.error)
        return ForwardBound(lipschitz, unit, torch.full_like(before.curvature, math.inf), center, error), None

    def backward(self, rows: GradientBound, memory: Memory, totals: Totals, place: Place) -> GradientBound:
        form = (*rows.low.shape[:2], *self.in_shape)
        low, high = (
            self._spread(part.flatten(0, 1)).reshape(form) * (1 + slack(self.overlap))
            for part in (rows.low.clamp_max(0), rows.high.clamp_min(0))
        )
        kinked = torch.where(rows.norm > 0, math.inf, torch.zeros_like(rows.norm))
        totals.add(place.node, lambda side: kinked)
        totals.gain = totals.gain * self.gain
        curvature = None if rows.curvature is None else rows.curvature + kinked
        bound = GradientBound(low, high, rows.norm * self.gain, curvature)
        return replace(bound, norm=torch.minimum(bound.norm, norm(bound.largest, 2)))

    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        return Rounded(self.apply(value), self.apply(error), None)

    def backward_error(self, size: Tensor, error: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Nothing is known of a gradient behind a maximum: another entry may have been the largest."""
        return self.gain * size, self.gain * (error + 2 * size)

    def amplify(self, size: float) -> float:
        return size * max(1.0, self.gain)
