"""Lower bounds on the worst loss: rows of a table, losses with their rounding, and attacks within cost ρ.

Upper bounds hold over the convex hull of encoded rows. A lower bound needs valid rows, which can be written
to a file, read by the table's own encoder, and predicted. The numbers of a row move by an ascent, from the
row itself and from the row with its best single change of a category. Seasons follow the day; missing values
stay.

The point found for a sample is a deterministic function of that sample alone, so that it may enter a
population bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from certus._tensor import per_sample
from certus.attacks.projected_gradient_descent import GradientAttack
from certus.certificates.problem import Problem
from certus.costs import Cost
from certus.costs.masked import masked_to
from certus.data import RowEncoding
from certus.domains import Box, Domain, Intervals
from certus.kernel.problem import outputs_at, rounding_at
from certus.kernel.rounding import FEW
from certus.losses import AnyLoss, evaluate_loss

_CHANGES = 3  # of categories of one row, one after another


def settle_rows(encoding: RowEncoding, points: Tensor, base: Tensor, domain: Domain) -> Tensor:
    """Return (n, features) rows of the domain near the points, with the categories and missing values of
    ``base``."""
    rows = encoding.settle(points, base)
    return torch.where(per_sample(domain.contains(rows), rows), rows, base)


def best_category_change(
    encoding: RowEncoding, rows: Tensor, worth: Callable[[Tensor], Tensor], cost: Cost, domain: Domain
) -> Tensor:
    """Return (n, features) rows after the single change of a category with the largest worth, or unchanged.

    Args:
        worth: (n, features) rows → (n,); −∞ excludes a row.
    """
    best, height = rows, worth(rows)
    for other in encoding.swaps(rows):
        allowed = torch.isfinite(cost.value(other, rows)) & domain.contains(other)
        if not allowed.any():
            continue
        values = torch.where(allowed, worth(other), -math.inf)
        best = torch.where(per_sample(values > height, best), other, best)
        height = torch.maximum(values, height)
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
    """Search for (n, features) rows with large ℓ − γc: T̂_γ over rows of the table (eqn:inner-sup).

    Args:
        climb: rows and a cost → points at which an ascent from the rows with this cost ends.
    """

    def worth(rows: Tensor) -> Tensor:
        price = gamma * cost.value(rows, inputs)
        return (evaluate_loss(loss, rows, targets) - price).nan_to_num(-math.inf, math.inf, -math.inf)

    with torch.no_grad():
        best, height = inputs, worth(inputs)
        swapped, rounds = inputs, min(_CHANGES, len(encoding.categories))
        for _ in range(rounds):  # greedily: one change more, as long as it is worth its price
            before, swapped = swapped, best_category_change(encoding, swapped, worth, cost, domain)
            if torch.equal(before, swapped):
                break
        free = masked_to(cost, encoding.movable())
        bases = [inputs] if torch.equal(swapped, inputs) else [inputs, swapped]
        for base in bases:
            candidates = [base]
            if free is not None:
                candidates.append(settle_rows(encoding, climb(base, free), base, domain))
            for rows in candidates:
                values = worth(rows)
                best = torch.where(per_sample(values > height, best), rows, best)
                height = torch.maximum(values, height)
        return best


def round_down(losses: Tensor) -> Tensor:
    """Return products of either sign, rounded down."""
    return losses - FEW * losses.abs()


class MovedPoints(NamedTuple):
    """Moved samples: (batch, …) points, (batch,) costs, rounded up, and (batch,) losses, rounded down."""

    points: Tensor
    costs: Tensor
    losses: Tensor

    def where(self, mask: Tensor, other: MovedPoints) -> MovedPoints:
        """Return these points where the (batch,) mask holds, and others elsewhere."""
        return MovedPoints(
            torch.where(per_sample(mask, self.points), self.points, other.points),
            torch.where(mask, self.costs, other.costs),
            torch.where(mask, self.losses, other.losses),
        )


def unmoved(problem: Problem, losses: Tensor) -> MovedPoints:
    """Return the samples as unmoved points, with their (batch,) losses."""
    return MovedPoints(problem.inputs, torch.zeros_like(losses), losses)


def checked_outputs(problem: Problem, points: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs and (batch,) rounding, as ``outputs_at``; raise ``ContradictionError`` if the caller's
    model computes other outputs."""
    outputs, error = outputs_at(problem.graph, points)
    problem.original_model.check(points, outputs, error)
    return outputs, error


