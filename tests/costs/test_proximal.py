"""Proximal steps against their optimality conditions, a scalar root finder, convex programs and Moreau."""

from __future__ import annotations

from collections.abc import Callable

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from torch import Tensor

from certus import Box, SquaredL2
from certus.costs import Cost, Masked, SquaredLp, SquaredSup
from certus.costs.prox import Bounds, prox_l1, prox_sup
from certus.domains import Ball, Unbounded
from certus.errors import UnsupportedError
from tests.oracles import Array

Prox = Callable[[Tensor, Tensor, Tensor, Bounds | None], Tensor]
NORMS: list[tuple[Prox, float]] = [(prox_sup, np.inf), (prox_l1, 1)]


def draw(rng: np.random.Generator, boxed: bool) -> tuple[Array, float, Array]:
    """Distances w − z₀, a weight, and the room on either side (m, 2); some ties, zeros and walls."""
    size = round(10 ** rng.uniform(0, 3))
    move = rng.normal(size=size) * 10 ** rng.uniform(-1, 1)
    if rng.random() < 0.2:
        move = move.round()
    room = rng.exponential(10 ** rng.uniform(-2, 1), size=(size, 2)) if boxed else np.full((size, 2), np.inf)
    room[rng.random((size, 2)) < 0.1] = 0.0 if boxed else np.inf
    return move, float(10 ** rng.uniform(-3, 3)), room


def solve(prox: Prox, move: Array, weight: float, room: Array) -> Array:
    """Sizes of the step, at an origin that is not 0 and in the direction that the move has."""
    origin = torch.linspace(-1, 1, len(move), dtype=torch.float64)[None]
    bounds = None
    if np.isfinite(room).any():
        bounds = (origin - torch.from_numpy(room[:, 0]), origin + torch.from_numpy(room[:, 1]))
    point = origin + torch.from_numpy(move)
    found = prox(point, origin, torch.tensor([weight], dtype=torch.float64), bounds) - origin
    sizes = (found[0] * torch.from_numpy(np.sign(move))).numpy()
    assert (sizes >= 0).all()
    return np.asarray(sizes)


def check_sup(sizes: Array, distance: Array, weight: float, room: Array) -> None:
    """Below the common length t: as near as there is room. At t: a·t shared among those that press on it."""
    length, slack = sizes.max(), 1e-9 * max(1.0, distance.max())
    below = sizes < length - slack
    np.testing.assert_allclose(sizes[below], np.minimum(distance, room)[below], atol=slack)
    assert (sizes <= np.minimum(distance, room) + slack).all()
    pressure = np.where(below, 0, distance - length)
    free = np.where(room > length + slack, pressure, 0)  # the others may lean on their walls as well
    assert free.sum() - slack <= weight * length <= pressure.sum() + slack
    expected = brentq(
        lambda t: weight * t - (distance - t)[np.minimum(distance, room) > t].sum(),
        *(-1.0, distance.max() + 1),
        xtol=1e-13,
    )
    assert length == pytest.approx(expected, abs=slack)


def check_l1(sizes: Array, distance: Array, weight: float, room: Array) -> None:
    """vᵢ − δᵢ = a‖δ‖₁ where 0 < δᵢ < room; less at 0, more at the wall."""
    slack = 1e-9 * max(1.0, distance.max())
    threshold = weight * sizes.sum()
    assert (sizes <= room + slack).all()
    rest = distance - sizes - threshold
    assert (rest[sizes < room - slack] <= slack).all()
    assert (rest[sizes > slack] >= -slack).all()

    def excess(s: float) -> float:
        return float(s / weight - np.minimum(np.maximum(distance - s, 0), room).sum())

    expected = brentq(excess, 0.0, distance.max() + 1, xtol=1e-13)
    np.testing.assert_allclose(sizes, np.minimum(np.maximum(distance - expected, 0), room), atol=slack)


