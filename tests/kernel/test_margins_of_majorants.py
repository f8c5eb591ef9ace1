"""Parabolas, curvatures and certified radii leave room for the rounding of every term, and little more."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from flint import arb, ctx
from torch import Tensor

from certus.kernel.costs import Domain, Lp
from certus.kernel.graph import Graph, Node
from certus.kernel.losses import Softmax
from certus.kernel.majorants import Constants, Parabolas, _factored, _spread, _Start, constants, hidden_layer
from certus.kernel.operators import Dense
from certus.kernel.passes import Refused, times
from certus.kernel.pointwise import Pointwise, scalar
from certus.kernel.problem import Problem, Values
from certus.kernel.radial import _ends, _root, rival_radii
from certus.kernel.rounding import MANY, SOME, TENS, slack
from tests.kernel.margins import near

ctx.prec = 200


def float64(numbers: object) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def start(height: float, error: float = 0.0, distance: float = math.inf) -> _Start:
    """One point with g = (3, −4) and u* = (0.5, 0.25)."""
    return _Start(
        float64([height]),
        float64([[3.0, -4.0]]),
        float64([error]),
        float64([[0.5, 0.25]]),
        float64([0.3125]),
        float64([[distance, distance]]),
    )


FACTORS = float64([1.5, 20.0])


def test_multipliers_and_what_is_left_of_the_gradient() -> None:
    """λ = max(⟨g, u*⟩/‖u*‖², factor·κ) + ‖g‖/distance, e = g − λu*, and its rounding."""
    for curvature, distance in ((0.1, math.inf), (2.0, math.inf), (2.0, 0.5)):
        multiplier, pull, error = start(0.0, 1e-3, distance).pull(FACTORS, float64([curvature]))
        expected = [max(0.5 / 0.3125, factor * curvature) + 5 / distance for factor in (1.5, 20.0)]
        assert multiplier[0].tolist() == near(expected)
        for pair, each in enumerate(multiplier[0].tolist()):
            assert pull[0, :, pair].tolist() == near([3 - each * 0.5, -4 - each * 0.25])
            rounding = TENS * (5 + each * math.sqrt(0.3125))
            assert float(error[0, pair]) - 1e-3 == near(rounding, rel=1e-3)


@pytest.mark.parametrize("height", [-5.0, 0.0, 7.0])
@pytest.mark.parametrize("root", [0.3, 40.0])
def test_rises_of_parabolas(height: float, root: float) -> None:
    """m* − m − (λ/2)‖u*‖² + root²/2, at least 0, and the rounding of each term."""
    multiplier, spare = float64([[2.0, 9.0]]), float64([[1.0, 0.0]])
    rise, coefficient = start(height).parabola(multiplier, float64([[root, root]]), spare)
    assert rise[0, 1] == math.inf
    assert 0.9 * SOME <= float(arb(float(coefficient[0, 0])) / 2 - 1) <= 1.1 * SOME
    exact = arb(height) - arb(0.3125) + arb(root) ** 2 / 2
    if exact < 0:
        assert rise[0, 0] == 0
    else:
        margin = SOME * (float(arb(root) ** 2 / 2) + 0.3125 + abs(height))
        assert 0.9 * margin <= float(arb(float(rise[0, 0])) - exact) <= 1.1 * margin


@pytest.mark.parametrize("curvature", [0.1, 2.0])
def test_isotropic_parabolas(curvature: float) -> None:
    """‖e‖²/2(λ − κ), with κ and ‖e‖ rounded up."""
    rise, coefficient = start(1.0).isotropic(FACTORS, float64([curvature]))
    for pair, factor in enumerate((1.5, 20.0)):
        multiplier = max(arb(0.5) / arb(0.3125), arb(factor) * arb(curvature), key=float)
        left = (3 - multiplier / 2, -4 - multiplier / 4)
        square = left[0] ** 2 + left[1] ** 2
        spare = multiplier - arb(curvature)
        exact = 1 - multiplier * arb(0.3125) / 2 + square / (2 * spare)
        off = TENS * (5 + float(multiplier) * math.sqrt(0.3125))
        margin = SOME * float(square / (2 * spare)) * (1 + curvature / float(spare))
        margin += off * float(square.sqrt() / spare) + SOME * (1 + float(multiplier) * 0.3125 / 2)
        assert 0.8 * margin <= float(arb(float(rise[0, pair])) - exact) <= 1.3 * margin
        assert float(coefficient[0, pair]) == near(float(multiplier), rel=2 * SOME)


def test_what_a_proposed_factor_misses() -> None:
    """‖A − NR‖ + ‖N‖Δ, Δ = ‖RRᵀ − I‖, and the rounding of both products."""
    left, matrix = float64([[2.0], [1.0]]), float64([[2.0, 0.5], [1.0, 0.0]])
    for scale in (1.0, 1.01):
        right = float64([[scale, 0.0]])
        form = _factored(matrix, 0.125, (left, right))
        skew = abs(scale * scale - 1)
        assert form.skew >= (1 + 0.9 * MANY) * skew + slack(2)
        assert form.skew <= (1 + 1.1 * MANY) * skew + 1.1 * slack(2)
        rest = math.hypot(0.5, 2 * (scale - 1), scale - 1)
        size = math.sqrt(5)
        exact = rest + slack(1) * size * math.sqrt(2) + size * form.skew
        assert form.lost - 0.125 == near(exact * (1 + MANY), rel=1e-12)
    assert _factored(matrix, 0.125, None).lost == 0.125
    with pytest.raises(Refused):
        _factored(matrix, 0.0, (left, float64([[1.3, 0.0]])))
    _factored(matrix, 0.0, (left, float64([[1.2, 0.0]])))


@pytest.mark.parametrize(("rise", "slope", "curvature"), [(0.0, 1.0, 0.0), (0.2, 0.5, 3.0), (0.0, 0.0, 2.0)])
def test_roots_of_growths(rise: float, slope: float, curvature: float) -> None:
    for short in (0.1, 1.0, 50.0):
        root = float(_root(*(float64(each) for each in (short, rise, slope, curvature))))
        grown = rise + slope * root + curvature * root**2 / 2
        assert root == 0 if short <= rise else grown == near(short, rel=1e-12)
    assert _root(float64(0.0), float64(0.0), float64(0.0), float64(0.0)) == 0
    assert _root(float64(1.0), float64(0.0), float64(0.0), float64(0.0)) == math.inf
    assert _root(float64(1.0), float64(math.inf), float64(0.0), float64(0.0)) == 0
    tiny = float(_root(float64(1e-200), float64(0.0), float64(0.0), float64(1e-250)))
    assert tiny == near(math.sqrt(2e50), rel=1e-12)


def test_ends_are_those_of_the_function_that_is_smallest_at_the_outer_edge() -> None:
    """Of 0.5 + r², of 2r and of 0.9 + 0.1r, on the rings [0, 0.5] and [0.5, 2], rounded up."""
    zero = float64([[0.0]])
    growths = [
        (float64([[[0.5], [0.9]]]), float64([[[0.0], [0.1]]]), float64([[[2.0], [0.0]]])),
        (zero, 2 + zero, zero),
    ]
    inner, outer = float64([0.0, 0.5]), float64([0.5, 2.0])
    low, high = _ends(growths, inner, outer)
    for bound, exact in zip((low, high), ((0.5, 0.95), (0.75, 1.1)), strict=True):
        for found, value in zip(bound[0].tolist(), exact, strict=True):
            assert 0.9 * MANY <= found / value - 1 <= 1.1 * MANY


def radii(margins: list[float], lipschitz: float, reach: float, edge: int | None = None) -> float:
    """The certified radius of one sample of class 0, by Lipschitz constants alone."""
    own = torch.arange(len(margins)) == 0
    values: Any = SimpleNamespace(
        loss=float64([0.0]), margins=float64([margins]), steepness=torch.full((1, 3), math.inf).double()
    )
    lengths = torch.full((1, len(margins)), lipschitz, dtype=torch.float64)
    infinite = torch.full((1, len(margins)), math.inf, dtype=torch.float64)
    ball: Any = SimpleNamespace(
        edge=edge, margin_lipschitz=lengths, margin_curvature=infinite, parabolas=(), slope=None
    )
    problem: Any = SimpleNamespace(own=own.unsqueeze(0), reach=float64([reach]))
    return float(rival_radii(problem, values, [ball], float64([0.0, 0.25])).amin(1))


def test_radii_are_rounded_down() -> None:
    exact = arb(0.7) / arb(1.3)
    found = radii([0.0, -0.7, -0.9], 1.3, math.inf)
    assert -1.1 * SOME <= float(arb(found) / exact - 1) <= -0.9 * SOME
    assert radii([0.0, -0.7, 0.1], 1.3, math.inf) == 0
    assert radii([0.0, -0.7, 0.0], 1.3, math.inf) == 0
    assert radii([0.0, -0.7, -0.9], 1.3, math.inf, edge=1) == 0.25
    assert radii([0.0, -0.7, -0.9], 1.3, 0.5) == math.inf
    assert radii([0.0, -0.7, -0.9], 1.3, found) == found


def test_nothing_times_infinity_is_nothing() -> None:
    left, right = float64([0.0, 2.0, math.inf]), float64([math.inf, 3.0, 0.0])
    assert times(left, right).tolist() == [0.0, 6.0, 0.0]
    assert times(right, left).tolist() == [0.0, 6.0, 0.0]
    assert times(float64([0.0]), right).tolist() == [0.0, 0.0, 0.0]
    assert times(float64([math.inf]), float64([0.0, 1.0])).tolist() == [0.0, math.inf]
    assert times(float64([0.0, 1.0]), float64([math.inf])).tolist() == [0.0, math.inf]


FIRST = float64([[1.0, 0.5], [-2.0, 1.0], [0.25, 0.0]])
LAST = float64([[1.0, -3.0, 0.5], [2.0, 1.0, 0.5]])


def one_hidden_layer(name: str, sharpness: float) -> Problem:
    layers = (Dense(FIRST, None), Pointwise(scalar(name), (3,), sharpness), Dense(LAST, None))
    for layer in (layers[0], layers[2]):
        assert isinstance(layer, Dense)
        layer.accept((float(torch.linalg.matrix_norm(layer.matrix(), 2)) * (1 + 1e-12),))
    nodes = [Node((k,), layer.out_shape, layer) for k, layer in enumerate(layers)]
    data = float64([[0.3, -0.2], [1.0, 2.0]]), torch.tensor([0, 1])
    return Problem.of(Graph((Node((), (2,)), *nodes)), Softmax(), Lp(shape=(2,)), Domain(), data)


@pytest.mark.parametrize(("name", "sharpness"), [("log_cosh", 1.0), ("log_cosh", 2.5), ("smooth_abs", 2.0)])
def test_the_curvature_of_units_that_are_concave_in_the_square(name: str, sharpness: float) -> None:
    """w⁺σ'(z)/z, and w⁺b at z = 0: an upper bound on w⁺(σ(z̃) − σ(z))/(½(z̃² − z²))."""
    problem = one_hidden_layer(name, sharpness)
    layer = hidden_layer(problem)
    assert layer is not None
    assert torch.equal(layer[0], FIRST)
    assert layer[1] == near(slack(0) * float(torch.linalg.matrix_norm(FIRST)))
    rival = torch.tensor([1, 0])
    points = float64([[0.0, 0.0], [1.0, 2.0]])
    found = _spread(problem, layer[2], points, rival)
    for row, sign in ((0, 1.0), (1, -1.0)):
        inside = FIRST @ points[row]
        for unit in range(3):
            weight = max(0.0, sign * float(LAST[1, unit] - LAST[0, unit]))
            z = float(inside[unit]) * sharpness
            slope = math.tanh(z) if name == "log_cosh" else z / math.sqrt(1 + z * z)
            exact = weight * sharpness * (slope / z if z else 1.0)
            assert float(found[row, unit]) == near(exact, rel=3e-9, abs=1e-12)
            assert float(found[row, unit]) >= exact * (1 + 0.9 * MANY)


