"""Bregman divergences of a user's convex function (sec:approach).

c(z, z₀) = h(z) − h(z₀) − ⟨∇h(z₀), z − z₀⟩
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from certus._tensor import inner, per_sample
from certus.costs.base import Cost, Response, Support, separable_response
from certus.domains import Domain
from certus.errors import require
from certus.norms import L2, Norm


@dataclass(frozen=True)
class Bregman(Cost):
    """Bregman divergence of h. Its modulus is the user's claim; bounds that rest on it are *assumed*.

    The claim is tested on points of Z when it is first used, and refused if a point refutes it.

    Args:
        potential: h, differentiable and convex; maps (batch, …) points to (batch,) values.
        modulus: s > 0 with h(z) ≥ h(z₀) + ⟨∇h(z₀), z − z₀⟩ + (s/2)‖z − z₀‖² for all z, z₀ ∈ Z. Then both the
            growth and the strong convexity of the divergence are s.
        norm: the norm ‖·‖ in which ``modulus`` holds.

    >>> half_square = Bregman(lambda z: (z**2).flatten(1).sum(1) / 2, modulus=1.0)
    >>> half_square(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
    tensor([12.5000])
    """

    potential: Callable[[Tensor], Tensor]
    modulus: float
    norm: Norm = L2

    def __post_init__(self) -> None:
        require(0 < self.modulus < math.inf, "modulus", "be positive and finite", self.modulus)

    @property
    def growth(self) -> float:
        return self.modulus

    strong_convexity = growth

    def value(self, moved: Tensor, origin: Tensor) -> Tensor:
        height, slope = self.potential_and_slope(origin)
        with torch.no_grad():
            return self.potential(moved) - height - inner(slope, moved - origin)

    def gradient(self, moved: Tensor, origin: Tensor) -> Tensor:
        return self.potential_and_slope(moved)[1] - self.potential_and_slope(origin)[1]

    def support(self, domain: Domain) -> Support:
        return Support.EXACT

    def respond(
        self, slope: Tensor, point: Tensor, origin: Tensor, gamma: Tensor, domain: Domain
    ) -> Response:
        weight = per_sample(gamma, point)
        gradient = slope - weight * self.gradient(point, origin)
        curvature = torch.full_like(gamma, self.modulus / 2)
        for _ in range(2):
            # h may be much steeper than its modulus: measure it on the way, and shorten the step.
            response = separable_response(gradient, point, weight * per_sample(curvature, point), domain)
            move = response.target - point
            measured = self.value(point + move, point) / inner(move, move)
            curvature = torch.where(measured > curvature, measured, curvature)
        return separable_response(gradient, point, weight * per_sample(curvature, point), domain)

    def fraction(self, share: Tensor) -> Tensor:
        return share

    def value_terms(self, moved: Tensor, origin: Tensor) -> Tensor:
        (height, slope), (other, _) = self.potential_and_slope(origin), self.potential_and_slope(moved)
        return height.abs() + other.abs() + (slope * (moved - origin)).abs().flatten(1).sum(1)

    def gradient_terms(self, moved: Tensor, origin: Tensor) -> Tensor:
        return L2(self.potential_and_slope(origin)[1]) + L2(self.potential_and_slope(moved)[1])

    def potential_and_slope(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """h and ∇h, (batch,) and (batch, …)."""
        with torch.enable_grad():
            leaf = points.detach().requires_grad_()
            heights = self.potential(leaf)
            single, shape = heights.shape == (len(points),), f"shape {tuple(heights.shape)}"
            require(single, "potential", f"return one value per sample, shape ({len(points)},)", shape)
            require(heights.requires_grad, "potential", "be differentiable", "values without a gradient")
            (slope,) = torch.autograd.grad(heights.sum(), leaf)
        return heights.detach(), slope
