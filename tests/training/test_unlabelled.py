"""Losses without labels: a Gaussian density, whose inner problem has a closed form, and an autoencoder."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import certus
from certus.data import Samples
from certus.errors import LossError
from certus.inner import WRM, BarzilaiBorwein
from certus.losses import ModelLoss, OutputLoss

GAMMA = 2.0


class Gaussian(nn.Module):
    """ℓ(μ; z) = ‖z − μ‖²/2: T_γ(z) − z = (z − μ)/(2γ − 1), φ_γ = ‖z − μ‖²/2 · 2γ/(2γ − 1)."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(2))

    def forward(self, points: Tensor) -> Tensor:
        losses: Tensor = (points - self.mean).square().sum(1, keepdim=True) / 2
        return losses


def _points(count: int = 100) -> Tensor:
    return torch.randn(count, 2, generator=torch.Generator().manual_seed(0)) + torch.tensor([1.0, -2.0])


def test_the_inner_problem_of_a_density() -> None:
    points, model = _points(), Gaussian()
    data = Samples.unlabelled(points)
    wrm = WRM(GAMMA, maximizer=BarzilaiBorwein(1e-7, 50))
    solved = wrm.solve(ModelLoss(model, OutputLoss()), data.inputs, data.targets)
    torch.testing.assert_close(solved.inputs, points + points / 3, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(solved.value, points.square().sum(1) / 2 * 4 / 3, rtol=1e-4, atol=1e-5)


def test_wrm_fits_a_density() -> None:
    """φ_γ is a multiple of ℓ, so that the best μ is the mean; and ρ̂ = E‖z − μ‖²/(2γ − 1)²."""
    points, model = _points(), Gaussian()
    run = certus.fit(
        model,
        Samples.unlabelled(points),
        method=WRM(GAMMA),
        criterion=OutputLoss(),
        epochs=120,
        batch_size=100,
        optimizer=lambda groups: torch.optim.Adam(groups, lr=0.05),
        progress=False,
    )
    mean = model.mean.detach()
    torch.testing.assert_close(mean, points.mean(0), rtol=0, atol=0.02)
    assert run.robustness is not None
    level = float((points - mean).square().sum(1).mean()) / 9
    assert run.robustness.rho_hat == pytest.approx(level, rel=1e-2)
    assert run.history[-1].accuracy is None


class Autoencoder(nn.Module):
    """ℓ(θ; z) = ‖D(E(z)) − z‖²: the target moves with the input."""

    def __init__(self) -> None:
        super().__init__()
        self.code, self.decoded = nn.Linear(2, 1, bias=False), nn.Linear(1, 2, bias=False)

    def forward(self, points: Tensor) -> Tensor:
        losses: Tensor = (self.decoded(self.code(points)) - points).square().sum(1)
        return losses


def test_an_autoencoder_learns_the_line_of_its_data() -> None:
    line = torch.randn(200, 1, generator=torch.Generator().manual_seed(1)) * torch.tensor([0.6, 0.8])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Autoencoder()
    certus.fit(
        model,
        Samples.unlabelled(line),
        method=WRM(4.0),
        criterion=OutputLoss(),
        epochs=60,
        batch_size=50,
        optimizer=lambda groups: torch.optim.Adam(groups, lr=0.05),
        progress=False,
    )
    with torch.no_grad():
        assert float(model(line).mean()) < 0.01
        assert float(model(torch.tensor([[0.8, -0.6]]))) > 0.5  # across the line


def test_a_certificate_has_attained_sides_only() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 4), nn.ELU(), nn.Linear(4, 1))
    data = Samples.unlabelled(_points(20))
    bracket = certus.certify(model, data, rho=[0.1], criterion=OutputLoss(), progress=False).bracket(0.1)
    with torch.no_grad():
        now = float(model(data.inputs).mean())
    assert bracket.loss_low >= now - 1e-5
    assert bracket.loss_high == math.inf


@pytest.mark.parametrize("shape", [(3, 2), (2,), (3, 1, 1)])
def test_other_outputs_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(LossError, match="returns one loss per sample"):
        OutputLoss()(torch.zeros(shape), torch.zeros(3))
