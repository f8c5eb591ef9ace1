"""Costs at which scores of trees are reached: lowered by the rounding of the theory, and by little more."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from flint import arb, ctx
from torch import Tensor

from certus.kernel.evidence import mark
from certus.kernel.passes import Refused
from certus.kernel.rounding import FEW, HUNDREDS, SOME, TENS, slack
from certus.kernel.tree_profiles import Profiles, TreeLoss, TreeProblem
from certus.kernel.trees import Ensemble, Prices, Proof, least_costs
from tests.kernel.margins import near

ctx.prec = 200


def float64(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def stumps(edges: list[float], right: list[float], bias: float = 0.0, columns: int = 1) -> Ensemble:
    """Trees of one comparison each, of the column of the same number if there are several: 0 up to an edge,
    another value beyond it."""
    count = len(edges)
    roots = 3 * torch.arange(count)
    feature, threshold = torch.full((3 * count,), -1), torch.zeros(3 * count, dtype=torch.float64)
    feature[::3] = torch.arange(count) if columns > 1 else 0
    threshold[::3] = float64(*edges)
    left, other = feature.clone().fill_(-1), feature.clone().fill_(-1)
    left[::3], other[::3] = roots + 1, roots + 2
    value = torch.zeros(3 * count, 1, dtype=torch.float64)
    value[2::3, 0] = float64(*right)
    return Ensemble(
        roots=roots,
        feature=feature,
        threshold=threshold,
        left=left,
        right=other,
        missing_left=torch.ones(3 * count, dtype=torch.bool),
        category_set=torch.full((3 * count,), -1),
        sets=torch.zeros(0, 1, dtype=torch.bool),
        value=value,
        bias=float64(bias),
        rounding=float64(0.0),
        columns=columns,
    )


def prices(columns: int = 1, *, largest: bool = False) -> Prices:
    """(x_f − x₀_f)² for each column; no value goes missing."""
    one = torch.ones(columns, dtype=torch.float64)
    return Prices(one, math.inf * one, torch.zeros(columns, dtype=torch.bool), largest)


def whole(ensemble: Ensemble, slope: float, *weights: float) -> Proof:
    """One box of all rows."""
    leaf = replace(stumps([0.0], [0.0], columns=ensemble.columns), roots=torch.zeros(1).long())
    parts = {name: getattr(leaf, name)[1:2] for name in ("feature", "threshold", "left", "right", "value")}
    parts |= {name: getattr(leaf, name)[1:2] for name in ("missing_left", "category_set")}
    return Proof(replace(leaf, **parts), float64(slope), float64(*weights)[None])


ROW, BELOW = float64(0.0), 1 - 2.0**-40
"""``BELOW``: nearly the largest weight; the whole share is used up by its rounding."""


def bound(
    ensemble: Ensemble, proof: Proof, level: float, offset: float = 0.0, largest: bool = False
) -> float:
    row = torch.zeros(ensemble.columns, dtype=torch.float64)
    score = float64(1.0), offset
    own = prices(ensemble.columns, largest=largest)
    return float(least_costs(ensemble, own, row, score, float64(level), proof))


@pytest.mark.parametrize(("bias", "offset"), [(0.0, 0.0), (0.25, -0.5), (-2.0, 0.75)])
def test_the_cost_of_one_leaf(bias: float, offset: float) -> None:
    """λ(a − b) + min(0, w − λ) for a leaf at the distance 1, and the rounding of each term."""
    ensemble, lost = stumps([1.0], [1.0], bias), slack(1 + 1 + 1)
    for slope in (1.0, 3.0, 0.25):
        proof = whole(ensemble, slope, BELOW)
        level = bias + offset + 0.9
        found = bound(ensemble, proof, level, offset)
        gain, sizes = BELOW * (1 - TENS), abs(bias) + abs(offset)
        leaf = gain - slope - lost * (gain + slope)
        best = min(0.0, leaf)
        line = best - slope * (bias + offset) - lost * (abs(best) + slope * sizes)
        exact = slope * 0.9 + min(0.0, BELOW - slope)
        margin = TENS * (leaf < 0) + lost * ((gain + slope) * (leaf < 0) + abs(best) + slope * sizes)
        margin += slack(4) * (abs(line) + slope * abs(level))
        if exact < 0:
            assert found == 0
        else:
            assert 0.94 * margin - 4e-16 <= exact - found <= 1.06 * margin + 4e-16


def test_no_row_is_beyond_the_largest_leaves() -> None:
    """Σ max v + b, and the rounding of each value and of the sum."""
    for bias, offset in ((0.0, 0.0), (0.25, -0.5), (-3.0, 1.0)):
        ensemble, lost = stumps([1.0, 2.0], [1.0, 0.75], bias), slack(2 + 1 + 1)
        proof = whole(ensemble, 0.0, 0.0, 0.0)
        top, sizes = 1.75 + bias + offset, abs(bias) + abs(offset)
        margin = lost * (1.75 + 1.75 + sizes)
        assert bound(ensemble, proof, top + 0.93 * margin, offset) < math.inf
        assert bound(ensemble, proof, top + 1.07 * margin, offset) == math.inf


def split(slopes: list[float], weights: list[list[float]]) -> Proof:
    """The boxes up to 1 and beyond it."""
    return Proof(stumps([1.0], [0.0]), float64(*slopes), torch.tensor(weights, dtype=torch.float64))


def test_a_box_that_is_away_from_the_row() -> None:
    """κ(N) + λa + min(0, w(κ(N ∩ B) − κ(N)) − λv) with κ(N) = 1 and κ(N ∩ B) = 4, in the box beyond 1."""
    ensemble, lost = stumps([2.0], [3.0]), slack(3)
    for slope in (1.0, 1.1, 0.5, 0.0):
        found = bound(ensemble, split([0.3, slope], [[BELOW], [BELOW]]), 1.5)
        gain, size = BELOW * 3, BELOW * 3 + slope * 3
        rounded = gain - BELOW * 5 * TENS - slope * 3 - lost * size
        line = 1 + min(0.0, rounded)
        exact = 1 + slope * 1.5 + min(0.0, gain - slope * 3)
        margin = TENS + (BELOW * 5 * TENS + lost * size) * (rounded < 0) + lost * (1 + abs(line - 1))
        margin += slack(4) * (line + slope * 1.5) if slope else slack(1)
        if not slope:  # the distance alone
            margin -= lost
        assert 0.94 * margin - 9e-16 <= exact - found <= 1.06 * margin + 9e-16


def test_distances_alone() -> None:
    """κ(N) = 0 of all rows, without multipliers."""
    for columns in (1, 2, 9):
        for largest in (False, True):
            ensemble = stumps([1.0] * columns, [1.0] * columns, columns=columns)
            proof = whole(ensemble, 0.0, *[0.0] * columns)
            assert bound(ensemble, proof, 0.0, largest=largest) == 0


def test_weights_use_up_their_share() -> None:
    """A sum that may exceed 1 by its rounding is refused; one below it by more is not."""
    pair = stumps([1.0, 2.0], [1.0, 1.0])
    both = stumps([1.0, 2.0], [1.0, 1.0], columns=2)
    half = BELOW / 2
    bound(pair, whole(pair, 1.0, half, half), 0.5)
    bound(both, whole(both, 1.0, BELOW, BELOW), 0.5)
    bound(both, whole(both, 1.0, half, half), 0.5, largest=True)
    for ensemble, weights, largest in (
        (pair, (0.5, 0.5), False),
        (both, (1.0, 0.0), False),
        (both, (0.5, 0.5), True),
        (both, (BELOW, BELOW), True),
        (pair, (1 - 2.0**-53, 0.0), False),
    ):
        with pytest.raises(Refused, match="multipliers"):
            bound(ensemble, whole(ensemble, 1.0, *weights), 0.5, largest=largest)
    for slope in (-1e-300, math.inf, math.nan):
        with pytest.raises(Refused):
            bound(pair, whole(pair, slope, 0.0, 0.0), 0.5)
    with pytest.raises(Refused, match="terminal"):
        bound(pair, whole(pair, 1.0, 0.0), 0.5)


@pytest.mark.parametrize("columns", [1, 2, 9])
def test_costs_of_rows_are_rounded_up(columns: int) -> None:
    points, origins = torch.full((1, columns), 0.75).double(), torch.full((1, columns), -0.25).double()
    share = slack(columns + 8)
    for largest in (False, True):
        value = float(prices(columns, largest=largest).value(points, origins))
        exact = 1 if largest else columns
        assert 0.95 * share <= value / exact - 1 <= 1.05 * share
    own = Prices(float64(2.0), float64(0.7), torch.tensor([False]))
    gap = torch.full((1, 1), math.nan, dtype=torch.float64)
    one = torch.ones(1, 1, dtype=torch.float64)
    assert float(own.value(gap, one)) == near(0.7, rel=1e-14)
    assert float(own.value(one, gap)) == near(0.7, rel=1e-14)
    assert float(own.value(gap, gap)) == 0
    discrete = replace(own, discrete=torch.tensor([True]))
    assert float(discrete.value(3 * one, one)) == near(2.0, rel=1e-14)
    assert float(discrete.value(one, one)) == 0


def problem(
    loss: TreeLoss, target: int | float, *, bias: float = 0.25, rounding: float = 1e-3, outputs: int = 1
) -> TreeProblem:
    """One tree with the leaves 0 and 2, at a row in the first; of several outputs all but the first are 0."""
    ensemble = stumps([1.0], [2.0], bias)
    more = torch.zeros(outputs - 1, dtype=torch.float64)
    ensemble = replace(
        ensemble,
        value=torch.cat([ensemble.value, more.expand(3, -1)], 1),
        bias=torch.cat([ensemble.bias, more]),
        rounding=torch.full((outputs,), rounding, dtype=torch.float64),
    )
    labelled = loss in (TreeLoss.SOFTMAX, TreeLoss.PROBABILITIES)
    targets = torch.tensor([target]) if labelled else float64(float(target))
    return TreeProblem(ensemble, prices(), loss, torch.zeros(1, 1).double(), targets)


def test_scores_of_rows_and_of_the_largest_leaves() -> None:
    """S and the largest S, each with the rounding of its terms; and what the library's arithmetic loses."""
    for loss, target, start, top, sizes, offset in (
        (TreeLoss.SOFTMAX, 0, [0.25], [2.25], [2.25], [0.0]),
        (TreeLoss.SOFTMAX, 1, [-0.25], [-0.25], [2.25], [0.0]),
        (TreeLoss.SQUARED, 1.5, [-1.25, 1.25], [0.75, 1.25], [2.25, 2.25], [1.5, 1.5]),
    ):
        about = problem(loss, target)
        slope = slack(1 + 2 + 8)
        for score in range(len(start)):
            margin = slope * (0.25 + offset[score])
            assert 0.9 * margin <= float(about.start[0, score]) - start[score] <= 1.1 * margin + 3e-16
            margin = slope * (2 * sizes[score] + offset[score])
            assert 0.9 * margin <= float(about.top[0, score]) - top[score] <= 1.1 * margin + 3e-16
            assert 0.9 * slack(1) <= float(about.lost[0, score]) / 1e-3 - 1 <= 1.1 * slack(1)
    several = problem(TreeLoss.PROBABILITIES, 0, outputs=3)
    assert several.lost[0].tolist() == near([2e-3, 2e-3, 1e-3], rel=1e-12)
    assert several.start[0].tolist() == near([-0.25, -0.25, 0.75], rel=1e-13)
    assert several.top[0].tolist() == near([-0.25, -0.25, 0.75], rel=1e-13)


