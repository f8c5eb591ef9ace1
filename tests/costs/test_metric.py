"""What a cost says to proofs and attacks, against moves by the thousand, corners, and exact fractions."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from certus.costs import (
    Bregman,
    Cost,
    Mahalanobis,
    Masked,
    SquaredL2,
    SquaredLp,
    SquaredSup,
    WeightedL2,
)
from certus.costs.metric import Metric
from certus.domains import Ball, Box, Domain, Unbounded
from certus.errors import ArgumentError, UnsupportedError
from certus.norms import SUP, DiagonalNorm, Lp, MatrixNorm, Norm

SIZE = 3
MATRIX = torch.tensor([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.7]], dtype=torch.float64)
WEIGHTS = torch.tensor([0.3, 2.0, 1.1])
MASK = torch.tensor([True, False, True])


def bowl(z: Tensor) -> Tensor:
    return (z**2 + z.cosh()).sum(1)


class Plain(SquaredL2):
    pass


OWN: list[Cost] = [
    SquaredL2(),
    WeightedL2(WEIGHTS),
    Mahalanobis(MATRIX),
    SquaredLp(1.0),
    SquaredLp(1.5),
    SquaredSup(),
]
OTHERS: list[Cost] = [Bregman(bowl, 2.0), Bregman(bowl, 1.0, MatrixNorm(MATRIX / 2)), Plain()]
COSTS = [*OWN, *OTHERS, *(Masked(cost, MASK) for cost in (*OWN, *OTHERS))]


def moves(cost: Cost, count: int = 20_000, seed: int = 0) -> Tensor:
    """(count, 3) moves that the cost allows, of norm 1: at random, single coordinates and signs."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.randn(count, SIZE, dtype=torch.float64, generator=generator)
    corners = torch.tensor(list(itertools.product((-1.0, 0.0, 1.0), repeat=SIZE)), dtype=torch.float64)
    found = torch.cat([found, corners])
    if isinstance(cost, Masked):
        found = torch.where(cost.mask, found, 0.0)
    found = found[(found != 0).any(1)]
    lengths: Tensor = cost.norm(found)
    return found / lengths.unsqueeze(1)


def name_of(cost: Cost) -> str:
    """The same in every process, unlike the address of a function that a Bregman cost shows."""
    return re.sub(r" at 0x\w+", "", str(cost))


@pytest.mark.parametrize("cost", COSTS, ids=name_of)
def test_the_dual_norm_is_the_most_that_a_move_gains(cost: Cost) -> None:
    """Never below, and met up to the fineness of the moves, where no frozen coordinate counts."""
    metric, tried = cost.metric((SIZE,)), moves(cost)
    gradients = torch.randn(6, SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    free = cost.free_part(gradients)
    found = (free @ tried.T).amax(1)
    told = metric.dual(free)
    assert (told >= found).all()
    exact = not isinstance(cost, Masked) or cost.unmasked.norm not in (OTHERS[1].norm,)
    if exact:
        torch.testing.assert_close(told, found, rtol=2e-2, atol=0.0)
    assert (metric.dual_size(gradients.norm(dim=1)) >= metric.dual(free)).all()


@pytest.mark.parametrize("cost", COSTS, ids=name_of)
def test_moves_are_not_longer_behind_the_whitening_than_it_says(cost: Cost) -> None:
    """v = Su for every move v of norm 1, ‖u‖₂ ≤ length and |uᵢ| ≤ unit."""
    metric, tried = cost.metric((SIZE,)), moves(cost)
    whitening = torch.eye(SIZE, dtype=torch.float64) if metric.whitening is None else metric.whitening
    matrix = whitening if whitening.dim() == 2 else whitening.diag()
    behind = tried @ torch.linalg.pinv(matrix)
    torch.testing.assert_close(behind @ matrix, tried)  # S reaches every move that is allowed
    assert (behind.norm(dim=1) <= metric.length * (1 + 1e-13)).all()
    assert (behind.abs() <= metric.unit * (1 + 1e-13)).all()


@pytest.mark.parametrize("cost", COSTS, ids=name_of)
def test_no_move_within_the_room_is_longer_than_the_farthest(cost: Cost) -> None:
    room = torch.tensor([[0.5, 2.0, 0.1], [0.0, 0.0, 3.0], [1.0, 1.0, 1.0]], dtype=torch.float64)
    told = cost.metric((SIZE,)).farthest(room)
    signs = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=SIZE)), dtype=torch.float64)
    for row, most in zip(room, told, strict=True):
        corner = cost.norm(cost.free_part(signs * row)).max()  # a convex function is largest at a corner
        assert most >= corner
        own = type(cost.unmasked) in {type(one) for one in OWN} and not isinstance(cost.unmasked, Mahalanobis)
        assert math.isclose(float(most), float(corner), rel_tol=1e-8) if own else most == math.inf
    endless = torch.tensor([[1.0, math.inf, 1.0]], dtype=torch.float64)
    assert math.isinf(cost.metric((SIZE,)).farthest(endless)) == (not (own and isinstance(cost, Masked)))


