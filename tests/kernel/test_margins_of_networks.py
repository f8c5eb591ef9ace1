"""Bounds of networks leave room for the rounding of their passes, and little more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import pytest
import torch
from flint import arb, ctx
from torch import Tensor

from certus.kernel.costs import Domain, Lp
from certus.kernel.graph import Graph, Node, _added, _joined_values, _reached, _summed
from certus.kernel.losses import Softmax, SquaredError
from certus.kernel.majorants import constants
from certus.kernel.operators import Dense
from certus.kernel.passes import ForwardBound, GradientBound, Refused, Rounded
from certus.kernel.problem import Problem, Values
from certus.kernel.rounding import MANY, SOME, slack
from certus.kernel.smoothness import Outputs, Smoothness
from tests.kernel.margins import near

ctx.prec = 200
WEIGHT = torch.tensor([[3.0, 0.0, 1.0], [0.0, 4.0, 1.0], [0.0, 0.0, 1.0]], dtype=torch.float64)


def float64(numbers: object) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def linear(matrix: Tensor) -> Graph:
    layer = Dense(matrix, None)
    layer.accept((float(torch.linalg.matrix_norm(matrix, 2)) * (1 + 1e-12),))
    return Graph((Node((), (matrix.shape[1],)), Node((0,), (len(matrix),), layer)))


def raised(bound: Tensor, exact: float, by: float = MANY) -> bool:
    """Whether a bound is above its exact value by a fraction, and not much more."""
    return 0.9 * by <= float(bound) / exact - 1 <= 1.1 * by


def test_a_linear_softmax_everywhere() -> None:
    """D = 5 between the first two classes, and the norm of the matrix."""
    length = float(torch.linalg.matrix_norm(WEIGHT, 2))
    bounds = Smoothness(linear(WEIGHT), Softmax()).everywhere
    assert raised(bounds.lipschitz, 5)
    assert raised(bounds.output_lipschitz, length)
    assert bounds.margin_lipschitz is not None
    assert raised(bounds.margin_lipschitz[0, 0, 1], 5)
    assert raised(bounds.margin_lipschitz[0, 2, 0], 3)
    assert float(bounds.margin_lipschitz[0, 1, 1]) == 0
    assert raised(bounds.curvature["sum"], 25 / 4)
    assert raised(bounds.curvature["max"], 25 / 4)
    assert raised(bounds.curvature["corrected"], length**2 / 2)


@pytest.mark.parametrize("radius", [0.0, 0.3, 2.0])
def test_a_linear_softmax_on_a_ball(radius: float) -> None:
    """q = 1 − 1/(1 + Σ exp(m_k + L_k r)) around a point where all margins are exact."""
    point, labels = float64([[0.5, -0.25, 0.0]]), torch.tensor([0])
    bounds = Smoothness(linear(WEIGHT), Softmax()).bound(point, labels, float64([radius]))
    margins, lengths = (arb(-1) - arb(1.5), arb(-1.5)), (arb(5), arb(3))
    rise = arb(radius) * (1 + arb(MANY))
    total = sum(((m + k * rise).exp() for m, k in zip(margins, lengths, strict=True)), arb(0))
    share = total / (1 + total)
    assert bounds.error is not None
    assert raised(bounds.error, float(share)) or bounds.error == 1
    error = float(bounds.error)
    assert raised(bounds.lipschitz, 5 * error)
    assert raised(bounds.curvature["sum"], 25 * (error * (1 - error) if error < 0.5 else 0.25))
    assert bounds.margins is not None
    assert bounds.margins[0].tolist() == near([0.0, -2.5, -1.5], abs=1e-13)
    assert bool((bounds.margins[0, 1:] > float64([-2.5, -1.5])).all())


@pytest.mark.parametrize("radius", [0.5, 3.0])
def test_a_linear_squared_error_on_a_ball(radius: float) -> None:
    """‖F − y‖ grows by ‖row‖·r in each output; ∇ℓ = 2Wᵀ(F − y), and ∇²ℓ = 2WᵀW."""
    point, target = float64([[1.0, 0.0, 0.0]]), float64([[1.0, 1.0, 0.0]])
    bounds = Smoothness(linear(WEIGHT), None).bound(point, target, float64([radius]))
    length = float(torch.linalg.matrix_norm(WEIGHT, 2))
    away = [2 + math.sqrt(10) * radius, 1 + math.sqrt(17) * radius, radius]
    assert raised(bounds.output_lipschitz, length)
    for rule in ("sum", "max"):
        assert raised(bounds.curvature[rule], 2 * length**2)
    columns = [away[0] * 3, away[1] * 4, sum(away) - 2]  # the last one has the sum of 2, −1 and 0
    most = 2 * min(length * math.hypot(*away), math.hypot(*columns))
    assert 0.9 * MANY <= float(bounds.lipschitz) / most - 1 <= 2.2 * MANY


def test_rows_of_outputs() -> None:
    outputs = Outputs(Dense(WEIGHT, None), (3,), with_zero=True)
    assert outputs.classes == 4
    assert 0.9 * slack(3) <= float(outputs.distances[1, 2]) / 5 - 1 <= 10 * slack(3)
    low, high = outputs.hull(torch.tensor([1]))
    assert low[0, 0].tolist() == near([-3.0, 0.0, -1.0], abs=1e-12)
    assert high[0, 0].tolist() == near([0.0, 4.0, 0.0], abs=1e-12)
    rounding = 2 * slack(3) * WEIGHT.abs().amax(0)
    assert bool((low[0, 0] <= float64([-3.0, 0.0, -1.0]) - rounding).all())
    assert bool((high[0, 0] >= float64([0.0, 4.0, 0.0]) + rounding).all())
    wide = outputs.hull(None)
    assert torch.equal(wide[0], -wide[1])
    assert wide[1][0, 0].tolist() == near([3.0, 4.0, 1.0], abs=1e-12)
    assert bool((wide[1][0, 0] >= float64([3.0, 4.0, 1.0]) + rounding).all())


def test_values_and_errors_at_joins() -> None:
    """A sum rounds relative to its terms, a concatenation not at all."""
    parts = [
        Rounded(float64([[3.0, -2.0]]), float64([[0.5, 0.25]])),
        Rounded(float64([[-1.0, 2.0]]), float64([[0.5, 1.0]])),
    ]
    total = _joined_values(Node((0, 1), (2,)), parts)
    assert total.value.tolist() == [[2.0, 0.0]]
    assert (total.error - float64([[1.0, 1.25]])).tolist()[0] == near([4 * slack(2), 4 * slack(2)], rel=0.2)
    beside = _joined_values(Node((0, 1), (4,), axis=0), parts)
    assert beside.error.tolist() == [[0.5, 0.25, 0.5, 1.0]]


def test_units_reach_as_far_as_their_slope_leads() -> None:
    bound = ForwardBound(float64([2.0]), float64([[3.0, 5.0]]), float64([0.0]))
    at = Rounded(float64([[1.0, -1.0]]), float64([[0.0, 0.25]]))
    low, high = _reached(bound, at, float64([0.1]))
    for end, sign in ((low, -1), (high, 1)):
        for found, value, room, error in zip(end[0].tolist(), (1, -1), (3, 5), (0.0, 0.25), strict=True):
            exact = value + sign * (arb(room) * arb(0.1) + arb(error))
            assert 0.9 * SOME * room * 0.1 <= sign * float(arb(found) - exact) <= 1.2 * SOME * room * 0.1


def test_sums_of_gradients() -> None:
    rows = [
        GradientBound(float64([[[-1.0, 2.0]]]), float64([[[1.0, 3.0]]]), float64([[4.0]]), float64([[1.5]])),
        GradientBound(
            float64([[[-2.0, -4.0]]]), float64([[[0.5, -3.0]]]), float64([[7.0]]), float64([[2.0]])
        ),
    ]
    total = _added(rows)
    sizes = float64([3.0, 7.0])
    assert (float64([-3.0, -2.0]) - total.low[0, 0]).tolist() == near((slack(2) * sizes).tolist(), rel=0.1)
    assert (total.high[0, 0] - float64([1.5, 0.0])).tolist() == near((slack(2) * sizes).tolist(), rel=0.1)
    assert float(total.norm) == near(math.hypot(3, 2))
    assert float(total.curvature if total.curvature is not None else math.nan) == 3.5
    assert _added(rows[:1]) is rows[0]
    size, error = _summed([(float64([2.0]), float64([0.5])), (float64([3.0]), float64([0.25]))])
    assert float(size) == 5
    assert float(error) - 0.75 == near(5 * slack(2), rel=0.2)
    assert _summed([(float64([2.0]), float64([0.5]))]) == (float64([2.0]), float64([0.5]))


@pytest.mark.parametrize("loss", [Softmax(), SquaredError()])
def test_values_at_samples_are_rounded_outwards(loss: Softmax | SquaredError) -> None:
    """ℓ up, and down by a little more; the slope by its own rounding."""
    graph, inputs = linear(WEIGHT), float64([[0.5, -0.25, 0.125], [1.0, 1.0, -1.0]])
    targets = torch.tensor([0, 2]) if loss.labelled else float64([[1.0, 0.0, 0.0], [0.0, 2.0, 1.0]])
    problem = Problem.of(graph, loss, Lp(shape=(3,)), Domain(), (inputs, targets))
    values = Values.at(problem)
    losses = problem.losses(inputs)
    room = problem.slack(losses, problem.rounding)
    assert (values.loss - losses).tolist() == near(room.tolist(), rel=0.01)
    assert (losses - values.start).tolist() == near((1.1 * room).tolist(), rel=0.01)
    leaf = inputs.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(problem.losses(leaf).sum(), leaf)
    lengths = slopes.norm(dim=1)
    assert bool((values.slope >= lengths * (1 + 0.9 * SOME)).all())
    assert bool(
        (
            values.slope
            <= lengths * (1 + 2 * SOME) + 1e-12 + 2 * problem.slope_error(losses, problem.rounding)
        ).all()
    )
    if loss.labelled:
        exact = float64([[0.0, 5.0, 3.0], [3.0, 4.0, 0.0]])
        assert bool((values.steepness >= exact * (1 + 0.9 * SOME)).all())
        assert bool((values.steepness <= exact * (1 + 2 * SOME) + 1e-12).all())
        found = constants(problem, values)
        assert bool((found.margin_lipschitz <= values.steepness).all())
        assert found.slope.tolist() == near([5.0, 4.0])


@pytest.mark.parametrize(
    "lengths", [(1.0, 3.0), (2.0, 2.0), (0.0, 5.0), (1e-300, 1.0), (math.inf, 1.0), (1e-9, 1e9)]
)
def test_shares_of_the_curvature_behind_a_sum(lengths: tuple[float, float]) -> None:
    """(s + t)² ≤ as² + bt² for all s and t if 1/a + 1/b ≤ 1, exactly; a = (s + t)/s where that is finite."""
    graph = Graph((Node((), (2,)), Node((0,), (2,), Dense(torch.eye(2).double(), None)), Node((0, 1), (2,))))
    rows = GradientBound(
        float64([[[-1.0, 1.0]]]), float64([[[1.0, 2.0]]]), float64([[9.0]]), float64([[1.0]])
    )
    parts = graph._parted(graph.nodes[2], rows, [float64([length]) for length in lengths])
    shares = [part.curvature for part in parts]
    assert all(share is not None and bool(torch.isfinite(share).all()) for share in shares)
    exact = [Fraction(float(share)) for share in shares if share is not None]
    assert sum(1 / share for share in exact) <= 1 - 4 * Fraction(1, 2**53)
    if min(lengths) >= 1 and max(lengths) < math.inf:
        total = sum(map(Fraction, lengths))
        for share, length in zip(exact, lengths, strict=True):
            assert 0.85 * slack(2) <= share * Fraction(length) / total - 1 <= 1.2 * slack(2)
    for part in parts:
        assert float(part.norm) == near(math.sqrt(5))  # of the largest entries


def test_a_concatenation_parts_its_gradients() -> None:
    graph = Graph(
        (Node((), (2,)), Node((0,), (2,), Dense(torch.eye(2).double(), None)), Node((0, 1), (4,), axis=0))
    )
    low, high = float64([[[-1.0, 0.0, 2.0, -3.0]]]), float64([[[1.0, 4.0, 2.0, 3.0]]])
    rows = GradientBound(low, high, float64([[9.0]]), float64([[7.0]]))
    first, second = graph._parted(graph.nodes[2], rows, [float64([1.0]), float64([2.0])])
    assert first.high.tolist() == [[[1.0, 4.0]]]
    assert second.low.tolist() == [[[2.0, -3.0]]]
    assert float(first.norm) == near(math.sqrt(17))
    assert [float(part.curvature) for part in (first, second) if part.curvature is not None] == [7.0, 7.0]


def test_growth_on_the_way_counts_even_if_it_is_lost_again() -> None:
    """10⁴⁰ and then 10⁻⁴⁰ amplify by 10⁴⁰; two branches add."""
    grows, shrinks = (Dense(torch.eye(1).double() * size, None) for size in (1e40, 1e-40))
    nodes = (Node((), (1,)), Node((0,), (1,), grows), Node((1,), (1,), shrinks), Node((2, 0), (1,)))
    assert Graph(nodes).amplification() == near(1e40)
    twice = (Node((), (1,)), Node((0,), (1,), grows), Node((0,), (1,), grows), Node((1, 2), (1,)))
    assert Graph(twice).amplification() == near(2e40)
    graph = Graph((*nodes[:2], Node((1,), (1,), grows)))
    with pytest.raises(Refused, match="amplify"):
        _ = Smoothness(graph, None).everywhere


@pytest.mark.parametrize(
    "inputs",
    [((), (1,), (0,)), ((), (2,), (1,)), ((), (0,), ()), ((0,), (0,), (1,)), ((), (0,), (0,))],
    ids=["itself", "later", "no input", "a first one with an input", "unused"],
)
def test_graphs_that_do_not_lead_from_their_input_to_their_output(
    inputs: tuple[tuple[int, ...], ...],
) -> None:
    with pytest.raises(Refused):
        Graph(tuple(Node(each, (1,)) for each in inputs))


def joined(shape: tuple[int, ...], parts: Sequence[tuple[int, ...]], axis: int | None) -> Graph:
    """A join of several parts of one input of six numbers."""
    inputs = Node((), (6,))
    matrices = [torch.ones(math.prod(part), 6).double() for part in parts]
    layers = [
        Node((0,), part, Dense(matrix, None, (6,), part))
        for part, matrix in zip(parts, matrices, strict=True)
    ]
    return Graph((inputs, *layers, Node(tuple(range(1, len(parts) + 1)), shape, axis=axis)))


JoinCase = tuple[tuple[int, ...], list[tuple[int, ...]], int | None]


def test_shapes_of_joins_follow_from_their_parts() -> None:
    fitting: tuple[JoinCase, ...] = (
        ((2, 3), [(2, 3), (2, 3)], None),
        ((4, 3), [(2, 3), (2, 3)], 0),
        ((2, 6), [(2, 3), (2, 3)], 1),
        ((3, 3), [(2, 3), (1, 3)], 0),
        ((2, 4), [(2, 3), (2, 1)], 1),
        ((2, 9), [(2, 3), (2, 1), (2, 5)], 1),
        ((2, 3), [(2, 3)], 1),
    )
    for shape, parts, axis in fitting:
        graph = joined(shape, parts, axis)
        assert graph.apply(torch.ones(5, 6).double()).shape == (5, *shape)
    misfits: tuple[JoinCase, ...] = (
        ((2, 3), [(2, 3), (3, 2)], None),
        ((3, 2), [(2, 3), (2, 3)], None),
        ((2, 3), [(2, 3), (1, 3)], None),
        ((2, 3), [(2, 3), (2, 3)], 0),
        ((4, 3), [(2, 3), (2, 3)], 1),
        ((3, 3), [(2, 3), (1, 3)], 1),
        ((4, 4), [(2, 3), (2, 1)], 0),
        ((4, 3), [(2, 3), (2, 3)], -2),
        ((2, 3, 2), [(2, 3), (2, 3)], 2),
        ((4, 3), [(2, 3), (6,)], 0),
        ((12,), [(2, 3), (2, 3)], 0),
    )
    for shape, parts, axis in misfits:
        with pytest.raises(Refused, match="do not fit"):
            joined(shape, parts, axis)
    with pytest.raises(Refused, match="do not fit"):
        Graph((Node((), (2,), axis=0),))
    with pytest.raises(Refused, match="do not fit"):
        Graph((Node((), (2,)), Node((0,), (2,), Dense(torch.eye(2).double(), None), axis=0)))


def test_cuts_are_nodes_that_every_path_passes() -> None:
    layer = Dense(torch.eye(2).double(), None)
    paths = {
        ((0,), (1,), (2,), (1, 3), (4,)): [0, 1, 4, 5],
        ((0,), (1,)): [0, 1, 2],
        ((0,), (0,), (1, 2)): [0, 3],
        ((0,), (0, 1), (2,), (2, 3)): [0, 2, 4],
        ((0,), (1,), (0, 2), (3,)): [0, 3, 4],
    }
    for inputs, cuts in paths.items():
        nodes = [Node(each, (2,), layer if len(each) == 1 else None) for each in inputs]
        assert Graph((Node((), (2,)), *nodes)).cuts == cuts
