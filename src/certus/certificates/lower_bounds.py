"""Lower bounds from points that an attack attains.

Rows of a table that attained sides rest on: numbers moved, and single categories swapped.

The hull of the encoded rows is enough for upper bounds. A lower side needs rows that exist: written to a
file, read by the table's own encoder, and predicted. The numbers of a row move by an ascent, from the row
itself and from the row with its best single swap; seasons follow the day, and gaps stay.

Errors and losses at points that were found: counted only beyond what rounding can make of nothing.

Attacks that the lower sides rest on: within cost ρ of every sample, and for the nearest error.

Nothing here is random, nor does anything depend on the other samples of a batch: what is found at a sample is
a function of that sample, so that it may enter a statement about the population.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from certus._tensor import per_sample
from certus.attacks.minimum_norm import Margin, largest_penalty, minimum_norm_attack, shorten
from certus.attacks.projected_gradient_descent import GradientAttack
from certus.certificates.proven.float_error import outputs_at, rounding_at
from certus.certificates.proven.majorants import TangentPoints
from certus.certificates.proven.problem import Problem, raised_cost
from certus.costs import Cost
from certus.costs.masked import masked_to
from certus.data import RowEncoding
from certus.domains import Box, Domain, Intervals
from certus.inner import default_maximizer
from certus.losses import AnyLoss, ModelLoss, evaluate_loss


def settle_rows(encoding: RowEncoding, points: Tensor, base: Tensor, domain: Domain) -> Tensor:
    """(n, features) rows of the domain near some points, with the categories and gaps of ``base``."""
    rows = encoding.settle(points, base)
    return torch.where(per_sample(domain.contains(rows), rows), rows, base)


def best_category_change(
    encoding: RowEncoding, rows: Tensor, worth: Callable[[Tensor], Tensor], cost: Cost, domain: Domain
) -> Tensor:
    """(n, features) the rows after the single swap that is worth most, or as they are.

    Args:
        worth: (n, features) rows → (n,), and −∞ for rows that are out of the question.
    """
    best, height = rows, worth(rows)
    for other in encoding.swaps(rows):
        allowed = torch.isfinite(cost.value(other, rows)) & domain.contains(other)
        if not allowed.any():
            continue
        found = torch.where(allowed, worth(other), -math.inf)
        best = torch.where(per_sample(found > height, best), other, best)
        height = torch.maximum(found, height)
    return best


def transport_rows(
    loss: AnyLoss,
    inputs: Tensor,
    targets: Tensor | None,
    encoding: RowEncoding,
    climb: Callable[[Tensor, Cost], Tensor],
    *,
    gamma: float,
    cost: Cost,
    domain: Domain,
) -> Tensor:
    """(n, features) rows at which ℓ − γc is large: T̂_γ over rows of the table (eqn:inner-sup).

    Args:
        climb: rows and a cost → points that an ascent with this cost reaches from them.
    """

    def worth(rows: Tensor) -> Tensor:
        price = gamma * cost.value(rows, inputs)
        return (evaluate_loss(loss, rows, targets) - price).nan_to_num(-math.inf, math.inf, -math.inf)

    with torch.no_grad():
        best, height = inputs, worth(inputs)
        swapped = best_category_change(encoding, inputs, worth, cost, domain)
        free = masked_to(cost, encoding.movable())
        bases = [inputs] if torch.equal(swapped, inputs) else [inputs, swapped]
        for base in bases:
            candidates = [base]
            if free is not None:
                candidates.append(settle_rows(encoding, climb(base, free), base, domain))
            for rows in candidates:
                found = worth(rows)
                best = torch.where(per_sample(found > height, best), rows, best)
                height = torch.maximum(found, height)
        return best


class MovedPoints(NamedTuple):
    """Where samples were moved to, (batch, …), at which (batch,) costs, rounded up, and losses, rounded
    down."""

    points: Tensor
    costs: Tensor
    losses: Tensor


def checked_outputs(problem: Problem, points: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs at some points and (batch,) their rounding, as ``outputs_at``; the caller's model has the same,
    or ``ContradictionError`` is raised."""
    outputs, error = outputs_at(problem.analysis, points)
    problem.original_model.check(points, outputs, error)
    return outputs, error


