"""The worst case over tables in which some rows change one category, and nothing else moves.

Every value of the column is tried in every row, and a value that the table does not contain. If k of n rows
change, the worst error rate is the present one plus min(k, number of correct rows that some value turns into
errors)/n, and the worst mean loss adds the k largest gains. Both sides of the bracket differ by rounding
alone: the kernel proves the upper one, and the lower one is attained by a table that can be written.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
from torch import Tensor

from certus.certificates.certificate import Bracket
from certus.certificates.error_costs import surely_wrong
from certus.certificates.lower_bounds import loss_lower_bound
from certus.certificates.problem import Problem
from certus.errors import CertusError
from certus.kernel.evidence import Evidence
from certus.kernel.passes import Refused
from certus.kernel.rounding import SOME, mean_down
from certus.kernel.statement import ChangeBounds


def bracket_category_changes(
    problem: Problem, places: tuple[int, ...], changed: float, rho: float
) -> tuple[Bracket, Evidence]:
    """Loss and error where rows change a category, and the evidence of the upper sides.

    Args:
        places: indices of the inputs that encode the category.
        changed: number of rows that may change it; a fraction of a row is that fraction of its mass.
        rho: the ρ recorded in the bracket.
    """
    variants = _with_each_value(problem.inputs, places)
    with torch.no_grad():
        try:
            high = ChangeBounds.of(problem.kernel, variants, changed)
        except Refused as reason:
            raise CertusError(f"Nothing can be proven about these samples: {reason}.") from None
        low = torch.stack([loss_lower_bound(problem, rows) for rows in variants]).amax(0)
        start = loss_lower_bound(problem, problem.inputs)
        error_low = None if problem.classes is None else _errors(problem, variants, changed)
    loss_low = mean_down(start) + _largest((low - start).clamp_min(0), changed) * (1 - SOME) - SOME
    loss_low = max(loss_low, mean_down(start))
    bracket = Bracket(
        rho=rho,
        distance=math.sqrt(rho / problem.unit_cost),
        loss_low=loss_low,
        loss_estimate=loss_low,
        loss_high=high.loss,
        gamma=0.0,
        rules={"swaps": 1.0},
        error_low=error_low,
        error_high=high.error,
    )
    return bracket, high.evidence


def _with_each_value(inputs: Tensor, places: tuple[int, ...]) -> list[Tensor]:
    """Return (n, features) rows with every value of the category in turn, then with an unknown one."""
    values = torch.cat([torch.eye(len(places)), torch.zeros(1, len(places))]).to(inputs)
    variants = []
    for value in values:
        rows = inputs.clone()
        rows[:, list(places)] = value
        variants.append(rows)
    return variants


def _errors(problem: Problem, variants: list[Tensor], changed: float) -> float:
    """The share of errors that rounding cannot explain, rounded down."""
    now = surely_wrong(problem, problem.inputs, problem.targets)
    some = torch.stack([surely_wrong(problem, rows, problem.targets) for rows in variants]).any(0)
    turned = min(Fraction(changed), Fraction(int((some & ~now).sum())))
    share = (int(now.sum()) + turned) / len(problem)
    value = float(share)
    return math.nextafter(value, -math.inf) if Fraction(value) > share else value


def _largest(gains: Tensor, count: float) -> float:
    """Return the sum of the ``count`` largest gains over n; a fractional count takes a part of the last."""
    ordered = gains.sort(descending=True).values
    shares = (count - torch.arange(len(gains), dtype=torch.float64)).clamp(0, 1)
    return float((ordered * shares).sum()) / len(gains)
