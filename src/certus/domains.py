"""The set Z in which points may move: all of space, a box, or a Euclidean ball, projected onto exactly.

Z is convex and closed. Nothing in this library clamps on its own: a bound on the inputs is a ``Domain``
that the caller states, and it is part of the problem that is solved,

    φ_γ(θ; z₀) = sup_{z ∈ Z} ℓ(θ; z) − γ c(z, z₀)                                      [eqn:inner-sup]
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.batches import check_broadcast, per_sample
from certus.errors import ArgumentError, require
from certus.norms import L2


class Domain(ABC):
    """A closed convex set of points."""

    @abstractmethod
    def project(self, points: Tensor) -> Tensor:
        """The nearest points of Z, argmin {‖z − point‖₂ : z ∈ Z}. Shapes (batch, …) → (batch, …)."""

    @abstractmethod
    def contains(self, points: Tensor) -> Tensor:
        """Which samples lie in Z. Shapes (batch, …) → (batch,) bool."""

    def check_shape(self, points: Tensor) -> None:  # noqa: B027  (most domains fit any shape)
        """Raise ``ArgumentError`` if Z does not fit points of this shape."""


class Intervals(Domain):
    """A product of intervals, one for each coordinate: what is separable is solved coordinate-wise."""

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
    """Z = {z : lower ≤ z ≤ upper}, coordinate by coordinate.

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
            shapes = f"{tuple(lower.shape)} and {tuple(upper.shape)}"
            raise ArgumentError(
                f"`lower` and `upper` must have shapes that broadcast; got {shapes}."
            ) from None
        rule = "be at most `upper` everywhere, without NaN"
        require(ordered, "lower", rule, f"{self.lower} and {self.upper}")

    def project(self, points: Tensor) -> Tensor:
        return points.clamp(*self.bounds(points))

    def contains(self, points: Tensor) -> Tensor:
        lower, upper = self.bounds(points)
        return ((points >= lower) & (points <= upper)).flatten(1).all(1)

    def bounds(self, points: Tensor) -> tuple[Tensor, Tensor]:
        return torch.as_tensor(self.lower).to(points), torch.as_tensor(self.upper).to(points)

    def check_shape(self, points: Tensor) -> None:
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            check_broadcast(name, torch.as_tensor(bound), points)


@dataclass(frozen=True, eq=False)
class Ball(Domain):
    """Z = {z : ‖z − center‖₂ ≤ radius}, with a relative tolerance of 10⁻⁶ on membership for rounding.

    >>> Ball(0.0, 1.0).project(torch.tensor([[3.0, 4.0]]))
    tensor([[0.6000, 0.8000]])
    """

    center: float | Tensor
    radius: float

    def __post_init__(self) -> None:
        require(0 < self.radius < math.inf, "radius", "be positive and finite", self.radius)

    def project(self, points: Tensor) -> Tensor:
        center = torch.as_tensor(self.center).to(points)
        offset = points - center
        length = L2(offset)
        outside = per_sample(length > self.radius, points)
        shrink = per_sample(self.radius / length, points)
        # A point inside is returned as it is: centre + (point − centre) would round.
        return torch.where(outside, center + shrink * offset, points)

    def contains(self, points: Tensor) -> Tensor:
        return L2(points - torch.as_tensor(self.center).to(points)) <= self.radius * (1 + 1e-6)

    def check_shape(self, points: Tensor) -> None:
        check_broadcast("center", torch.as_tensor(self.center), points)
