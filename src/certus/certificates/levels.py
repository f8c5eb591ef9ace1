"""One γ at a time: proven upper bounds φ̄_γ, sample by sample, and the points that an ascent reaches
(eqn:inner-sup).

The gap rule. Where f = ℓ − γc has the modulus μ = sγ − L⁺ > 0 on a ball around x₀ that holds the point ẑ
reached, and g = ∇f(ẑ),

    sup over the ball of f ≤ f(ẑ) + sup_{z ∈ Z} ⟨g, z − ẑ⟩ − (μ/2)‖z − ẑ‖²,

and what lies outside the ball is bounded by the rings of the profile: φ_γ is at most the larger of both. On
all of space nothing is left outside. So "concave" (everywhere) and "local" (on a ball) are one rule, and the
smallest of all bounds wins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from certus.attacks.smallest import shorten
from certus.batches import per_sample
from certus.certificates.constants import Around
from certus.certificates.problem import Problem
from certus.certificates.rounding import Rounding, outputs_at, rounding_at
from certus.certificates.values import dual_norm, dual_size
from certus.losses import evaluate_loss
from certus.smoothness.criteria import Softmax
from certus.surrogate import BarzilaiBorwein, Evaluation, Maximizer, Objective

DEFAULT_ASCENT = BarzilaiBorwein(tolerance=3e-5, max_gradients=16)
_SHARE = 1e-6  # of the modulus, given up for the rounding of the gradient


class Rule(IntEnum):
    """What proves a bound."""

    LIPSCHITZ = 0
    """φ ≤ ℓ(x₀) + G²/(4γg)."""

    RADIAL = 1
    """Growth of the margins, or of the loss, with the distance."""

    LOCAL = 2
    """Value and gap on a ball where the inner problem is concave; the rest by the radial rule."""

    CONCAVE = 3
    """Value and gap: the inner problem is concave everywhere."""


@dataclass(frozen=True, eq=False)
class Level:
    """φ̄_γ and T̂_γ at one γ; every entry but ``gamma`` is (n,).

    Attributes:
        bound: φ̄_γ ≥ φ_γ; rule: the ``Rule`` that proves it.
        transport_cost, loss: c(T̂, x₀), rounded up, and ℓ(T̂), rounded down: attained.
        error_cost: the cost at which an error was found on the way to T̂; ∞ if none was.
    """

    gamma: float
    bound: Tensor
    rule: Tensor
    transport_cost: Tensor
    loss: Tensor
    error_cost: Tensor


def solve_level(around: Around, gamma: float, ascent: Maximizer = DEFAULT_ASCENT) -> tuple[Level, Tensor]:
    """All rules at one γ, for the samples of one batch; and the points that are attained."""
    problem, clip = around.problem, around.profile.clip
    with torch.no_grad():
        climb = Climb.of(problem, gamma, ascent)
        rules = bounds_by_rule(around, climb)
        bound, rule = torch.stack([rules[rule] for rule in Rule]).min(0)
        points, cost, loss = _attained(around, climb)
        if clip is not None:
            bound, loss = bound.clamp_max(clip), loss.clamp_max(clip)
        return Level(gamma, bound, rule, cost, loss, error_cost(problem, points)), points


@dataclass(frozen=True, eq=False)
class Climb:
    """Where an ascent on f at one γ has led, with the rounding there, and (batch,) whether it is finite."""

    gamma: float
    at: Evaluation
    rounding: Rounding
    safe: Tensor

    @staticmethod
    def of(problem: Problem, gamma: float, ascent: Maximizer) -> Climb:
        objective = Objective(
            loss=problem.loss,
            origin=problem.inputs,
            targets=problem.targets,
            gamma=torch.full((len(problem),), gamma, dtype=torch.float64),
            cost=problem.cost,
            domain=problem.domain,
        )
        at = objective.evaluate(ascent.maximize(objective).inputs)
        rounding = rounding_at(problem.analysis, at.point)
        return Climb(gamma, at, rounding, at.finite & torch.isfinite(rounding.values))


def bounds_by_rule(around: Around, climb: Climb) -> dict[Rule, Tensor]:
    """Every rule by itself, (batch,) upper bounds on φ_γ; ∞ where a rule does not apply."""
    profile = around.profile
    found = {Rule.LIPSCHITZ: profile.lipschitz(climb.gamma), Rule.RADIAL: profile.bound(climb.gamma)}
    return found | _gap_rules(around, climb, profile.rings(climb.gamma))


def _gap_rules(around: Around, climb: Climb, rings: Tensor) -> dict[Rule, Tensor]:
    """The bounds "local" and "concave"."""
    gamma, at, safe = climb.gamma, climb.at, climb.safe
    problem, nothing = around.problem, torch.full_like(at.value, math.inf)
    found = {Rule.LOCAL: nothing, Rule.CONCAVE: nothing}
    modulus = problem.cost.strong_convexity
    if modulus == 0:
        return found
    reached = at.value + problem.slack(at.value + gamma * at.cost, climb.rounding)
    reached = reached + problem.metric_slack * (1 + gamma * at.cost)
    gradient = at.slope - gamma * problem.cost.gradient(at.point, problem.inputs)
    distance: Tensor = problem.cost.norm(at.point - problem.inputs)
    tails = rings.flip(1).cummax(1).values.flip(1)
    for ball in around.balls:
        rule = Rule.CONCAVE if ball.edge is None else Rule.LOCAL
        left = (modulus * gamma * (1 - 1e-12) - ball.curvature) * (1 - _SHARE)
        useful = safe & (left > 0)
        outside = nothing * -1
        if ball.edge is not None:
            outside = tails[:, ball.edge]
            useful &= distance <= float(around.profile.edges[ball.edge]) * (1 - 1e-9)
        useful &= torch.maximum(reached, outside) < found[rule]
        if useful.any():
            gap = _gap(problem, gradient, climb, left, useful)
            bound = torch.maximum(reached[useful] + gap, outside[useful])
            values = found[rule].clone()
            values[useful] = torch.minimum(values[useful], bound)
            found[rule] = values
    return found


def _gap(problem: Problem, gradient: Tensor, climb: Climb, modulus: Tensor, useful: Tensor) -> Tensor:
    """What is left to gain, with ∇f known up to e in the dual norm: ⟨d, δ⟩ ≤ e²/2tμ + tμ‖δ‖²/2 for ‖d‖_* ≤ e,
    so that the share t of the modulus pays for it."""
    at, slopes, up = climb.at, gradient[useful], 1 + 2 * problem.metric_slack
    gap = problem.cost.gap(slopes, at.point[useful], modulus[useful], problem.domain)
    losses = at.value + climb.gamma * at.cost
    error = dual_size(problem, problem.slope_error(losses, climb.rounding))[useful]
    size = dual_norm(problem, slopes) + dual_norm(problem, at.slope[useful])
    error = error + 2 * problem.metric_slack * size
    return gap * up + (1 + 1 / _SHARE) * error**2 / (2 * modulus[useful])


def _attained(around: Around, climb: Climb) -> tuple[Tensor, Tensor, Tensor]:
    """Points, (batch,) costs and losses of what was reached, or of the sample itself where that overflows."""
    problem, at, gamma = around.problem, climb.at, climb.gamma
    losses = at.value + gamma * at.cost
    losses = losses - problem.slack(losses, climb.rounding) - problem.metric_slack * gamma * at.cost
    good = climb.safe & torch.isfinite(losses)
    return (
        torch.where(per_sample(good, at.point), at.point, problem.inputs),
        torch.where(good, at.cost * (1 + problem.metric_slack), 0.0),
        torch.where(good, losses, around.start),
    )


def lowered_loss(problem: Problem, points: Tensor) -> Tensor:
    """(batch,) ℓ at some points, rounded down; −∞ where nothing is known."""
    losses = evaluate_loss(problem.loss, points, problem.targets)
    rounding = problem.rounding if points is problem.inputs else rounding_at(problem.analysis, points)
    return (losses - problem.slack(losses, rounding)).nan_to_num(-math.inf)


def error_cost(problem: Problem, moved: Tensor) -> Tensor:
    """(batch,) c at the nearest error on the line to the point reached; ∞ where there is none."""
    found = torch.full((len(problem),), math.inf, dtype=torch.float64)
    if not isinstance(problem.family, Softmax):
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
    return problem.cost.value(nearer, problem.inputs) * (1 + problem.metric_slack)


def errs(problem: Problem, points: Tensor, targets: Tensor) -> Tensor:
    """(batch,) whether another class is ahead, by more than rounding can make of nothing."""
    outputs, error = outputs_at(problem.analysis, points)
    return _ahead(problem.margin_outputs(outputs), targets) > 2 * error


def _ahead(outputs: Tensor, targets: Tensor) -> Tensor:
    """(batch,) by how much the best other class is ahead."""
    own = targets.unsqueeze(1)
    others: Tensor = outputs.scatter(1, own, -math.inf).amax(1)
    return others - outputs.gather(1, own)[:, 0]
