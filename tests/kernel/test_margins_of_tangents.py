"""Data at tangent points leave room for the rounding of each of their terms, and little more."""

from __future__ import annotations

import math

import pytest
import torch
from flint import arb, ctx
from torch import Tensor

from certus.kernel.costs import Domain, Lp
from certus.kernel.graph import Graph, Node
from certus.kernel.losses import Softmax
from certus.kernel.majorants import Tangents, _factored, _spread, _Start, constants, hidden_layer, parabolas
from certus.kernel.operators import Dense
from certus.kernel.pointwise import Pointwise, scalar
from certus.kernel.problem import Problem, Values, rounding_at
from certus.kernel.rounding import MANY, TENS, slack
from tests.kernel.margins import near

ctx.prec = 200


def float64(numbers: object) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


WEIGHT, BIAS = float64([[1.0, 0.5], [-2.0, 1.0], [0.25, 0.0]]), float64([0.5, 0.25, -1.0])
SCALES = float64([4.0, 0.25])
INPUTS, LABELS = float64([[0.3, -0.2], [1.0, 2.0]]), torch.tensor([0, 2])


def linear(domain: Domain, free: Tensor | None = None) -> Problem:
    graph = Graph((Node((), (2,)), Node((0,), (3,), Dense(WEIGHT, BIAS))))
    return Problem.of(graph, Softmax(), Lp(shape=(2,), scales=SCALES, free=free), domain, (INPUTS, LABELS))


def test_heights_gradients_and_moves_at_a_tangent_point() -> None:
    """m* − m(x) with the rounding of both; D⁻¹∇m and D(x* − x), D² the weights of the cost."""
    problem, rival = linear(Domain()), torch.tensor([1, 0])
    point, origin = float64([[-1.3, 0.9], [3.1, -1.7]]), float64([-5.0, 2.0])
    none, distances = torch.tensor([False, False]), torch.full((2, 1), math.inf, dtype=torch.float64)
    start = _Start.at(problem, rival, origin, point, none, distances)
    rounding = rounding_at(problem.graph, point)
    for row in range(2):
        above, below = WEIGHT[rival[row]].tolist(), WEIGHT[LABELS[row]].tolist()
        weights = [arb(first) - arb(second) for first, second in zip(above, below, strict=True)]
        margin = arb(float(BIAS[rival[row]])) - arb(float(BIAS[LABELS[row]]))
        for weight, entry in zip(weights, point[row].tolist(), strict=True):
            margin += weight * arb(entry)
        exact = margin - arb(float(origin[row]))
        room = 2 * float(rounding.values[row]) + TENS * float(abs(margin) + abs(float(origin[row])))
        assert 0.9 * room <= float(arb(float(start.height[row])) - exact) <= 1.1 * room
        gradient = [float(weights[0]) / 2, float(weights[1]) / 0.5]
        assert start.gradient[row].tolist() == near(gradient, rel=1e-12)
        away = (point - INPUTS)[row].tolist()
        assert start.move[row].tolist() == near([2 * away[0], 0.5 * away[1]], rel=1e-12)
        assert float(start.square[row]) == near(4 * away[0] ** 2 + 0.25 * away[1] ** 2, rel=1e-12)
        off = problem.cost.dual_size(rounding.difference())[row]
        off = off + (TENS + problem.cost.rounding) * math.hypot(*gradient)
        assert float(start.error[row]) == near(float(off), rel=1e-9)


def test_at_a_face_of_the_domain_only_samples_drop_a_gradient() -> None:
    """F₁ − F₀ falls with the first coordinate, which is at its lower limit at the sample."""
    problem = linear(Domain(lower=float64([0.3, -9.0])))
    point, rival, distances = INPUTS.clone(), torch.tensor([1, 0]), torch.ones(2, 1).double()
    for centered in (True, False):
        flags = torch.tensor([centered, False])
        start = _Start.at(problem, rival, float64([7.0, 7.0]), point, flags, distances)
        assert float(start.gradient[0, 0]) == (0.0 if centered else -1.5)
        assert float(start.gradient[0, 1]) == 1.0
        assert (float(start.height[0]) == 0) is centered


FIRST = float64([[1.0, 0.5], [-2.0, 1.0], [0.25, 0.0]])
LAST = float64([[1.0, -3.0, 0.5], [2.0, 1.0, 0.5]])


