"""Noise in training: fresh in every look at the loss, in the geometry of the cost, and the bounded loss."""

from __future__ import annotations

import math

import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn

import certus
from certus.costs import Masked, WeightedL2
from certus.data import Samples
from certus.errors import ArgumentError, UnsupportedError
from certus.inner import PaperAscent
from certus.inner.methods import Method
from certus.losses import MissProbability
from certus.runs.settings import Settings
from certus.smoothing.sampling import Noise
from certus.training.augmentation import NoisyLoss, fresh_noise, smoothed_concavity


class Watched(nn.Module):
    """Remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.asked = nn.Linear(2, 2), list[Tensor]()

    def forward(self, inputs: Tensor) -> Tensor:
        self.asked.append(inputs.detach().clone())
        result: Tensor = self.layer(inputs)
        return result


def still(count: int = 64) -> Samples:
    return Samples(torch.zeros(count, 2), torch.zeros(count, dtype=torch.long))


@pytest.mark.parametrize("method", [None, certus.WRM(2.0, maximizer=PaperAscent(2))], ids=["erm", "wrm"])
def test_every_look_has_noise_of_its_own(method: Method | None) -> None:
    torch.manual_seed(0)
    model = Watched()
    certus.fit(model, still(), method=method, epochs=1, batch_size=64, noise=0.5)
    looks = model.asked[1:2] if method is None else model.asked[1:5]  # the first one only tries the model
    flat = torch.cat([look.flatten() for look in looks])
    assert len(flat.unique()) == len(flat)
    assert float(looks[0].std()) == pytest.approx(0.5, rel=0.2)


def test_the_same_call_gives_the_same_weights() -> None:
    def weights(noise: float) -> Tensor:
        torch.manual_seed(0)
        model = nn.Linear(2, 2)
        certus.fit(model, still(), epochs=2, noise=noise, seed=3)
        return model.weight.detach().clone()

    assert torch.equal(weights(0.5), weights(0.5))
    assert not torch.equal(weights(0.5), weights(0.0))


def test_noise_follows_the_cost() -> None:
    cost = Masked(WeightedL2(torch.tensor([4.0, 1.0])), torch.tensor([True, False]))
    torch.manual_seed(0)
    drawn = fresh_noise(Noise(1.0, cost), torch.zeros(20_000, 2))
    assert float(drawn[:, 0].std()) == pytest.approx(0.5, rel=0.03)
    assert bool((drawn[:, 1] == 0).all())


def test_an_ascent_that_compares_values_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"fixed steps, such as maximizer=certus.inner.PaperAscent"):
        certus.fit(nn.Linear(2, 2), still(), method=certus.WRM(2.0), epochs=1, noise=0.5)


def test_the_bounded_loss() -> None:
    outputs, targets = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    exact = 1 - outputs.softmax(1)[torch.arange(5), targets]
    assert torch.allclose(MissProbability()(outputs, targets), exact)
    sure = torch.tensor([[60.0, 0.0]], dtype=torch.float64)
    assert float(MissProbability()(sure, torch.tensor([0]))) == pytest.approx(math.exp(-60), rel=1e-9)


@pytest.mark.parametrize("sigma", [0.25, 1.0])
def test_a_smoothed_loss_bends_no_more_than_is_said(sigma: float) -> None:
    """The loss of a slab has the largest curvature there is: its second derivative by finite differences."""
    threshold = smoothed_concavity(sigma, MissProbability(), 1.0, 2.0)["threshold"]

    def smoothed(x: float) -> float:  # f = 1 outside of |x| < σ
        return float(1 - norm.cdf((sigma - x) / sigma) + norm.cdf((-sigma - x) / sigma))

    step = 1e-3 * sigma
    bend = (smoothed(step) - 2 * smoothed(0) + smoothed(-step)) / step**2
    assert bend / 2 <= threshold <= bend / 2 * 1.001


def test_nothing_is_proven_of_cross_entropy() -> None:
    told = smoothed_concavity(0.25, certus.CrossEntropy(), 100.0, 2.0)
    assert told["threshold"] is told["concave"] is told["evidence"] is None
    assert smoothed_concavity(0.25, MissProbability(), 3.8, 2.0)["concave"] is False
    assert smoothed_concavity(0.25, MissProbability(), 3.9, 2.0)["concave"] is True


def test_noisy_losses_are_drawn_each_time() -> None:
    torch.manual_seed(0)
    loss = NoisyLoss(nn.Linear(2, 2), certus.CrossEntropy(), Noise(0.5, certus.SquaredL2()))
    inputs, targets = still(4).inputs, still(4).targets
    assert not torch.equal(loss(inputs, targets), loss(inputs, targets))


def test_settings_are_checked() -> None:
    with pytest.raises(ArgumentError, match="`noise` must be finite and not negative; got -1"):
        Settings("digits", "toy", method="erm", noise=-1.0)
    with pytest.raises(ArgumentError, match="`loss` must be one of cross-entropy, bounded; got 'hinge'"):
        Settings("digits", "toy", method="erm", loss="hinge")
    with pytest.raises(ArgumentError, match="`cost` must be natural with noise"):
        Settings("digits", "toy", gamma=1.0, cost="linf", noise=0.5)
    with pytest.raises(ArgumentError, match="`loss` must be cross-entropy in certified training"):
        Settings("digits", "toy", gamma=1.0, certified=True, loss="bounded")


class Bowl(nn.Module):
    """z₁² + z₂², whose slope is 0 at the data of ``still``."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, inputs: Tensor) -> Tensor:
        heights: Tensor = self.weight * (inputs**2).sum(1, keepdim=True)
        return heights


def test_rho_hat_is_measured_in_noise() -> None:
    """One step of the ascent leads to z + ∇/2γ = z + noise/γ, at a cost of 2σ²/γ² in the mean of two numbers;
    without noise to nowhere."""
    method = certus.WRM(gamma=4.0, maximizer=PaperAscent(1))
    found = certus.fit(
        Bowl(),
        still(4096),
        method=method,
        criterion=lambda outputs, targets: outputs.flatten(),
        epochs=1,
        batch_size=512,
        optimizer=lambda groups: torch.optim.SGD(groups, lr=0.0),
        noise=0.5,
        progress=False,
    )
    assert found.robustness is not None
    assert found.robustness.rho_hat == pytest.approx(2 * 0.5**2 / 4.0**2, rel=0.1)
