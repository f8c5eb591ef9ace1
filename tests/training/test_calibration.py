"""γ for a wanted ρ, against the closed form of a linear loss, ρ̂ = ‖g‖²/4γ²; the default ρ of data."""

from __future__ import annotations

import math

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

import certus
from certus import WRM, ModelLoss, SquaredL2
from certus.costs import WeightedL2
from certus.data import Samples
from certus.datasets import digits
from certus.training import RobustnessStatus, calibrate
from certus.training.calibration import Robustness, suggest_rho

CPU = Fabric(accelerator="cpu", devices=1)
SLOPE = torch.tensor([[3.0, 4.0]])
DATA = Samples(torch.zeros(8, 2), torch.zeros(8))


def linear() -> ModelLoss:
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(SLOPE)
    return ModelLoss(model, lambda outputs, targets: outputs.flatten())


@pytest.mark.parametrize("start", ["floor", "right", "above"])
@pytest.mark.parametrize("rho", [0.001, 0.1])
def test_gamma_is_found_from_anywhere(rho: float, start: str) -> None:
    """From its floor too, where the data move farther than is wanted."""
    exact = 5.0 / (2 * math.sqrt(rho))
    wrm = WRM(rho=rho, gamma_min=0.1)
    wrm.load_state_dict({"gamma": {"floor": 0.1, "right": exact, "above": 50 * exact}[start]})
    found = calibrate(wrm, linear(), DATA, 4, CPU)
    assert found.status is RobustnessStatus.REACHED
    assert found.rho_hat == pytest.approx(rho, rel=0.05)
    assert wrm.gamma == found.gamma == pytest.approx(exact, rel=0.03)


def test_a_floor_that_binds() -> None:
    wrm = WRM(rho=0.1, gamma_min=100.0)
    wrm.load_state_dict({"gamma": 100.0})
    found = calibrate(wrm, linear(), DATA, 4, CPU)
    assert found.status is RobustnessStatus.FLOOR
    assert found.rho_hat == pytest.approx(25 / (4 * 100.0**2))


def test_the_suggested_level_is_a_tenth_of_the_distance_between_classes() -> None:
    data = digits().train[:300]
    rows = data.inputs.flatten(1).double()
    distances = torch.cdist(rows, rows)
    distances[data.targets[:, None] == data.targets[None]] = torch.inf
    expected = float(distances.amin(1).median())
    found = suggest_rho(data, SquaredL2())
    assert found.distance == pytest.approx(expected, rel=1e-5)
    assert found.rho == pytest.approx((0.1 * expected) ** 2, rel=1e-5)
    assert "a tenth of" in found.reason
    weighted = suggest_rho(data, WeightedL2(torch.full((1, 8, 8), 4.0)))
    assert weighted.distance == pytest.approx(2 * expected, rel=1e-5)


def test_levels_for_regression_and_for_nothing_to_tell_apart() -> None:
    data = Samples(torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([0.1, 0.2, 0.3]))
    assert suggest_rho(data, SquaredL2()).distance == pytest.approx(1.0)
    with pytest.raises(certus.errors.ArgumentError, match="no two samples differ"):
        suggest_rho(Samples(torch.zeros(3, 1), torch.tensor([0, 0, 0])), SquaredL2())


@pytest.mark.parametrize("follows", [False, True], ids=["gamma", "rho"])
def test_many_samples_are_measured_by_a_random_subset(follows: bool) -> None:
    """The interval is around the mean over the subset, and contains the mean over all samples."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(5000, 2, generator=generator)
    data = Samples(inputs, (inputs[:, 0] > 0.3 * torch.randn(5000, generator=generator)).long())

    def robustness(*, measure_all: bool) -> Robustness:
        torch.manual_seed(0)
        model = nn.Linear(2, 2)
        wrm = WRM(rho=0.05) if follows else WRM(1.0)
        done = certus.fit(model, data, method=wrm, epochs=1, progress=False, measure_all=measure_all)
        assert done.robustness is not None
        return done.robustness

    part, whole = robustness(measure_all=False), robustness(measure_all=True)
    assert (part.samples, whole.samples, whole.interval) == (2048, None, None)
    assert part.interval is not None
    low, high = part.interval
    assert low < part.rho_hat < high
    assert high - low < 0.1 * part.rho_hat
    if not follows:
        assert low < whole.rho_hat < high
