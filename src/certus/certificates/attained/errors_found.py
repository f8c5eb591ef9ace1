"""Errors and losses at points that were found: counted only beyond what rounding can make of nothing."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from certus.attacks.smallest import shorten
from certus.batches import per_sample
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
    found = torch.full((len(problem),), math.inf, dtype=torch.float64)
    if problem.classes is None:
        confirmed_outputs(problem, moved)
        return found
    wrong = errs(problem, moved, problem.targets)
    if wrong.any():
        part = problem.select(wrong)
        found[wrong] = shortened_cost(part, moved[wrong])
    return found


def shortened_cost(problem: Problem, wrong: Tensor) -> Tensor:
    """(batch,) c at an error on the line from each sample to one, (batch, …)."""
    _, error = outputs_at(problem.analysis, wrong)

    def surely(points: Tensor) -> Tensor:
        return _ahead(problem.outputs(points), problem.targets) > 4 * error

    # Looked for with the rounding at the end of the line, and checked with its own.
    nearer = shorten(surely, problem.inputs, wrong)
    nearer = torch.where(per_sample(errs(problem, nearer, problem.targets), wrong), nearer, wrong)
    return raised_cost(problem, nearer)


def errs(problem: Problem, points: Tensor, targets: Tensor) -> Tensor:
    """(batch,) whether another class is ahead, by more than rounding can make of nothing."""
    outputs, error = confirmed_outputs(problem, points)
    return _ahead(problem.margin_outputs(outputs), targets) > 2 * error


def _ahead(outputs: Tensor, targets: Tensor) -> Tensor:
    """(batch,) by how much the best other class is ahead."""
    own = targets.unsqueeze(1)
    others: Tensor = outputs.scatter(1, own, -math.inf).amax(1)
    return others - outputs.gather(1, own)[:, 0]
