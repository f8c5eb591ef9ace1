"""Functions of disjoint groups of entries that are 1-Lipschitz in L2, but not smooth: order, and length.

Sorting the entries of each group is a permutation at every point. It moves no entry by more than the largest
move within the group, and no vector by more than its own length; likewise for the Euclidean length of each
group. So the Lipschitz constant of a network passes both as it is.
"""

from __future__ import annotations

import math
from abc import abstractmethod

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
from certus.kernel.rounding import slack


class Grouped(Primitive):
    """A function of each of (count, size) groups of entries of the flattened input.

    Args:
        groups: positions; every entry of the input is in exactly one group.
    """

    def __init__(self, groups: Tensor, in_shape: Shape, out_shape: Shape) -> None:
        self.groups, self.in_shape, self.out_shape = groups, in_shape, out_shape
        entries = math.prod(in_shape)
        if not (groups.dim() == 2 and torch.equal(groups.flatten().sort().values, torch.arange(entries))):
            raise Refused("every entry must be in exactly one group")
        self._places = groups.flatten().argsort()

    def gathered(self, points: Tensor, axes: int = 1) -> Tensor:
        """(…, *in_shape) as (…, count, size), behind some axes."""
        return points.flatten(axes)[..., self.groups]

    def scattered(self, groups: Tensor, axes: int = 1) -> Tensor:
        """(…, count, size) as (…, *in_shape)."""
        return groups.flatten(axes)[..., self._places].reshape(*groups.shape[:axes], *self.in_shape)

    @abstractmethod
    def largest(self, sizes: Tensor) -> Tensor:
        """(batch, *out_shape) the most by which outputs move if each entry moves by at most its size."""

    def forward(self, before: ForwardBound, within: Range | None) -> tuple[ForwardBound, Memory]:
        unit = self.largest(before.unit)
        lipschitz = torch.minimum(before.lipschitz, norm(unit))
        return ForwardBound(lipschitz, unit, torch.full_like(before.curvature, torch.inf)), None

    def backward(self, rows: GradientBound, memory: Memory, totals: Totals, place: Place) -> GradientBound:
        """No row grows; M becomes infinite."""
        kinked = torch.where(rows.norm > 0, torch.inf, torch.zeros_like(rows.norm))
        totals.add(place.node, lambda side: kinked)
        curvature = None if rows.curvature is None else rows.curvature + kinked
        low, high = self.pulled(rows.low, rows.high)
        return GradientBound(low, high, rows.norm, curvature).tightened()

    @abstractmethod
    def pulled(self, low: Tensor, high: Tensor) -> Range:
        """(batch, rows, *in_shape) range of gradients in the input, from those in the output."""

    def backward_error(self, size: Tensor, error: Tensor, at: Rounded) -> tuple[Tensor, Tensor]:
        """Nothing is known of the gradient: the entries may be in another order, or a length be 0."""
        return size, error + 2 * size

    def amplify(self, size: float) -> float:
        return size


class GroupSort(Grouped):
    """Entries of each group in falling order, in the group's places; with groups of two, MaxMin."""

    def __init__(self, groups: Tensor, in_shape: Shape) -> None:
        super().__init__(groups, in_shape, in_shape)

    def apply(self, points: Tensor) -> Tensor:
        groups = self.gathered(points)
        if self.groups.shape[1] == 2:  # much faster than sorting
            return self.scattered(torch.stack([groups.amax(-1), groups.amin(-1)], -1))
        return self.scattered(groups.sort(-1, descending=True).values)

    def largest(self, sizes: Tensor) -> Tensor:
        groups = self.gathered(sizes)
        return self.scattered(groups.amax(-1, keepdim=True).expand_as(groups))

    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        """Sorting is exact, and moves no entry by more than the largest error of its group."""
        return Rounded(self.apply(value), self.largest(error))

    def length_error(
        self, size: Tensor, error: Tensor, precision: Precision, spread: Tensor | None = None
    ) -> Tensor:
        return error

    def pulled(self, low: Tensor, high: Tensor) -> Range:
        """An entry gets the gradient of one of the places of its group."""
        lows, highs = self.gathered(low, 2), self.gathered(high, 2)
        ends = lows.amin(-1, keepdim=True).expand_as(lows), highs.amax(-1, keepdim=True).expand_as(highs)
        bottom, top = (self.scattered(end, 2) for end in ends)
        return bottom, top


class GroupLength(Grouped):
    """Euclidean length of each group; as many outputs as groups, in their order."""

    def apply(self, points: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(self.gathered(points), dim=-1)
        return lengths.reshape(-1, *self.out_shape)

    def largest(self, sizes: Tensor) -> Tensor:
        return self.apply(sizes) * (1 + slack(self.groups.shape[1]))

    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        """A length moves by at most the length of the error; it is a root of a sum of squares."""
        lengths = self.apply(value)
        return Rounded(lengths, self.largest(error) + slack(self.groups.shape[1]) * lengths)

    def length_error(
        self, size: Tensor, error: Tensor, precision: Precision, spread: Tensor | None = None
    ) -> Tensor:
        """A square that vanishes is that of a number below the root of the smallest one."""
        count, terms = self.groups.shape
        lost = math.sqrt(count * terms * 2 * precision.least)
        return error + precision.relative(terms + 2) * size + lost

    def pulled(self, low: Tensor, high: Tensor) -> Range:
        """x/‖x‖ times the row: no entry is larger than the row's."""
        sizes = torch.maximum(-low, high).clamp_min(0).flatten(2).unsqueeze(-1)
        spread = self.scattered(sizes.expand(*sizes.shape[:-1], self.groups.shape[1]), 2)
        return -spread, spread
