"""Proj_Θ of Algorithm 1: after each step the weights return to a set Θ (alg:thealg).

A projection is any callable that changes a model's parameters in place. On Θ = R^d the constants of
thm:convergence are not finite for a deep network; on a bounded Θ they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from certus.errors import UnsupportedError, require

Projection = Callable[[nn.Module], None]
"""Moves the parameters of a model to the nearest ones in Θ, in place."""


@dataclass(frozen=True)
class WeightBall:
    """Θ = {θ : ‖θ‖₂ ≤ radius}, all parameters taken as one vector."""

    radius: float

    def __post_init__(self) -> None:
        require(0 < self.radius < math.inf, "radius", "be positive and finite", self.radius)

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> None:
        weights = list(model.parameters())
        length = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(w) for w in weights]))
        if length > self.radius:
            for weight in weights:
                weight.mul_(self.radius / length)


@dataclass(frozen=True)
class WeightBox:
    """Θ = {θ : −limit ≤ θᵢ ≤ limit}, every parameter by itself."""

    limit: float

    def __post_init__(self) -> None:
        require(0 < self.limit < math.inf, "limit", "be positive and finite", self.limit)

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> None:
        for weight in model.parameters():
            weight.clamp_(-self.limit, self.limit)


@dataclass(frozen=True)
class SpectralBall:
    """Θ = {θ : the largest singular value of each weight matrix is ≤ limit}; biases are free.

    The nearest matrix in the Frobenius norm has the same singular vectors and clipped singular values.
    """

    limit: float

    def __post_init__(self) -> None:
        require(0 < self.limit < math.inf, "limit", "be positive and finite", self.limit)

    @torch.no_grad()
    def __call__(self, model: nn.Module) -> None:
        for name, weight in model.named_parameters():
            if weight.dim() > 2:
                raise UnsupportedError(
                    f"SpectralBall knows weight matrices only; `{name}` has shape {tuple(weight.shape)}."
                )
            if weight.dim() == 2:
                left, singular, right = torch.linalg.svd(weight, full_matrices=False)
                if singular[0] > self.limit:
                    weight.copy_((left * singular.clamp_max(self.limit)) @ right)