def loss_lower_bound(problem: Problem, points: Tensor) -> Tensor:
    """Return (batch,) losses at the points, rounded down; −∞ where they overflow."""
    checked_outputs(problem, points)
    losses = evaluate_loss(problem.loss, points, problem.targets)
    kernel = problem.kernel
    rounding = kernel.rounding if points is problem.inputs else rounding_at(problem.graph, points)
    return (losses - kernel.slack(losses, rounding)).nan_to_num(-math.inf)


def attack_balls(problem: Problem, rho: float, steps: int) -> MovedPoints:
    """Run PGD in the ball c(x, x₀) ≤ ρ around every sample (eqn:certify-tests, left side); a sample stays
    unmoved where no point is worse."""
    with torch.no_grad():
        best = unmoved(problem, loss_lower_bound(problem, problem.inputs))
        for points in _pushes(problem, rho, steps):
            moved = MovedPoints(points, problem.raised_cost(points), loss_lower_bound(problem, points))
            best = moved.where((moved.losses > best.losses) & (moved.costs <= rho), best)
        return best


def _pushes(problem: Problem, rho: float, steps: int) -> Iterator[Tensor]:
    """Yield candidates within cost ρ; of a table, rows with moved numbers or one changed category."""
    encoding, numbers = problem.encoding, numeric_part(problem)
    if numbers is not None:
        rounding = numbers.kernel.cost.rounding
        points = _attacked(numbers, rho, steps)
        points = into_ball(numbers.cost, numbers.domain, points, numbers.inputs, rho, 1e-9, rounding)
        if encoding is not None:
            points = settle_rows(encoding, points, problem.inputs, problem.domain)
        yield points
    if encoding is not None and not encoding.plain:

        def worth(rows: Tensor) -> Tensor:
            losses = evaluate_loss(problem.loss, rows, problem.targets)
            return torch.where(problem.raised_cost(rows) <= rho, losses, -math.inf)

        yield best_category_change(encoding, problem.inputs, worth, problem.cost, problem.domain)


def numeric_part(problem: Problem, base: Tensor | None = None) -> Problem | None:
    """Return the problem with categories, missing values and seasons frozen, from other rows if given; None
    if nothing else may move."""
    inputs = problem.inputs if base is None else base
    if problem.encoding is None or problem.encoding.plain:
        return replace(problem, inputs=inputs)
    cost = masked_to(problem.cost, problem.encoding.movable())
    return None if cost is None else replace(problem, inputs=inputs, cost=cost)


def _attacked(problem: Problem, rho: float, steps: int) -> Tensor:
    """Attack in the cost's own ball if attacks support it, else in an L2 ball that contains it."""
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


def into_ball(
    cost: Cost, domain: Domain, points: Tensor, origin: Tensor, rho: float, less: float, rounding: float = 0.0
) -> Tensor:
    """Move back along the line until c ≤ ρ, and by ``less`` further, for rounding:
    c(x₀ + tδ) = t²c(x₀ + δ), or ≤ t·c(x₀ + δ) for a divergence."""
    points = domain.project(cost.restore_frozen(points, origin))
    share = cost.fraction((rho / cost.value(points, origin).clamp_min(1e-300)).clamp_max(1.0))
    move = per_sample(share * (1 - less) * (1 - rounding), points) * (points - origin)
    return domain.project(cost.restore_frozen(origin + move, origin))
