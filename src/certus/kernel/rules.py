"""Upper bounds φ̄_γ of the inner problem at one γ, sample by sample, from proposed points (eqn:inner-sup).

*The gap rule.* Where f = ℓ − γc has the modulus μ = sγ − L⁺ > 0 on a ball around x₀ that holds the point ẑ,
f ≤ f(ẑ) + sup_{z ∈ Z} ⟨∇f(ẑ), z − ẑ⟩ − (μ/2)‖z − ẑ‖² there (``Cost.gap``), and the rings of the profile bound
everything outside: φ_γ is at most the larger of both. On the whole space nothing is outside. So "concave"
(everywhere) and "local" (on a ball) are one rule. A bad point makes the bound loose, never wrong.

*Rounding.* With ∇f known up to e in the dual norm, ⟨d, δ⟩ ≤ e²/2tμ + tμ‖δ‖²/2 for ‖d‖_* ≤ e: a share t of the
modulus covers the error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from certus.kernel.losses import Rounding
from certus.kernel.passes import Refused
from certus.kernel.problem import Problem, rounding_at
from certus.kernel.radial import Neighborhoods
from certus.kernel.rounding import MANY, SOME, down, up

_SHARE = 1e-6  # t


class Rule(IntEnum):
    """The rule that proves a bound."""

    LIPSCHITZ = 0
    """Growth of a score with the distance: φ ≤ ℓ(x₀) + G²/(4γg), or better."""

    RADIAL = 1
    """Growth of the margins, or of the loss, with the distance, ring by ring."""

    LOCAL = 2
    """Value and gap on a ball where the inner problem is concave; the rest by the radial rule."""

    CONCAVE = 3
    """Value and gap: the inner problem is concave everywhere."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """f = ℓ − γc at one point of each sample, in float64.

    Attributes:
        point: (batch, *shape); slope: (batch, *shape) ∇ℓ there.
        loss, cost: (batch,) ℓ and c, and rounding: how far ℓ and ∇ℓ may be off.
        safe: (batch,) bool: all of it is finite.
    """

    gamma: float
    point: Tensor
    loss: Tensor
    cost: Tensor
    slope: Tensor
    rounding: Rounding
    safe: Tensor

    @staticmethod
    def at(problem: Problem, gamma: float, points: Tensor) -> Proposal:
        leaf = points.detach().double().clone().requires_grad_()
        with torch.enable_grad():
            losses = problem.losses(leaf)
            (slope,) = torch.autograd.grad(losses.sum(), leaf)
        point, loss = leaf.detach(), losses.detach()
        cost, rounding = problem.cost.value(point, problem.inputs), rounding_at(problem.graph, point)
        safe = torch.isfinite(loss - gamma * cost) & torch.isfinite(slope.flatten(1).sum(1))
        return Proposal(gamma, point, loss, cost, slope, rounding, safe & torch.isfinite(rounding.values))


def bounds_by_rule(
    around: Neighborhoods, proposal: Proposal, roots: Tensor | None = None
) -> dict[Rule, Tensor]:
    """(batch,) upper bounds on φ_γ by every rule; ∞ where a rule does not apply.

    Args:
        roots: (batch,) proposals for the Lipschitz rule (``Score.bound``).
    """
    profile, gamma = around.profile, proposal.gamma
    if not 0 < gamma < math.inf:
        raise Refused(f"gamma must be positive and finite; got {gamma}")
    rings = profile.rings(gamma)
    bounds = {Rule.LIPSCHITZ: profile.lipschitz(gamma, roots), Rule.RADIAL: profile.bound(rings)}
    bounds |= _gap_rules(around, proposal, rings)
    return {rule: bound.nan_to_num(math.inf, math.inf, -math.inf) for rule, bound in bounds.items()}


def _gap_rules(around: Neighborhoods, proposal: Proposal, rings: Tensor) -> dict[Rule, Tensor]:
    """The bounds of the rules "local" and "concave"."""
    gamma, problem, cost = proposal.gamma, around.problem, around.problem.cost
    nothing = torch.full_like(proposal.loss, math.inf)
    bounds = {Rule.LOCAL: nothing, Rule.CONCAVE: nothing.clone()}
    if cost.strong_convexity == 0:
        return bounds
    height = proposal.loss - gamma * proposal.cost + problem.slack(proposal.loss, proposal.rounding)
    height = height + cost.rounding * (1 + gamma * proposal.cost)
    height = height + gamma * cost.value_error(proposal.point, problem.inputs)
    gradient = proposal.slope - gamma * cost.gradient(proposal.point, problem.inputs)
    distance = cost.norm(proposal.point - problem.inputs)
    # ∇f is off by the rounding of ∇ℓ, of ∇c, and of both together.
    error = problem.slope_error(proposal.loss, proposal.rounding)
    error = cost.dual_size(error + gamma * cost.gradient_error(proposal.point, problem.inputs))
    error = error + 2 * cost.rounding * (cost.dual(gradient) + cost.dual(proposal.slope))
    tails = rings.flip(1).cummax(1).values.flip(1)
    for ball in around.balls:
        rule = Rule.CONCAVE if ball.edge is None else Rule.LOCAL
        modulus = (down(cost.strong_convexity * gamma, SOME) - ball.curvature) * (1 - _SHARE)
        useful, outside = proposal.safe & (modulus > 0), nothing * -1
        if ball.edge is not None:
            outside = tails[:, ball.edge]
            useful &= distance <= down(float(around.profile.edges[ball.edge]), max(MANY, cost.rounding))
        useful &= torch.maximum(height, outside) < bounds[rule]
        if useful.any():
            gap = cost.gap(gradient[useful], proposal.point[useful], modulus[useful], problem.domain)
            gap = up(gap, 2 * cost.rounding)
            gap = gap + (1 + 1 / _SHARE) * error[useful] ** 2 / (2 * modulus[useful])
            bound = torch.maximum(height[useful] + gap, outside[useful])
            bounds[rule][useful] = torch.minimum(bounds[rule][useful], bound)
    return bounds


def over_labels(own: Tensor, others: Sequence[Tensor], gamma: float, price: float) -> Tensor:
    """(batch,) φ̄_γ where a label may change at a price: max(φ̄(x, y), max_{y'} φ̄(x, y') − γ·price)."""
    return torch.stack([own, *(other - down(gamma * price, SOME) for other in others)]).amax(0)


def error_costs(problem: Problem, radius: Tensor) -> Tensor:
    """(batch,) lower bounds on the cost of an error, g·r² or the price of a label, from certified radii."""
    return down(problem.unit_cost * radius**2, problem.cost.rounding).clamp_max(problem.cost.label_price)