def exact_square(matrix: Tensor, vector: Tensor) -> Fraction:
    rows = [[Fraction(entry) for entry in row] for row in matrix.tolist()]
    entries = [Fraction(entry) for entry in vector.tolist()]
    products = itertools.product(range(len(entries)), repeat=2)
    return sum((rows[i][j] * entries[i] * entries[j] for i, j in products), Fraction(0))


def inverse(matrix: Tensor) -> list[list[Fraction]]:
    (a, b), (c, d) = ([Fraction(entry) for entry in row] for row in matrix.tolist())
    whole = a * d - b * c
    return [[d / whole, -b / whole], [-c / whole, a / whole]]


@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4])
def test_rounding_of_a_matrix_against_fractions(condition: float) -> None:
    """Costs, norms and dual norms in float64 are off by no more than ``rounding``, and it is small."""
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)
    matrix = turn @ torch.diag(torch.tensor([1.0, 1 / condition], dtype=torch.float64)) @ turn.T
    cost = Mahalanobis((matrix + matrix.T) / 2)
    metric = cost.metric((2,))
    dual = inverse(cost.matrix)
    for vector in torch.randn(50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)):
        squares = exact_square(cost.matrix, vector)
        x, y = (Fraction(entry) for entry in vector.tolist())
        dual_squares = dual[0][0] * x * x + 2 * dual[0][1] * x * y + dual[1][1] * y * y
        value, length = cost.value(vector[None], torch.zeros(1, 2).double()), cost.norm(vector[None])
        steep = cost.norm.dual(vector[None])
        for found, truth in ((value, squares), (length**2, squares), (steep**2, dual_squares)):
            assert abs(Fraction(float(found)) - truth) <= Fraction(2 * metric.rounding) * truth
        assert Fraction(float(metric.dual(vector[None]))) ** 2 >= dual_squares
    assert metric.rounding < 1e-3


def test_the_norm_tells_the_rounding_whatever_the_cost() -> None:
    """A divergence in a matrix norm loses as much as Mahalanobis does, and is refused where that does."""
    matrix = torch.diag(torch.tensor([1.0, 1e-4], dtype=torch.float64))
    told = [
        cost.metric((2,)).rounding for cost in (Bregman(bowl, 1.0, MatrixNorm(matrix)), Mahalanobis(matrix))
    ]
    assert told[0] == told[1] > 1e-9
    ill = torch.diag(torch.tensor([1.0, 1e-9], dtype=torch.float64))
    with pytest.raises(UnsupportedError, match="too ill-conditioned for a proof in float64"):
        assert Bregman(bowl, 1.0, MatrixNorm(ill)).metric((2,)).rounding


@dataclass(frozen=True)
class Odd:
    """A norm of the user's: half of L2."""

    euclidean_floor: float = 0.5

    def __call__(self, vectors: Tensor) -> Tensor:
        lengths: Tensor = Lp(2.0)(vectors) / 2
        return lengths

    @property
    def dual(self) -> Norm:
        return DiagonalNorm(torch.tensor(4.0))


@pytest.mark.parametrize("cost", OWN, ids=str)
def test_a_subclass_with_a_norm_of_its_own_gets_what_that_norm_says(cost: Cost) -> None:
    kind = type(cost)
    other = type("Other", (kind,), {"norm": Odd()})
    mine = other(*(getattr(cost, name) for name in getattr(kind, "__dataclass_fields__", {})))
    for wrapped in (mine, Masked(mine, MASK)):
        metric = wrapped.metric((SIZE,))
        assert type(metric) is Metric
        assert metric.length == metric.unit == (1 + 1e-15) / 0.5
        assert metric.farthest(torch.ones(1, SIZE, dtype=torch.float64)) == math.inf
        assert metric.dual(torch.tensor([[3.0, 0.0, 4.0]]).double()) == pytest.approx(10.0)


