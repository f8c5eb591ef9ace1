"""Strong duality (prop:duality) against linear programs, and ρ̂ (eqn:tol-n) against exact transport."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import ot
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

import certus
from certus import Box, SquaredL2
from certus.costs import Cost, LabelCost, SquaredLp
from certus.inner import BarzilaiBorwein
from tests.oracles import Array, penalised_by_linear_program, worst_case_by_linear_program
from tests.problems import ORIGINS, PLANE_LOSSES, SMOOTH_COSTS, PlaneCost, PlaneLoss

PRECISE = BarzilaiBorwein(tolerance=1e-12, max_gradients=500)
LINE = Box(-1.0, 1.0)
GRID = np.linspace(-1, 1, 401)
DATA = torch.tensor([[-0.8], [-0.1], [0.05], [0.6]], dtype=torch.float64)


def line_loss(z: Tensor) -> Tensor:
    """Smooth, not concave, with curvature at most 1.5 and slope at most 1.5."""
    return 0.375 * torch.sin(2 * z[:, 0] + 0.3) + 0.5 * z[:, 0]


@pytest.mark.parametrize("cost", [SquaredL2(), SquaredLp(1.5)], ids=str)
@pytest.mark.parametrize("gamma", [1.0, 2.0])
def test_penalised_form(cost: Cost, gamma: float) -> None:
    """sup_P {E_P ℓ − γW_c(P, Q)} = E_Q φ_γ (eqn:lagrangian), with P on a fine grid of the line."""
    losses = line_loss(torch.from_numpy(GRID)[:, None]).numpy()
    costs = (DATA.numpy() - GRID[None]) ** 2
    program = penalised_by_linear_program(losses, costs, gamma)
    ours = certus.inner.robust_surrogate(
        line_loss, DATA, gamma=gamma, cost=cost, domain=LINE, maximizer=PRECISE
    ).mean()
    # The grid misses the maximiser by at most half a spacing, and f is flat there.
    spacing = GRID[1] - GRID[0]
    assert 0 <= float(ours) - program <= (1.5 + 2 * gamma) / 2 * (spacing / 2) ** 2


@pytest.mark.parametrize("radius", [0.01, 0.05])
def test_constrained_form(radius: float) -> None:
    """sup {E_P ℓ : W_c(P, Q) ≤ ρ} = inf_γ γρ + E_Q φ_γ (eqn:constrained)."""
    losses = line_loss(torch.from_numpy(GRID)[:, None]).numpy()
    program = worst_case_by_linear_program(losses, (DATA.numpy() - GRID[None]) ** 2, radius)

    def dual(gamma: float) -> float:
        surrogate = certus.inner.robust_surrogate(
            line_loss, DATA, gamma=gamma, domain=LINE, maximizer=PRECISE
        )
        return gamma * radius + float(surrogate.mean())

    best = minimize_scalar(dual, bounds=(0.76, 30.0), method="bounded", options={"xatol": 1e-8})
    assert best.x > 0.8  # inside the strongly concave range 2γ > 1.5, where the ascent is exact
    assert float(best.fun) == pytest.approx(program, abs=2e-5)
    # The derivative of the dual is ρ − ρ̂(γ): at the best γ the data move by just ρ.
    found = certus.WRM(float(best.x), domain=LINE, maximizer=PRECISE).solve(line_loss, DATA)
    assert float(found.transport_cost.mean()) == pytest.approx(radius, rel=1e-3)


@pytest.mark.parametrize("gamma", [1.0, 2.0])
def test_penalised_form_with_a_label_cost(gamma: float) -> None:
    """Labels move too, at a price: points of the program are pairs (x, y)."""
    price = 0.15

    def loss(z: Tensor, y: Tensor) -> Tensor:
        sign = 1.0 - 2.0 * y.to(z.dtype)
        return sign * line_loss(z) + 0.2 * y

    targets = torch.tensor([0, 1, 1, 0])
    points = torch.from_numpy(np.concatenate([GRID, GRID]))[:, None]
    labels = torch.cat([torch.zeros(len(GRID)), torch.ones(len(GRID))]).long()
    costs = (DATA - points[:, 0]) ** 2 + price * (targets[:, None] != labels)
    program = penalised_by_linear_program(loss(points, labels).numpy(), costs.numpy(), gamma)
    wrm = certus.WRM(gamma, domain=LINE, maximizer=PRECISE, label_cost=LabelCost(price, classes=2))
    found = wrm.solve(loss, DATA, targets)
    labels_found = found.targets
    assert labels_found is not None
    assert 0 < int((labels_found != targets).sum()) < len(targets)
    assert float(found.value.mean()) == pytest.approx(program, abs=1e-4)
    moved = (found.inputs - DATA)[:, 0] ** 2 + price * (labels_found != targets)
    torch.testing.assert_close(found.transport_cost, moved)
    torch.testing.assert_close(found.value, loss(found.inputs, labels_found) - gamma * moved)


def pairwise(function: Callable[[Array, Array], Array], moved: Array, data: Array) -> Array:
    return np.stack([function(moved, origin) for origin in data], axis=1)


@pytest.mark.parametrize("cost", [cost for cost in SMOOTH_COSTS if "masked" not in cost.name], ids=str)
@pytest.mark.parametrize("loss", PLANE_LOSSES, ids=str)
def test_mean_transport_cost_is_the_exact_transport_distance(loss: PlaneLoss, cost: PlaneCost) -> None:
    """ρ̂_n = E[c(T_γ, Z)] = W_c(P*_n, P̂_n): no other coupling of the moved points is cheaper."""
    generator = torch.Generator().manual_seed(0)
    data = torch.cat([ORIGINS, torch.randn(30, 2, dtype=torch.float64, generator=generator)])
    gamma = 1.5 * loss.curvature / cost.euclidean**2 / cost.cost.strong_convexity
    found = certus.WRM(gamma, cost=cost.cost, maximizer=PRECISE).solve(loss.torch_form, data)
    costs = pairwise(cost.numpy_form, found.inputs.numpy(), data.numpy())
    uniform = np.full(len(data), 1 / len(data))
    exact = ot.emd2(uniform, uniform, costs)
    assert float(found.transport_cost.mean()) == pytest.approx(exact, rel=1e-9)
