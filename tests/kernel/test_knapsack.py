"""Weak duality of the knapsack, against exact fractions, a linear program and other multipliers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from certus.certificates.error_costs import proposed_gamma, worst_error
from certus.kernel.error_rates import dual_bound, error_gains, worst_error_rate
from certus.kernel.passes import Refused

RHOS = (0.0, 1e-9, 0.003, 0.05, 0.4, 3.0, 1e6)


def costs_of(seed: int, count: int = 40) -> Tensor:
    rng = np.random.default_rng(seed)
    costs = rng.exponential(rng.uniform(0.01, 10), count) * (rng.random(count) > 0.2)
    costs[rng.random(count) < 0.2] = math.inf
    return torch.from_numpy(costs)


def program(costs: Tensor, rho: float, weights: Tensor) -> float:
    """max {Σ wᵢmᵢ : Σ wᵢmᵢτᵢ ≤ ρ, 0 ≤ w ≤ 1} over samples whose errors are possible."""
    possible = torch.isfinite(costs)
    masses = (weights / len(costs))[possible].numpy()
    solved = linprog(-masses, A_ub=(masses * costs[possible].numpy())[None], b_ub=[rho], bounds=(0, 1))
    return float(-solved.fun)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("seed", range(6))
def test_the_proposed_multiplier_is_the_best(seed: int, rho: float) -> None:
    costs = costs_of(seed)
    weights = torch.from_numpy(np.random.default_rng(seed).exponential(1.0, len(costs)))
    weights = weights / weights.mean()
    for each in (None, weights):
        exact = program(costs, rho, torch.ones_like(costs) if each is None else each)
        found = worst_error_rate(costs, rho, proposed_gamma(costs, rho, each), each)
        assert exact - 1e-12 <= found <= exact * (1 + 1e-9) + 1e-12
        assert worst_error(costs, [rho], each)[0] == pytest.approx(exact, abs=1e-9)
        assert worst_error(costs, [rho], each)[0] <= found


@pytest.mark.parametrize("seed", range(6))
def test_any_multiplier_is_valid(seed: int) -> None:
    rng, costs = np.random.default_rng(seed), costs_of(seed)
    for gamma in (0.0, 1e-300, 1e300, *rng.exponential(1.0, 5), *(1 / rng.exponential(1.0, 5))):
        for rho in RHOS:
            assert worst_error_rate(costs, rho, float(gamma)) >= worst_error(costs, [rho])[0]


@pytest.mark.parametrize("gamma", [0.3, 1.0, 1 / 0.7, 12.345, 1 / 3])
def test_rounding_is_outwards(gamma: float) -> None:
    """Against exact fractions: the gains, and the whole bound."""
    costs, rho = torch.tensor([0.0, 0.1, 0.7, 1 / gamma, 3.0, 0.0814], dtype=torch.float64), 0.0213
    exact = [max(Fraction(0), 1 - Fraction(gamma) * Fraction(cost)) for cost in costs.tolist()]
    for gain, truth in zip(error_gains(costs, gamma).tolist(), exact, strict=True):
        assert truth <= Fraction(gain) <= truth + Fraction(2, 10**15)
    total = Fraction(gamma) * Fraction(rho) + sum(exact) / len(exact)
    bound = Fraction(worst_error_rate(costs, rho, gamma))
    assert min(Fraction(1), total) <= bound <= total * (1 + Fraction(1, 10**11))


def test_a_grid_of_multipliers() -> None:
    assert dual_bound({1.0: 0.2, 4.0: 0.1}, 0.01) == pytest.approx(0.14)
    assert dual_bound({1.0: 0.2, 4.0: 0.1}, 1.0) == pytest.approx(1.2)
    assert dual_bound({}, 1.0) == math.inf
    for gamma, mean, rho in ((0.1, 0.2, 0.3), (1 / 3, 0.7, 0.1), (1 / 3, -0.7, 0.1)):
        assert Fraction(dual_bound({gamma: mean}, rho)) >= Fraction(gamma) * Fraction(rho) + Fraction(mean)


@pytest.mark.parametrize("gamma", [-1.0, math.inf, math.nan])
def test_multipliers_without_a_theorem_are_refused(gamma: float) -> None:
    with pytest.raises(Refused):
        worst_error_rate(costs_of(0), 0.1, gamma)


def test_costs_without_a_theorem_are_refused() -> None:
    for costs, rho in (([-1.0, 1.0], 0.1), ([math.nan], 0.1), ([1.0], -0.1), ([1.0], math.nan)):
        with pytest.raises(Refused):
            worst_error_rate(torch.tensor(costs, dtype=torch.float64), rho, 1.0)
    with pytest.raises(Refused):
        worst_error_rate(torch.ones(2), 0.1, 1.0, torch.tensor([2.5, -0.5]))
    with pytest.raises(Refused):
        dual_bound({-1.0: 0.2}, 0.1)