def loss_lower_bound(problem: Problem, points: Tensor) -> Tensor:
    """(batch,) ℓ at some points, rounded down; −∞ where nothing is known."""
    checked_outputs(problem, points)
    losses = evaluate_loss(problem.loss, points, problem.targets)
    rounding = problem.rounding if points is problem.inputs else rounding_at(problem.analysis, points)
    return (losses - problem.slack(losses, rounding)).nan_to_num(-math.inf)


def attained_error_cost(problem: Problem, moved: Tensor) -> Tensor:
    """(batch,) c at the nearest error on the line to the point reached; ∞ where there is none."""
    return nearest_on_line(problem, moved)[0]


def nearest_on_line(problem: Problem, moved: Tensor) -> tuple[Tensor, Tensor]:
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
        return _ahead(problem.outputs(real(points)), problem.targets) > 4 * error

    # Looked for with the rounding at the end of the line, and checked with its own.
    nearer = real(shorten(surely, start, wrong))
    if problem.encoding is not None:  # a swap alone may be an error
        nearer = torch.where(per_sample(surely_wrong(problem, start, problem.targets), start), start, nearer)
    return torch.where(per_sample(surely_wrong(problem, nearer, problem.targets), wrong), nearer, wrong)


def surely_wrong(problem: Problem, points: Tensor, targets: Tensor) -> Tensor:
    """(batch,) whether another class is ahead, by more than rounding can make of nothing."""
    outputs, error = checked_outputs(problem, points)
    return _ahead(problem.margin_outputs(outputs), targets) > 2 * error


def possibly_wrong(problem: Problem, points: Tensor, targets: Tensor) -> Tensor:
    """(batch,) whether rounding cannot exclude that another class is ahead, or level."""
    outputs, error = outputs_at(problem.analysis, points)
    return ~(_ahead(problem.margin_outputs(outputs), targets) < -2 * error)


def _ahead(outputs: Tensor, targets: Tensor) -> Tensor:
    """(batch,) by how much the best other class is ahead."""
    own = targets.unsqueeze(1)
    others: Tensor = outputs.scatter(1, own, -math.inf).amax(1)
    return others - outputs.gather(1, own)[:, 0]


_ROUNDS = 6
_BEYOND = 1e-3


def attack_balls(problem: Problem, rho: float, steps: int) -> MovedPoints:
    """PGD in the ball c(x, x₀) ≤ ρ around every sample (eqn:certify-tests, left side); one stays where it is
    if nothing better was found."""
    with torch.no_grad():
        start = loss_lower_bound(problem, problem.inputs)
        found = MovedPoints(problem.inputs, torch.zeros_like(start), start)
        for points in _pushes(problem, rho, steps):
            costs, losses = raised_cost(problem, points), loss_lower_bound(problem, points)
            better = (losses > found.losses) & (costs <= rho)
            found = MovedPoints(
                torch.where(per_sample(better, points), points, found.points),
                torch.where(better, costs, found.costs),
                torch.where(better, losses, found.losses),
            )
        return found


def _pushes(problem: Problem, rho: float, steps: int) -> Iterator[Tensor]:
    """Points that may be within cost ρ: of a table, rows with their numbers moved, or a single swap."""
    encoding, numbers = problem.encoding, _of_numbers(problem)
    if numbers is not None:
        points = _into_ball(numbers, _attacked(numbers, rho, steps), rho)
        if encoding is not None:
            points = settle_rows(encoding, points, problem.inputs, problem.domain)
        yield points
    if encoding is not None and not encoding.plain:

        def worth(rows: Tensor) -> Tensor:
            losses = evaluate_loss(problem.loss, rows, problem.targets)
            return torch.where(raised_cost(problem, rows) <= rho, losses, -math.inf)

        yield best_category_change(encoding, problem.inputs, worth, problem.cost, problem.domain)


def _of_numbers(problem: Problem, base: Tensor | None = None) -> Problem | None:
    """The problem, from other rows if some are given, with categories, gaps and seasons frozen; None if
    nothing else may move."""
    inputs = problem.inputs if base is None else base
    if problem.encoding is None or problem.encoding.plain:
        return replace(problem, inputs=inputs)
    cost = masked_to(problem.cost, problem.encoding.movable())
    return None if cost is None else replace(problem, inputs=inputs, cost=cost)