def test_smaller_constants_win() -> None:
    def given(*numbers: float, **others: object) -> Constants:
        return Constants(1, *(float64([number]) for number in numbers), **others)  # type: ignore[arg-type]

    one, two = given(1.0, 5.0, 2.0, 7.0, 3.0), given(2.0, 4.0, 3.0, 6.0, 4.0)
    least = one.within(two)
    names = ("margin_lipschitz", "margin_curvature", "slope", "curvature", "root")
    assert [float(getattr(least, name)) for name in names] == [1.0, 4.0, 2.0, 6.0, 3.0]
    parabolas = Parabolas(float64([0.0]), float64([1.0]), float64([3.0]))
    beside = one.beside(parabolas)
    assert float(beside.margin_curvature) == 3.0
    assert (
        float(two.beside(Parabolas(float64([0.0]), float64([1.0]), float64([9.0]))).margin_curvature) == 4.0
    )
    assert beside.parabolas == (parabolas,)
    assert one.within(beside).parabolas == (parabolas,)


def test_constants_are_the_smallest_of_all_rules() -> None:
    problem = one_hidden_layer("log_cosh", 1.0)
    found = constants(problem, Values.at(problem))
    rules = problem.bounds(None)[0].curvature
    assert len({float(bound) for bound in rules.values()}) > 1
    assert found.curvature.tolist() == [float(min(rules.values()))] * 2
