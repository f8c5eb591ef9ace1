"""Dual values φ̄_γ of single samples at one γ, and the points that an ascent attains (eqn:inner-sup)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from certus._tensor import per_sample
from certus.certificates.error_costs import attained_error_cost
from certus.certificates.lower_bounds import (
    MovedPoints,
    loss_lower_bound,
    settle_rows,
    transport_rows,
)
from certus.certificates.proven.constants import Neighborhoods
from certus.certificates.proven.duality_gap import Proposal, Rule, bounds_by_rule
from certus.certificates.proven.problem import Problem, raised_cost
from certus.costs import Cost
from certus.inner import BarzilaiBorwein, Maximizer, Objective

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
        """The same of some samples."""
        return DualValues(self.gamma, **{name: getattr(self, name)[index] for name in PER_SAMPLE})

    @staticmethod
    def blank(gamma: float, count: int) -> DualValues:
        """Room for so many samples, to be filled portion by portion: many small tensors that stay would keep
        the large ones between them from being given back."""
        whole = {name: torch.empty(count, dtype=torch.float64) for name in PER_SAMPLE}
        return DualValues(gamma, **whole | {"rule": torch.empty(count, dtype=torch.int64)})

    def fill(self, index: slice, part: DualValues) -> None:
        """Take over what is known of some samples."""
        for name in PER_SAMPLE:
            getattr(self, name)[index] = getattr(part, name)

    @staticmethod
    def joined(parts: Sequence[DualValues]) -> DualValues:
        """That of all samples, from the levels of portions of them at one γ."""
        whole = {name: torch.cat([getattr(part, name) for part in parts]) for name in PER_SAMPLE}
        return DualValues(parts[0].gamma, **whole)


PER_SAMPLE = tuple(one.name for one in fields(DualValues) if one.name != "gamma")


def solve_gamma(
    around: Neighborhoods, gamma: float, ascent: Maximizer = DEFAULT_ASCENT
) -> tuple[DualValues, Tensor]:
    """All rules at one γ, for the samples of one batch; and the points that are attained."""
    problem, clip = around.problem, around.profile.clip
    with torch.no_grad():
        proposal = Proposal.at(problem, gamma, climb(problem, gamma, ascent))
        rules = bounds_by_rule(around, proposal)
        bound, rule = torch.stack([rules[rule] for rule in Rule]).min(0)
        moved = _attained(around, proposal)
        if problem.encoding is not None:
            moved = _attained_rows(problem, gamma, ascent, moved)
        loss = moved.losses
        if clip is not None:
            bound, loss = bound.clamp_max(clip), loss.clamp_max(clip)
        errors = attained_error_cost(problem, moved.points)
        return DualValues(gamma, bound, rule, moved.costs, loss, errors), moved.points


def climb(problem: Problem, gamma: float, ascent: Maximizer) -> Tensor:
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


def _attained(around: Neighborhoods, proposal: Proposal) -> MovedPoints:
    """What was reached, or the sample itself where that overflows."""
    problem, losses = around.problem, proposal.losses
    losses = losses - problem.slack(losses, proposal.rounding)
    losses = losses - problem.metric_slack * proposal.gamma * proposal.cost
    good = proposal.safe & torch.isfinite(losses)
    return MovedPoints(
        torch.where(per_sample(good, proposal.point), proposal.point, problem.inputs),
        torch.where(good, raised_cost(problem, proposal.point), 0.0),
        torch.where(good, losses, around.start),
    )


def _attained_rows(problem: Problem, gamma: float, ascent: Maximizer, hull: MovedPoints) -> MovedPoints:
    """The same with rows of the table, near those of the hull of their encodings."""
    encoding = problem.encoding
    assert encoding is not None

    def reach(base: Tensor, cost: Cost) -> Tensor:
        return climb(replace(problem, inputs=base, cost=cost), gamma, ascent)

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
    costs, losses = raised_cost(problem, points), loss_lower_bound(problem, points)
    start = loss_lower_bound(problem, problem.inputs)
    better = losses - gamma * costs > start
    return MovedPoints(
        torch.where(per_sample(better, points), points, problem.inputs),
        torch.where(better, costs, 0.0),
        torch.where(better, losses, start),
    )
