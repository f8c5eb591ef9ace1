"""Ascents on losses with kinks, where the gradient of one side is no direction of ascent.

Oracles: a ridge whose maximum is known in closed form, and on ReLU networks the best value of long runs of
several methods from several starts.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import certus
from certus.inner import BarzilaiBorwein, Maximizer, PaperAscent

DOUBLE = torch.float64


def ridge(z: Tensor) -> Tensor:
    """ℓ = z₂ − 10|z₁|, a ridge that rises along the second coordinate."""
    return z[:, 1] - 10 * z[:, 0].abs()


@pytest.mark.parametrize("gamma", [0.3, 4.0])
def test_a_ridge_is_followed_to_its_maximum(gamma: float) -> None:
    """From (a, 0) the maximum is (0, 1/2γ), with the value 1/4γ − γa². A line search stops at the ridge,
    where it loses most of 1/4γ."""
    start = torch.zeros(4, 2, dtype=DOUBLE)
    start[:, 0] = torch.tensor([0.05, 0.1, 0.2, 0.31])
    solution = certus.WRM(gamma, maximizer=BarzilaiBorwein(0.0, 600)).solve(ridge, start)
    exact = 1 / (4 * gamma) - gamma * start[:, 0] ** 2
    assert (solution.value <= exact + 1e-12).all()
    assert (exact - solution.value).max() < 0.1 / (4 * gamma)


def relu_network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 3)]
    for layer in layers:
        layer.weight.data *= 2.0  # or the loss is nearly linear
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2]).double()


def long_runs(loss: certus.ModelLoss, inputs: Tensor, targets: Tensor, gamma: float) -> Tensor:
    """(batch,) largest f of subgradient steps, plain and of unit length, from z₀ and points around it."""
    generator = torch.Generator().manual_seed(0)
    largest = torch.full((len(inputs),), -torch.inf, dtype=DOUBLE)
    for spread in (0.0, 0.3):
        for unit in (False, True):
            point = inputs + spread * torch.randn(inputs.shape, dtype=DOUBLE, generator=generator)
            for step in range(1, 150):
                leaf = point.clone().requires_grad_()
                values = loss(leaf, targets) - gamma * ((leaf - inputs) ** 2).sum(1)
                (slope,) = torch.autograd.grad(values.sum(), leaf)
                largest = torch.maximum(largest, values.detach())
                length = 1 / (2 * gamma) / step**0.5
                if unit:
                    slope, length = slope / slope.norm(dim=1, keepdim=True).clamp_min(1e-12), 1 / step
                point = point + length * slope
    return largest


def gaps_on_a_relu_network(seed: int, gamma: float) -> None:
    """The careful ascent leaves a smaller gap than as many steps of the paper's schedule."""
    loss = certus.ModelLoss(relu_network(seed), certus.CrossEntropy())
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(64, 8, dtype=DOUBLE, generator=generator)
    targets = torch.randint(0, 3, (64,), generator=generator)
    best = long_runs(loss, inputs, targets, gamma)

    def gap(maximizer: Maximizer) -> float:
        solution = certus.WRM(gamma, maximizer=maximizer).solve(loss, inputs, targets)
        return float((best - solution.value).clamp_min(0).mean())

    assert gap(BarzilaiBorwein(1e-4, 60)) < gap(PaperAscent(60))
    assert gap(BarzilaiBorwein()) < 2 * gap(PaperAscent(16))


def test_a_relu_network() -> None:
    gaps_on_a_relu_network(0, 0.5)


@pytest.mark.soak
@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(4))
def test_relu_networks(seed: int, gamma: float) -> None:
    gaps_on_a_relu_network(seed, gamma)
