"""The least cost of an error of each sample: proven from below, attained from above.

An error of a sample (x₀, y) is a point of Z that the network does not classify as y; ties are errors. Its
least cost τ = inf {c(x, x₀) : x is an error} decides the error rate under shift (``proven/knapsack.py``) and
the certified accuracy, and is 0 for a sample that is an error as it is.

*Proven*: no error is nearer than the certified radius r̲, so τ ≥ g r̲² with c ≥ g‖x − x₀‖². *Attained*: the
cost of an error that was found, on the line from the sample to any candidate: where an ascent or an attack
moved it, the points at which majorants of the margins touch them, and a minimum-norm attack. A label that may
change at a finite cost is an error of that cost. An error counts if rounding cannot explain it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from certus._tensor import per_sample
from certus.attacks.minimum_norm import Margin, largest_penalty, minimum_norm_attack, shorten
from certus.certificates.lower_bounds import (
    best_category_change,
    checked_outputs,
    numeric_part,
    settle_rows,
)
from certus.certificates.proven.float_error import outputs_at
from certus.certificates.proven.majorants import TangentPoints
from certus.certificates.proven.problem import Problem, raised_cost
from certus.certificates.tangent_points import touching_points
from certus.inner import default_maximizer
from certus.losses import ModelLoss

_ROUNDS = 6
_TOLERANCE = 1e-4  # where the ascents of the search stop
_BEYOND = 1e-3

Candidates = Iterable[tuple[Tensor | None, Tensor]]
"""Points (p, …) that may be errors, each of one of the samples (p,); None for one point of every sample."""


def proven_error_cost(problem: Problem, radius: Tensor) -> Tensor:
    """(n,) lower bounds on the cost of an error, from (n,) certified radii."""
    costs = problem.unit_cost * radius**2 * (1 - problem.metric_slack)
    return costs if problem.label_cost is None else costs.clamp_max(problem.label_cost.price)


def error_distance(costs: Tensor, unit_cost: float) -> Tensor:
    """(n,) the distances, in the cost's norm, of errors of (n,) costs: √(τ/g)."""
    return (costs / unit_cost).sqrt()


def least_error_cost(problem: Problem, wrong: Tensor, costs: Sequence[Tensor]) -> Tensor:
    """(n,) the least of several attained costs, 0 for samples that are wrong, at most that of a label."""
    least = torch.where(wrong, 0.0, torch.stack(list(costs)).amin(0))
    return least if problem.label_cost is None else least.clamp_max(problem.label_cost.price)


def error_candidates(problem: Problem, farthest: float, steps: int) -> Iterator[tuple[Tensor | None, Tensor]]:
    """Yield points that may be the nearest errors: beyond tangent points, and by minimum-norm attacks.

    In a table, numbers move from the row itself, from the cheapest change of a category that is an error, and
    from the change that comes nearest to one.

    Args:
        farthest: the largest distance to search, in the cost's norm; steps: gradients per attack.
    """
    encoding = problem.encoding
    if encoding is None or encoding.plain:
        touches = touching_points(problem)
        if touches is not None:
            yield beyond_tangent_points(problem, touches)
    if encoding is None:
        yield None, _nearest_points(problem, farthest, steps)
        return
    for base in (problem.inputs, *_swapped(problem)):
        numbers = numeric_part(problem, base)
        yield None, base
        if numbers is not None:
            points = _nearest_points(numbers, farthest, steps)
            yield None, settle_rows(encoding, points, base, problem.domain)


def beyond_tangent_points(problem: Problem, touches: TangentPoints) -> tuple[Tensor, Tensor]:
    """Return the samples (p,) of tangent points, and (p, …) points a little beyond them."""
    return touches.sample, _beyond(problem.select(touches.sample), touches.point)


def nearest_errors(problem: Problem, candidates: Candidates) -> tuple[Tensor, Tensor]:
    """(n,) the cost of the nearest error on the lines to the candidates, ∞ if there is none, and (n, …) the
    error, the sample if there is none."""
    least, nearest = torch.full((len(problem),), math.inf, dtype=torch.float64), problem.inputs.clone()
    with torch.no_grad():
        for samples, points in candidates:
            part = problem if samples is None else problem.select(samples)
            index = torch.arange(len(problem)) if samples is None else samples
            costs, errors = _nearest_on_line(part, points)
            new = torch.full_like(least, math.inf).scatter_reduce(0, index, costs, "amin")
            better = (costs == new[index]) & (costs < least[index])
            nearest[index[better]] = errors[better]
            least = torch.minimum(least, new)
    return least, nearest


