"""The worst case over tables in which some rows change one category, and nothing else moves.

Every value of the column is tried in every row, a value that the table has never seen included. If k of n
rows change, the worst error is that of now plus min(k, number of rows that are right and that some value
turns wrong)/n, and the worst mean loss adds the k largest gains. Both sides of the bracket differ by rounding
alone: the upper one is proven, and the lower one is attained by a table that can be written.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from certus.certificates.certificate import Bracket
from certus.certificates.error_costs import possibly_wrong, surely_wrong
from certus.certificates.lower_bounds import loss_lower_bound
from certus.certificates.proven.float_error import rounding_at
from certus.certificates.proven.problem import Problem
from certus.losses import evaluate_loss
from certus.rounding import SOME, mean_down, mean_up


def bracket_category_changes(
    problem: Problem, places: tuple[int, ...], changed: float, rho: float
) -> Bracket:
    """Loss and error where rows change a category.

    Args:
        places: of the category among the inputs.
        changed: how many rows may change it; a part of a row is a part of its mass.
        rho: what the bracket is told to be at.
    """
    with torch.no_grad():
        low = high = None
        for rows in _with_each_value(problem.inputs, places):
            heights = loss_lower_bound(problem, rows), _raised_loss(problem, rows)
            low = heights[0] if low is None else torch.maximum(low, heights[0])
            high = heights[1] if high is None else torch.maximum(high, heights[1])
        assert low is not None
        assert high is not None
        start, finish = loss_lower_bound(problem, problem.inputs), _raised_loss(problem, problem.inputs)
        error_low = error_high = None
        if problem.classes is not None:
            error_low = _outward(_errors(problem, places, changed, surely=True), -math.inf)
            error_high = _outward(_errors(problem, places, changed, surely=False), math.inf)
    loss_low = mean_down(start) + _largest((low - start).clamp_min(0), changed) * (1 - SOME) - SOME
    loss_high = mean_up(finish) + _largest((high - finish).clamp_min(0), changed) * (1 + SOME) + SOME
    loss_low = max(loss_low, mean_down(start))
    return Bracket(
        rho=rho,
        distance=math.sqrt(rho / problem.unit_cost),
        loss_low=loss_low,
        loss_estimate=loss_low,
        loss_high=loss_high,
        gamma=0.0,
        rules={"swaps": 1.0},
        error_low=error_low,
        error_high=error_high,
    )


def _with_each_value(inputs: Tensor, places: tuple[int, ...]) -> list[Tensor]:
    """(n, features) all rows with one value of the category, for each of them, and with an unknown one."""
    values = torch.cat([torch.eye(len(places)), torch.zeros(1, len(places))]).to(inputs)
    variants = []
    for value in values:
        rows = inputs.clone()
        rows[:, list(places)] = value
        variants.append(rows)
    return variants


def _raised_loss(problem: Problem, points: Tensor) -> Tensor:
    """(n,) ℓ at some points, rounded up."""
    losses = evaluate_loss(problem.loss, points, problem.targets)
    return losses + problem.slack(losses, rounding_at(problem.analysis, points))


def _errors(problem: Problem, places: tuple[int, ...], changed: float, *, surely: bool) -> Fraction:
    """The share of errors: those that rounding cannot explain, or all that it cannot exclude."""
    judge = surely_wrong if surely else possibly_wrong
    now = judge(problem, problem.inputs, problem.targets)
    some = torch.stack(
        [judge(problem, rows, problem.targets) for rows in _with_each_value(problem.inputs, places)]
    ).any(0)
    turned = min(Fraction(changed), Fraction(int((some & ~now).sum())))
    return (int(now.sum()) + turned) / len(problem)


def _outward(share: Fraction, towards: float) -> float:
    """The share as a float on that side of it."""
    value = float(share)
    inside = Fraction(value) < share if towards > 0 else Fraction(value) > share
    return math.nextafter(value, towards) if inside else value


def _largest(gains: Tensor, count: float) -> float:
    """The sum of the largest gains, over n; of the last one a part if ``count`` is no whole number."""
    ordered = gains.sort(descending=True).values
    shares = (count - torch.arange(len(gains), dtype=torch.float64)).clamp(0, 1)
    return float((ordered * shares).sum()) / len(gains)
