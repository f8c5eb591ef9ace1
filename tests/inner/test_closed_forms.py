"""T_γ and φ_γ of quadratic losses equal their closed forms to 1e-6, and gaps with a known modulus are bounds.

For ℓ(z) = ½zᵀAz + bᵀz and c = (z − z₀)ᵀM(z − z₀), with 2γM − A positive definite,

    T_γ(z₀) = (2γM − A)⁻¹(2γM z₀ + b).
"""

from __future__ import annotations

from collections.abc import Callable

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import certus
from certus import Box, SquaredL2
from certus.costs import Cost, Mahalanobis, Masked, SquaredLp, WeightedL2
from certus.domains import Ball, Domain, Unbounded
from certus.inner import BarzilaiBorwein, Maximizer, PaperAscent
from certus.kernel.evidence import Evidence
from tests.oracles import Array, solve_concave
from tests.shares import examples

SIZE, COUNT = 6, 4
MAXIMIZERS = [BarzilaiBorwein(tolerance=1e-14, max_gradients=300), PaperAscent(steps=1200)]


def quadratic(seed: int, top: float) -> tuple[Array, Array, Callable[[Tensor], Tensor]]:
    """A with eigenvalues in [−top, top] and b, in NumPy, and the loss in torch."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(SIZE, SIZE)))
    matrix = (basis * rng.uniform(-top, top, SIZE)) @ basis.T
    vector = rng.normal(size=SIZE)
    a, b = torch.from_numpy(matrix), torch.from_numpy(vector)
    return matrix, vector, lambda z: ((z @ a) * z).sum(1) / 2 + z @ b


def origins(seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(COUNT, SIZE, dtype=torch.float64, generator=generator) / 2


WEIGHTS = np.linspace(0.6, 2.0, SIZE)
_FACTOR = np.random.default_rng(9).normal(size=(SIZE, SIZE)) / 3
MATRIX = _FACTOR @ _FACTOR.T + 0.6 * np.eye(SIZE)
FREE = np.array([True, True, False, True, False, True])
COSTS: list[tuple[Cost, Array]] = [
    (SquaredL2(), np.eye(SIZE)),
    (WeightedL2(torch.from_numpy(WEIGHTS)), np.diag(WEIGHTS)),
    (Mahalanobis(torch.from_numpy(MATRIX)), MATRIX),
]
NAMES = ["L2", "weighted", "full"]


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("maximizer", MAXIMIZERS, ids=["default", "paper"])
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize(("cost", "metric"), COSTS, ids=NAMES)
def test_unbounded(cost: Cost, metric: Array, masked: bool, maximizer: Maximizer) -> None:
    gamma = 1.5
    matrix, vector, loss = quadratic(seed=0, top=1.0)
    start = origins(seed=1)
    free = FREE if masked else np.ones(SIZE, dtype=bool)
    used = Masked(cost, torch.from_numpy(FREE)) if masked else cost
    found = certus.WRM(gamma, cost=used, maximizer=maximizer).solve(loss, start)
    for i, origin in enumerate(start.numpy()):
        # On the free coordinates: (2γM − A)_ff δ_f = (A z₀ + b)_f.
        system = (2 * gamma * metric - matrix)[np.ix_(free, free)]
        move = np.zeros(SIZE)
        move[free] = np.linalg.solve(system, (matrix @ origin + vector)[free])
        point = origin + move
        value = point @ matrix @ point / 2 + vector @ point - gamma * move @ metric @ move
        np.testing.assert_allclose(found.inputs[i], point, atol=1e-6)
        np.testing.assert_allclose(found.value[i], value, atol=1e-6)
        np.testing.assert_allclose(found.transport_cost[i], move @ metric @ move, atol=1e-6)
        assert (found.inputs[i].numpy()[~free] == origin[~free]).all()


@pytest.mark.parametrize("maximizer", MAXIMIZERS, ids=["default", "paper"])
@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
def test_separable_in_a_box(masked: bool, maximizer: Maximizer) -> None:
    """Diagonal A and M: each coordinate is a parabola on an interval, clipped at its ends."""
    gamma = 0.8
    rng = np.random.default_rng(3)
    curvature, slope = rng.uniform(-1, 0.9, SIZE), rng.normal(size=SIZE)
    a, b = torch.from_numpy(curvature), torch.from_numpy(slope)
    lower, upper = rng.uniform(-0.6, -0.2, SIZE), rng.uniform(0.2, 0.6, SIZE)
    domain = Box(torch.from_numpy(lower), torch.from_numpy(upper))
    start = domain.project(origins(seed=4))
    cost: Cost = WeightedL2(torch.from_numpy(WEIGHTS))
    cost = Masked(cost, torch.from_numpy(FREE)) if masked else cost
    wrm = certus.WRM(gamma, cost=cost, domain=domain, maximizer=maximizer)
    found = wrm.solve(lambda z: z**2 @ a / 2 + z @ b, start)
    origin = start.numpy()
    summit = (2 * gamma * WEIGHTS * origin + slope) / (2 * gamma * WEIGHTS - curvature)
    expected = np.clip(summit, lower, upper)
    expected = np.where(FREE, expected, origin) if masked else expected
    assert ((expected == lower) | (expected == upper)).any()
    np.testing.assert_allclose(found.inputs, expected, atol=1e-6)


@pytest.mark.parametrize("domain", [Box(-0.4, 0.5), Ball(0.1, 0.9)], ids=["box", "ball"])
@pytest.mark.parametrize(("cost", "metric"), COSTS, ids=NAMES)
def test_coupled_in_a_domain(cost: Cost, metric: Array, domain: Domain) -> None:
    gamma = 1.2
    matrix, vector, loss = quadratic(seed=5, top=1.0)
    start = domain.project(origins(seed=6))
    maximizer = BarzilaiBorwein(tolerance=1e-12, max_gradients=500)
    found = certus.WRM(gamma, cost=cost, domain=domain, maximizer=maximizer).solve(loss, start)
    for i, origin in enumerate(start.numpy()):
        point, value = constrained_maximum(matrix, vector, metric, gamma, origin, domain)
        np.testing.assert_allclose(found.value[i], value, atol=1e-6)
        np.testing.assert_allclose(found.inputs[i], point, atol=1e-3)


def constrained_maximum(
    matrix: Array, vector: Array, metric: Array, gamma: float, origin: Array, domain: Domain
) -> tuple[Array, float]:
    """max ½zᵀAz + bᵀz − γ(z − z₀)ᵀM(z − z₀) over Z, as one concave quadratic form."""
    hessian = gamma * metric - matrix / 2
    linear = vector + 2 * gamma * metric @ origin

    def constraints(z: cp.Variable) -> list[object]:
        if isinstance(domain, Box):
            return [z >= domain.lower, z <= domain.upper]
        if isinstance(domain, Ball):
            return [cp.norm(z - domain.center) <= domain.radius]
        return []

    point, value = solve_concave(lambda z: linear @ z - cp.quad_form(z, hessian), SIZE, constraints)
    return point, value - float(gamma * origin @ metric @ origin)


GAP_DOMAINS: list[Domain] = [Unbounded(), Box(-0.4, 0.5), Ball(0.1, 0.9)]


@examples(20)
@given(
    seed=st.integers(0, 10_000),
    which=st.integers(0, 2),
    domain=st.sampled_from(GAP_DOMAINS),
    budget=st.integers(1, 4),
    ratio=st.floats(1.05, 4.0),
)
def test_value_plus_gap_bounds_the_supremum(
    seed: int, which: int, domain: Domain, budget: int, ratio: float
) -> None:
    """Stopped after a few gradients, value ≤ φ ≤ value + gap, whatever cost and domain."""
    cost, metric = COSTS[which]
    matrix, vector, loss = quadratic(seed, top=1.0)
    root = np.linalg.inv(np.linalg.cholesky(metric))
    curvature = float(np.linalg.eigvalsh(root @ matrix @ root.T)[-1])  # in the norm of M
    gamma = ratio * max(curvature, 0.1) / 2
    start = domain.project(origins(seed))
    wrm = certus.WRM(gamma, cost=cost, domain=domain, maximizer=BarzilaiBorwein(0.0, budget))
    found = wrm.solve(loss, start, curvature_bound=curvature)
    assert found.gap_evidence is Evidence.ASSUMED
    for i, origin in enumerate(start.numpy()):
        _, value = constrained_maximum(matrix, vector, metric, gamma, origin, domain)
        assert found.value[i] <= value + 1e-6
        assert found.value[i] + found.gap[i] >= value - 1e-6


def test_the_gap_of_the_l2_cost_is_attained() -> None:
    """With A = L·I the bound ‖∇f‖²/2μ is an equality, and vanishes at the maximiser."""
    curvature, gamma = 1.0, 2.0
    start = origins(seed=7)
    once = certus.WRM(gamma, maximizer=BarzilaiBorwein(0.0, 1))
    found = once.solve(lambda z: curvature / 2 * (z**2).sum(1), start, curvature_bound=curvature)
    norm = (start**2).sum(1)
    expected = curvature**2 * norm / (2 * (2 * gamma - curvature))
    torch.testing.assert_close(found.gap, expected)
    torch.testing.assert_close(found.gradient_norm, curvature * norm.sqrt())
    free = once.solve(lambda z: curvature / 2 * (z**2).sum(1), start)
    assert free.gap_evidence is Evidence.ESTIMATED
    torch.testing.assert_close(free.gap, curvature**2 * norm / (2 * gamma))


@pytest.mark.parametrize("p", [1.2, 1.5, 1.9])
def test_gap_of_lp_costs(p: float) -> None:
    """L2 curvature is a bound in every Lp norm with p ≤ 2; the maximum is found by a long ascent."""
    _, _, loss = quadratic(seed=8, top=1.0)
    gamma, start = 1.2 / (2 * (p - 1)), origins(seed=9)
    exact = certus.WRM(gamma, cost=SquaredLp(p), maximizer=BarzilaiBorwein(1e-13, 2000)).solve(loss, start)
    for budget in (1, 2, 4):
        short = certus.WRM(gamma, cost=SquaredLp(p), maximizer=BarzilaiBorwein(0.0, budget))
        found = short.solve(loss, start, curvature_bound=1.0)
        assert (found.value + found.gap >= exact.value - 1e-9).all()
        assert torch.isfinite(found.gap).all()


def test_no_modulus_no_bound() -> None:
    loss = quadratic(seed=0, top=1.0)[2]
    found = certus.WRM(0.5).solve(loss, origins(seed=0), curvature_bound=1.0)
    assert torch.isinf(found.gap).all()


@pytest.mark.parametrize("gamma", [0.5, 7.0])
@pytest.mark.parametrize("maximizer", [BarzilaiBorwein(), PaperAscent(steps=1)], ids=["default", "paper"])
def test_one_step_is_exact_for_a_linear_loss(maximizer: Maximizer, gamma: float) -> None:
    slope = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    start = torch.zeros(2, 3, dtype=torch.float64)
    found = certus.WRM(gamma, maximizer=maximizer).solve(lambda z: z @ slope, start)
    torch.testing.assert_close(found.inputs, (slope / (2 * gamma)).expand(2, 3))
    torch.testing.assert_close(found.value, (slope @ slope / (4 * gamma)).expand(2))
    assert found.gradients.tolist() == [2, 2]


def test_each_sample_may_have_its_own_penalty() -> None:
    slope = torch.tensor([3.0, 4.0], dtype=torch.float64)
    gammas = torch.tensor([0.5, 1.0, 5.0], dtype=torch.float64)
    value = certus.inner.robust_surrogate(lambda z: z @ slope, torch.zeros(3, 2).double(), gamma=gammas)
    torch.testing.assert_close(value, 25 / (4 * gammas))
