"""γ for a wanted ρ, against the closed form of a linear loss: ρ̂ = ‖g‖²/4γ²."""

from __future__ import annotations

import math

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

from certus import WRM, ModelLoss
from certus.data import Samples
from certus.training import RobustnessStatus, calibrate

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