def test_a_norm_without_a_floor_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"`euclidean_floor` of Lp.* must be positive"):
        Bregman(bowl, 1.0, SUP).metric((SIZE,))


@pytest.mark.parametrize("domain", [Unbounded(), Box(-9.0, 9.0), Ball(0.0, 20.0)], ids=str)
@pytest.mark.parametrize("cost", COSTS, ids=name_of)
def test_the_balls_of_attacks_hold_those_of_the_cost(cost: Cost, domain: Domain) -> None:
    ball, steps = cost.attack_ball(domain), moves(cost, 500)
    origin = torch.zeros_like(steps)
    for size in (0.1, 1.0, 3.0):
        values = cost.value(size * steps, origin)
        scaled = size * steps * (1.0 if ball.scale is None else ball.scale)
        lengths = Lp(ball.p)(scaled)
        assert (lengths <= (2 * values / cost.growth).sqrt() / ball.floor * (1 + 1e-12)).all()
        if ball.own:
            torch.testing.assert_close(lengths**2, values)
    assert not (ball.own and isinstance(cost, Masked))


@pytest.mark.parametrize("cost", COSTS, ids=name_of)
def test_a_fraction_of_the_way_costs_no_more_than_its_share(cost: Cost) -> None:
    steps = 2 * moves(cost, 500)
    origin = torch.zeros_like(steps)
    for share in (0.01, 0.5, 1.0):
        shares = torch.full((len(steps),), share, dtype=torch.float64)
        part = cost.fraction(shares).unsqueeze(1) * steps
        assert (cost.value(part, origin) <= share * cost.value(steps, origin) * (1 + 1e-12)).all()


def test_what_a_mask_freezes() -> None:
    cost, points, origin = Masked(SquaredL2(), MASK), torch.ones(2, SIZE), torch.zeros(2, SIZE)
    assert (
        cost.free_part(points).tolist()
        == cost.restore_frozen(points, origin).tolist()
        == [[1.0, 0.0, 1.0]] * 2
    )
    assert cost.restore_frozen(origin, points).tolist() == [[0.0, 1.0, 0.0]] * 2
    assert (cost.finite, cost.unmasked) == (False, SquaredL2())
    plain = SquaredL2()
    assert plain.free_part(points) is points
    assert plain.restore_frozen(points, origin) is points
    assert plain.finite
    assert plain.unmasked is plain


def test_a_matrix_is_made_symmetric_once() -> None:
    """Rounding left it skew: value, gradient and norm speak of one matrix, (M + Mᵀ)/2."""
    skew = torch.tensor([[2.0, 1.0 + 4e-6], [1.0, 2.0]], dtype=torch.float64)
    cost = Mahalanobis(skew)
    assert torch.equal(cost.matrix, cost.matrix.T)
    torch.testing.assert_close(cost.matrix, (skew + skew.T) / 2, rtol=1e-15, atol=0.0)
    point = torch.tensor([[1.0, -2.0]], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(cost.value(point, torch.zeros_like(point)).sum(), point)
    torch.testing.assert_close(cost.gradient(point, torch.zeros_like(point)), slope, rtol=1e-14, atol=0.0)
    symmetric = (skew + skew.T) / 2
    assert Mahalanobis(symmetric).matrix is symmetric
    with pytest.raises(ArgumentError, match=r"\(M \+ M\.T\) / 2 is; got a relative asymmetry of 0\.25"):
        Mahalanobis(torch.tensor([[2.0, 0.5], [1.0, 2.0]]))


def test_norms_of_float32_weights_and_skew_matrices() -> None:
    """1/w is taken in float64, and the floor is that of vᵀMv, not of a triangle of M."""
    weights = torch.tensor([3.0, 7.0])
    found = float(DiagonalNorm(weights).dual(torch.ones(1, 2, dtype=torch.float64))) ** 2
    assert abs(Fraction(found) - Fraction(10, 21)) < Fraction(1, 10**15)
    big = torch.tensor([[1e20, 1e20]])  # whose squares float32 does not hold
    assert float(DiagonalNorm(weights)(big)) == pytest.approx(math.sqrt(10) * 1e20, rel=1e-6)
    skew = MatrixNorm(torch.tensor([[1.0, 1.5], [0.0, 1.0]], dtype=torch.float64))
    assert skew.euclidean_floor == pytest.approx(0.5)
