"""What each kind of stage adds to the rounding, where float64 loses just that: no term may be left out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import pytest
import torch
from flint import arb, arb_series
from torch import Tensor, nn

from certus.bounds.activations import Activation
from certus.bounds.passes import Reach, Stage
from certus.layers import LogCosh, Residual, SmoothAbs
from tests.bounds.balls import FUNCTIONS, balls, coefficient
from tests.bounds.test_stages import full, stage

LARGE = 2.0**53  # LARGE + 1 is LARGE in float64


def affine(weights: Sequence[Sequence[float]], shift: Sequence[float] | None = None) -> nn.Linear:
    layer = nn.Linear(len(weights[0]), len(weights), bias=shift is not None).double()
    layer.weight.data = torch.tensor(weights, dtype=torch.float64)
    if shift is not None:
        layer.bias.data = torch.tensor(shift, dtype=torch.float64)
    return layer


def both_errors(found: Stage, value: Tensor, error: Tensor, radius: float = 0.0) -> list[tuple[float, float]]:
    """The largest computed value and its error, as certificates see them and as local bounds do."""
    after, off, _ = found.forward_rounding(value, error)
    ones = torch.ones_like(value)
    reach = Reach(ones.flatten(1).norm(dim=1), ones, full(0.0), value, error)
    near, _ = found.forward(reach, full(radius), found)
    assert near.center is not None
    assert near.error is not None
    return [(float(after), float(off)), (float(near.center), float(near.error))]


def test_sums_that_cancel() -> None:
    """2⁵³ + 1 − 2⁵³ in every order: some lose the 1."""
    lost = 0.0
    for order in itertools.permutations(((1.0, LARGE), (1.0, 1.0), (-1.0, LARGE))):
        weights, inputs = zip(*order, strict=True)
        found = stage(affine([weights]), (3,))
        exact = sum(Fraction(w) * Fraction(x) for w, x in order)
        assert exact == 1
        for value, error in both_errors(found, full(*inputs)[None], torch.zeros(1, 3).double()):
            assert abs(Fraction(value) - exact) <= Fraction(error)
            lost = max(lost, abs(value - 1))
    assert lost >= 1


def test_a_shift_that_swallows_its_term() -> None:
    found = stage(affine([[1.0]], [LARGE]), (1,))
    for value, error in both_errors(found, full(1.0)[None], full(0.0)[None]):
        assert abs(Fraction(value) - Fraction(LARGE) - 1) == 1
        assert error >= 1


def test_errors_go_through_a_matrix() -> None:
    """An input that is off by 0.25 moves the output by as much as |A| lets it."""
    found = stage(affine([[-3.0, 2.0]]), (2,))
    for _, error in both_errors(found, full(1.0, 1.0)[None], full(0.25, 0.5)[None]):
        assert error == pytest.approx(1.75, rel=1e-9)
        assert error >= 1.75


@pytest.mark.parametrize("layer", [nn.Tanh(), nn.Softplus(3.0), nn.GELU(), LogCosh(2.0)], ids=str)
def test_errors_go_through_an_activation(layer: nn.Module) -> None:
    found = stage(layer, (1,))
    for place in (-1.0, 0.1, 2.0):
        ends = torch.tensor([place - 0.2, place, place + 0.2], dtype=torch.float64)
        values = found.apply(ends)
        moved = float(torch.maximum(values[2] - values[1], values[1] - values[0]))
        moved = max(moved, float((values[1] - values).abs().max()))
        for _, error in both_errors(found, full(place)[None], full(0.2)[None]):
            assert moved <= error <= 0.2 * 1.2


@pytest.mark.parametrize("sharpness", [1.0, 1e-3, 1e3])
@pytest.mark.parametrize(("name", "kind"), [("log cosh", LogCosh), ("smooth absolute value", SmoothAbs)])
def test_a_small_value_that_cancels_down_from_one_over_b(
    name: str, kind: type[nn.Module], sharpness: float
) -> None:
    """σ_b(z) ≈ bz²/2 near 0 is computed from terms of the size 1/b."""
    found, lost = stage(kind(sharpness), (1,)), 0.0
    assert isinstance(found, Activation)
    b = float(found.sharpness)
    for z in (1e-9 / b, 3e-7 / b, 1e-4 / b):
        for value, error in both_errors(found, full(z)[None], full(0.0)[None]):
            with balls():
                truth = coefficient(FUNCTIONS[name](arb_series([arb(b) * arb(z)])), 0) / arb(b)
                off = abs(arb(value) - truth)
                assert off <= error
                lost = max(lost, float(off.mid()) * b)
    assert lost > 1e-18


def test_an_addition_that_swallows_a_branch() -> None:
    found = stage(Residual(affine([[0.0]], [1.0])), (1,))
    for value, error in both_errors(found, full(LARGE)[None], full(0.0)[None]):
        assert abs(Fraction(value) - Fraction(LARGE) - 1) == 1
        assert error >= 1
    for _, error in both_errors(found, full(1.0)[None], full(0.5)[None]):
        assert error >= 0.5


def test_windows_keep_the_largest_error() -> None:
    found = stage(nn.MaxPool1d(2), (1, 2))
    for value, error in both_errors(found, full(1.0, 2.0)[None, None], full(0.7, 0.1)[None, None]):
        assert (value, error) == (2.0, 0.7)


def test_gradients_that_cancel() -> None:
    """Aᵀr with r = (2⁵³, 1, 2⁵³), in every order; an error of r, and its length, grow with ‖A‖."""
    lost = 0.0
    for order in itertools.permutations(((1.0, LARGE), (1.0, 1.0), (-1.0, LARGE))):
        weights, row = zip(*order, strict=True)
        layer = affine([[w] for w in weights])
        found = stage(layer, (1,))
        leaf = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
        (pulled,) = torch.autograd.grad(layer(leaf), leaf, full(*row)[None])
        size, error = found.backward_rounding(full(*row).norm()[None], full(0.0), None)
        off = abs(Fraction(float(pulled)) - 1)
        assert off <= Fraction(float(error))
        lost = max(lost, float(off))
    assert lost >= 1
    found = stage(affine([[3.0, 0.0], [0.0, 0.5]]), (2,))
    size, error = found.backward_rounding(full(2.0), full(0.25), None)
    assert float(size) == pytest.approx(6.0, rel=1e-8)
    assert float(error) == pytest.approx(0.75, rel=1e-8)
    assert float(error) >= 0.75


@pytest.mark.parametrize("layer", [nn.Tanh(), nn.Softplus(3.0), nn.GELU(), LogCosh(2.0)], ids=str)
def test_slopes_of_an_activation_where_its_argument_is_not_known(layer: nn.Module) -> None:
    """A row of length 2 that is off by 0.25, at z known up to 0.2: the slope may be any on that interval."""
    found = stage(layer, (1,))
    assert isinstance(found, Activation)
    for place in (-1.0, 0.1, 2.0):
        _, _, saved = found.forward_rounding(full(place)[None], full(0.2)[None])
        size, error = found.backward_rounding(full(2.0), full(0.25), saved)
        points = torch.linspace(place - 0.2, place + 0.2, 401, dtype=torch.float64) * found.sharpness
        slopes = found.slope(points)
        there = float(slopes[200])
        worst = max(abs(2 * float(slope) - 2.25 * there) for slope in (slopes.min(), slopes.max()))
        assert float(error) >= worst
        assert float(error) <= 4 * worst
        assert float(size) == pytest.approx(2 * float(slopes.abs().max()), rel=1e-4)


def test_slopes_of_a_maximum_may_be_those_of_another_entry() -> None:
    found = stage(nn.MaxPool1d(2), (1, 2))
    size, error = found.backward_rounding(full(1.0), full(0.125), None)
    assert float(size) == pytest.approx(1.0)
    assert float(error) >= math.sqrt(2) + 0.125  # (1, 0) in place of (0, 1)


def test_gradients_of_a_sum_add_up() -> None:
    found = stage(Residual(affine([[-3.0]])), (1,))
    _, _, saved = found.forward_rounding(full(1.0)[None], full(0.0)[None])
    size, error = found.backward_rounding(full(2.0), full(0.25), saved)
    assert float(size) == pytest.approx(8.0, rel=1e-8)
    assert float(error) == pytest.approx(1.0, rel=1e-8)
    assert float(error) >= 1.0
    # 2⁵³·r from one branch and −(2⁵³ − 1)·r from the other: what is left is rounding.
    found = stage(Residual(affine([[LARGE]]), affine([[-(LARGE - 1)]])), (1,))
    _, _, saved = found.forward_rounding(full(1.0)[None], full(0.0)[None])
    assert float(found.backward_rounding(full(1.0), full(0.0), saved)[1]) >= 1.0
