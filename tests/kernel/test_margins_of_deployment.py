"""float32: every step of the error recursion by hand, and what it refuses; groups, to the last bits."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor

from certus.kernel.costs import Domain, Lp
from certus.kernel.deployment import SINGLE, Deviation, deviation
from certus.kernel.graph import Graph, Node
from certus.kernel.groups import GroupLength, GroupSort
from certus.kernel.losses import Softmax
from certus.kernel.max_pool import MaxPool
from certus.kernel.operators import Affine, Convolution, Dense, Diagonal, Gather, Product, Reshape
from certus.kernel.passes import (
    ForwardBound,
    GradientBound,
    Place,
    Precision,
    Primitive,
    Refused,
    Rounded,
    Totals,
)
from certus.kernel.pointwise import Pointwise, scalar
from certus.kernel.problem import Problem, Values
from certus.kernel.rounding import FEW, MANY, SOME, slack
from certus.kernel.rows import with_columns
from certus.kernel.statement import ChangeBounds
from tests.kernel.margins import near

COARSE = Precision(lambda terms: 0.01 * terms, 1e-3)
ROTATED = torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64)  # ‖A‖ = √2, and ‖|A|‖ = 2
UNIT, LEAST = 2.0**-24, 2.0**-126


def rotated(bias: Tensor | None = None) -> Dense:
    operator = Dense(ROTATED, bias)
    operator.accept((math.sqrt(2) * (1 + 1e-13),))
    return operator


def length_error(primitive: Primitive, size: float, error: float, spread: float | None = None) -> float:
    sizes, errors = torch.tensor([[size], [error]], dtype=torch.float64)
    known = None if spread is None else torch.tensor([spread], dtype=torch.float64)
    return float(primitive.length_error(sizes, errors, COARSE, known))


def affine(size: float, error: float, terms: int, spread: float) -> float:
    """Of ``rotated``: ‖A‖t + γ·spread, and what vanishes."""
    lost = 2 * 2 + math.sqrt(2) * (math.sqrt(2) + size)
    return math.sqrt(2) * error + 0.01 * terms * spread + math.sqrt(2) * lost * 1e-3


def test_lengths_of_errors_behind_a_matrix() -> None:
    bias = torch.tensor([0.3, 0.4], dtype=torch.float64)
    for operator, offset in ((rotated(), 0.0), (rotated(bias), 0.5)):
        assert length_error(operator, 3.0, 0.25) == near(affine(3, 0.25, 4, 2 * 3 + offset))
        assert length_error(operator, 3.0, 0.25, 5.0) == near(affine(3, 0.25, 4, 5 + 2 * 0.25))
    operator = rotated(bias)
    operator.folds = 2
    assert length_error(operator, 3.0, 0.25) == near(affine(3, 0.25, 4 + 16, 6.5))
    spread_out = torch.tensor([2.0], dtype=torch.float64)
    operator.bias_size = spread_out
    assert length_error(operator, 3.0, 0.25) == near(affine(3, 0.25, 20, 6 + 2 * math.sqrt(2)))


def test_lengths_of_errors_behind_operators_one_after_another() -> None:
    bias = torch.tensor([0.3, 0.4], dtype=torch.float64)
    twice = Product((rotated(bias), rotated()))
    first = affine(3, 0.25, 4, 6.5)
    assert length_error(twice, 3.0, 0.25) == near(
        affine(math.sqrt(2) * 3 + 0.5 + first, first, 4, 2 * (math.sqrt(2) * 3 + 0.5 + first))
    )
    assert length_error(twice, 3.0, 0.25, 1.0) == length_error(twice, 3.0, 0.25)
    swapped = Product((Gather(torch.tensor([1, 0]), (2,)), rotated(), Reshape((2,), (1, 2))))
    assert length_error(swapped, 3.0, 0.25, 5.0) == near(affine(3.25, 0.25, 4, 5.5))
    alone = Product((Reshape((2,), (2,)), rotated(bias)))
    assert length_error(alone, 3.0, 0.25) == near(affine(3.25, 0.25, 4, 2 * 3.25 + 0.5))


def test_lengths_of_errors_behind_what_is_exact() -> None:
    assert length_error(Gather(torch.tensor([0, 0, 1]), (2,)), 3.0, 0.25) == near(0.25 * math.sqrt(2))
    assert length_error(Reshape((2,), (1, 2)), 3.0, 0.25) == 0.25
    window = torch.tensor([[0, 1], [1, 2]])
    assert length_error(MaxPool((window,), (1, 3)), 3.0, 0.25) == near(0.25 * math.sqrt(2))
    assert length_error(GroupSort(torch.tensor([[0, 1], [2, 3]]), (4,)), 3.0, 0.25) == 0.25
    for settings in ((0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (-1.0, 0.0)):
        assert length_error(Pointwise(scalar("piecewise_linear", *settings), (9,)), 3.0, 0.25) == 0.25


def test_lengths_of_errors_behind_units() -> None:
    leaky = Pointwise(scalar("piecewise_linear", -3.0, 0.5), (9,))
    assert length_error(leaky, 2.0, 0.25) == near(3 * 0.25 + 0.02 * 3 * 2 + 3 * 1e-3)
    lengths = GroupLength(torch.tensor([[0, 1, 2], [3, 4, 5]]), (6,), (2,))
    assert length_error(lengths, 2.0, 0.25) == near(0.25 + 0.05 * 2 + math.sqrt(2 * 3 * 2e-3))
    for units in (
        Pointwise(scalar("piecewise_linear", 0.0, 1.0), (9,), 2.0),
        Pointwise(scalar("piecewise_linear", 0.0, 1.0), (9,), torch.ones(9).double()),
        Pointwise(scalar("tanh"), (9,)),
        Pointwise(scalar("clamp", 0.0, 6.0), (9,)),
    ):
        assert length_error(units, 2.0, 0.25) == math.inf


def test_sums_that_are_too_long() -> None:
    assert SINGLE.relative(2**23 - 1) == near(1.0)
    assert SINGLE.relative(1000) == near(1000 * UNIT / (1 - 1000 * UNIT), rel=1e-12)
    for terms in (2**23, 2**24, 2**25):
        with pytest.raises(Refused, match="too long"):
            SINGLE.relative(terms)


def start(length: float = 1.0) -> ForwardBound:
    one = torch.tensor([length], dtype=torch.float64)
    return ForwardBound(one, length * torch.ones(1, 2).double(), torch.zeros(1).double())


def graph_of(*joins: Node, bias: Tensor | None = None) -> Graph:
    relu = Pointwise(scalar("piecewise_linear", 0.0, 1.0), (2,))
    nodes = Node((), (2,)), Node((0,), (2,), rotated(bias)), Node((1,), (2,), relu)
    return Graph((*nodes, *joins))


POINTS = torch.tensor([[3.0, 1.0], [-0.5, 0.25]], dtype=torch.float64)


def behind(size: list[float], spread: list[float], error: list[float]) -> list[float]:
    """Of ``rotated`` in float32: from sizes, ‖|A||x| + |b|‖ and errors at the samples and for each length."""
    gamma, ends = 4 * UNIT / (1 - 4 * UNIT), []
    for n, s, e in zip(size, spread, error, strict=True):
        lost = math.sqrt(2) * (4 + math.sqrt(2) * (math.sqrt(2) + n)) * LEAST
        ends.append((1 + MANY) * (math.sqrt(2) * e + gamma * (s * (1 + MANY) + 2 * e) + lost))
    return ends


@pytest.mark.parametrize("joined", ["", "sum", "beside"])
def test_the_recursion_by_hand(joined: str) -> None:
    """x → Ax + b → ReLU, then the sum of both, or both side by side; all of it rounded up by 10⁻⁹."""
    bias = torch.tensor([0.25, -0.5], dtype=torch.float64)
    nodes = {
        "": (),
        "sum": (Node((1, 2), (2,)),),
        "beside": (Node((1, 2), (4,), axis=0),),
    }[joined]
    first = POINTS @ ROTATED.T + bias
    size = [*(POINTS.norm(dim=1)).tolist(), 1.0]
    error = [each * UNIT + 2 * LEAST for each in size]
    spread = [*((POINTS.abs() @ ROTATED.abs().T + bias.abs()).norm(dim=1)).tolist(), 2.0]
    error = behind([a * (1 + MANY) for a in size], spread, error)
    units = [each * (1 + MANY) for each in error]
    lengths = [*first.norm(dim=1).tolist(), math.sqrt(2)]
    others = [*first.relu().norm(dim=1).tolist(), math.sqrt(2)]
    gamma = 2 * UNIT / (1 - 2 * UNIT)
    if joined == "sum":
        sizes = [
            (a + s) * (1 + MANY) + (b + t) * (1 + MANY)
            for a, b, s, t in zip(lengths, others, error, units, strict=True)
        ]
        final = [(1 + MANY) * (s + t + gamma * n) for s, t, n in zip(error, units, sizes, strict=True)]
    elif joined:
        final = [(1 + MANY) * math.hypot(s, t) for s, t in zip(error, units, strict=True)]
    else:
        final = units
    off = deviation(graph_of(*nodes, bias=bias), POINTS, start())
    for got, exact in zip([*off.start.tolist(), off.slope], final, strict=True):
        assert got == near(math.sqrt(2) * exact * (1 + MANY), rel=2e-11)


def test_lengths_of_moves_count() -> None:
    """Moves that are three times as long: three times the slope, and the same start."""
    one, three = (deviation(graph_of(), POINTS, start(length)) for length in (1.0, 3.0))
    assert torch.equal(one.start, three.start)
    assert three.slope == near(3 * one.slope)


def test_errors_in_float64_count() -> None:
    """Where terms cancel, the error of the float64 values at a sample is part of their size."""
    wide = Diagonal(torch.full((2,), 1e16, dtype=torch.float64), -torch.full((2,), 1e16).double(), (2,))
    nodes = Node((), (2,)), Node((0,), (2,), wide), Node((1,), (2,), rotated())
    graph, at = Graph(nodes), torch.ones(1, 2, dtype=torch.float64)
    lost = float(graph.rounded(at)[2][1].error.norm())
    assert lost > 1
    (off,), _ = deviation(graph, at, start())
    assert float(off) > math.sqrt(2) * 4 * UNIT * 2 * lost


@pytest.mark.parametrize("far", [True, False])
def test_what_overflows_at_any_sample_is_refused(far: bool) -> None:
    """Sizes up to 2¹²⁶, at samples and within 10¹⁵ of them."""
    wide = Diagonal(torch.full((2,), 2.0**70, dtype=torch.float64), None, (2,))
    graph = Graph((Node((), (2,)), Node((0,), (2,), wide), Node((1,), (2,), rotated())))
    points = torch.tensor([[0.0, 0.0], [2.0**60 if far else 1.0, 0.0]], dtype=torch.float64)
    if far:
        with pytest.raises(Refused, match="overflows"):
            deviation(graph, points, start())
        assert deviation(graph, points[:1], start()).slope > 0
    else:
        assert deviation(graph, points, start()).slope > 0
        with pytest.raises(Refused, match="overflows"):
            deviation(graph, points, start(1e4))


def test_a_sum_that_overflows_is_named() -> None:
    wide = Diagonal(torch.full((2,), 2.0**76, dtype=torch.float64), None, (2,))
    nodes = Node((), (2,)), Node((0,), (2,), wide), Node((1, 1), (2,))
    with pytest.raises(Refused, match=r"a layer \(sum\)"):
        deviation(Graph(nodes), 0 * POINTS, start())


def test_values_in_float32() -> None:
    """Losses rise by g, levels by s, and margins by 1 for each unit of the deviation."""
    weight = torch.tensor([[40.0, 0.0], [0.0, 9.0], [-3.0, -30.0]], dtype=torch.float64)
    graph = Graph((Node((), (2,)), Node((0,), (3,), Dense(weight, None))))
    loss, labels = Softmax(2.0, 4.0, 2.0), torch.tensor([0, 1])
    problem = Problem.of(graph, loss, Lp(shape=(2,)), Domain(), (POINTS, labels))
    before = Values.at(problem)
    off = Deviation(torch.tensor([0.5, 0.3], dtype=torch.float64), 0.75)
    after = before.deployed(problem, off)
    for i, begin in enumerate(off.start.tolist()):
        low, rise = float(before.loss[i]), 2 * begin
        assert float(after.loss[i] - before.loss[i]) - rise == near(
            SOME * (low + 2 * rise), rel=0.1, abs=1e-14
        )
        fallen = float(before.start[i] - after.start[i]) - rise
        assert fallen == near(2 * SOME * rise, rel=0.1, abs=2e-14)
        level = float(before.level[i])
        rounded = float(Fraction(float(after.level[i])) - Fraction(level) - Fraction(rise))
        assert rounded == near(SOME * (rise + abs(level)), rel=0.1, abs=1e-14)
        for k in range(3):
            margin, steep = float(before.margins[i, k]), float(before.steepness[i, k])
            if k == int(labels[i]):
                assert float(after.margins[i, k]) == float(after.steepness[i, k]) == 0
                continue
            grown = Fraction(float(after.margins[i, k])) - Fraction(margin) - Fraction(begin)
            assert float(grown) == near(FEW * abs(margin), rel=0.5, abs=1e-15)
            assert float(after.steepness[i, k]) == near((steep + 0.75) * (1 + SOME), rel=SOME / 10)


def test_only_plain_problems_are_deployed() -> None:
    graph = Graph((Node((), (2,)), Node((0,), (2,), rotated())))
    problem = Problem.of(graph, Softmax(), Lp(shape=(2,)), Domain(), (POINTS, torch.tensor([0, 1])))
    assert problem.deployed(None).deviation is None
    assert problem.deployed("float32").deviation is not None
    claimed = problem.settled(Domain(), math.inf, problem.bounds(None)[0])
    for wrong in (claimed, with_columns(problem, [(0, 1)])):
        with pytest.raises(Refused, match="claimed bounds"):
            wrong.deployed("float32")
    with pytest.raises(Refused, match="float32"):
        problem.deployed("bfloat16")


def test_rows_and_their_changes_are_about_real_arithmetic() -> None:
    """A problem in float32 gets no columns, whose frozen part would leave the deviation out."""
    graph = Graph((Node((), (2,)), Node((0,), (2,), rotated())))
    problem = Problem.of(graph, Softmax(), Lp(shape=(2,)), Domain(), (POINTS, torch.tensor([0, 1])))
    assert with_columns(problem, [(0, 1)]).columns is not None
    assert with_columns(problem.deployed("float32"), [(0, 1)]).columns is None
    with pytest.raises(Refused, match="real arithmetic"):
        ChangeBounds.of(problem.deployed("float32"), [POINTS], 1.0)


def test_gradients_behind_groups_are_kinked_where_there_are_any() -> None:
    groups = torch.tensor([[0, 2], [1, 3]])
    for primitive in (GroupSort(groups, (4,)), GroupLength(groups, (4,), (2,))):
        ends = torch.zeros(1, 2, *primitive.out_shape, dtype=torch.float64)
        ends[0, 0] = 1.0
        rows = GradientBound(-ends, ends, ends.norm(dim=2), torch.full((1, 2), 0.5).double())
        totals = Totals(torch.ones(1, 2).double(), torch.ones(1).double())
        back = primitive.backward(rows, None, totals, Place(3))
        assert back.curvature is not None
        assert back.curvature.tolist() == [[math.inf, 0.5]]
        assert [side.tolist() for side in totals.sums()] == [[[math.inf, 0.0]]] * 2
        lengths = torch.tensor([0.3]), torch.tensor([0.1])
        size, error = primitive.backward_error(*lengths, at=Rounded(POINTS, POINTS))
        assert (float(size), float(error)) == (near(0.3), near(0.7))


def test_lengths_of_groups_are_rounded_up() -> None:
    lengths = GroupLength(torch.tensor([[0, 1], [2, 3]]), (4,), (2,))
    points = torch.tensor([[3.0, 4.0, 6.0, 8.0]], dtype=torch.float64)
    one = 1 + slack(2)
    assert lengths.largest(points).tolist() == [[near(5 * one, rel=3e-16), near(10 * one, rel=3e-16)]]
    value, error = lengths.rounded(points, 1e-9 * points)
    assert value.tolist() == [[5.0, 10.0]]
    for got, length in zip(error[0].tolist(), (5, 10), strict=True):
        assert got - 1e-9 * length == near(slack(2) * length, rel=1e-3)


def test_a_graph_of_every_kind_is_covered() -> None:
    options: Any = {"stride": (1,), "padding": ((1, 1),), "dilation": (1,), "groups": 1}
    parts: tuple[Affine, ...] = (
        Reshape((2,), (1, 2)),
        Convolution(torch.ones(1, 1, 3).double(), None, (1, 2), **options),
    )
    graph = Graph((Node((), (2,)), Node((0,), (1, 2), parts[0]), Node((1,), (1, 2), parts[1])))
    assert deviation(graph, POINTS, start()).slope > 0
