"""The least cost of an error of each sample: proven from below, attained from above.

An error of a sample (x₀, y) is a point of Z that the network does not classify as y; ties are errors. The
least cost τ = inf {c(x, x₀) : x is an error} determines the error rate under shift and the certified
accuracy. τ = 0 for a misclassified sample.

*Proven*: no error is nearer than the certified radius r̲, so τ ≥ g r̲² with c ≥ g‖x − x₀‖². *Attained*: the
cost of an error on the line from the sample to a candidate: the result of an ascent, of an attack, of a
minimum-norm attack, or a point where a majorant touches its margin. With a label cost, changing the label is
an error of that cost. Only errors beyond rounding count.

The worst error rate under a mean transport cost ρ is a fractional knapsack: the adversary spends ρ on the
samples of smallest τ first. Attained costs give an attained error rate. Lower bounds on τ give the γ that is
proposed to the kernel, which proves γρ + E_n (1 − γτ)₊.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from certus._tensor import per_sample
from certus.attacks.minimum_norm import Margin, largest_penalty, minimum_norm_attack, shorten
from certus.certificates.lower_bounds import (
    best_category_change,
    checked_outputs,
    numeric_part,
    settle_rows,
)
from certus.certificates.problem import FunctionModule, Problem
from certus.certificates.proposals import TangentPoints, tangent_points
from certus.errors import require
from certus.inner import default_maximizer
from certus.kernel.problem import outputs_at
from certus.losses import ModelLoss

_ROUNDS = 6
_TOLERANCE = 1e-4  # where the ascents of the search stop
_BEYOND = 1e-3

Candidates = Iterable[tuple[Tensor | None, Tensor]]
"""Points (p, …) that may be errors, with their sample indices (p,); None for one point per sample."""


def error_distance(costs: Tensor, unit_cost: float) -> Tensor:
    """Return (n,) distances of errors in the cost's norm from their (n,) costs: √(τ/g)."""
    return (costs / unit_cost).sqrt()


def worst_error(costs: Tensor, rhos: Sequence[float], weights: Tensor | None = None) -> list[float]:
    """Return the largest error rate at each ρ ≥ 0, from (n,) costs ≥ 0, ∞ where no error is possible.

    Args:
        weights: (n,) sample weights with mean 1, which also weigh the costs.

    >>> worst_error(torch.tensor([0.0, 0.2, 0.4, float("inf")], dtype=torch.float64), [0.0, 0.05, 0.1, 9.0])
    [0.25, 0.5, 0.625, 0.75]
    """
    rates = []
    for rho in rhos:
        finite, masses, whole, left = _paid_errors(costs, rho, weights)
        part = 0.0 if whole == len(finite) else min(left / float(finite[whole]), float(masses[whole]))
        rates.append(float(masses[:whole].sum()) + part)
    return rates


def proposed_gamma(costs: Tensor, rho: float, weights: Tensor | None = None) -> float:
    """Return the γ of the smallest bound on the worst error rate at ρ, from (n,) lower bounds on the costs of
    errors: the inverse cost of the last error that ρ pays for."""
    finite, _, whole, _ = _paid_errors(costs, rho, weights)
    return 0.0 if whole == len(finite) else min(1 / float(finite[whole]), sys.float_info.max)


def _paid_errors(costs: Tensor, rho: float, weights: Tensor | None) -> tuple[Tensor, Tensor, int, float]:
    """Return the finite costs in order, the shares of their samples, the number paid in full, and the rest of
    ρ."""
    unknown = torch.isnan(costs)
    require(not bool(unknown.any()), "costs", "not be NaN", f"NaN at {int(unknown.sum())} samples")
    possible = torch.isfinite(costs)
    finite, order = costs[possible].double().sort()
    masses = (torch.ones_like(finite) if weights is None else weights[possible].double()[order]) / len(costs)
    spent = (finite * masses).cumsum(0)
    whole = int((spent <= rho).sum())
    return finite, masses, whole, max(0.0, rho - (float(spent[whole - 1]) if whole else 0.0))


