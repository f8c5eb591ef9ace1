"""Upper bounds φ̄_γ of the inner problem at one γ, sample by sample, from proposed points (eqn:inner-sup).

The gap rule. Where f = ℓ − γc has the modulus μ = sγ − L⁺ > 0 on a ball around x₀ that holds the point ẑ, and
g = ∇f(ẑ),

    sup over the ball of f ≤ f(ẑ) + sup_{z ∈ Z} ⟨g, z − ẑ⟩ − (μ/2)‖z − ẑ‖²,

and the rings of the profile bound everything outside the ball: φ_γ is at most the larger of both. On the
whole
space nothing is outside. So "concave" (everywhere) and "local" (on a ball) are one rule, and the smallest of
all bounds is used. A bad point ẑ makes the bound loose, never wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from certus._tensor import all_finite
from certus.certificates.proven.constants import Neighborhoods
from certus.certificates.proven.float_error import Rounding, rounding_at
from certus.certificates.proven.problem import Problem, cost_error, cost_gradient_error
from certus.losses import loss_and_slope
from certus.rounding import SOME, down

_SHARE = 1e-6  # of the modulus, given up for the rounding of the gradient


class Rule(IntEnum):
    """The rule that proves a bound."""

    LIPSCHITZ = 0
    """φ ≤ ℓ(x₀) + G²/(4γg)."""

    RADIAL = 1
    """Growth of the margins, or of the loss, with the distance."""

    LOCAL = 2
    """Value and gap on a ball where the inner problem is concave; the rest by the radial rule."""

    CONCAVE = 3
    """Value and gap: the inner problem is concave everywhere."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """f = ℓ − γc at one point of each sample, in float64.

    Attributes:
        point: (batch, …) the points; slope: (batch, …) ∇ℓ there.
        value, cost: (batch,) f and c.
        rounding: how far these may be off.
        safe: (batch,) bool: all of it is finite.
    """

    gamma: float
    point: Tensor
    value: Tensor
    cost: Tensor
    slope: Tensor
    rounding: Rounding
    safe: Tensor

    @staticmethod
    def at(problem: Problem, gamma: float, points: Tensor) -> Proposal:
        leaf = points.detach().requires_grad_()
        losses, slope = loss_and_slope(problem.loss, leaf, problem.targets)
        point = leaf.detach()
        cost = problem.cost.value(point, problem.inputs)
        value = losses.detach() - gamma * cost
        rounding = rounding_at(problem.analysis, point)
        safe = torch.isfinite(value) & all_finite(slope) & torch.isfinite(rounding.values)
        return Proposal(gamma, point, value, cost, slope, rounding, safe)

    @property
    def losses(self) -> Tensor:
        """(batch,) ℓ."""
        return self.value + self.gamma * self.cost


def bounds_by_rule(neighborhoods: Neighborhoods, proposal: Proposal) -> dict[Rule, Tensor]:
    """(batch,) upper bounds on φ_γ by every rule; ∞ where a rule does not apply."""
    profile = neighborhoods.profile
    bounds = {Rule.LIPSCHITZ: profile.lipschitz(proposal.gamma), Rule.RADIAL: profile.bound(proposal.gamma)}
    return bounds | _gap_rules(neighborhoods, proposal, profile.rings(proposal.gamma))


def _gap_rules(neighborhoods: Neighborhoods, proposal: Proposal, rings: Tensor) -> dict[Rule, Tensor]:
    """The bounds of the rules "local" and "concave"."""
    gamma, problem = proposal.gamma, neighborhoods.problem
    nothing = torch.full_like(proposal.value, math.inf)
    bounds = {Rule.LOCAL: nothing, Rule.CONCAVE: nothing}
    modulus = problem.cost.strong_convexity
    if modulus == 0:
        return bounds
    height = proposal.value + problem.slack(proposal.losses, proposal.rounding)
    height = height + problem.metric_slack * (1 + gamma * proposal.cost)
    height = height + gamma * cost_error(problem, proposal.point)
    gradient = proposal.slope - gamma * problem.cost.gradient(proposal.point, problem.inputs)
    distance: Tensor = problem.cost.norm(proposal.point - problem.inputs)
    tails = rings.flip(1).cummax(1).values.flip(1)
    for ball in neighborhoods.balls:
        rule = Rule.CONCAVE if ball.edge is None else Rule.LOCAL
        left = (down(modulus * gamma, SOME) - ball.curvature) * (1 - _SHARE)
        useful = proposal.safe & (left > 0)
        outside = nothing * -1
        if ball.edge is not None:
            outside = tails[:, ball.edge]
            useful &= distance <= down(float(neighborhoods.profile.edges[ball.edge]))
        useful &= torch.maximum(height, outside) < bounds[rule]
        if useful.any():
            gap = _gap(problem, gradient, proposal, left, useful)
            bound = torch.maximum(height[useful] + gap, outside[useful])
            values = bounds[rule].clone()
            values[useful] = torch.minimum(values[useful], bound)
            bounds[rule] = values
    return bounds


def _gap(problem: Problem, gradient: Tensor, proposal: Proposal, modulus: Tensor, useful: Tensor) -> Tensor:
    """Bound the remaining gain, with ∇f known up to e in the dual norm: ⟨d, δ⟩ ≤ e²/2tμ + tμ‖δ‖²/2 for
    ‖d‖_* ≤ e, so that a share t of the modulus covers the error.
    """
    slopes, up = gradient[useful], 1 + 2 * problem.metric_slack
    gap = problem.cost.gap(slopes, proposal.point[useful], modulus[useful], problem.domain)
    lengths = problem.slope_error(proposal.losses, proposal.rounding)
    lengths = lengths + proposal.gamma * cost_gradient_error(problem, proposal.point)
    error = problem.metric.dual_size(lengths)[useful]
    size = problem.metric.dual(slopes) + problem.metric.dual(proposal.slope[useful])
    error = error + 2 * problem.metric_slack * size
    return gap * up + (1 + 1 / _SHARE) * error**2 / (2 * modulus[useful])