def attained_error_cost(problem: Problem, moved: Tensor) -> Tensor:
    """(batch,) c at the nearest error on the line to the point reached; ∞ where there is none."""
    return _nearest_on_line(problem, moved)[0]


def _nearest_on_line(problem: Problem, moved: Tensor) -> tuple[Tensor, Tensor]:
    """(batch,) that cost, and (batch, …) the error; the sample itself where there is none."""
    costs, points = torch.full((len(problem),), math.inf, dtype=torch.float64), problem.inputs.clone()
    if problem.classes is None:
        checked_outputs(problem, moved)
        return costs, points
    wrong = surely_wrong(problem, moved, problem.targets)
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
            points
            if problem.encoding is None
            else settle_rows(problem.encoding, points, start, problem.domain)
        )

    def surely(points: Tensor) -> Tensor:
        return _lead(problem.outputs(real(points)), problem.targets) > 4 * error

    # Looked for with the rounding at the end of the line, and checked with its own.
    nearer = real(shorten(surely, start, wrong))
    if problem.encoding is not None:  # a swap alone may be an error
        nearer = torch.where(per_sample(surely_wrong(problem, start, problem.targets), start), start, nearer)
    return torch.where(per_sample(surely_wrong(problem, nearer, problem.targets), wrong), nearer, wrong)


def surely_wrong(problem: Problem, points: Tensor, targets: Tensor) -> Tensor:
    """(batch,) whether another class is ahead, by more than rounding can make of nothing."""
    outputs, error = checked_outputs(problem, points)
    return _lead(problem.margin_outputs(outputs), targets) > 2 * error


def possibly_wrong(problem: Problem, points: Tensor, targets: Tensor) -> Tensor:
    """(batch,) whether rounding cannot exclude that another class is ahead, or level."""
    outputs, error = outputs_at(problem.analysis, points)
    return ~(_lead(problem.margin_outputs(outputs), targets) < -2 * error)


def _lead(outputs: Tensor, targets: Tensor) -> Tensor:
    """(batch,) by how much the best other class is ahead."""
    own = targets.unsqueeze(1)
    others: Tensor = outputs.scatter(1, own, -math.inf).amax(1)
    return others - outputs.gather(1, own)[:, 0]


def _swapped(problem: Problem) -> list[Tensor]:
    """(n, features) rows with a single swap: the cheapest that is an error, and the nearest to one."""
    encoding = problem.encoding
    if encoding is None or not encoding.categories:
        return []

    def ahead(rows: Tensor) -> Tensor:
        return Margin()(problem.outputs(rows), problem.targets)

    def cheap(rows: Tensor) -> Tensor:
        wrong = surely_wrong(problem, rows, problem.targets)
        return torch.where(wrong, -raised_cost(problem, rows), -math.inf)

    candidates = [
        best_category_change(encoding, problem.inputs, worth, problem.cost, problem.domain)
        for worth in (cheap, ahead)
    ]
    return [rows for rows in candidates if not torch.equal(rows, problem.inputs)]


def _nearest_points(problem: Problem, farthest: float, steps: int) -> Tensor:
    """(batch, …) the nearest errors that a search finds; the samples where it finds none.

    Where attacks know the norm they bisect on its balls; for any other cost γ is bisected on, with the margin
    for a loss.
    """
    loss, inputs, targets = ModelLoss(_Labels(problem), Margin()), problem.inputs, problem.targets
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


def _beyond(problem: Problem, touched: Tensor) -> Tensor:
    """(batch, …) a little beyond points that are proposed for each sample."""
    inputs, move = problem.inputs, (touched - problem.inputs) * (1 + _BEYOND)
    points = problem.domain.project(problem.cost.restore_frozen(inputs + move, inputs))
    encoding = problem.encoding
    return points if encoding is None else settle_rows(encoding, points, inputs, problem.domain)


class _Labels(nn.Module):
    """The network with as many outputs as labels: a logistic one gets a second."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem

    def forward(self, points: Tensor) -> Tensor:
        return self.problem.outputs(points)