@pytest.mark.parametrize("score", [-30.0, -0.5, 0.0, 0.7, 0.998])
def test_losses_of_scores_are_rounded_up(score: float) -> None:
    """H(S + r), and the rounding of the sum and of the function."""
    for loss in TreeLoss:
        about = problem(loss, 0, outputs=3 if loss is TreeLoss.PROBABILITIES else 1)
        lost = float(about.lost[0, -1])
        raised, room = arb(score) + arb(lost), FEW * (abs(score) + lost)
        scores = float64(*[-100.0] * (about.scores[1].shape[1] - 1), score)[None]
        if loss is TreeLoss.SOFTMAX:
            exact = (1 + raised.exp()).log()
            margin = HUNDREDS * (1 + float(exact)) + room
        elif loss is TreeLoss.PROBABILITIES:
            if score > 0.99:
                scores, raised, room = scores - 0.001, raised - arb(0.001), room + 1e-16
            exact = -(1 - raised).log()
            margin = HUNDREDS * (1 + abs(float(exact))) + (room + FEW * (1 + abs(score))) / float(1 - raised)
        elif loss is TreeLoss.SQUARED:
            exact = max(raised, arb(0), key=float) ** 2
            margin = FEW * float(exact) + 2 * float(exact) ** 0.5 * room
        else:
            exact, margin = max(raised, arb(0), key=float), room
        rest = float(arb(float(about.values(scores))) - exact)
        if exact <= 0:
            assert float(about.values(scores)) == 0
        else:
            assert 0.75 * margin <= rest <= 1.3 * margin, loss


