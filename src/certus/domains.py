"""Domains: the set Z of allowed points: the whole space, a box, or a Euclidean ball, with exact projections.

Z is convex and closed. Nothing in this library clamps implicitly: a bound on the inputs is a ``Domain`` that
the caller passes, and it is part of the problem,

    φ_γ(θ; z₀) = sup_{z ∈ Z} ℓ(θ; z) − γ c(z, z₀)                                      [eqn:inner-sup]
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from certus._tensor import check_broadcast, per_sample
from certus.errors import ArgumentError, require
from certus.kernel import costs as kernel_costs
from certus.norms import L2

__all__ = ["Ball", "Box", "Domain", "Intervals", "Unbounded"]

_OUTSIDE = 1e-6  # tolerance of membership in a ball, relative to its radius
_EXACT = torch.empty(0, dtype=torch.float64)


class Domain(ABC):
    """A closed convex set of points."""

    @abstractmethod
    def project(self, points: Tensor) -> Tensor:
        """The nearest points of Z, argmin {‖z − point‖₂ : z ∈ Z}. Shapes (batch, …) → (batch, …)."""

    @abstractmethod
    def contains(self, points: Tensor) -> Tensor:
        """Return a mask of the samples in Z. Shapes (batch, …) → (batch,) bool."""

    def check_shape(self, points: Tensor) -> None:  # noqa: B027  (most domains fit any shape)
        """Raise ``ArgumentError`` if Z does not fit points of this shape."""

    def kernel(self) -> kernel_costs.Domain:
        """A set that contains Z, as data of the trusted kernel: all of space for a user's own domain."""
        return kernel_costs.Domain()


class Intervals(Domain):
    """A product of intervals, on which separable problems are solved coordinate by coordinate."""

    @abstractmethod
    def bounds(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds that broadcast against ``points``, on its device and of its dtype."""


@dataclass(frozen=True)
class Unbounded(Intervals):
    """Z = R^m.

    >>> Unbounded().project(torch.tensor([[7.0]]))
    tensor([[7.]])
    """

    def project(self, points: Tensor) -> Tensor:
        return points

    def contains(self, points: Tensor) -> Tensor:
        return torch.ones(len(points), dtype=torch.bool, device=points.device)

    def bounds(self, points: Tensor) -> tuple[Tensor, Tensor]:
        return points.new_tensor(-math.inf), points.new_tensor(math.inf)


@dataclass(frozen=True, eq=False)
class Box(Intervals):
    """Z = {z : lower ≤ z ≤ upper}, coordinate-wise; ``contains`` allows for rounding.

    Args:
        lower, upper: numbers, or tensors that broadcast to the shape of a point (per feature, per channel).
            Infinite bounds are allowed.

    >>> Box(0, 1).project(torch.tensor([[-0.5, 0.25, 7.0]]))
    tensor([[0.0000, 0.2500, 1.0000]])
    """

    lower: float | Tensor
    upper: float | Tensor

    def __post_init__(self) -> None:
        lower, upper = torch.as_tensor(self.lower), torch.as_tensor(self.upper)
        try:
            ordered = bool((lower <= upper).all())
        except RuntimeError:
            shapes = f"got {tuple(lower.shape)} and {tuple(upper.shape)}."
            raise ArgumentError(f"`lower` and `upper` must have shapes that broadcast; {shapes}") from None
        if not ordered:  # a masked cost creates a box at every step: format no message otherwise
            raise ArgumentError(
                f"`lower` must be at most `upper` everywhere, without NaN; got {self.lower} and {self.upper}."
            )

    def project(self, points: Tensor) -> Tensor:
        if isinstance(self.lower, int | float) and isinstance(self.upper, int | float):
            return points.clamp(self.lower, self.upper)
        lower, upper = self.bounds(points)
        return points.maximum(lower).minimum(upper)  # much faster than a clamp between tensors

    def contains(self, points: Tensor) -> Tensor:
        lower, upper = self.bounds(points)
        # A bound computed in another way than the point may differ in the last bits.
        slack = 4 * torch.finfo(points.dtype).eps
        above = points >= lower - slack * lower.abs().nan_to_num(posinf=0.0)
        return (above & (points <= upper + slack * upper.abs().nan_to_num(posinf=0.0))).flatten(1).all(1)

    def bounds(self, points: Tensor) -> tuple[Tensor, Tensor]:
        return _like(self.lower, points), _like(self.upper, points)

    def kernel(self) -> kernel_costs.Domain:
        return kernel_costs.Domain(*self.bounds(_EXACT)) if type(self) is Box else super().kernel()

    def check_shape(self, points: Tensor) -> None:
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            check_broadcast(name, torch.as_tensor(bound), points)


@dataclass(frozen=True, eq=False)
class Ball(Domain):
    """Z = {z : ‖z − center‖₂ ≤ radius}; ``contains`` allows 10⁻⁶ of the radius, and rounding.

    >>> Ball(0.0, 1.0).project(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """

    center: float | Tensor
    radius: float

    def __post_init__(self) -> None:
        require(0 < self.radius < math.inf, "radius", "be positive and finite", self.radius)
        finite = bool(torch.isfinite(torch.as_tensor(self.center)).all())
        require(finite, "center", "be finite", self.center)

    def project(self, points: Tensor) -> Tensor:
        center = _like(self.center, points)
        limit = torch.finfo(points.dtype).max / 4
        offset = (points - center).clamp(-limit, limit)
        # Scaled by its largest entry, or the squares of a far point would overflow.
        largest = offset.flatten(1).abs().amax(1).clamp_min(torch.finfo(points.dtype).tiny)
        direction = offset / per_sample(largest, points)
        length = L2(direction)
        outside = per_sample(length > self.radius / largest, points)
        # A point inside is returned as it is: centre + (point − centre) would round.
        return torch.where(outside, center + per_sample(self.radius / length, points) * direction, points)

    def contains(self, points: Tensor) -> Tensor:
        center = _like(self.center, points)
        rounding = 4 * torch.finfo(points.dtype).eps * L2(center.expand_as(points))
        return L2(points - center) <= self.radius * (1 + _OUTSIDE) + rounding

    def check_shape(self, points: Tensor) -> None:
        check_broadcast("center", torch.as_tensor(self.center), points)

    def kernel(self) -> kernel_costs.Domain:
        if type(self) is not Ball:
            return super().kernel()
        center = _like(self.center, _EXACT)
        return kernel_costs.Domain(center=center, radius=self.radius * (1 + 2 * _OUTSIDE))  # as ``contains``


def _like(value: float | Tensor, points: Tensor) -> Tensor:
    """Return a number or tensor in the dtype and on the device of the points."""
    return torch.as_tensor(value, dtype=points.dtype, device=points.device).detach()
