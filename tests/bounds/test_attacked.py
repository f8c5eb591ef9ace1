"""No ascent exceeds a bound: random networks up to CIFAR size, with every bound that holds of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from certus.kernel import operators
from tests.bounds.ascent import climb, margin_loss
from tests.bounds.attacked import attack, attack_network
from tests.bounds.image_networks import Made

QUICK = (0, 3, 5, 9, 12, 17)
FULL = 2000
_PORTION = 50


@pytest.mark.parametrize("seed", QUICK)
def test_six_networks(seed: int) -> None:
    assert attack(seed, steps=12).violations == []


@pytest.mark.soak
@pytest.mark.parametrize("start", range(0, FULL, _PORTION))
def test_two_thousand_networks(start: int) -> None:
    assert [line for seed in range(start, start + _PORTION) for line in attack(seed).violations] == []


def test_the_ascent_reaches_the_truth_of_a_linear_softmax() -> None:
    """There D²/4 is the exact supremum, attained where two classes share all of the probability."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 2)).double()
    points, targets = 0.1 * torch.randn(4, 6, dtype=torch.float64), torch.tensor([0, 1, 0, 1])
    found = climb(margin_loss(model, targets), points, steps=60)
    weight = next(model.parameters()).detach()
    apart = float((weight[0] - weight[1]).norm())
    assert float(found.curvature.max()) == pytest.approx(apart**2 / 4, rel=1e-3)
    assert float(found.curvature.max()) <= apart**2 / 4 * (1 + 1e-12)


def chain_of_three() -> Made:
    """Three affine layers that are too large to be written out; the first has nearly all of the gain."""
    torch.manual_seed(0)
    affine = [nn.Conv2d(1, 1, 1) for _ in range(3)]
    for layer, gain in zip(affine, (100.0, 1.0, 1.0), strict=True):
        layer.weight.data.fill_(gain)
    model = nn.Sequential(*affine, nn.Tanh(), nn.Flatten(), nn.Linear(1089, 2)).double()
    return Made(model, (1, 33, 33), 2, 1)


def test_the_ascent_finds_a_chain_that_forgets_its_first_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake that sampling had missed, made again on purpose."""
    assert attack_network(chain_of_three(), 0, 12).violations == []

    def forgetful(parts: list[tuple[Tensor, float, Any]]) -> Tensor:
        norms, before, _ = parts[0]
        for own, norm, absolute in parts[1:]:
            norms = torch.minimum(own * before, absolute(norms[None])[0])
            before = norm
        return norms

    monkeypatch.setattr(operators, "_prefix_norms", forgetful)
    found = attack_network(chain_of_three(), 0, 12).violations
    assert any(line.startswith("seed 0: curvature attained") for line in found)
