"""Dual values φ̄_γ of single samples at one γ, points that an ascent attains (eqn:inner-sup), and means."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from certus.certificates.error_costs import nearest_on_line
from certus.certificates.lower_bounds import (
    MovedPoints,
    loss_lower_bound,
    settle_rows,
    transport_rows,
    unmoved,
)
from certus.certificates.problem import Problem
from certus.certificates.proposals import softplus_roots
from certus.costs import Cost
from certus.inner import BarzilaiBorwein, Maximizer, Objective
from certus.kernel.radial import Neighborhoods
from certus.kernel.rounding import mean_down, mean_up
from certus.kernel.rules import Proposal, Rule, bounds_by_rule

DEFAULT_ASCENT = BarzilaiBorwein(tolerance=3e-5, max_gradients=16)


@dataclass(frozen=True, eq=False)
class DualValues:
    """φ̄_γ and T̂_γ at one γ; every entry but ``gamma`` is (n,).

    Attributes:
        bound: φ̄_γ ≥ φ_γ; rule: the ``Rule`` that proves it.
        transport_cost, loss: c(T̂, x₀), rounded up, and ℓ(T̂), rounded down: attained.
        attained_error_cost: the cost at which an error was found on the way to T̂; ∞ if none was.
    """

    gamma: float
    bound: Tensor
    rule: Tensor
    transport_cost: Tensor
    loss: Tensor
    attained_error_cost: Tensor

    def __getitem__(self, index: slice) -> DualValues:
        return DualValues(self.gamma, **{name: getattr(self, name)[index] for name in PER_SAMPLE})

    @staticmethod
    def empty(gamma: float, count: int) -> DualValues:
        """Uninitialised values of ``count`` samples, to be filled batch by batch: many small tensors would
        keep the large ones between them from being freed."""
        whole = {name: torch.empty(count, dtype=torch.float64) for name in PER_SAMPLE}
        return DualValues(gamma, **whole | {"rule": torch.empty(count, dtype=torch.int64)})

    def fill(self, index: slice | Tensor, part: DualValues) -> None:
        """Set the values of some samples."""
        for name in PER_SAMPLE:
            getattr(self, name)[index] = getattr(part, name)


PER_SAMPLE = tuple(one.name for one in fields(DualValues) if one.name != "gamma")


@dataclass(frozen=True)
class DualAggregate:
    """Means at one γ, for all ρ: the worst case is at most γρ + ``bound``, and at ρ̂ at least ``loss``.

    Attributes:
        bound: E φ̄_γ; rules: shares of the samples by the rule that proves their part.
        rho_hat, loss: E c(T̂_γ), rounded up, and E ℓ(T̂_γ), rounded down (eqn:tol-n).
    """

    gamma: float
    bound: float
    rho_hat: float
    loss: float
    rules: dict[str, float]

    @staticmethod
    def of(level: DualValues, weights: Tensor | None = None) -> DualAggregate:
        counts = torch.bincount(level.rule.long(), minlength=len(Rule)) / len(level.rule)
        return DualAggregate(
            level.gamma,
            mean_up(level.bound, weights),
            mean_up(level.transport_cost, weights),
            mean_down(level.loss, weights),
            {rule.name.lower(): round(float(counts[rule]), 6) for rule in Rule if counts[rule] > 0},
        )


@dataclass(frozen=True)
class AttackAggregate:
    """The samples moved by an attack that keeps each within cost ρ (eqn:certify-tests, left side).

    Attributes:
        transport_cost, loss: means, of the cost rounded up and of the loss rounded down.
    """

    rho: float
    transport_cost: float
    loss: float


def solve_gamma(problem: Problem, around: Neighborhoods, gamma: float) -> tuple[DualValues, Tensor]:
    """All rules at one γ, for the samples of one batch; and the points that are attained."""
    profile, clip = around.profile, around.profile.clip
    with torch.no_grad():
        proposal = Proposal.at(problem.kernel, gamma, climb(problem, gamma))
        roots = softplus_roots(profile.score, gamma * profile.unit_cost)
        rules = bounds_by_rule(around, proposal, roots)
        bound, rule = torch.stack([rules[rule] for rule in Rule]).min(0)
        moved = _attained(problem, around, proposal)
        if problem.encoding is not None:
            moved = _attained_rows(problem, gamma, moved)
        loss = moved.losses
        if clip is not None:
            bound, loss = bound.clamp_max(clip), loss.clamp_max(clip)
        errors, _ = nearest_on_line(problem, moved.points)
        return DualValues(gamma, bound, rule, moved.costs, loss, errors), moved.points


def climb(problem: Problem, gamma: float, ascent: Maximizer = DEFAULT_ASCENT) -> Tensor:
    """(batch, …) where an ascent on f = ℓ − γc leads from each sample."""
    objective = Objective(
        loss=problem.loss,
        origin=problem.inputs,
        targets=problem.targets,
        gamma=torch.full((len(problem),), gamma, dtype=torch.float64),
        cost=problem.cost,
        domain=problem.domain,
    )
    return ascent.maximize(objective).inputs


def _attained(problem: Problem, around: Neighborhoods, proposal: Proposal) -> MovedPoints:
    """The points reached, or the samples themselves where these overflow."""
    losses = proposal.loss - problem.kernel.slack(proposal.loss, proposal.rounding)
    good = proposal.safe & torch.isfinite(losses)
    moved = MovedPoints(proposal.point, problem.raised_cost(proposal.point), losses)
    return moved.where(good, unmoved(problem, around.values.start))


def _attained_rows(problem: Problem, gamma: float, hull: MovedPoints) -> MovedPoints:
    """The same with rows of the table, near those of the hull of their encodings."""
    encoding = problem.encoding
    assert encoding is not None

    def reach(base: Tensor, cost: Cost) -> Tensor:
        return climb(replace(problem, inputs=base, cost=cost), gamma)

    if encoding.plain:
        points = settle_rows(encoding, hull.points, problem.inputs, problem.domain)
    else:
        points = transport_rows(
            problem.loss,
            problem.inputs,
            problem.targets,
            encoding,
            reach,
            gamma=gamma,
            cost=problem.cost,
            domain=problem.domain,
        )
    moved = MovedPoints(points, problem.raised_cost(points), loss_lower_bound(problem, points))
    start = loss_lower_bound(problem, problem.inputs)
    return moved.where(moved.losses - gamma * moved.costs > start, unmoved(problem, start))
