"""Problems with known constants, written twice: in torch for certus, in NumPy for the oracles."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from certus.costs import Bregman, Cost, Mahalanobis, Masked, SquaredL2, SquaredLp, SquaredSup, WeightedL2
from tests.oracles import Array


@dataclass(frozen=True)
class PlaneLoss:
    """A loss on the plane, with upper bounds on its curvature λ_max(∇²ℓ) and on its slope ‖∇ℓ‖₂."""

    name: str
    torch_form: Callable[[Tensor], Tensor]
    numpy_form: Callable[[Array], Array]
    curvature: float
    slope: float

    def __str__(self) -> str:
        return self.name


_ROWS = torch.tensor([[1.0, 0.5], [-0.7, 1.2], [0.3, -1.5]], dtype=torch.float64)
_PAIRS = [(i, j) for i in range(3) for j in range(i)]
_SPREAD = max(float((_ROWS[i] - _ROWS[j]).norm()) for i, j in _PAIRS)

PLANE_LOSSES = [
    PlaneLoss(
        "waves",
        lambda z: torch.cos(z[:, 0] + 1) + torch.sin(z[:, 1] + 0.4),
        lambda z: np.cos(z[:, 0] + 1) + np.sin(z[:, 1] + 0.4),
        curvature=1.0,
        slope=math.sqrt(2),
    ),
    PlaneLoss(
        # A variance on an interval of length D is at most D²/4.
        "log-sum-exp",
        lambda z: torch.logsumexp(z @ _ROWS.to(z).T, 1),
        lambda z: np.log(np.exp(z @ _ROWS.numpy().T).sum(1)),
        curvature=_SPREAD**2 / 4,
        slope=float(_ROWS.norm(dim=1).max()),
    ),
    PlaneLoss(
        # 2exp(−r²): the radial second derivative (8r² − 4)exp(−r²) is largest at r² = 3/2.
        "bump",
        lambda z: 2 * torch.exp(-((z - 0.5) ** 2).sum(1)),
        lambda z: 2 * np.exp(-((z - 0.5) ** 2).sum(1)),
        curvature=8 * math.exp(-1.5),
        slope=2 * math.sqrt(2) * math.exp(-0.5),
    ),
]


CONCAVE_LOSS = PlaneLoss(
    "concave",
    lambda z: 2 * z[:, 0] + z[:, 1] - functional.softplus(3 * z).sum(1),
    lambda z: 2 * z[:, 0] + z[:, 1] - np.logaddexp(0, 3 * z).sum(1),
    curvature=0.0,
    slope=math.sqrt(5) + 3 * math.sqrt(2),
)


@dataclass(frozen=True)
class PlaneCost:
    """A cost on the plane; ``euclidean`` is some m with ‖·‖ ≥ m‖·‖₂: L2 curvature L is L/m² in ‖·‖."""

    name: str
    cost: Cost
    numpy_form: Callable[[Array, Array], Array]
    euclidean: float = 1.0

    def __str__(self) -> str:
        return self.name


_MATRIX = torch.tensor([[2.0, 0.6], [0.6, 1.0]], dtype=torch.float64)
_WEIGHTS = torch.tensor([0.5, 3.0], dtype=torch.float64)


def _potential(z: Tensor) -> Tensor:
    return (z**2).sum(1) + functional.softplus(2 * z).sum(1)


def _numpy_bregman(z: Array, origin: Array) -> Array:
    def height(x: Array) -> Array:
        return np.asarray((x**2).sum(-1) + np.logaddexp(0, 2 * x).sum(-1))

    slope = 2 * origin + 2 / (1 + np.exp(-2 * origin))
    return np.asarray(height(z) - height(origin) - (z - origin) @ slope)


def _forbid_second(cost: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda z, origin: np.where(z[:, 1] == origin[1], cost(z, origin), np.inf)


def _numpy_matrix(z: Array, origin: Array) -> Array:
    return np.asarray((((z - origin) @ _MATRIX.numpy()) * (z - origin)).sum(1))


def _numpy_power(p: float) -> Callable[[Array, Array], Array]:
    return lambda z, origin: np.asarray(np.linalg.norm(z - origin, ord=p, axis=1) ** 2)


FIRST_ONLY = torch.tensor([True, False])

SMOOTH_COSTS = [
    PlaneCost("L2", SquaredL2(), _numpy_power(2)),
    PlaneCost(
        "weighted", WeightedL2(_WEIGHTS), lambda z, o: ((z - o) ** 2) @ _WEIGHTS.numpy(), math.sqrt(0.5)
    ),
    PlaneCost(
        "matrix", Mahalanobis(_MATRIX), _numpy_matrix, math.sqrt(float(torch.linalg.eigvalsh(_MATRIX)[0]))
    ),
    PlaneCost("L1.5", SquaredLp(1.5), _numpy_power(1.5)),
    PlaneCost("L1.9", SquaredLp(1.9), _numpy_power(1.9)),
    PlaneCost("bregman", Bregman(_potential, modulus=2.0), _numpy_bregman),
    PlaneCost("masked L2", Masked(SquaredL2(), FIRST_ONLY), _forbid_second(_numpy_power(2))),
    PlaneCost("masked matrix", Masked(Mahalanobis(_MATRIX), FIRST_ONLY), _forbid_second(_numpy_matrix), 0.8),
    PlaneCost("masked L1.5", Masked(SquaredLp(1.5), FIRST_ONLY), _forbid_second(_numpy_power(1.5))),
    PlaneCost("masked bregman", Masked(Bregman(_potential, 2.0), FIRST_ONLY), _forbid_second(_numpy_bregman)),
]

SHARP_COSTS = [
    PlaneCost("L1", SquaredLp(1.0), _numpy_power(1)),
    PlaneCost("sup", SquaredSup(), _numpy_power(np.inf)),
    PlaneCost("masked sup", Masked(SquaredSup(), FIRST_ONLY), _forbid_second(_numpy_power(np.inf))),
]

ORIGINS = torch.tensor([[0.3, -0.2], [-0.5, 0.4], [0.9, 0.1]], dtype=torch.float64)
