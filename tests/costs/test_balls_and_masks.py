"""Balls of attacks, shares of moves, masks and matrices of costs."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from certus.costs import Mahalanobis, Masked, SquaredL2
from certus.domains import Ball, Box, Domain, Unbounded
from certus.errors import ArgumentError
from certus.norms import DiagonalNorm, Lp, MatrixNorm
from tests.costs.examples import COSTS, MASK, SIZE, moves_of_length_one


@pytest.mark.parametrize("domain", [Unbounded(), Box(-9.0, 9.0), Ball(0.0, 20.0)], ids=str)
@pytest.mark.parametrize("name", COSTS)
def test_the_balls_of_attacks_hold_those_of_the_cost(name: str, domain: Domain) -> None:
    cost = COSTS[name]
    ball, steps = cost.attack_ball(domain), moves_of_length_one(cost, 500)
    origin = torch.zeros_like(steps)
    for size in (0.1, 1.0, 3.0):
        values = cost.value(size * steps, origin)
        scaled = size * steps * (1.0 if ball.scale is None else ball.scale)
        lengths = Lp(ball.p)(scaled)
        assert (lengths <= (2 * values / cost.growth).sqrt() / ball.floor * (1 + 1e-12)).all()
        if ball.own:
            torch.testing.assert_close(lengths**2, values)
    assert not (ball.own and isinstance(cost, Masked))


@pytest.mark.parametrize("name", COSTS)
def test_a_fraction_of_the_way_costs_no_more_than_its_share(name: str) -> None:
    cost = COSTS[name]
    steps = 2 * moves_of_length_one(cost, 500)
    origin = torch.zeros_like(steps)
    for share in (0.01, 0.5, 1.0):
        shares = torch.full((len(steps),), share, dtype=torch.float64)
        part = cost.fraction(shares).unsqueeze(1) * steps
        assert (cost.value(part, origin) <= share * cost.value(steps, origin) * (1 + 1e-12)).all()


def test_coordinates_that_a_mask_freezes() -> None:
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
