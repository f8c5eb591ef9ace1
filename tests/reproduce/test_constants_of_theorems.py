"""The constants that reproductions call proven, against exact derivatives at random points of their sets."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.func import grad, jacrev

from certus.reproduce import convergence_runs, generalization
from certus.split import Split


def softmax_loss(weights: Tensor, point: Tensor) -> Tensor:
    outputs = weights.view(-1, len(point)) @ point
    return torch.logsumexp(outputs, 0) - outputs[0]


@pytest.mark.parametrize("seed", range(20))
def test_of_the_linear_softmax(seed: int) -> None:
    """Exact Hessians for ‖W‖₂ ≤ b, ‖x‖ ≤ R never exceed the formulas; some come near."""
    generator = torch.Generator().manual_seed(seed)
    known = convergence_runs.softmax_constants(1.0, 3)
    reach = known.noise / math.sqrt(2)
    weights = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    weights *= convergence_runs.NORM_BOUND * (0.01 if seed % 2 else 1) / torch.linalg.matrix_norm(weights, 2)
    point = torch.randn(4, generator=generator, dtype=torch.float64)
    point *= reach / point.norm()
    flat = weights.flatten()
    assert torch.linalg.matrix_norm(jacrev(grad(softmax_loss))(flat, point), 2) <= known.parameter_smoothness
    mixed = jacrev(grad(softmax_loss), argnums=1)(flat, point)
    assert torch.linalg.matrix_norm(mixed, 2) <= known.cross_smoothness
    bent = jacrev(grad(softmax_loss, argnums=1), argnums=1)(flat, point)
    assert torch.linalg.eigvalsh(bent)[-1] <= 2 * convergence_runs.STEP_GAMMA - known.modulus + 1e-12
    assert grad(softmax_loss)(flat, point).norm() <= known.noise + 1e-12


def test_they_are_not_idle() -> None:
    """At W = 0 with two classes the bound on ∇²_WW is attained."""
    flat, point = torch.zeros(8, dtype=torch.float64), torch.tensor([0.0, 0.0, 0.0, 2.0]).double()
    found = torch.linalg.matrix_norm(jacrev(grad(softmax_loss))(flat, point), 2).item()
    assert found == pytest.approx(point.norm().item() ** 2 / 2)


def test_no_sample_moves_further_than_claimed() -> None:
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(200, 2, generator=generator, dtype=torch.float64)
    data = Split(points / points.norm(dim=1, keepdim=True) * generalization.RADIUS, torch.arange(200) % 2)
    for weights in generalization.random_weights(20, generator):
        assert torch.linalg.matrix_norm(weights) <= 1 + 1e-12
        assert generalization.moved_costs(weights, data).max() <= generalization.REACH**2


def test_the_bound_for_one_network_is_hoeffdings() -> None:
    """P(|mean − E| > t) ≤ 2 exp(−2nt²/r⁴) = δ."""
    t = generalization.fixed_bound(500)
    assert 2 * math.exp(-2 * 500 * t**2 / generalization.REACH**4) == pytest.approx(0.05)
    assert generalization.uniform_bound(500) > 10 * t
