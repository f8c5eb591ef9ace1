"""Attacks that the lower sides rest on: within cost ρ of every sample, and for the nearest error.

Nothing here is random, nor does anything depend on the other samples of a batch: what is found at a sample is
a function of that sample, so that it may enter a statement about the population.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from certus.attacks.gradient import GradientAttack
from certus.attacks.margin import Margin
from certus.attacks.smallest import largest_penalty, nearest_error
from certus.batches import per_sample
from certus.certificates.attained.errors_found import Moved, error_cost, errs, lowered_loss, shortened_cost
from certus.certificates.proven.cost_rounding import raised_cost
from certus.certificates.proven.problem import Problem
from certus.certificates.proven.touching import Touches
from certus.domains import Box, Intervals
from certus.losses import ModelLoss
from certus.surrogate import default_maximizer

_ROUNDS = 6
_BEYOND = 1e-3


def push(problem: Problem, rho: float, steps: int) -> Moved:
    """PGM in the ball c(x, x₀) ≤ ρ around every sample (eqn:certify-tests, left side); one stays where it is
    if nothing better was found."""
    with torch.no_grad():
        points = _into_ball(problem, _attacked(problem, rho, steps), rho)
        costs = raised_cost(problem, points)
        losses, start = lowered_loss(problem, points), lowered_loss(problem, problem.inputs)
        better = (losses > start) & (costs <= rho)
        return Moved(
            torch.where(per_sample(better, points), points, problem.inputs),
            torch.where(better, costs, 0.0),
            torch.where(better, losses, start),
        )


def _attacked(problem: Problem, rho: float, steps: int) -> Tensor:
    """Steps in the cost's own ball where attacks know it, else in an L2 ball that holds it."""
    cost, domain, origin = problem.cost, problem.domain, problem.inputs
    ball, scale = cost.stepping(domain), torch.ones_like(origin[:1])
    if ball.scale is not None:
        assert isinstance(domain, Intervals)  # others have no scale
        low, high = domain.bounds(origin)
        scale = ball.scale.to(origin).expand_as(scale)
        domain = Box(*((bound * scale[0]).nan_to_num(0.0, math.inf, -math.inf) for bound in (low, high)))

    def loss(points: Tensor, targets: Tensor) -> Tensor:
        return problem.loss(cost.pinned(points / scale, origin), targets)

    attack = GradientAttack(math.sqrt(rho / problem.unit_price) / ball.floor, ball.p, steps, domain=domain)
    return attack(loss, domain.project(origin * scale), problem.targets) / scale


def _into_ball(problem: Problem, points: Tensor, rho: float) -> Tensor:
    """Back along the line until c ≤ ρ: c(x₀ + tδ) = t²c(x₀ + δ), or ≤ t·c(x₀ + δ) for a divergence."""
    cost, origin = problem.cost, problem.inputs
    points = problem.domain.project(cost.pinned(points, origin))
    costs = cost.value(points, origin).clamp_min(1e-300)
    share = cost.fraction((rho / costs).clamp_max(1.0))
    move = per_sample(share * (1 - 1e-9) * (1 - problem.metric_slack), points) * (points - origin)
    return problem.domain.project(cost.pinned(origin + move, origin))


def nearest_costs(problem: Problem, farthest: float, steps: int) -> Tensor:
    """(batch,) c at the nearest error that a search finds; ∞ where it finds none.

    Where attacks know the norm they bisect on its balls; for any other cost γ is bisected on, with the margin
    for a loss, and the way to the point reached is shortened.

    Args:
        farthest: the largest distance to look at, in the cost's norm.
    """
    found = torch.full((len(problem),), math.inf, dtype=torch.float64)
    loss, inputs, targets = ModelLoss(_Labels(problem), Margin()), problem.inputs, problem.targets
    ball = problem.cost.stepping(problem.domain)
    if ball.own:
        points = nearest_error(
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
    else:
        slope = problem.smoothness.output_lipschitz * math.sqrt(2) / (2 * problem.unit_price * farthest)
        slope = slope if 0 < slope < math.inf else 1.0
        points = largest_penalty(
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
    with torch.no_grad():
        wrong = errs(problem, points, targets)
        if wrong.any():
            found[wrong] = shortened_cost(problem.select(wrong), points[wrong])
    return found


def costs_beyond(problem: Problem, touches: Touches) -> Tensor:
    """(n,) c at the nearest error on the lines that lead a little beyond proposed points; ∞ where none is."""
    part = problem.select(touches.sample)
    move = (touches.point - part.inputs) * (1 + _BEYOND)
    with torch.no_grad():
        points = problem.domain.project(problem.cost.pinned(part.inputs + move, part.inputs))
        costs = error_cost(part, points)
    found = torch.full((len(problem),), math.inf, dtype=torch.float64)
    return found.scatter_reduce(0, touches.sample, costs, "amin")


class _Labels(nn.Module):
    """The network with as many outputs as labels: a logistic one gets a second."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.problem = problem

    def forward(self, points: Tensor) -> Tensor:
        return self.problem.outputs(points)
