"""The largest entry of each window: Lipschitz, but not smooth."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from certus.kernel.passes import (
    ForwardBound,
    GradientBound,
    Memory,
    Place,
    Precision,
    Primitive,
    Range,
    Refused,
    Rounded,
    Shape,
    Totals,
    norm,
)
from certus.kernel.rounding import FEW, slack, up


class MaxPool(Primitive):
    """The maximum over windows that are products of intervals, for every channel; √overlap-Lipschitz, since
    at most ``overlap`` windows share an entry.

    Args:
        windows: for each spatial axis, (outputs, entries) positions that an output is the maximum of; −1 for
            none. Every window has at least one.
        in_shape: (channels, *sizes).
    """

    def __init__(self, windows: tuple[Tensor, ...], in_shape: Shape) -> None:
        if any(bool((window < 0).all(1).any()) for window in windows):
            raise Refused("a window of a maximum is empty")
        self.in_shape, self.out_shape = in_shape, (in_shape[0], *map(len, windows))
        # An entry of the same window in place of each −1 leaves the maximum as it is.
        filled = (torch.where(window < 0, window.amax(1, keepdim=True), window) for window in windows)
        self.windows = tuple(filled)
        # (outputs, inputs) 1 where a position of one axis belongs to a window.
        self._members = [
            torch.zeros(len(window), size, dtype=torch.float64).scatter_(1, window, 1.0)
            for window, size in zip(self.windows, in_shape[1:], strict=True)
        ]
        self.overlap = math.prod(int(member.sum(0).max()) for member in self._members)
        self.gain = up(math.sqrt(self.overlap), FEW)

    def apply(self, points: Tensor) -> Tensor:
        """The maximum over a product of intervals, axis by axis."""
        for axis, window in enumerate(self.windows, start=2):
            chosen = points.index_select(axis, window.flatten())
            points = chosen.unflatten(axis, tuple(window.shape)).amax(axis + 1)
        return points

    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        return Rounded(self.apply(value), self.apply(error))

    def length_error(
        self, size: Tensor, error: Tensor, precision: Precision, spread: Tensor | None = None
    ) -> Tensor:
        return self.gain * error

    def forward(self, before: ForwardBound, within: Range | None) -> tuple[ForwardBound, Memory]:
        unit = self.apply(before.unit)
        lipschitz = torch.minimum(before.lipschitz * self.gain, norm(unit))
        return ForwardBound(lipschitz, unit, torch.full_like(before.curvature, math.inf)), None

    def backward(self, rows: GradientBound, memory: Memory, totals: Totals, place: Place) -> GradientBound:
        """An entry gets the gradient of any of its windows, or none; M becomes infinite."""
        low, high = (self._spread(part) for part in (rows.low.clamp_max(0), rows.high.clamp_min(0)))
        kinked = torch.where(rows.norm > 0, math.inf, torch.zeros_like(rows.norm))
        totals.add(place.node, lambda side: kinked)
        totals.gain = totals.gain * self.gain
        curvature = None if rows.curvature is None else rows.curvature + kinked
        return GradientBound(low, high, rows.norm * self.gain, curvature).tightened()

    def _spread(self, rows: Tensor) -> Tensor:
        """The sum of all windows that share an entry. (batch, rows, *out) → (batch, rows, *in)."""
        for axis, members in enumerate(self._members, start=3):
            rows = torch.movedim(torch.movedim(rows, axis, -1) @ members, -1, axis)
        return rows * (1 + slack(self.overlap))

    def backward_error(self, size: Tensor, error: Tensor, at: Rounded) -> tuple[Tensor, Tensor]:
        """Nothing is known of a gradient behind a maximum: another entry may have been the largest."""
        return self.gain * size, self.gain * (error + 2 * size)

    def amplify(self, size: float) -> float:
        return size * max(1.0, self.gain)