def test_dual_bounds_of_profiles() -> None:
    """max w·H(Ū(c)) − γc over c = 0 and the costs of all levels, with the rounding of both terms."""
    about = problem(TreeLoss.ABSOLUTE, 0.0, bias=0.0, rounding=0.0)
    levels = torch.tensor([[[0.5, 1.0], [-0.5, 0.0]]], dtype=torch.float64)
    costs = torch.tensor([[[0.3, 0.8], [0.0, 0.0]]], dtype=torch.float64)
    bounds = mark(Profiles(about, levels, costs, torch.zeros(1, 0).double()))
    for gamma in (0.5, 1.0, 2.0, 10.0):
        heights = [(0.5, 0.0), (1.0, 0.3), (2.0, 0.8)]
        for weight in (None, 3.0):
            factor = weight or 1.0
            exact, height, cost = max((factor * h - gamma * c, h, c) for h, c in heights)
            (found,) = bounds.dual([gamma], None if weight is None else float64(weight))
            rounding = SOME * gamma * cost + FEW * factor * height * (2 if weight is None else 3)
            assert 0.75 * rounding <= float(found.bound) - exact <= 1.3 * rounding + 1e-15 * (height > 1)
            assert float(bounds.dual([gamma], clip=0.25)[0].bound) == 0.25
    assert float(bounds.samples(float64(2.0)).loss) == near(0.0, abs=1e-14)
    for gamma in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(Refused):
            bounds.dual([1.0, gamma])
    for clip in (0.0, -1.0, math.nan):
        with pytest.raises(Refused):
            bounds.dual([1.0], clip=clip)
    for weight in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(Refused):
            bounds.dual([1.0], float64(weight))
        with pytest.raises(Refused):
            bounds.samples(float64(weight))


