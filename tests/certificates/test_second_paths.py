"""Where work is portioned out, or a cheaper rule stands in, a certificate is the same, or looser."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import certus
from certus import Certificate
from certus.certificates.problem import Problem
from certus.kernel.majorants import constants
from certus.kernel.problem import Values
from tests.certificates.problems import CROSS_ENTROPY, EVERYWHERE, L2, network, samples

RHOS = (0.003, 0.1)


def certified(kind: str = "logcosh", classes: int = 3) -> Certificate:
    model, data = network(kind, 3, classes), samples(3, 9, classes)
    return certus.certify(
        model,
        data,
        rho=RHOS,
        gammas=(0.5, 3.0, 20.0),
        local_radii=2,
        gamma_rounds=0,
        attack_steps=3,
        clip=4.0,
    )


def check_above_attained(bounds: Certificate, found: Certificate) -> None:
    """What one certificate found, sample by sample, is below what the other one proves."""
    for one, other in zip(bounds.dual_values, found.dual_values, strict=True):
        assert (one.bound >= other.loss - other.gamma * other.transport_cost).all()


@pytest.mark.parametrize("portion", [1, 3, 7])
def test_portions_of_samples(portion: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More samples than fit into one portion. A sample by itself may get better bounds, never worse ones."""
    whole = certified()
    monkeypatch.setattr("certus.certificates.problem.BATCH", portion)
    parts = certified()
    for one, other in zip(whole.dual_values, parts.dual_values, strict=True):
        assert (other.bound <= one.bound * (1 + 1e-6)).all()
        torch.testing.assert_close(other.loss, one.loss, rtol=1e-6, atol=1e-9)
        if portion > 1:
            torch.testing.assert_close(other.bound, one.bound, rtol=1e-6, atol=0)
    check_above_attained(parts, whole)
    check_above_attained(whole, parts)


@pytest.mark.parametrize("numbers", [1, 100])
def test_portions_of_balls(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ball by itself may get a better slope than in company, never a worse one; both are above samples."""
    model, (points, targets) = network("tanh", 1), samples(1, 9)
    problem = Problem.of(model, (points, targets), CROSS_ENTROPY, L2, EVERYWHERE).kernel
    values = Values.at(problem)
    together = certus.bounds.local_smoothness(model, points, targets, 0.3)
    both = constants(problem, values, 0.3)
    monkeypatch.setattr("certus.bounds.analysis._CHUNK", numbers)
    monkeypatch.setattr("certus.kernel.problem._NUMBERS", numbers)
    alone = certus.bounds.local_smoothness(model, points, targets, 0.3)
    parts = constants(problem, values, 0.3)
    assert (alone.lipschitz <= together.lipschitz * (1 + 1e-12)).all()
    assert (alone.curvature <= together.curvature * (1 + 1e-12)).all()
    for name in ("slope", "curvature", "margin_lipschitz", "margin_curvature"):
        assert (getattr(parts, name) <= getattr(both, name) * (1 + 1e-12)).all()
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        moves = torch.randn(points.shape, generator=generator, dtype=torch.float64)
        leaf = (points + 0.3 * moves / moves.norm(dim=1, keepdim=True)).requires_grad_()
        (slope,) = torch.autograd.grad(certus.CrossEntropy()(model(leaf), targets).sum(), leaf)
        assert (slope.norm(dim=1) <= alone.lipschitz).all()
        assert (slope.norm(dim=1) <= parts.slope).all()


def test_a_ball_is_bounded_alike_in_any_company() -> None:
    """A population's bound takes samples as independent: none may change what is said of another."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.ELU(2.0), nn.Linear(8, 3)).double()
    analysis, targets = certus.bounds.Analysis(model), torch.zeros(20, dtype=torch.long)
    points = 3 * torch.randn(20, 2, dtype=torch.float64)
    together = certus.bounds.local_smoothness(analysis, points, targets, 0.3)
    kinked = torch.isinf(together.bounds["max"])
    assert 0 < kinked.sum() < 20
    for index in range(20):
        double = points[[index, index]]
        alone = certus.bounds.local_smoothness(analysis, double, targets[:2], 0.3)
        for rule, values in together.bounds.items():
            torch.testing.assert_close(values[index], alone.bounds[rule][0], rtol=1e-9, atol=0)


def test_without_the_quadratics_around_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks too large for them keep the other rules: looser, and above what is attained."""
    with_them = certified()
    monkeypatch.setattr("certus.certificates.proposals._WORK", 0)
    without = certified()
    for one, other in zip(with_them.dual_values, without.dual_values, strict=True):
        assert (other.bound >= one.bound * (1 - 1e-9)).all()
    assert without.proven_error_cost is not None
    assert with_them.proven_error_cost is not None
    assert (without.proven_error_cost <= with_them.proven_error_cost * (1 + 1e-9)).all()
    assert bool((without.proven_error_cost < with_them.proven_error_cost).any())
    check_above_attained(without, with_them)
    check_above_attained(with_them, without)


def test_more_classes_than_have_gradients_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    few = certified("tanh", classes=5)
    for module in ("certificates.proposals", "kernel.problem", "kernel.smoothness"):
        monkeypatch.setattr(f"certus.{module}.MOST_CLASSES", 2)
    many = certified("tanh", classes=5)
    for one, other in zip(few.dual_values, many.dual_values, strict=True):
        assert (other.bound >= one.bound * (1 - 1e-9)).all()
    check_above_attained(few, many)
