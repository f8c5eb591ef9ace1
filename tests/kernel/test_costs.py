"""Costs of the kernel: norms, duals, whitenings and gaps against sampled moves, corners and outer costs."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from certus.costs import Bregman, Mahalanobis, Masked
from certus.domains import Ball, Box, Domain, Unbounded
from certus.errors import UnsupportedError
from certus.kernel import costs
from certus.kernel.passes import Refused
from certus.kernel.problem import whitened
from certus.norms import SUP, DiagonalNorm, Lp, Norm
from tests.costs.examples import COSTS, MASK, MATRIX, OWN, SIZE, bowl, moves_of_length_one, random
from tests.kernel.reading import graph

EVERY_COST = pytest.mark.parametrize("name", COSTS)
DOMAINS: dict[str, Domain] = {"all": Unbounded(), "box": Box(-1, 1), "ball": Ball(0.0, 1.5)}


@EVERY_COST
def test_constants_hold_for_sampled_moves(name: str) -> None:
    given, cost = COSTS[name], COSTS[name].kernel((SIZE,))
    origins = random(500, SIZE) / 2
    moves = cost.freed(random(500, SIZE, seed=1))
    gradients = random(500, SIZE, seed=2)
    lengths = cost.norm(moves)
    assert bool((cost.dual(gradients) >= (gradients * moves).sum(1) / lengths).all())
    assert bool((lengths >= cost.floor * moves.norm(dim=1) * (1 - 1e-15)).all())
    assert bool((cost.dual_size(gradients.norm(dim=1)) >= cost.dual(gradients) * (1 - 1e-8)).all())
    values = cost.value(origins + moves, origins)
    assert torch.allclose(values, given.value(origins + moves, origins), rtol=1e-12)
    raised = cost.raised(origins + moves, origins)
    assert bool((raised >= values).all())
    assert bool((raised >= cost.growth / 2 * lengths**2 * (1 - 1e-12)).all())
    if cost.strong_convexity > 0:
        slopes = cost.freed(cost.gradient(origins + moves, origins))
        assert torch.allclose(slopes, given.gradient(origins + moves, origins), rtol=1e-12, atol=1e-14)
    stays = cost.value(origins + random(500, SIZE, seed=3), origins)
    assert bool(torch.isinf(stays).all()) == (cost.free is not None)


@EVERY_COST
def test_the_dual_norm_is_the_largest_gain_of_a_move(name: str) -> None:
    """Never below, and met up to the fineness of the moves where no frozen coordinate counts."""
    given, cost = COSTS[name], COSTS[name].kernel((SIZE,))
    gradients = random(6, SIZE, seed=1)
    free = given.free_part(gradients)
    gains = (free @ moves_of_length_one(given).T).amax(1)
    duals = cost.dual(gradients)
    assert torch.equal(duals, cost.dual(free))
    assert bool((duals >= gains).all())
    if name != "bowl, matrix norm, masked":
        torch.testing.assert_close(duals, gains, rtol=2e-2, atol=0.0)
    assert bool((cost.dual_size(gradients.norm(dim=1)) >= duals).all())


@EVERY_COST
def test_moves_behind_the_whitening_are_no_longer_than_stated(name: str) -> None:
    """Every free move of length 1 is Su with ‖u‖₂ ≤ length and |uᵢ| ≤ unit."""
    cost, moves = COSTS[name].kernel((SIZE,)), moves_of_length_one(COSTS[name])
    action = torch.eye(SIZE, dtype=torch.float64)
    if cost.whitening is not None:
        action = cost.whitening if cost.whitening.dim() == 2 else torch.diag(cost.whitening)
    behind = moves @ torch.linalg.pinv(action).T
    assert torch.allclose(behind @ action.T, moves, atol=1e-12)  # S reaches every move that is allowed
    assert bool((behind.norm(dim=1) <= cost.length * (1 + 1e-13)).all())
    assert bool((behind.abs() <= cost.unit * (1 + 1e-13)).all())


@EVERY_COST
def test_the_farthest_move_of_a_box_is_a_corner(name: str) -> None:
    given, cost = COSTS[name], COSTS[name].kernel((SIZE,))
    room = torch.tensor([[0.5, 2.0, 0.1], [0.0, 0.0, 3.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=SIZE)), dtype=torch.float64)
    absolute = isinstance(cost, costs.Lp)  # a norm of the |vᵢ| that increases with each
    for row, farthest in zip(room, cost.farthest(room).tolist(), strict=True):
        corner = float(given.norm(given.free_part(signs * row)).max())  # where a convex function is largest
        assert farthest >= corner
        assert math.isclose(farthest, corner, rel_tol=1e-8) if absolute else farthest == math.inf
    endless = torch.tensor([[1.0, math.inf, 1.0]], dtype=torch.float64)
    assert math.isinf(cost.farthest(endless)) == (not (absolute and isinstance(given, Masked)))


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("name", [name for name in COSTS if "L1" not in name or "L1.5" in name])
def test_gaps_bound_sampled_gains_and_are_no_larger(name: str, domain: str) -> None:
    """No larger than those that ascents stop at."""
    given, cost, region = COSTS[name], COSTS[name].kernel((SIZE,)), DOMAINS[domain]
    if isinstance(given, Masked) and domain == "ball":
        return
    points, gradients = region.project(random(300, SIZE)), random(300, SIZE, seed=1) * 2
    modulus = torch.linspace(0.3, 3, 300, dtype=torch.float64)
    bound = cost.gap(gradients, points, modulus, region.kernel())
    # A ball of the kernel holds the tolerance of ``contains`` too.
    held = Ball(region.center, region.kernel().radius) if isinstance(region, Ball) else region
    assert bool((bound <= given.gap(gradients, points, modulus, held) * (1 + 1e-9) + 1e-13).all())
    for seed in range(15):
        moved = points + cost.freed(random(300, SIZE, seed=seed + 5)) * 3 * 0.85**seed
        moved = points + cost.freed(region.project(moved) - points)
        gain = (gradients * (moved - points)).sum(1) - modulus / 2 * cost.norm(moved - points) ** 2
        inside = region.contains(moved)
        assert bool((bound >= gain - 1e-13)[inside].all())


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("size", [0.0, 0.02, 0.05])
def test_constants_hold_for_a_poor_root(size: float, masked: bool) -> None:
    """S is a proposal: far from a root of the inverse it makes constants loose, never wrong."""
    given = Masked(Mahalanobis(MATRIX), MASK) if masked else Mahalanobis(MATRIX)
    best = given.kernel((SIZE,))
    assert isinstance(best, costs.Quadratic)
    for seed in range(5):
        cost = replace(best, root=best.root + size * random(SIZE, SIZE, seed=seed))
        moves, gradients = moves_of_length_one(given), random(6, SIZE, seed=1)
        gains = (given.free_part(gradients) @ moves.T).amax(1)
        assert bool((cost.dual(gradients) >= gains).all())
        assert cost.floor <= float((1 / moves.norm(dim=1)).min())
        assert cost.whitening is not None
        behind = moves @ torch.linalg.pinv(cost.whitening).T
        assert torch.allclose(behind @ cost.whitening.T, moves, atol=1e-12)
        assert bool((behind.norm(dim=1) <= cost.length * (1 + 1e-13)).all())
        assert cost.length > 1 + size / 9
    with pytest.raises(Refused, match="root"):
        replace(best, root=best.root * 1.3)


@dataclass(frozen=True)
class HalfL2:
    """A norm of the user's."""

    euclidean_floor: float = 0.5

    def __call__(self, vectors: Tensor) -> Tensor:
        lengths: Tensor = Lp(2.0)(vectors) / 2
        return lengths

    @property
    def dual(self) -> Norm:
        return DiagonalNorm(torch.tensor(4.0))