class AttainedErrors(NamedTuple):
    """(n,) costs of errors that were found, ∞ where none was, and (n,) what is predicted there beyond doubt,
    −1 if that is unknown."""

    cost: Tensor
    label: Tensor

    @staticmethod
    def least(parts: Sequence[AttainedErrors], price: float = math.inf) -> AttainedErrors:
        """The cheapest of several; a label that changes at a price is an error of that cost."""
        costs, labels = (torch.stack(side) for side in zip(*parts, strict=True))
        cost, which = costs.min(0)
        label = labels.gather(0, which[None])[0].where(cost <= price, -1)
        return AttainedErrors(cost.clamp_max(price), label)

    @staticmethod
    def of_samples(problem: Problem, wrong: Tensor) -> AttainedErrors:
        """Samples that are errors as they are."""
        label = torch.where(wrong, sure_labels(problem, problem.inputs), -1)
        return AttainedErrors(torch.where(wrong, 0.0, math.inf).double(), label)


def error_candidates(problem: Problem, farthest: float, steps: int) -> Iterator[tuple[Tensor | None, Tensor]]:
    """Yield points that may be the nearest errors: beyond tangent points, and by minimum-norm attacks.

    In a table, numbers move from the row itself, from the cheapest change of a category that is an error, and
    from the change that comes nearest to one.

    Args:
        farthest: the largest distance to search, in the cost's norm; steps: gradients per attack.
    """
    encoding = problem.encoding
    if encoding is None or encoding.plain:
        tangents = tangent_points(problem)
        if tangents is not None:
            yield beyond_tangent_points(problem, tangents)
    if encoding is None:
        yield None, _nearest_points(problem, farthest, steps)
        return
    for base in (problem.inputs, *_swapped(problem)):
        numbers = numeric_part(problem, base)
        yield None, base
        if numbers is not None:
            points = _nearest_points(numbers, farthest, steps)
            yield None, settle_rows(encoding, points, base, problem.domain)


def beyond_tangent_points(problem: Problem, tangents: TangentPoints) -> tuple[Tensor, Tensor]:
    """Return (p,) sample indices of tangent points, and (p, …) points slightly beyond them."""
    part = problem.select(tangents.sample)
    inputs, move = part.inputs, (tangents.point - part.inputs) * (1 + _BEYOND)
    points = part.domain.project(part.cost.restore_frozen(inputs + move, inputs))
    encoding = part.encoding
    return tangents.sample, points if encoding is None else settle_rows(encoding, points, inputs, part.domain)


def nearest_errors(problem: Problem, candidates: Candidates) -> tuple[AttainedErrors, Tensor]:
    """Return the nearest errors on the lines to the candidates, and (n, …) these points: the samples without
    one."""
    least, nearest = torch.full((len(problem),), math.inf, dtype=torch.float64), problem.inputs.clone()
    labels = torch.full((len(problem),), -1)
    with torch.no_grad():
        for samples, points in candidates:
            part = problem if samples is None else problem.select(samples)
            index = torch.arange(len(problem)) if samples is None else samples
            (costs, reached), errors = nearest_on_line(part, points)
            new = torch.full_like(least, math.inf).scatter_reduce(0, index, costs, "amin")
            better = (costs == new[index]) & (costs < least[index])
            nearest[index[better]], labels[index[better]] = errors[better], reached[better]
            least = torch.minimum(least, new)
    return AttainedErrors(least, labels), nearest


def nearest_on_line(problem: Problem, moved: Tensor) -> tuple[AttainedErrors, Tensor]:
    """Return the nearest errors on the lines to the points, and (batch, …) these errors: the samples without
    one."""
    costs, points = torch.full((len(problem),), math.inf, dtype=torch.float64), problem.inputs.clone()
    labels = torch.full((len(problem),), -1)
    if problem.classes is None:
        checked_outputs(problem, moved)
        return AttainedErrors(costs, labels), points
    wrong = surely_wrong(problem, moved, problem.targets)
    if wrong.any():
        part = problem.select(wrong)
        points[wrong] = _shortened(part, moved[wrong])
        costs[wrong], labels[wrong] = part.raised_cost(points[wrong]), sure_labels(part, points[wrong])
    return AttainedErrors(costs, labels), points