@pytest.mark.parametrize("problems", [300, pytest.param(5000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("boxed", [False, True], ids=["free", "boxed"])
@pytest.mark.parametrize(("prox", "check"), [(prox_sup, check_sup), (prox_l1, check_l1)], ids=["sup", "l1"])
def test_optimality_and_root_finder(
    prox: Prox, check: Callable[..., None], boxed: bool, problems: int
) -> None:
    """Dimensions 1 to 1,000, weights 10⁻³ to 10³."""
    rng = np.random.default_rng(0)
    for _ in range(problems):
        move, weight, room = draw(rng, boxed)
        sizes = solve(prox, move, weight, room)
        check(sizes, np.abs(move), weight, np.where(move > 0, room[:, 1], room[:, 0]))


def quadratic_program(distance: Array, weight: float, room: Array, norm: float) -> tuple[Array, float]:
    """The sizes and the least value of (a/2)t² + ½‖z − v‖², ‖z‖ ≤ t, z ≤ r."""
    sizes, length = cp.Variable(len(distance)), cp.Variable()
    value = (weight * cp.square(length) + cp.sum_squares(sizes - distance)) / 2
    walls = [sizes <= room] if np.isfinite(room).all() else []
    program = cp.Problem(cp.Minimize(value), [cp.norm(sizes, norm) <= length, *walls])
    program.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return np.asarray(sizes.value), float(program.value)


@pytest.mark.parametrize("problems", [15, pytest.param(300, marks=pytest.mark.soak)])
@pytest.mark.parametrize("boxed", [False, True], ids=["free", "boxed"])
@pytest.mark.parametrize(("prox", "norm"), NORMS, ids=["sup", "l1"])
def test_convex_programs(prox: Prox, norm: float, boxed: bool, problems: int) -> None:
    rng = np.random.default_rng(1)
    for _ in range(problems):
        move, weight, room = draw(rng, boxed)
        move, room = move[:40], room[:40]
        scale = max(1.0, np.abs(move).max())
        move, room = move / scale, room / scale
        sizes, distance = solve(prox, move, weight, room), np.abs(move)
        best, value = quadratic_program(distance, weight, np.where(move > 0, room[:, 1], room[:, 0]), norm)
        reached = (weight * np.linalg.norm(sizes, norm) ** 2 + ((sizes - distance) ** 2).sum()) / 2
        assert reached <= value + 1e-11
        np.testing.assert_allclose(sizes, best, rtol=0, atol=5e-6)  # √(2·10⁻¹¹), by strong convexity


def test_the_printed_formula_is_wrong() -> None:
    """eqn:prox-scale prints β = Σ vᵢ/(1 + aj) for Σ vᵢ/(a + j): at a = 2, j = 2 it is 6/5 for 6/4."""
    point, origin, weight = torch.tensor([[3.0, 3.0]]), torch.zeros(1, 2), torch.tensor([2.0])
    found = prox_sup(point, origin, weight)

    def objective(z: Tensor) -> float:
        return float(weight / 2 * z.abs().max() ** 2 + ((z - point) ** 2).sum() / 2)

    printed = torch.full((1, 2), 6 / (1 + 2 * 2.0))
    assert torch.equal(found, torch.full((1, 2), 6 / (2.0 + 2)))
    assert objective(found) < objective(printed) - 0.1


@given(seed=st.integers(0, 10**6), size=st.integers(1, 30), weight=st.floats(1e-3, 1e3))
def test_moreau(seed: int, size: int, weight: float) -> None:
    """prox of (a/2)‖·‖_∞² plus prox of its conjugate (1/2a)‖·‖₁² is the point; both are nonexpansive."""
    rng = torch.Generator().manual_seed(seed)
    point, other = (torch.randn(1, size, dtype=torch.float64, generator=rng) for _ in range(2))
    origin, a = torch.zeros_like(point), torch.tensor([weight], dtype=torch.float64)
    torch.testing.assert_close(prox_sup(point, origin, a) + prox_l1(point, origin, 1 / a), point)
    for prox in (prox_sup, prox_l1):
        for bounds in (None, (origin - 0.3, origin + 0.5)):
            near = (prox(point, origin, a, bounds) - prox(other, origin, a, bounds)).norm()
            assert float(near) <= float((point - other).norm()) + 1e-12


@pytest.mark.parametrize("prox", [prox_sup, prox_l1], ids=["sup", "l1"])
def test_samples_are_apart_and_bounds_may_be_infinite(prox: Prox) -> None:
    rng = torch.Generator().manual_seed(0)
    point, origin = torch.randn(6, 9, generator=rng), torch.rand(6, 9, generator=rng)
    weight = torch.logspace(-2, 3, 6)
    bounds = torch.zeros(6, 9), torch.ones(6, 9)
    together = prox(point, origin, weight, bounds)
    rows = [
        prox(point[i : i + 1], origin[i : i + 1], weight[i : i + 1], (bounds[0][:1], bounds[1][:1]))
        for i in range(6)
    ]
    torch.testing.assert_close(together, torch.cat(rows))
    nowhere = torch.full((6, 9), -torch.inf), torch.full((6, 9), torch.inf)
    torch.testing.assert_close(prox(point, origin, weight, nowhere), prox(point, origin, weight, None))
    assert torch.equal(prox(origin, origin, weight, bounds), origin)


@pytest.mark.parametrize("domain", [Unbounded(), Box(0.0, 1.0)], ids=["free", "boxed"])
@pytest.mark.parametrize("cost", [SquaredSup(), SquaredLp(1.0)], ids=str)
def test_costs_of_images_and_masks(cost: Cost, domain: Unbounded | Box) -> None:
    """weight·c + ½‖· − w‖²: frozen pixels stay, bit for bit, and the free ones are solved by themselves."""
    rng = torch.Generator().manual_seed(3)
    origin = torch.rand(4, 1, 3, 3, generator=rng)
    point = origin + torch.randn(4, 1, 3, 3, generator=rng)
    weight, mask = torch.tensor([0.1, 1.0, 3.0, 30.0]), torch.rand(3, 3, generator=rng) < 0.6
    masked = Masked(cost, mask)
    assert masked.has_prox(domain)
    found = masked.prox(point, origin, weight, domain)
    assert torch.equal(found[..., ~mask], origin[..., ~mask])
    alone = cost.prox(point[..., mask], origin[..., mask], weight, domain)
    torch.testing.assert_close(found[..., mask], alone)
    objective = weight * cost(found, origin) + ((found - point) ** 2).flatten(1).sum(1) / 2
    for _ in range(200):
        noise = 0.1 * torch.randn(found.shape, generator=rng) * mask
        other = domain.project(found + noise)
        worse = weight * cost(other, origin) + ((other - point) ** 2).flatten(1).sum(1) / 2
        assert (worse >= objective - 1e-5).all()


@pytest.mark.parametrize(
    ("cost", "domain", "match"),
    [
        (SquaredSup(), Ball(0.0, 1.0), r"SquaredSup\(\) has no proximal step on Ball"),
        (SquaredLp(1.0), Ball(0.0, 1.0), r"SquaredLp\(p=1.0\) has no proximal step on Ball"),
        (SquaredLp(1.5), Unbounded(), r"SquaredLp\(p=1.5\) has no proximal step on Unbounded"),
        (
            SquaredL2(),
            Unbounded(),
            r"SquaredL2\(\) has no proximal step .* only SquaredSup and SquaredLp\(1\)",
        ),
        (Masked(SquaredL2(), torch.tensor([True])), Box(0, 1), r"SquaredL2\(\) has no proximal step on Box"),
        (Masked(SquaredSup(), torch.tensor([True])), Ball(0.0, 1.0), "no proximal step on Ball"),
    ],
    ids=["sup ball", "l1 ball", "p", "l2", "masked l2", "masked ball"],
)
def test_refusals(cost: Cost, domain: Box | Ball | Unbounded, match: str) -> None:
    assert not cost.has_prox(domain)
    with pytest.raises(UnsupportedError, match=match):
        cost.prox(torch.zeros(1, 2), torch.zeros(1, 2), torch.ones(1), domain)
