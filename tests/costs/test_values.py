"""What each cost declares, at random points: values, gradients, growth, strong convexity, dual norms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from certus.costs import (
    Cost,
    Mahalanobis,
    Masked,
    SquaredL2,
    SquaredLp,
    SquaredSup,
    WeightedL2,
    feature_mask,
    patch_mask,
)
from certus.norms import L2, SUP, DiagonalNorm, Lp, MatrixNorm, Norm
from tests.problems import SHARP_COSTS, SMOOTH_COSTS, PlaneCost

COSTS = SMOOTH_COSTS + SHARP_COSTS
points = st.lists(st.floats(-3, 3), min_size=2, max_size=2).map(
    lambda pair: torch.tensor([pair], dtype=torch.float64)
)


def comparable(cost: PlaneCost, moved: Tensor, origin: Tensor) -> Tensor:
    """Under a mask, a point that the cost does not forbid."""
    free = torch.tensor([True, "masked" not in cost.name])
    return torch.where(free, moved, origin)


@pytest.mark.parametrize("cost", COSTS, ids=str)
@given(moved=points, origin=points)
def test_value_growth_and_identity(cost: PlaneCost, moved: Tensor, origin: Tensor) -> None:
    moved = comparable(cost, moved, origin)
    value = cost.cost(moved, origin)
    assert value.shape == (1,)
    expected = cost.numpy_form(moved.numpy(), origin[0].numpy())
    np.testing.assert_allclose(value, expected, atol=1e-12, rtol=1e-12)
    length = cost.cost.norm(moved - origin)
    assert value >= cost.cost.growth / 2 * length**2 - 1e-10
    assert length >= cost.cost.norm.euclidean_floor * L2(moved - origin) - 1e-12
    assert cost.cost(origin, origin) == 0


@pytest.mark.parametrize("cost", SMOOTH_COSTS, ids=str)
@given(left=points, right=points, origin=points)
def test_gradient_and_strong_convexity(cost: PlaneCost, left: Tensor, right: Tensor, origin: Tensor) -> None:
    """c(right) ≥ c(left) + ⟨∇c(left), right − left⟩ + (s/2)‖right − left‖²: wrong gradients fail it too."""
    left, right = comparable(cost, left, origin), comparable(cost, right, origin)
    slope = cost.cost.gradient(left, origin)
    below = cost.cost(left, origin) + (slope * (right - left)).sum(1)
    below = below + cost.cost.strong_convexity / 2 * cost.cost.norm(right - left) ** 2
    assert cost.cost(right, origin) >= below - 1e-9


@pytest.mark.parametrize("cost", SMOOTH_COSTS, ids=str)
def test_gradient_equals_finite_differences(cost: PlaneCost) -> None:
    origin = torch.tensor([[0.3, -0.7]], dtype=torch.float64)
    moved = comparable(cost, origin + torch.tensor([[0.4, -0.9]]), origin)
    step = 1e-6
    for axis in range(1 if "masked" in cost.name else 2):
        nudge = torch.zeros_like(origin)
        nudge[0, axis] = step
        difference = (cost.cost(moved + nudge, origin) - cost.cost(moved - nudge, origin)) / (2 * step)
        torch.testing.assert_close(
            cost.cost.gradient(moved, origin)[:, axis], difference, atol=1e-7, rtol=1e-7
        )


@pytest.mark.parametrize("cost", [SquaredL2(), SquaredLp(1.5), SquaredLp(2.0)], ids=str)
def test_images_and_rows_cost_the_same(cost: Cost) -> None:
    images = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    other = images.flip(0)
    torch.testing.assert_close(cost(images, other), cost(images.flatten(1), other.flatten(1)))


def test_lp_of_two_is_l2() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 5, 7, generator=generator)
    torch.testing.assert_close(SquaredLp(2.0)(a, b), SquaredL2()(a, b))
    torch.testing.assert_close(SquaredLp(2.0).gradient(a, b), SquaredL2().gradient(a, b))


NORMS: list[Norm] = [
    Lp(1.0),
    Lp(1.3),
    L2,
    Lp(3.0),
    SUP,
    DiagonalNorm(torch.tensor([0.2, 5.0], dtype=torch.float64)),
    MatrixNorm(torch.tensor([[2.0, 0.6], [0.6, 1.0]], dtype=torch.float64)),
]


@pytest.mark.parametrize("norm", NORMS, ids=str)
def test_dual_norm_is_the_support_function_of_the_unit_ball(norm: Norm) -> None:
    """‖g‖_* = sup ⟨g, v⟩ over ‖v‖ ≤ 1, by going round the circle."""
    angle = torch.linspace(0, 2 * math.pi, 200_001, dtype=torch.float64)
    circle = torch.stack([angle.cos(), angle.sin()], 1)
    circle = circle / norm(circle).unsqueeze(1)
    for gradient in torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)):
        expected = (circle @ gradient).max()
        torch.testing.assert_close(norm.dual(gradient[None])[0], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("cost", [SquaredL2(), SMOOTH_COSTS[1].cost, SMOOTH_COSTS[2].cost], ids=str)
def test_whitening_turns_the_norm_into_l2_and_is_symmetric(cost: Cost) -> None:
    vectors = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(cost.norm(cost.whiten(vectors)), L2(vectors))
    others = vectors.flip(0)
    torch.testing.assert_close((cost.whiten(vectors) * others).sum(1), (vectors * cost.whiten(others)).sum(1))


def test_a_mask_forbids_everything_outside() -> None:
    cost = Masked(SquaredL2(), patch_mask(2, 2, slice(0, 1), slice(0, 2)))
    origin = torch.zeros(2, 1, 2, 2)
    moved = origin.clone()
    moved[0, 0, 0] = 1.0
    moved[1, 0, 1, 1] = 1e-30
    assert cost(moved, origin).tolist() == [2.0, math.inf]
    assert feature_mask(3, free=[1]).tolist() == [False, True, False]


def test_weights_are_cast_to_the_inputs() -> None:
    moved, origin = torch.ones(1, 2, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    assert WeightedL2(torch.tensor([1.0, 2.0]))(moved, origin).dtype == torch.float64
    assert Mahalanobis(torch.eye(2))(moved, origin).dtype == torch.float64


@pytest.mark.parametrize("p", [2.5, 3.0, 8.0])
def test_between_2_and_infinity_the_sup_norm_is_cheaper_and_the_modulus_is_0(p: float) -> None:
    """So certificates for the sup-norm hold there; and a step t along e₂ adds (2/p)·t^p to the cost at e₁."""
    moves = torch.randn(200, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    zeros = torch.zeros_like(moves)
    assert bool((SquaredSup()(moves, zeros) <= (moves.abs() ** p).sum(1) ** (2 / p)).all())
    for t in (0.1, 0.01):
        bent = (1 + t**p) ** (2 / p) - 1
        assert bent == pytest.approx(2 / p * t**p, rel=0.02)
    assert bent < 0.5 * t**2  # below any parabola in the end, for p near 2 too