@pytest.mark.parametrize("name", OWN)
def test_a_subclass_with_another_norm_claims_that_norm(name: str) -> None:
    kind = type(OWN[name])
    other = type("Other", (kind,), {"norm": HalfL2()})
    cost = other(*(getattr(OWN[name], field) for field in getattr(kind, "__dataclass_fields__", {})))
    for each in (cost, Masked(cost, MASK)):
        claimed = each.kernel((SIZE,))
        assert type(claimed) is costs.Claimed
        assert claimed.length == claimed.unit == (1 + 1e-15) / 0.5
        assert claimed.farthest(torch.ones(1, SIZE, dtype=torch.float64)) == math.inf
        assert claimed.dual(torch.tensor([[3.0, 0.0, 4.0]]).double()) == pytest.approx(10.0)


def test_a_norm_without_a_floor_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"`euclidean_floor` of Lp.* must be positive"):
        Bregman(bowl, 1.0, SUP).kernel((SIZE,))


NETWORKS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "dense": (nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), (4,)),
    "activation first": (nn.Sequential(nn.Tanh(), nn.Linear(4, 2)), (4,)),
    "convolution": (nn.Sequential(nn.Conv2d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(3, 2)), (2, 2, 2)),
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kind", ["channels", "coordinates", "matrix"])
def test_a_whitened_graph_moves_as_the_cost_does(network: str, kind: str) -> None:
    """The first layer on moves u is the first layer on Su, and values stay."""
    model, shape = NETWORKS[network]
    read, count = graph(model, shape), math.prod(shape)
    scales = torch.linspace(1, 2, count, dtype=torch.float64).reshape(shape)
    if kind == "channels":
        scales = (
            scales.amax(tuple(range(1, len(shape))), keepdim=True).expand(shape) if len(shape) > 1 else scales
        )
    matrix = torch.eye(count, dtype=torch.float64) + random(count, count) / 9
    action = whitened(read, matrix if kind == "matrix" else scales)
    points, moves = random(5, *shape), random(5, *shape, seed=1)
    assert torch.equal(action.apply(points), read.apply(points))
    first = next(node for node in action.nodes if node.moves is not None)
    assert first.moves is not None
    assert first.primitive is not None
    steps = (moves.flatten(1) @ matrix.T).reshape(moves.shape) if kind == "matrix" else moves * scales
    expected = first.primitive.apply(steps) - first.primitive.apply(torch.zeros_like(steps))
    assert torch.allclose(first.moves.act(moves, first.moves.weights), expected, rtol=1e-13, atol=1e-13)


def test_data_that_prove_nothing_are_refused() -> None:
    with pytest.raises(Refused, match="positive"):
        costs.Lp(shape=(2,), scales=torch.tensor([1.0, 0.0], dtype=torch.float64))
    with pytest.raises(Refused, match="exponent"):
        costs.Lp(shape=(2,), p=3.0)
    matrix = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    with pytest.raises(Refused, match="root"):
        costs.Quadratic(shape=(2,), matrix=matrix, root=torch.eye(2, dtype=torch.float64))
    with pytest.raises(Refused, match="symmetric"):
        costs.Quadratic(shape=(2,), matrix=matrix.triu(), root=torch.eye(2, dtype=torch.float64))
    claimed = COSTS["divergence"].kernel((SIZE,))
    with pytest.raises(Refused, match="claimed"):
        replace(claimed, floor=0.0)
