"""Costs of three features, with and without a mask, by name; and moves that each of them allows."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from certus.costs import Bregman, Cost, Mahalanobis, Masked, SquaredL2, SquaredLp, SquaredSup, WeightedL2
from certus.norms import MatrixNorm

SIZE = 3
MATRIX = torch.tensor([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.7]], dtype=torch.float64)
MASK = torch.tensor([True, False, True])


def bowl(z: Tensor) -> Tensor:
    return (z**2 + z.cosh()).sum(1)


class Plain(SquaredL2):
    """A subclass, which may have another norm."""


OWN: dict[str, Cost] = {
    "L2": SquaredL2(),
    "weighted": WeightedL2(torch.tensor([0.3, 2.0, 1.1])),
    "full": Mahalanobis(MATRIX),
    "L1": SquaredLp(1.0),
    "L1.5": SquaredLp(1.5),
    "sup": SquaredSup(),
}
CLAIMED: dict[str, Cost] = {
    "divergence": Bregman(lambda z: (z**2 + z**4 / 9).flatten(1).sum(1), 2.0),
    "bowl": Bregman(bowl, 2.0),
    "bowl, matrix norm": Bregman(bowl, 1.0, MatrixNorm(MATRIX / 2)),
    "subclass": Plain(),
}
COSTS = OWN | CLAIMED
COSTS |= {f"{name}, masked": Masked(cost, MASK) for name, cost in COSTS.items()}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def moves_of_length_one(cost: Cost, count: int = 20_000) -> Tensor:
    """(many, 3) moves that the cost allows: at random, single coordinates and signs."""
    corners = torch.tensor(list(itertools.product((-1.0, 0.0, 1.0), repeat=SIZE)), dtype=torch.float64)
    moves = cost.free_part(torch.cat([random(count, SIZE), corners]))
    moves = moves[(moves != 0).any(1)]
    lengths: Tensor = cost.norm(moves)
    return moves / lengths.unsqueeze(1)