@pytest.mark.parametrize(("discrete", "beyond"), [(True, 4.0), (False, 4.0 * 0.25)])
def test_the_price_of_another_leaf(discrete: bool, beyond: float) -> None:
    """Beyond 0.5 from 0, or from a missing value; a code that changes costs its whole price."""
    ensemble = stumps([0.5], [1.0])
    own = Prices(float64(4.0), float64(2.0), torch.tensor([discrete]))
    leaves, every = ensemble.paths, whole(ensemble, 0.0, 0.0).partition.paths
    for value, expected in ((0.0, [0.0, beyond]), (math.nan, [0.0, 2.0])):
        costs = own.least(float64(value), leaves, torch.arange(2), torch.zeros(2).long(), every)
        assert costs[0, ensemble.paths.low[:, 0].argsort()].tolist() == expected


def test_the_cost_of_a_row_by_hand() -> None:
    """4·(1/2)² for a number, 3 for a code, 5 for a value that goes missing, and nothing for what stays."""
    points = float64(0.5, 2.0, math.nan, math.nan, 7.0)[None]
    origins = float64(0.0, 1.0, 1.0, math.nan, 7.0)[None]
    codes = torch.tensor([False, True, False, False, False])
    for largest, expected in ((False, 1.0 + 3.0 + 5.0), (True, 5.0)):
        own = Prices(float64(4.0, 3.0, 1.0, 1.0, 1.0), float64(9.0, 9.0, 5.0, 1.0, 1.0), codes, largest)
        cost = float(own.value(points, origins))
        assert expected <= cost <= expected * (1 + 1e-13)
