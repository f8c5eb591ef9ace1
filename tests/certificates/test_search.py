"""The lower sides: attacks within cost ρ and nearest errors, for every cost, against closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from certus import Box, CrossEntropy, SquaredL2, certify
from certus.certificates.error_costs import error_candidates, nearest_errors
from certus.certificates.lower_bounds import attack_balls
from certus.certificates.problem import Problem
from certus.costs import Cost, Mahalanobis, Masked
from certus.losses import Logistic
from tests.certificates.problems import CROSS_ENTROPY, EVERYWHERE, L2, network, samples
from tests.problems import SHARP_COSTS, SMOOTH_COSTS, PlaneCost


def nearest_costs(problem: Problem, farthest: float, steps: int) -> Tensor:
    return nearest_errors(problem, error_candidates(problem, farthest, steps))[0].cost


ALL_COSTS = [*SMOOTH_COSTS, *SHARP_COSTS]


@pytest.mark.parametrize("cost", ALL_COSTS, ids=str)
@pytest.mark.parametrize("boxed", [False, True])
def test_pushed_samples_are_within_their_balls(cost: PlaneCost, boxed: bool) -> None:
    """Costs by NumPy, losses by torch's own modules; most samples lose more than before."""
    model, (inputs, targets) = network("elu", 0), samples(0, 20)
    domain = Box(-1.0, 1.0) if boxed else EVERYWHERE
    problem = Problem.of(model, (inputs, targets), CROSS_ENTROPY, cost.cost, domain)
    with torch.no_grad():
        start = CrossEntropy()(model(inputs), targets)
    for rho in (0.01, 0.3):
        points, costs, losses = attack_balls(problem, rho, 6)
        exact = np.array(
            [
                cost.numpy_form(point[None].numpy(), x.numpy())[0]
                for point, x in zip(points, inputs, strict=True)
            ]
        )
        assert bool((exact <= costs.numpy() + 1e-12).all())
        assert float(costs.max()) <= rho
        with torch.no_grad():
            found = CrossEntropy()(model(points), targets)
        assert bool((losses <= found).all())
        assert float((found - losses).max()) < 1e-9
        assert bool((found >= start - 1e-9).all())
        assert float((found > start + 1e-3).double().mean()) > 0.7
        assert bool(domain.contains(points).all())


def exact_cost(cost: Cost, row: Tensor, margin: Tensor) -> Tensor:
    """c of the nearest error of a linear classifier of two classes with difference ``row``: (m/‖w‖_*)²."""
    mask = cost.mask if isinstance(cost, Masked) else torch.ones(2, dtype=torch.bool)
    inner, free = (cost.inner if isinstance(cost, Masked) else cost), row[mask]
    if isinstance(inner, Mahalanobis):
        block = inner.matrix[mask][:, mask]
        dual = float(free @ torch.linalg.solve(block, free)) ** 0.5
    else:
        name = type(inner).__name__
        weights = getattr(inner, "weights", torch.ones(2).double())[mask]
        p = {"SquaredSup": math.inf}.get(name, getattr(inner, "p", 2.0))
        q = 1.0 if math.isinf(p) else (math.inf if p == 1 else p / (p - 1))
        dual = float(torch.linalg.vector_norm(free / weights.sqrt(), q))
    costs: Tensor = (margin.clamp_min(0) / dual) ** 2
    return costs


@pytest.mark.parametrize("cost", [cost for cost in ALL_COSTS if "bregman" not in cost.name], ids=str)
def test_nearest_errors_of_linear_classifiers(cost: PlaneCost) -> None:
    model, (inputs, targets) = network("linear", 3, 2), samples(3, 30, 2)
    row = (model[0].weight[1] - model[0].weight[0]).detach()  # type: ignore[index]  # a Sequential
    with torch.no_grad():
        outputs = model(inputs)
    margin = (outputs[:, 0] - outputs[:, 1]) * (1 - 2 * targets)
    exact = exact_cost(cost.cost, row, margin)
    problem = Problem.of(model, (inputs, targets), CROSS_ENTROPY, cost.cost, EVERYWHERE)
    found = nearest_costs(problem, 20.0, 10)
    assert bool((found >= exact * (1 - 1e-9)).all())
    assert bool(torch.isfinite(found).all())
    assert float((found / exact.clamp_min(1e-12))[exact > 0].median()) < 1.1


def test_a_logistic_output_is_attacked_too() -> None:
    model, (inputs, targets) = network("linear", 4, 1), samples(4, 40, 2)
    found = certify(model, (inputs, targets), rho=0.05, criterion=Logistic(), gamma_rounds=0)
    margin = model(inputs).detach().flatten() * (2 * targets - 1)
    exact = (margin.clamp_min(0) / model[0].weight.detach().norm()) ** 2  # type: ignore[index]  # likewise
    assert found.attained_error_cost is not None
    assert found.proven_error_cost is not None
    assert torch.allclose(found.proven_error_cost, exact, atol=1e-6)
    assert bool((found.attained_error_cost >= exact - 1e-12).all())
    assert bool((found.attained_error_cost <= exact * 1.01).all())


def overconfident() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """A flat stretch around the data: an ascent on ℓ − γc stays put, steps of a given length do not."""
    first, last = nn.Linear(1, 1).double(), nn.Linear(1, 2).double()
    nn.init.constant_(first.weight, 4.0)
    nn.init.constant_(first.bias, -4.0)
    with torch.no_grad():
        last.weight.copy_(torch.tensor([[-6.0], [6.0]]))
        last.bias.zero_()
    model = nn.Sequential(first, nn.Tanh(), last)
    return model, (torch.full((3, 1), -1.0).double(), torch.zeros(3, dtype=torch.long))


def test_an_attack_in_balls_raises_the_lower_side_where_the_ascent_stays_put() -> None:
    model, data = overconfident()
    without, attacked = (
        certify(model, data, rho=9.0, gammas=[1.0, 0.5], gamma_rounds=0, attack_steps=steps)
        for steps in (0, 10)
    )
    assert without.lower(9.0) < 0.1
    assert 11 < attacked.lower(9.0) <= attacked.bound(9.0) == without.bound(9.0)
    moved, weights = attacked.worst_case_data(9.0)
    with torch.no_grad():
        losses = CrossEntropy()(model(moved.inputs), moved.targets)
    assert float((losses * weights).sum()) == pytest.approx(attacked.lower(9.0), abs=1e-7)
    assert float((((moved.inputs - data[0]) ** 2).sum(1) * weights).sum()) <= 9.0
    assert attacked.error_lower(9.0) == pytest.approx(1.0)
    assert without.error_lower(9.0) == 0.0


def test_attacks_stop_where_they_bring_nothing() -> None:
    """A concave problem: a mixture of transports is better than any attack in balls; one look is enough."""
    model, data = network("softplus", 4, size=0.7), samples(4, 30)
    found = certify(model, data, rho=(0.3, 1.0, 3.0), cost=L2, local_radii=1)
    assert len(found.attacks) <= 1


def test_the_search_at_a_sample_is_independent_of_the_others() -> None:
    """Else it could not enter a statement about the population."""
    model, (inputs, targets) = network("tanh", 5), samples(5, 12)
    problem = Problem.of(model, (inputs, targets), CROSS_ENTROPY, SquaredL2(), EVERYWHERE)
    alone = torch.cat([nearest_costs(problem.select(slice(at, at + 1)), 5.0, 6) for at in range(12)])
    together = nearest_costs(problem, 5.0, 6)
    assert bool(((alone - together).abs() <= 1e-9)[torch.isfinite(together)].all())
    assert torch.equal(torch.isfinite(alone), torch.isfinite(together))
