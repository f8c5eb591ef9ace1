"""Random costs and domains in two forms: as arguments of certus, and as independent formulas."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from certus.costs import Bregman, Cost, Mahalanobis, Masked, SquaredL2, SquaredLp, SquaredSup, WeightedL2
from certus.domains import Ball, Box, Domain, Unbounded
from tests.oracles import Array

Measure = Callable[[Tensor, Tensor], Tensor]
"""(…, size) moved, and origins → (…) costs."""


@dataclass(frozen=True)
class Geometry:
    """A cost and a domain.

    Attributes:
        norm: of the attacks that know norms only; 2 or ∞.
        free: (size,) the coordinates that may move.
    """

    words: str
    cost: Cost
    domain: Domain
    norm: float
    free: Array
    formula: Measure
    inside: Callable[[Array], Array]

    def measure(self, moved: Array, origin: Array) -> Array:
        """What moving costs. Shapes (…, size) → (…)."""
        return self.formula(torch.from_numpy(moved), torch.from_numpy(origin)).numpy()

    def slope(self, moved: Tensor, origin: Tensor) -> Tensor:
        """A gradient of the cost where it has one, else one of its subgradients."""
        leaf = moved.clone().requires_grad_()
        return torch.autograd.grad(self.formula(leaf, origin).sum(), leaf)[0]

    def brought_in(self, points: Array, origin: Array) -> Array:
        """Points of the domain near the given ones, masked coordinates put back. Shapes (…, size)."""
        points = np.where(self.free, points, origin)
        match self.domain:
            case Box(lower, upper):
                return np.clip(points, np.ravel(lower), np.ravel(upper))
            case Ball(center, radius):
                length = np.linalg.norm(points - float(center), axis=-1, keepdims=True)
                moved = float(center) + (points - float(center)) * np.minimum(
                    1, radius * (1 - 1e-12) / length
                )
                return np.where(self.free, moved, origin)
        return points


def draw_geometry(rng: random.Random, shape: tuple[int, ...]) -> Geometry:
    """One of every kind; pairs that certus does not support are left to it to refuse."""
    size = math.prod(shape)
    words, cost, formula = _draw_cost(rng, shape)
    free = np.ones(size, dtype=bool)
    if rng.random() < 0.2:
        free = np.array([rng.random() < 0.6 for _ in range(size)])
        free[rng.randrange(size)] = True
        cost, words = Masked(cost, torch.tensor(free).reshape(shape)), f"masked {words}"
    name, domain, inside = _draw_domain(rng, shape)
    # Projections onto a ball go with the norm 2 only.
    norm = math.inf if isinstance(cost.unmasked, SquaredSup) and name != "a ball" else 2.0
    return Geometry(f"{words} in {name}", cost, domain, norm, free, formula, inside)


def _draw_cost(rng: random.Random, shape: tuple[int, ...]) -> tuple[str, Cost, Measure]:
    size = math.prod(shape)
    weights = torch.tensor([rng.uniform(0.3, 3.0) for _ in range(size)], dtype=torch.float64)
    root = torch.tensor([[rng.gauss(0, 1) for _ in range(size)] for _ in range(size)], dtype=torch.float64)
    matrix = root @ root.T / size + 0.3 * torch.eye(size, dtype=torch.float64)
    power = rng.uniform(1.05, 1.95)
    kinds: list[tuple[str, Cost, Measure]] = [
        ("L2", SquaredL2(), lambda z, o: ((z - o) ** 2).sum(-1)),
        ("weighted L2", WeightedL2(weights.reshape(shape)), lambda z, o: ((z - o) ** 2) @ weights),
        ("matrix", Mahalanobis(matrix), lambda z, o: (((z - o) @ matrix) * (z - o)).sum(-1)),
        ("sup", SquaredSup(), lambda z, o: (z - o).abs().amax(-1) ** 2),
        ("L1", SquaredLp(1.0), lambda z, o: (z - o).abs().sum(-1) ** 2),
        ("Lp", SquaredLp(power), lambda z, o: ((z - o).abs() ** power).sum(-1) ** (2 / power)),
        ("Bregman", Bregman(_potential, modulus=2.0), _bregman),
    ]
    return kinds[rng.choices(range(len(kinds)), (4, 2, 2, 2, 1, 2, 1))[0]]


def _potential(z: Tensor) -> Tensor:
    return (z**2).flatten(1).sum(1) + functional.softplus(2 * z).flatten(1).sum(1)


def _bregman(z: Tensor, origin: Tensor) -> Tensor:
    def height(x: Tensor) -> Tensor:
        return (x**2).sum(-1) + torch.logaddexp(torch.zeros_like(x), 2 * x).sum(-1)

    slope = 2 * origin + 2 * torch.sigmoid(2 * origin)
    return height(z) - height(origin) - ((z - origin) * slope).sum(-1)


def _draw_domain(rng: random.Random, shape: tuple[int, ...]) -> tuple[str, Domain, Callable[[Array], Array]]:
    size = math.prod(shape)
    low = torch.tensor([-1 - rng.random() for _ in range(size)], dtype=torch.float64)
    radius = rng.uniform(1.0, 1.5) * math.sqrt(size)  # the samples lie in [−1, 1]
    match rng.choices(("everywhere", "a box", "boxes", "a ball"), (3, 3, 1, 1))[0]:
        case "a box":
            return "a box", Box(-1.0, 1.0), lambda z: (np.abs(z) <= 1).all(-1)
        case "boxes":
            near, far = low.numpy(), -low.numpy()
            return (
                "boxes",
                Box(low.reshape(shape), -low.reshape(shape)),
                lambda z: ((z >= near) & (z <= far)).all(-1),
            )
        case "a ball":
            return "a ball", Ball(0.0, radius), lambda z: np.linalg.norm(z, axis=-1) <= radius
    return "everywhere", Unbounded(), lambda z: np.ones(z.shape[:-1], dtype=bool)
