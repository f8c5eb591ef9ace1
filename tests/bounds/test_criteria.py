"""How each loss bends its outputs: the constants of the softmax family against the losses and fine grids."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from certus.bounds.criteria import read_criterion
from certus.kernel.losses import Softmax
from certus.losses import Criterion, CrossEntropy, Logistic, SmoothMargin

CRITERIA: dict[str, tuple[Criterion, int]] = {
    "plain": (CrossEntropy(), 3),
    "two": (CrossEntropy(), 2),
    "warm": (CrossEntropy(temperature=2.5), 3),
    "cold, two": (CrossEntropy(temperature=0.4), 2),
    "smoothed": (CrossEntropy(label_smoothing=0.3), 3),
    "smoothed and warm": (CrossEntropy(label_smoothing=0.2, temperature=2.0), 4),
    "margin": (SmoothMargin(margin=0.7, sharpness=4.0), 3),
    "logistic": (Logistic(), 2),
}


def family(criterion: Criterion) -> Softmax:
    found = read_criterion(criterion)
    assert isinstance(found, Softmax)
    return found


def full(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def derivatives(criterion: Criterion, outputs: Tensor, label: int) -> tuple[float, Tensor, Tensor]:
    """Loss, gradient and Hessian with respect to one vector of outputs."""

    def loss(logits: Tensor) -> Tensor:
        return criterion(logits[None], torch.tensor([label]))[0]

    hessian = torch.autograd.functional.hessian(loss, outputs)
    leaf = outputs.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(leaf), leaf)
    assert isinstance(hessian, Tensor)
    return float(loss(outputs)), slope, hessian


@pytest.mark.parametrize("name", CRITERIA)
def test_the_error_the_weight_and_the_spread_at_given_outputs(name: str) -> None:
    """Slopes move at most ``weight`` of mass, and the covariance of any function with values in [0, 1] is at
    most ``variance``: at random outputs, and attained where a label has just that much probability."""
    criterion, classes = CRITERIA[name]
    known, generator = family(criterion), torch.Generator().manual_seed(0)
    closest = {"weight": 0.0, "variance": 0.0}
    for trial in range(60):
        outputs = 6 * torch.randn(1 if known.logistic else classes, generator=generator, dtype=torch.float64)
        label = trial % classes
        _, slope, hessian = derivatives(criterion, outputs, label)
        logits = torch.cat([full(0.0), outputs]) if known.logistic else outputs
        own = torch.arange(classes) == label
        error = known.error((logits - logits[label])[None], own[None])
        assert 0 <= float(error) <= 1
        if known.logistic:  # with the slope of the output 0 beside it
            slope = torch.cat([-slope, slope])
            hessian = torch.cat([torch.cat([hessian, -hessian], 1), torch.cat([-hessian, hessian], 1)])
        mass = float(slope.clamp_min(0).sum())
        weight, variance = float(known.weight(error, classes)), float(known.variance(error))
        assert mass <= weight * (1 + 1e-12) + 1e-15
        closest["weight"] = max(closest["weight"], mass / max(weight, 1e-15))
        for values in itertools.product((0.0, 1.0), repeat=classes):
            spread = full(*values)
            attained = float(spread @ hessian @ spread)
            assert attained <= variance * (1 + 1e-9) + 1e-14
            closest["variance"] = max(closest["variance"], attained / max(variance, 1e-15))
    assert closest["weight"] > 0.99
    assert closest["variance"] > 0.9


def test_the_error_of_a_label() -> None:
    """q = 1 − p_y, from margins and offset at the loss's own scale."""
    margins = full(-1.0, 0.0, 0.5, -0.3)[None]
    own = torch.tensor([[False, True, False, False]])
    for scale, offset in ((1.0, 0.0), (0.4, 0.0), (3.0, 0.7)):
        shares = [math.exp(scale * (m + offset)) for m in (-1.0, 0.5, -0.3)]
        truth = sum(shares) / (1 + sum(shares))
        found = float(Softmax(spread=scale, scale=scale, offset=offset).error(margins, own))
        assert truth <= found <= truth * (1 + 2e-9)
    far = Softmax().error(full(800.0, 0.0)[None], torch.tensor([[False, True]]))
    assert float(far) == 1


@pytest.mark.parametrize("slope", [1.0, 0.5])
@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_the_curvature_of_two_classes(slope: float, spread: float) -> None:
    """max over q ≤ q̄ of g·κ·q + h·D²·q(1 − q), on a fine grid."""
    known = Softmax(slope, spread)
    for error, bend, apart in itertools.product((0.1, 0.5, 0.8, 1.0), (0.0, 0.3, 2.0, 50.0), (0.0, 0.5, 2.0)):
        q = torch.linspace(0, error, 100_001, dtype=torch.float64)
        truth = float((slope * bend * q + spread * apart**2 * q * (1 - q)).max())
        found = float(known.combine(full(bend), full(apart), full(error), 2))
        assert truth * (1 - 1e-12) <= found <= truth * (1 + 1e-8) + 1e-12


def test_the_curvature_of_many_classes() -> None:
    """g·q̄·κ + h·v(q̄)·D², v the largest variance of a law on [0, 1] with mass 1 − q at one point."""
    known = Softmax(0.5, 3.0)
    for error in (0.2, 0.5, 0.6, 1.0):
        q = torch.linspace(0, error, 1001, dtype=torch.float64)
        v = float((q * (1 - q)).max())
        found = float(known.combine(full(2.0), full(1.5), full(error), 3))
        assert found == pytest.approx(0.5 * error * 2 + 3 * v * 1.5**2, rel=1e-6)
    smoothed = Softmax(smoothing=0.3)
    mass = min(0.2 + 0.3 * (1 - 1 / 2), 1 - 0.3 / 2)
    found = float(smoothed.combine(full(2.0), full(1.5), full(0.2), 2))
    assert found == pytest.approx(mass * 2 + 0.2 * 0.8 * 1.5**2, rel=1e-9)
    kinked = known.combine(full(math.inf), full(1.5), full(0.0), 3)
    assert float(kinked) == 0  # what has no probability does not bend, kinked or not


@pytest.mark.parametrize("slope", [1.0, 0.5])
@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_the_corollary_corrected(slope: float, spread: float) -> None:
    """max over 0 ≤ u ≤ ½ of g√(2 − u)β + huα², on a fine grid; as printed, with √2 and 1 at once."""
    known = Softmax(slope, spread)
    for bend, length in itertools.product((0.0, 0.3, 2.0, 50.0), (0.0, 0.2, 1.0, 5.0)):
        u = torch.linspace(0, 0.5, 100_001, dtype=torch.float64)
        truth = float((slope * (2 - u).sqrt() * bend + spread * u * length**2).max())
        found = float(known.corrected(full(bend), full(length)))
        assert truth * (1 - 1e-12) <= found <= truth * (1 + 1e-8) + 1e-12
        printed = math.sqrt(2) * slope * bend + spread * length**2
        assert printed >= found * (1 - 1e-12)
