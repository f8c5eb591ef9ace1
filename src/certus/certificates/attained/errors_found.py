"""Errors and losses at points that were found: counted only beyond what rounding can make of nothing."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from certus.attacks.minimum_norm import shorten
from certus.batches import per_sample
from certus.certificates.attained.real_rows import settled
from certus.certificates.proven.cost_rounding import raised_cost
from certus.certificates.proven.problem import Problem
from certus.certificates.proven.rounding import outputs_at, rounding_at
from certus.losses import evaluate_loss


class Moved(NamedTuple):
    """Where samples were moved to, (batch, …), at which (batch,) costs, rounded up, and losses, rounded
    down."""

    points: Tensor
    costs: Tensor
    losses: Tensor


def confirmed_outputs(problem: Problem, points: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs at some points and (batch,) their rounding, as ``outputs_at``; the caller's model has the same,
    or ``ContradictionError`` is raised."""
    outputs, error = outputs_at(problem.analysis, points)
    problem.caller.check(points, outputs, error)
    return outputs, error


def lowered_loss(problem: Problem, points: Tensor) -> Tensor:
    """(batch,) ℓ at some points, rounded down; −∞ where nothing is known."""
    confirmed_outputs(problem, points)
    losses = evaluate_loss(problem.loss, points, problem.targets)
    rounding = problem.rounding if points is problem.inputs else rounding_at(problem.analysis, points)
    return (losses - problem.slack(losses, rounding)).nan_to_num(-math.inf)


def error_cost(problem: Problem, moved: Tensor) -> Tensor:
    """(batch,) c at the nearest error on the line to the point reached; ∞ where there is none."""
    return nearest_on_line(problem, moved)[0]


def nearest_on_line(problem: Problem, moved: Tensor) -> tuple[Tensor, Tensor]:
    """(batch,) that cost, and (batch, …) the error; the sample itself where there is none."""
    costs, points = torch.full((len(problem),), math.inf, dtype=torch.float64), problem.inputs.clone()
    if problem.classes is None:
        confirmed_outputs(problem, moved)
        return costs, points
    wrong = errs(problem, moved, problem.targets)
    if wrong.any():
        part = problem.select(wrong)
        points[wrong] = _shortened(part, moved[wrong])
        costs[wrong] = raised_cost(part, points[wrong])
    return costs, points


def _shortened(problem: Problem, wrong: Tensor) -> Tensor:
    """(batch, …) an error on the line from each sample to one, (batch, …); in a table, from the row with
    the categories of the error."""
    _, error = outputs_at(problem.analysis, wrong)
    start = problem.inputs if problem.encoding is None else problem.encoding.returned(wrong, problem.inputs)

    def real(points: Tensor) -> Tensor:
        return (
            points if problem.encoding is None else settled(problem.encoding, points, start, problem.domain)
        )

    def surely(points: Tensor) -> Tensor:
        return _ahead(problem.outputs(real(points)), problem.targets) > 4 * error

    # Looked for with the rounding at the end of the line, and checked with its own.
    nearer = real(shorten(surely, start, wrong))
    if problem.encoding is not None:  # a swap alone may be an error
        nearer = torch.where(per_sample(errs(problem, start, problem.targets), start), start, nearer)
    return torch.where(per_sample(errs(problem, nearer, problem.targets), wrong), nearer, wrong)


def errs(problem: Problem, points: Tensor, targets: Tensor) -> Tensor:
    """(batch,) whether another class is ahead, by more than rounding can make of nothing."""
    outputs, error = confirmed_outputs(problem, points)
    return _ahead(problem.margin_outputs(outputs), targets) > 2 * error


def may_err(problem: Problem, points: Tensor, targets: Tensor) -> Tensor:
    """(batch,) whether rounding cannot exclude that another class is ahead, or level."""
    outputs, error = outputs_at(problem.analysis, points)
    return ~(_ahead(problem.margin_outputs(outputs), targets) < -2 * error)


def _ahead(outputs: Tensor, targets: Tensor) -> Tensor:
    """(batch,) by how much the best other class is ahead."""
    own = targets.unsqueeze(1)
    others: Tensor = outputs.scatter(1, own, -math.inf).amax(1)
    return others - outputs.gather(1, own)[:, 0]
