"""The worst case over tables in which some rows change one category, and nothing else moves.

Every value of the column is tried in every row, a value that the table has never seen included. If k of n
rows change, the worst error is that of now plus min(k, number of rows that are right and that some value
turns wrong)/n, and the worst mean loss adds the k largest gains. Both sides of the bracket differ by rounding
alone: the upper one is proven, and the lower one is attained by a table that can be written.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor

from certus.certificates.certificate import Bracket
from certus.certificates.error_costs import possibly_wrong, surely_wrong
from certus.certificates.lower_bounds import loss_lower_bound
from certus.certificates.problem import Problem
from certus.kernel.problem import rounding_at
from certus.kernel.rounding import SOME, mean_down, mean_up
from certus.losses import evaluate_loss

_Judge = Callable[[Problem, Tensor, Tensor], Tensor]


def bracket_category_changes(
    problem: Problem, places: tuple[int, ...], changed: float, rho: float
) -> Bracket:
    """Loss and error where rows change a category.

    Args:
        places: of the category among the inputs.
        changed: the number of rows that may change it; a part of a row is a part of its mass.
        rho: of the bracket that is returned.
    """
    variants = _with_each_value(problem.inputs, places)
    with torch.no_grad():
        low = torch.stack([loss_lower_bound(problem, rows) for rows in variants]).amax(0)
        high = torch.stack([_raised_loss(problem, rows) for rows in variants]).amax(0)
        start, finish = loss_lower_bound(problem, problem.inputs), _raised_loss(problem, problem.inputs)
        error_low = error_high = None
        if problem.classes is not None:
            error_low = _outward(_errors(problem, variants, changed, surely_wrong), -math.inf)
            error_high = _outward(_errors(problem, variants, changed, possibly_wrong), math.inf)
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
    return losses + problem.kernel.slack(losses, rounding_at(problem.graph, points))


def _errors(problem: Problem, variants: list[Tensor], changed: float, wrong: _Judge) -> Fraction:
    """The share of errors: those that rounding cannot explain, or all that it cannot exclude."""
    now = wrong(problem, problem.inputs, problem.targets)
    some = torch.stack([wrong(problem, rows, problem.targets) for rows in variants]).any(0)
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
