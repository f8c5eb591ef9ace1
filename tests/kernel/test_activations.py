"""The table against finite differences, closed forms and the values printed in the literature."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from certus.bounds.layer_rules import is_smooth
from certus.kernel.pointwise import Pointwise
from certus.models import LogCosh, SmoothAbs
from tests.kernel.reading import unmerged

LAYERS: dict[str, nn.Module] = {
    "Sigmoid": nn.Sigmoid(),
    "Tanh": nn.Tanh(),
    "ELU": nn.ELU(),
    "GELU": nn.GELU(),
    "SiLU": nn.SiLU(),
    "Mish": nn.Mish(),
    "LogCosh": LogCosh(),
    "softplus 3": nn.Softplus(3.0),
    "CELU": nn.CELU(0.4),
    "GELU tanh": nn.GELU("tanh"),
    "abs 2": SmoothAbs(2.0),
    "log cosh 3": LogCosh(3.0),
    "ReLU": nn.ReLU(),
    "leaky": nn.LeakyReLU(0.2),
    "ELU 2": nn.ELU(2.0),
    "SELU": nn.SELU(),
    "Hardtanh": nn.Hardtanh(-0.5, 2.0),
    "ReLU6": nn.ReLU6(),
}

EXTREMES = {  # sup|σ'|, inf σ'', sup σ''
    "Sigmoid": (0.25, -1 / (6 * math.sqrt(3)), 1 / (6 * math.sqrt(3))),
    "Tanh": (1, -4 / (3 * math.sqrt(3)), 4 / (3 * math.sqrt(3))),
    "softplus 3": (1, 0, 0.75),
    "ELU": (1, 0, 1),
    "CELU": (1, 0, 2.5),
    "GELU": (1.128904, -0.107982, 0.797885),
    "GELU tanh": (1.128993, -0.107914, 0.797885),
    "SiLU": (1.099839, -0.036914, 0.5),
    "Mish": (1.088498, -0.059033, 0.644205),
    "LogCosh": (1, 0, 1),
    "log cosh 3": (1, 0, 3),
    "abs 2": (1, 0, 2),
}


def activation(name: str) -> Pointwise:
    found = unmerged(LAYERS[name], (1,))
    assert isinstance(found, Pointwise)
    return found


@pytest.mark.parametrize("name", EXTREMES)
def test_constants(name: str) -> None:
    least, most, flattest, sharpest = activation(name).extremes
    steep, low, high = EXTREMES[name]
    assert (max(-least, most), flattest, sharpest) == pytest.approx((steep, low, high), abs=2e-6)


@pytest.mark.parametrize("name", LAYERS)
def test_ranges_hold_the_derivatives(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for center, width in torch.rand(12, 2, generator=generator, dtype=torch.float64).tolist():
        check_ranges(name, 12 * center - 6, 5 * width**2)


@pytest.mark.soak
@pytest.mark.parametrize("name", LAYERS)
@given(center=st.floats(-6, 6), width=st.floats(0, 5))
def test_ranges_hold_the_derivatives_of_all_examples(name: str, center: float, width: float) -> None:
    check_ranges(name, center, width)


def check_ranges(name: str, center: float, width: float) -> None:
    """Values and two derivatives of torch's own layer, by autograd, at many points of the interval."""
    found, layer = activation(name), LAYERS[name].double()
    points = torch.linspace(center - width, center + width, 101, dtype=torch.float64).requires_grad_()
    values = layer(points)
    (slopes,) = torch.autograd.grad(values.sum(), points, create_graph=True)
    curvatures = torch.zeros_like(points)
    if slopes.requires_grad:
        (curvatures,) = torch.autograd.grad(slopes.sum(), points)
    low, high = (torch.tensor([end], dtype=torch.float64) for end in (center - width, center + width))
    torch.testing.assert_close(found.apply(points), values, atol=1e-8, rtol=1e-8)
    for derivative, (least, most) in (
        (slopes, found.slope_range(low, high)),
        (curvatures, found.curvature_range(low, high)),
    ):
        # torch takes softplus for linear where bz > 20, and computes with α of CELU in single precision.
        assert (derivative >= least - 1e-6).all()
        assert (derivative <= most + 1e-6).all()


@pytest.mark.parametrize("name", sorted(EXTREMES))
def test_ranges_are_tight(name: str) -> None:
    """Against a fine grid: nothing is lost on an interval either."""
    found = activation(name)
    low, high = torch.tensor([-1.3]).double(), torch.tensor([0.7]).double()
    grid = torch.linspace(-1.3, 0.7, 20001, dtype=torch.float64)
    scaled = grid * found.sharpness
    for function, (least, most) in (
        (found.scalar.slope(scaled), found.slope_range(low, high)),
        (found.scalar.curvature(scaled) * found.sharpness, found.curvature_range(low, high)),
    ):
        assert float(least) == pytest.approx(float(function.min()), abs=1e-4)
        assert float(most) == pytest.approx(float(function.max()), abs=1e-4)


def test_kinks_are_infinite_only_where_they_are() -> None:
    relu = activation("ReLU")
    low, high = torch.tensor([-2.0, 0.5, -1.0]).double(), torch.tensor([-1.0, 2.0, 1.0]).double()
    least, most = relu.curvature_range(low, high)
    assert most.isinf().tolist() == [False, False, True]
    assert least.isinf().tolist() == [False, False, True]
    assert not is_smooth(relu)
    assert is_smooth(activation("ELU"))


def test_per_unit_sharpness() -> None:
    layer = LogCosh(torch.tensor([1.0, 4.0]))
    found = unmerged(layer, (2,))
    assert isinstance(found, Pointwise)
    assert found.extremes[3] == pytest.approx(4.0)
    points = torch.randn(5, 2)
    expected = torch.stack([LogCosh(1.0)(points[:, 0]), LogCosh(4.0)(points[:, 1])], 1)
    torch.testing.assert_close(layer(points), expected)