def _attacked(problem: Problem, rho: float, steps: int) -> Tensor:
    """Steps in the cost's own ball where attacks know it, else in an L2 ball that holds it."""
    cost, domain, origin = problem.cost, problem.domain, problem.inputs
    ball, scale = cost.attack_ball(domain), torch.ones_like(origin[:1])
    if ball.scale is not None:
        assert isinstance(domain, Intervals)  # others have no scale
        low, high = domain.bounds(origin)
        scale = ball.scale.to(origin).expand_as(scale)
        domain = Box(*((bound * scale[0]).nan_to_num(0.0, math.inf, -math.inf) for bound in (low, high)))

    def loss(points: Tensor, targets: Tensor) -> Tensor:
        return problem.loss(cost.restore_frozen(points / scale, origin), targets)

    attack = GradientAttack(math.sqrt(rho / problem.unit_cost) / ball.floor, ball.p, steps, domain=domain)
    return attack(loss, domain.project(origin * scale), problem.targets) / scale


def _into_ball(problem: Problem, points: Tensor, rho: float) -> Tensor:
    """Back along the line until c ≤ ρ: c(x₀ + tδ) = t²c(x₀ + δ), or ≤ t·c(x₀ + δ) for a divergence."""
    cost, origin = problem.cost, problem.inputs
    points = problem.domain.project(cost.restore_frozen(points, origin))
    costs = cost.value(points, origin).clamp_min(1e-300)
    share = cost.fraction((rho / costs).clamp_max(1.0))
    move = per_sample(share * (1 - 1e-9) * (1 - problem.metric_slack), points) * (points - origin)
    return problem.domain.project(cost.restore_frozen(origin + move, origin))


def nearest_costs(problem: Problem, farthest: float, steps: int) -> Tensor:
    """(batch,) c at the nearest error that a search finds; ∞ where it finds none.

    In a table numbers move from the row itself, from the cheapest swap that is an error, and from the swap
    that comes nearest to one.

    Args:
        farthest: the largest distance to look at, in the cost's norm.
    """
    found = torch.full((len(problem),), math.inf, dtype=torch.float64)
    with torch.no_grad():
        for points in near_errors(problem, farthest, steps):
            found = torch.minimum(found, attained_error_cost(problem, points))
    return found


def near_errors(problem: Problem, farthest: float, steps: int) -> Iterator[Tensor]:
    """(batch, …) points that may be errors; see ``nearest_costs``."""
    encoding = problem.encoding
    if encoding is None:
        yield _nearest_points(problem, farthest, steps)
        return
    for base in (problem.inputs, *_swapped(problem)):
        numbers = _of_numbers(problem, base)
        yield base
        if numbers is not None:
            yield settle_rows(encoding, _nearest_points(numbers, farthest, steps), base, problem.domain)


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

    found = [
        best_category_change(encoding, problem.inputs, worth, problem.cost, problem.domain)
        for worth in (cheap, ahead)
    ]
    return [rows for rows in found if not torch.equal(rows, problem.inputs)]


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
        maximizer=default_maximizer(problem.cost, problem.domain, tolerance=1e-4, max_gradients=steps),
        rounds=2 * _ROUNDS,
    ).inputs


def costs_beyond(problem: Problem, touches: TangentPoints) -> Tensor:
    """(n,) c at the nearest error on the lines that lead a little beyond proposed points; ∞ where none is."""
    part = problem.select(touches.sample)
    with torch.no_grad():
        costs = attained_error_cost(part, _beyond(part, touches.point))
    found = torch.full((len(problem),), math.inf, dtype=torch.float64)
    return found.scatter_reduce(0, touches.sample, costs, "amin")


def points_beyond(problem: Problem, touches: TangentPoints) -> Iterator[Tensor]:
    """(n, …) the ends of these lines, one for each class that they lead to; else the samples."""
    for rival in touches.rival.unique():
        chosen = touches.rival == rival
        points, sample = problem.inputs.clone(), touches.sample[chosen]
        points[sample] = _beyond(problem.select(sample), touches.point[chosen])
        yield points


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
