"""Directions, projections and draws of the Lp balls: against duality, a convex solver, and known laws."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from certus._names import NORMS
from certus.attacks.projected_gradient_descent import check_norm, project, steepest, steepest_step, uniform
from certus.errors import ArgumentError
from certus.norms import Lp
from tests.oracles import Array

EVERY_NORM = pytest.mark.parametrize("p", NORMS.values())


def vectors(seed: int, count: int, size: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, size, generator=generator, dtype=torch.float64)


def projected_offset(offset: Tensor, radii: Tensor, p: float) -> Tensor:
    """The nearest point of the ball around 0."""
    return project(offset, torch.zeros_like(offset), radii, p)


@EVERY_NORM
@given(seed=st.integers(0, 10**6), size=st.integers(1, 20), scale=st.sampled_from([1e-200, 1e-3, 1.0, 1e100]))
def test_steepest_attains_the_dual_norm(p: float, seed: int, size: int, scale: float) -> None:
    gradient = scale * vectors(seed, 3, size)
    direction = steepest(gradient, p)
    assert (Lp(p)(direction) <= 1 + 1e-12).all()
    attained = (gradient * direction).sum(1)
    torch.testing.assert_close(attained, Lp(p).dual(gradient / scale) * scale, rtol=1e-12, atol=0)


@EVERY_NORM
def test_steepest_beats_every_point_of_the_ball(p: float) -> None:
    gradient = vectors(1, 1, 3)
    best = (gradient * steepest(gradient, p)).sum()
    others = uniform(torch.zeros(20_000, 3, dtype=torch.float64), torch.ones(20_000).double(), p)
    values = others @ gradient[0]
    assert (values <= best + 1e-12).all()
    assert values.max() > 0.8 * best


@EVERY_NORM
def test_no_gradient_no_direction(p: float) -> None:
    zero = torch.zeros(2, 1, 3, 3)
    assert torch.equal(steepest(zero, p), zero)


def nearest(point: Array, radius: float, p: float) -> Array:
    z = cp.Variable(len(point))
    constraint = cp.norm(z, "inf" if p == math.inf else int(p)) <= radius
    options = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    cp.Problem(cp.Minimize(cp.sum_squares(z - point)), [constraint]).solve(solver=cp.CLARABEL, **options)
    return np.asarray(z.value)


@EVERY_NORM
@pytest.mark.parametrize("size", [1, 2, 7, 60])
def test_projection_equals_a_convex_solver(p: float, size: int) -> None:
    points = vectors(size, 4, size)
    points[1] = points[1].round() + 0.25  # ties
    radii = torch.tensor([0.3, 1.0, 2.5, 0.01], dtype=torch.float64)
    found = projected_offset(points, radii, p)
    expected = np.stack([nearest(x, float(r), p) for x, r in zip(points.numpy(), radii, strict=True)])
    np.testing.assert_allclose(found.numpy(), expected, atol=2e-5)


@EVERY_NORM
@given(seed=st.integers(0, 10**6), size=st.integers(1, 30), radius=st.just(0.0) | st.floats(1e-9, 10))
def test_projection_is_the_nearest_point(p: float, seed: int, size: int, radius: float) -> None:
    """⟨x − Πx, y − Πx⟩ ≤ 0 for every y of the ball; Π is idempotent, and scales with ball and point."""
    points, radii = 3 * vectors(seed, 4, size), torch.full((4,), radius, dtype=torch.float64)
    found = projected_offset(points, radii, p)
    assert (Lp(p)(found) <= radius * (1 + 1e-12)).all()
    corner = radius * steepest(points - found, p)  # the worst y: the linear function is largest there
    assert (((points - found) * (corner - found)).sum(1) <= 1e-10).all()
    torch.testing.assert_close(projected_offset(found, radii, p), found, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(projected_offset(8 * points, 8 * radii, p), 8 * found, atol=1e-11, rtol=1e-12)


@EVERY_NORM
def test_points_inside_stay_as_they_are_bit_for_bit(p: float) -> None:
    points = vectors(2, 5, 9).float() / 100
    assert torch.equal(projected_offset(points, torch.full((5,), 5.0), p), points)


@EVERY_NORM
def test_small_balls_around_far_points_in_float32(p: float) -> None:
    """The radius has few digits beside the point: the ball must hold nevertheless."""
    points, radii = vectors(3, 50, 20).float(), torch.full((50,), 1e-5)
    assert (Lp(p)(projected_offset(points, radii, p)) <= 1e-5 * (1 + 1e-6)).all()


@EVERY_NORM
def test_a_radius_of_zero(p: float) -> None:
    for points in (torch.ones(2, 3), torch.zeros(2, 3), torch.tensor([[1.0, -2.0, 0.0]] * 2)):
        assert torch.equal(projected_offset(points, torch.zeros(2), p), torch.zeros(2, 3))


@EVERY_NORM
@pytest.mark.parametrize("far", [1e-30, 1e25])
def test_far_and_tiny_points_in_float32(p: float, far: float) -> None:
    """Squares of either leave float32; the projection must not."""
    found = projected_offset(far * torch.tensor([[3.0, -4.0]]), torch.tensor([far / 10]), p)
    expected = far * projected_offset(torch.tensor([[3.0, -4.0]]).double(), torch.tensor([0.1]).double(), p)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)


@EVERY_NORM
@pytest.mark.parametrize("size", [1, 2, 5])
def test_draws_are_uniform(p: float, size: int) -> None:
    """‖δ‖/ε has the distribution function r^d, every coordinate the same law with mean 0."""
    torch.manual_seed(0)
    count, radius = 20_000, 2.0
    drawn = uniform(torch.zeros(count, size, dtype=torch.float64), torch.full((count,), radius).double(), p)
    lengths = Lp(p)(drawn) / radius
    assert (lengths <= 1 + 1e-12).all()
    assert stats.kstest((lengths**size).numpy(), "uniform").pvalue > 1e-3
    one, other = drawn[: count // 2].numpy(), drawn[count // 2 :].numpy()
    for i in range(size):
        assert stats.ks_2samp(one[:, i], -other[:, (i + 1) % size]).pvalue > 1e-3


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_draws_fill_the_ball_evenly(p: float) -> None:
    """Rejection from the square gives the uniform law of the plane: the shares of small boxes agree."""
    torch.manual_seed(1)
    drawn = uniform(torch.zeros(40_000, 2), torch.ones(40_000), p)
    square = 2 * torch.rand(80_000, 2) - 1
    accepted = square[Lp(p)(square) <= 1]
    edges = [np.linspace(-1, 1, 7)] * 2
    ours, _ = np.histogramdd(drawn.numpy(), edges)
    theirs, _ = np.histogramdd(accepted.numpy(), edges)
    full = (ours + theirs) > 100
    table = np.stack([ours[full], theirs[full]])
    assert stats.chi2_contingency(table).pvalue > 1e-3


@EVERY_NORM
def test_each_sample_has_its_own_radius(p: float) -> None:
    radii = torch.tensor([0.0, 0.1, 5.0])
    lengths = Lp(p)(uniform(torch.zeros(3, 2, 4), radii, p))
    assert (lengths <= radii * (1 + 1e-6)).all()
    assert lengths[2] > 0.1


@pytest.mark.parametrize("norm", [3.0, 0.5, math.nan, "2"])
def test_other_norms(norm: float) -> None:
    with pytest.raises(ArgumentError, match="`norm` must be 1, 2 or inf; got"):
        check_norm(norm)


@EVERY_NORM
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-200, 1e-3, 1.0, 1e100]))
def test_steps_and_returns_are_made_of_directions_and_projections(p: float, seed: int, scale: float) -> None:
    """The fused forms, also for slopes whose squares leave float64; not finite entries count as 0."""
    point, slope, origin = vectors(seed, 12, 5).split(4)
    lengths = torch.tensor([0.0, 0.1, 1.0, -2.0], dtype=torch.float64)
    slope = slope * scale
    expected = point + lengths.unsqueeze(1) * steepest(slope, p)
    torch.testing.assert_close(steepest_step(point, slope, lengths, p), expected, rtol=1e-12, atol=1e-14)
    radii = torch.tensor([0.0, 0.1, 1.0, 9.0], dtype=torch.float64)
    expected = origin + projected_offset(point - origin, radii, p)
    torch.testing.assert_close(project(point, origin, radii, p), expected, rtol=1e-12, atol=1e-14)
    slope[2, 1], slope[3, 0] = math.nan, math.inf
    finite = torch.where(torch.isfinite(slope), slope, 0.0)
    torch.testing.assert_close(
        steepest_step(point, slope, lengths, p), steepest_step(point, finite, lengths, p)
    )


def test_a_long_step_along_a_short_slope_does_not_overflow() -> None:
    point, slope = torch.zeros(1, 2), 1e-14 * torch.tensor([[3.0, 4.0]])
    found = steepest_step(point, slope, torch.tensor([1e30]), 2.0)
    torch.testing.assert_close(found, torch.tensor([[0.6e30, 0.8e30]]))