def _shortened(problem: Problem, wrong: Tensor) -> Tensor:
    """Move (batch, …) errors towards their samples, as far as they stay errors; in a table, towards the row
    with the categories of the error."""
    _, error = outputs_at(problem.graph, wrong)
    start = problem.inputs if problem.encoding is None else problem.encoding.returned(wrong, problem.inputs)

    def real(points: Tensor) -> Tensor:
        return (
            points
            if problem.encoding is None
            else settle_rows(problem.encoding, points, start, problem.domain)
        )

    def surely(points: Tensor) -> Tensor:
        return _lead(problem.kernel.outputs(real(points)), problem.targets) > 4 * error

    # Looked for with the rounding at the end of the line, and checked with its own.
    nearer = real(shorten(surely, start, wrong))
    if problem.encoding is not None:  # a swap alone may be an error
        nearer = torch.where(per_sample(surely_wrong(problem, start, problem.targets), start), start, nearer)
    return torch.where(per_sample(surely_wrong(problem, nearer, problem.targets), wrong), nearer, wrong)


def surely_wrong(problem: Problem, points: Tensor, targets: Tensor) -> Tensor:
    """Return (batch,) whether another class leads by more than rounding."""
    outputs, error = checked_outputs(problem, points)
    return _lead(problem.kernel.margin_outputs(outputs), targets) > 2 * error


def sure_labels(problem: Problem, points: Tensor) -> Tensor:
    """(batch,) the label that is predicted, by more than rounding can make of nothing; −1 if in doubt."""
    outputs, error = checked_outputs(problem, points)
    best = problem.kernel.margin_outputs(outputs).topk(2, 1)
    return best.indices[:, 0].where(best.values[:, 0] - best.values[:, 1] > 2 * error, -1)


def _lead(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return (batch,) leads of the best other class."""
    own = targets.unsqueeze(1)
    others: Tensor = outputs.scatter(1, own, -math.inf).amax(1)
    return others - outputs.gather(1, own)[:, 0]


def _swapped(problem: Problem) -> list[Tensor]:
    """Return (n, features) rows with a single changed category: the cheapest error, and the change nearest to
    one."""
    encoding = problem.encoding
    if encoding is None or not encoding.categories:
        return []

    def ahead(rows: Tensor) -> Tensor:
        return Margin()(problem.kernel.outputs(rows), problem.targets)

    def cheap(rows: Tensor) -> Tensor:
        wrong = surely_wrong(problem, rows, problem.targets)
        return torch.where(wrong, -problem.raised_cost(rows), -math.inf)

    candidates = [
        best_category_change(encoding, problem.inputs, worth, problem.cost, problem.domain)
        for worth in (cheap, ahead)
    ]
    return [rows for rows in candidates if not torch.equal(rows, problem.inputs)]


def _nearest_points(problem: Problem, farthest: float, steps: int) -> Tensor:
    """Search for the nearest errors, (batch, …); the sample where none is found.

    The search bisects on the radius for norms that attacks support, and otherwise on γ, with the margin as
    the loss.
    """
    loss, inputs, targets = (
        ModelLoss(FunctionModule(problem.kernel.outputs), Margin()),
        problem.inputs,
        problem.targets,
    )
    ball = problem.cost.attack_ball(problem.domain)
    if ball.own:
        return minimum_norm_attack(
            loss,
            inputs,
            targets,
            norm=ball.p,
            largest=farthest,
            domain=problem.domain,
            steps=steps,
            rounds=_ROUNDS,
            random_start=False,
        ).inputs
    slope = problem.smoothness.output_lipschitz * math.sqrt(2) / (2 * problem.unit_cost * farthest)
    slope = slope if 0 < slope < math.inf else 1.0
    return largest_penalty(
        loss,
        inputs,
        targets,
        cost=problem.cost,
        domain=problem.domain,
        smallest=slope / 4,
        largest=slope * 4096,
        maximizer=default_maximizer(problem.cost, problem.domain, tolerance=_TOLERANCE, max_gradients=steps),
        rounds=2 * _ROUNDS,
    ).inputs