def one_hidden_layer(
    first: Tensor = FIRST, last: Tensor = LAST, free: Tensor | None = None, sharpness: float = 2.0
) -> Problem:
    layers = (Dense(first, None), Pointwise(scalar("log_cosh"), (3,), sharpness), Dense(last, None))
    for layer in (layers[0], layers[2]):
        assert isinstance(layer, Dense)
        layer.accept((float(torch.linalg.matrix_norm(layer.matrix(), 2)) * (1 + 1e-9),))
    nodes = [Node((k,), layer.out_shape, layer) for k, layer in enumerate(layers)]
    data = float64([[0.3, -0.2], [1.0, 2.0]]), torch.tensor([0, 1])
    return Problem.of(Graph((Node((), (2,)), *nodes)), Softmax(), Lp(shape=(2,), free=free), Domain(), data)


def test_units_and_weights_that_cancel() -> None:
    """z = 10⁸x₁ − 10⁸x₂ is known to 10⁻⁷, and so is a weight 10⁸ + 1 − 10⁸: σ'(z)/z where |z| is least."""
    first = float64([[1e8, -1e8], [1.0, 0.5], [0.0, 1.0]])
    last = float64([[1e8, 0.0, 1.0], [1e8 + 1, 0.5, -1.0]])
    problem = one_hidden_layer(first, last)
    layer = hidden_layer(problem)
    assert layer is not None
    points = float64([[1.0, 1.0 - 2.0**-27], [1.0, 1.0]])
    spread = _spread(problem, layer[2], points, torch.tensor([1, 0]))
    size = 1e8 + 1e8 * (1 - 2.0**-27)
    z = 1e8 * 2.0**-27 - slack(3) * size
    ratio = 2 * math.tanh(2 * z) / (2 * z)
    own = slack(3) * (2e8 + 1) * (1 + slack(3))
    assert own > 1e-7
    assert float(spread[0, 0]) == near((1 + own) * ratio * (1 + MANY), rel=2e-11)
    assert float(spread[1, 0]) == near(max(0.0, -1 + own) * 2, rel=1e-9)
    assert float(spread[1, 2]) == near(4 * math.tanh(2) / 2 * (1 + MANY), rel=1e-11)
    backwards = _spread(problem, layer[2], points.flip(0), torch.tensor([1, 0]))
    assert float(backwards[0, 0]) == near((1 + own) * 2 * (1 + MANY), rel=2e-11)  # |z| may be 0


@pytest.mark.parametrize("rank", [1, 2])
def test_a_factor_that_misses_nothing_still_rounds(rank: int) -> None:
    """slack(rank)‖N‖√(2·rank) of the product, and ‖N‖ times slack(features)·rank of RRᵀ."""
    left = float64([[2.0, 1.0], [1.0, -3.0], [0.5, 0.25]])[:, :rank]
    right = torch.eye(2, 3, dtype=torch.float64)[:rank]
    form = _factored(left @ right, 0.0, (left, right))
    size = float(torch.linalg.matrix_norm(left))
    skew = slack(3) * rank
    assert form.skew == near(skew, rel=1e-3)
    assert form.lost == near(slack(rank) * size * math.sqrt(2 * rank) + size * skew, rel=1e-3)
    off = _factored(left @ right + 0.125, 0.5, (left, right))
    assert off.lost == near(0.5 + 0.125 * 3 * (1 + MANY), rel=1e-12)


def test_curvatures_are_seen_at_the_samples_alone() -> None:
    """The smaller of κ everywhere and max w⁺b·‖A‖²; a move along a coordinate that is not free is none."""
    free = torch.tensor([True, False])
    for mask in (None, free):
        problem = one_hidden_layer(free=mask)
        values, layer = Values.at(problem), hidden_layer(problem)
        everywhere = constants(problem, values)
        assert layer is not None
        one = float64([1.5])
        for move, seen in (([0.0, 0.0], True), ([0.0, 1.0], mask is not None), ([1.0, 0.0], False)):
            point = problem.inputs[:1] + float64([move])
            at = point if mask is None else torch.where(free, point, problem.inputs[:1])
            tangents = Tangents(torch.tensor([0]), torch.tensor([1]), point, one, one[None])
            above = parabolas(problem, values, everywhere, tangents)
            assert bool(torch.isfinite(above.rise[0, 1]).all())
            assert torch.isinf(above.rise).sum() == 3
            spread = _spread(problem.select(torch.tensor([0])), layer[2], at, torch.tensor([1]))
            node = problem.graph.nodes[1].action
            quadratic = float(spread.max()) * float(node.norm) ** 2 * (1 + MANY)  # type: ignore[attr-defined]
            least = min(quadratic, float(everywhere.margin_curvature[0, 1]))
            assert float(above.curvature[0, 1]) == (near(least, rel=1e-12) if seen else math.inf)
            if not any(move):
                gradient, distance = float(values.steepness[0, 1]), 1.5
                own = float(above.coefficient[0, 1, 0])
                assert own == near(1.5 * least + gradient / distance, rel=1e-8)
