"""Weights so small that products vanish in float64, and so large that they would bring them back."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import nn

import certus
from certus.bounds import Analysis
from certus.errors import UnreadableModelError
from certus.kernel.problem import outputs_at
from certus.layers import Residual, Scale


def scaled(exponents: list[int], kind: type[nn.Module]) -> nn.Sequential:
    """x ↦ (u, −u), u the input multiplied by powers of 10, an activation between any two."""
    layers: list[nn.Module] = []
    for exponent in exponents:
        layer = nn.Linear(1, 1, bias=False, dtype=torch.float64)
        nn.init.constant_(layer.weight, 10.0**exponent)
        layers += [layer, kind()]
    last = nn.Linear(1, 2, bias=False, dtype=torch.float64)
    last.weight.data = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    return nn.Sequential(*layers[:-1], last)


@pytest.mark.parametrize("kind", [nn.Tanh, nn.Identity, nn.ReLU], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "exponents",
    [[-160, 160], [-170, 170], [170, -170], [-100, -100, 100, 100], [-300, 155, 145], [80, -170, 90]],
    ids=str,
)
def test_vanishing_numbers_are_not_amplified(exponents: list[int], kind: type[nn.Module]) -> None:
    """Slopes and curvatures of 0 were proven for most of these; a loss has slope 1 at 0 for the first."""
    with pytest.raises(UnreadableModelError, match=r"amplify numbers by a factor of \d.*above 1e\+60"):
        certus.input_smoothness(scaled(exponents, kind))


@pytest.mark.parametrize("exponents", [[-50, 50], [59, -59], [-300, 20, -20, 20]], ids=str)
def test_below_that_nothing_is_lost(exponents: list[int]) -> None:
    """x ↦ log(1 + exp(−2u)), u as large as x or far smaller: a slope of up to 2, a curvature of 1."""
    found = certus.input_smoothness(scaled(exponents, nn.Identity))
    gain = 10.0 ** sum(exponents)
    assert 2 * gain <= found.lipschitz < 2 * gain + 1e-8
    assert gain**2 <= found.curvature < gain**2 + 1e-8


def test_such_models_are_refused_by_name() -> None:
    model = scaled([-170, 170], nn.Tanh)
    data = torch.tensor([[1.0], [2.0]]), torch.tensor([0, 0])
    with pytest.raises(UnreadableModelError, match=r"by a factor of 1.41e\+170.*certify_smoothed"):
        certus.certify(model, data, rho=0.1, attack_steps=2)


def test_swelling_counts_every_way() -> None:
    """∏ max(1, gain): a layer that shrinks does not make up for one that enlarges."""
    branch = nn.Sequential(Scale(3.0), nn.Tanh(), Scale(0.01))
    last = nn.Linear(2, 2)
    last.weight.data = 7 * torch.eye(2)
    model = nn.Sequential(Scale(0.5), nn.Tanh(), Residual(branch), Scale(0.1), nn.Tanh(), last)
    analysis = Analysis(model.double(), input_shape=(2,))
    assert analysis.graph.amplification() == pytest.approx((1 + 3) * 7, rel=1e-6)


class Woven(nn.Module):
    """A block whose parts share a layer, and are joined side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Scale(5.0), Scale(2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shared = torch.tanh(self.first(x))
        other = torch.tanh(self.second(shared)) + shared
        return torch.cat([other, shared, x], 1)


def test_swelling_of_a_web() -> None:
    analysis = Analysis(nn.Sequential(Woven(), nn.Linear(6, 2)).double(), input_shape=(2,))
    assert analysis.smoothness.body.amplification() == pytest.approx(5 * 2 + 5 + 5 + 1, rel=1e-6)


def test_factors_folded_many_times_are_off_by_as_many_roundings() -> None:
    """Scalings in a row are one product, rounded as often: from 0.6 on, 1 − 2⁻⁵³ takes too much each time."""
    layers = [Scale(1.0).double() for _ in range(1001)]
    for layer in layers:
        layer.factor.fill_(1 - 2.0**-53)
    layers[0].factor.fill_(0.6)
    last = nn.Linear(1, 2, bias=False, dtype=torch.float64)
    last.weight.data = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    analysis = Analysis(nn.Sequential(*layers, last), input_shape=(1,))
    outputs, error = outputs_at(analysis.graph, torch.tensor([[1.0]], dtype=torch.float64))
    exact = Fraction(0.6) * Fraction(1 - 2.0**-53) ** 1000
    off = float(abs(Fraction(float(outputs[0, 0])) - exact))
    assert 4e-14 < off <= float(error[0]) < 1e-11
