"""Rounding of each primitive, where float64 loses just that: no term may be left out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from flint import arb, arb_series
from torch import Tensor, nn

from certus.kernel.graph import Graph, Node
from certus.kernel.passes import Primitive, Rounded
from certus.kernel.pointwise import Pointwise, scalar
from certus.layers import LogCosh, Residual, SmoothAbs
from tests.bounds.balls import FUNCTIONS, balls, coefficient
from tests.kernel.reading import graph, primitive
from tests.kernel.test_primitives import full

LARGE = 2.0**53  # LARGE + 1 is LARGE in float64
NOWHERE = Rounded(full(), full())  # for primitives whose slopes are the same at all inputs


def affine(weights: Sequence[Sequence[float]], shift: Sequence[float] | None = None) -> nn.Linear:
    layer = nn.Linear(len(weights[0]), len(weights), bias=shift is not None).double()
    layer.weight.data = torch.tensor(weights, dtype=torch.float64)
    if shift is not None:
        layer.bias.data = torch.tensor(shift, dtype=torch.float64)
    return layer


def rounded(found: Primitive, value: Tensor, error: Tensor) -> tuple[float, float]:
    """The computed value and its error."""
    after, off = found.rounded(value, error)
    return float(after), float(off)


def test_sums_that_cancel() -> None:
    """2⁵³ + 1 − 2⁵³ in every order: some lose the 1."""
    lost = 0.0
    for order in itertools.permutations(((1.0, LARGE), (1.0, 1.0), (-1.0, LARGE))):
        weights, inputs = zip(*order, strict=True)
        found = primitive(affine([weights]), (3,))
        exact = sum(Fraction(w) * Fraction(x) for w, x in order)
        assert exact == 1
        value, error = rounded(found, full(*inputs)[None], torch.zeros(1, 3).double())
        assert abs(Fraction(value) - exact) <= Fraction(error)
        lost = max(lost, abs(value - 1))
    assert lost >= 1


def test_a_shift_that_swallows_its_term() -> None:
    found = primitive(affine([[1.0]], [LARGE]), (1,))
    value, error = rounded(found, full(1.0)[None], full(0.0)[None])
    assert abs(Fraction(value) - Fraction(LARGE) - 1) == 1
    assert error >= 1


def test_errors_go_through_a_matrix() -> None:
    """An input that is off by 0.25 moves the output by as much as |A| lets it."""
    found = primitive(affine([[-3.0, 2.0]]), (2,))
    _, error = rounded(found, full(1.0, 1.0)[None], full(0.25, 0.5)[None])
    assert error == pytest.approx(1.75, rel=1e-9)
    assert error >= 1.75


@pytest.mark.parametrize("layer", [nn.Tanh(), nn.Softplus(3.0), nn.GELU(), LogCosh(2.0)], ids=str)
def test_errors_go_through_an_activation(layer: nn.Module) -> None:
    found = primitive(layer, (1,))
    for place in (-1.0, 0.1, 2.0):
        ends = torch.tensor([place - 0.2, place, place + 0.2], dtype=torch.float64)
        values = found.apply(ends)
        moved = float(torch.maximum(values[2] - values[1], values[1] - values[0]))
        moved = max(moved, float((values[1] - values).abs().max()))
        _, error = rounded(found, full(place)[None], full(0.2)[None])
        assert moved <= error <= 0.2 * 1.2


@pytest.mark.parametrize("sharpness", [1.0, 1e-3, 1e3])
@pytest.mark.parametrize("kind", [LogCosh, SmoothAbs])
def test_a_small_value_that_cancels_down_from_one_over_b(kind: type[nn.Module], sharpness: float) -> None:
    """σ_b(z) ≈ bz²/2 near 0 is computed from terms of the size 1/b."""
    found, lost = primitive(kind(sharpness), (1,)), 0.0
    assert isinstance(found, Pointwise)
    b = float(found.sharpness)
    for z in (1e-9 / b, 3e-7 / b, 1e-4 / b):
        value, error = rounded(found, full(z)[None], full(0.0)[None])
        with balls():
            truth = coefficient(FUNCTIONS[found.scalar.name](arb_series([arb(b) * arb(z)])), 0) / arb(b)
            off = abs(arb(value) - truth)
            assert off <= error
            lost = max(lost, float(off.mid()) * b)
    assert lost > 1e-18


def test_an_addition_that_swallows_a_branch() -> None:
    one = primitive(affine([[0.0]], [1.0]), (1,))
    # The input itself, which is exact, or behind an identity, which counts as rounded.
    exact = Graph((Node((), (1,)), Node((0,), (1,), one), Node((0, 1), (1,))))
    for found in (exact, graph(Residual(affine([[0.0]], [1.0])), (1,))):
        value, error, _ = found.rounded(full(LARGE)[None])
        assert abs(Fraction(float(value)) - Fraction(LARGE) - 1) == 1
        assert float(error) >= 1


@pytest.mark.parametrize("axis", [None, 0])
def test_joins_carry_the_errors_of_their_inputs(axis: int | None) -> None:
    """An identity that is off by 0.5, joined with −3 times itself: 0.5 and 1.5, or 2 together."""
    off = Pointwise(replace(scalar("piecewise_linear", 1.0, 1.0), jump=0.5), (1,))
    times = primitive(affine([[-3.0]]), (1,))
    join = Node((1, 2), (1,) if axis is None else (2,), axis=axis)
    found = Graph((Node((), (1,)), Node((0,), (1,), off), Node((1,), (1,), times), join))
    expected = [2.0] if axis is None else [0.5, 1.5]
    _, error, _ = found.rounded(full(1.0)[None])
    assert error[0].tolist() == pytest.approx(expected, rel=1e-8)
    assert (error[0] >= full(*expected)).all()


def test_windows_keep_the_largest_error() -> None:
    found = primitive(nn.MaxPool1d(2), (1, 2))
    value, error = rounded(found, full(1.0, 2.0)[None, None], full(0.7, 0.1)[None, None])
    assert (value, error) == (2.0, 0.7)


def test_gradients_that_cancel() -> None:
    """Aᵀr with r = (2⁵³, 1, 2⁵³), in every order; an error of r, and its length, grow with ‖A‖."""
    lost = 0.0
    for order in itertools.permutations(((1.0, LARGE), (1.0, 1.0), (-1.0, LARGE))):
        weights, row = zip(*order, strict=True)
        layer = affine([[w] for w in weights])
        found = primitive(layer, (1,))
        leaf = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
        (pulled,) = torch.autograd.grad(layer(leaf), leaf, full(*row)[None])
        size, error = found.backward_error(full(*row).norm()[None], full(0.0), NOWHERE)
        off = abs(Fraction(float(pulled)) - 1)
        assert off <= Fraction(float(error))
        lost = max(lost, float(off))
    assert lost >= 1
    found = primitive(affine([[3.0, 0.0], [0.0, 0.5]]), (2,))
    size, error = found.backward_error(full(2.0), full(0.25), NOWHERE)
    assert float(size) == pytest.approx(6.0, rel=1e-8)
    assert float(error) == pytest.approx(0.75, rel=1e-8)
    assert float(error) >= 0.75


@pytest.mark.parametrize("layer", [nn.Tanh(), nn.Softplus(3.0), nn.GELU(), LogCosh(2.0)], ids=str)
def test_slopes_of_an_activation_where_its_argument_is_not_known(layer: nn.Module) -> None:
    """A row of length 2 that is off by 0.25, at z known up to 0.2: the slope may be any on that interval."""
    found = primitive(layer, (1,))
    assert isinstance(found, Pointwise)
    for place in (-1.0, 0.1, 2.0):
        at = Rounded(full(place)[None], full(0.2)[None])
        size, error = found.backward_error(full(2.0), full(0.25), at)
        points = torch.linspace(place - 0.2, place + 0.2, 401, dtype=torch.float64) * found.sharpness
        slopes = found.scalar.slope(points)
        there = float(slopes[200])
        worst = max(abs(2 * float(slope) - 2.25 * there) for slope in (slopes.min(), slopes.max()))
        assert float(error) >= worst
        assert float(error) <= 4 * worst
        assert float(size) == pytest.approx(2 * float(slopes.abs().max()), rel=1e-4)


def test_slopes_of_a_maximum_may_be_those_of_another_entry() -> None:
    found = primitive(nn.MaxPool1d(2), (1, 2))
    size, error = found.backward_error(full(1.0), full(0.125), NOWHERE)
    assert float(size) == pytest.approx(1.0)
    assert float(error) >= math.sqrt(2) + 0.125  # (1, 0) in place of (0, 1)


def test_gradients_of_a_sum_add_up() -> None:
    found = graph(Residual(affine([[-3.0]])), (1,))
    _, _, at = found.rounded(full(1.0)[None])
    size, error = found.backward_error(at, full(2.0), full(0.25))
    assert float(size) == pytest.approx(8.0, rel=1e-8)
    assert float(error) == pytest.approx(1.0, rel=1e-8)
    assert float(error) >= 1.0
    # 2⁵³·r from one branch and −(2⁵³ − 1)·r from the other: what is left is rounding.
    found = graph(Residual(affine([[LARGE]]), affine([[-(LARGE - 1)]])), (1,))
    _, _, at = found.rounded(full(1.0)[None])
    assert float(found.backward_error(at, full(1.0), full(0.0))[1]) >= 1.0


def test_gradients_that_are_added_round() -> None:
    """3r for r = 1 + 2⁻⁵², which needs a bit more than float64 has."""
    found = Graph((Node((), (1,)), Node((0, 0, 0), (1,))))
    _, _, at = found.rounded(full(1.0)[None])
    row = 1 + 2.0**-52
    size, error = found.backward_error(at, full(row), full(0.0))
    off = abs(Fraction(row + row + row) - 3 * Fraction(row))
    assert 0 < off <= Fraction(float(error)) < Fraction(1, 10**14)
    assert float(size) == pytest.approx(3.0)
