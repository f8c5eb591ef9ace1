"""A grid of γ that the caller chose: all of it is used, and refining finds what it lacks.

The model is linear in two classes. A sample of margin m has φ_γ = sup_t ln(1 + e^{t − m}) − γt²/α², α the
length of the difference of the two rows of weights, and t is searched here by brute force.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

import certus

SOURCE = torch.Generator().manual_seed(4)
INPUTS = torch.randn(60, 3, generator=SOURCE, dtype=torch.float64)
LABELS = (INPUTS[:, 0] + 0.6 * torch.randn(60, generator=SOURCE, dtype=torch.float64) > 0).long()
SLOPE = torch.tensor([2.0, -1.0, 0.5], dtype=torch.float64)


def model() -> nn.Module:
    layer = nn.Linear(3, 2, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.stack([-SLOPE / 2, SLOPE / 2]))
        layer.bias.zero_()
    return layer


@cache
def phi(gamma: float) -> float:
    """E φ_γ of the samples, to five digits: t ≤ α²/2γ, since the loss rises by at most t."""
    margins = (INPUTS @ SLOPE * (2 * LABELS - 1)).numpy()[:, None]
    squared = float(SLOPE @ SLOPE)
    moves = np.linspace(0, squared / (2 * gamma), 2001)
    return float((np.logaddexp(0, moves - margins) - gamma * moves**2 / squared).max(1).mean())


def dual(rho: float, gammas: tuple[float, ...] | None = None) -> float:
    """min_γ γρ + E φ_γ, over some γ or over all: the exact worst case."""
    grid = np.geomspace(1e-1, 1e3, 81).tolist() if gammas is None else gammas
    return min(gamma * rho + phi(gamma) for gamma in grid)


@pytest.mark.parametrize("gammas", [(0.5, 3.0, 20.0), (20.0, 3.0, 0.5), (3.0, 0.5, 20.0, 3.0)])
def test_all_of_an_own_grid_is_used_and_nothing_else(gammas: tuple[float, ...]) -> None:
    found = certus.certify(model(), (INPUTS, LABELS), rho=[0.001, 0.1], gammas=gammas, gamma_rounds=0)
    assert [line.gamma for line in found.aggregates] == [20.0, 3.0, 0.5]
    best = [min((20.0, 3.0, 0.5), key=lambda gamma: gamma * rho + phi(gamma)) for rho in (0.001, 0.1, 1.0)]
    assert best == [20.0, 3.0, 0.5]
    for rho in (0.001, 0.1, 1.0):
        assert found.bound(rho) == pytest.approx(dual(rho, gammas), rel=2e-3)


@pytest.mark.parametrize("rho", [0.003, 0.1, 1.0])
@pytest.mark.parametrize("gammas", [(1000.0,), (0.2, 0.1)], ids=["above", "below"])
def test_refining_makes_up_for_an_own_grid_that_is_far_off(gammas: tuple[float, ...], rho: float) -> None:
    exact = dual(rho)
    rough, fine = (
        certus.certify(model(), (INPUTS, LABELS), rho=rho, gammas=gammas, gamma_rounds=rounds, attack_steps=0)
        for rounds in (0, 1)
    )
    assert dual(rho, gammas) * (1 - 1e-5) <= rough.bound(rho)
    assert exact * (1 - 1e-5) <= fine.bound(rho) <= 1.1 * exact < rough.bound(rho)


def test_an_own_grid_reaches_as_far_as_its_smallest_gamma() -> None:
    """Far beyond the ρ asked for, too: a γ between others is bounded as it is with a larger ρ."""
    for rho in (0.001, 1.0):
        found = certus.certify(model(), (INPUTS, LABELS), rho=rho, gammas=[20.0, 0.5, 0.1], gamma_rounds=0)
        assert phi(0.5) * (1 - 1e-5) <= found.statement.means[0.5] <= 1.02 * phi(0.5)
        assert found.bound(0.8) <= 1.02 * dual(0.8, (20.0, 0.5, 0.1))
