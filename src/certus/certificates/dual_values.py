"""Dual values φ̄_γ of single samples at one γ, points that an ascent attains (eqn:inner-sup), and means."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from certus.certificates.error_costs import AttainedErrors, nearest_on_line
from certus.certificates.lower_bounds import (
    MovedPoints,
    loss_lower_bound,
    round_down,
    settle_rows,
    transport_rows,
    unmoved,
)
from certus.certificates.problem import Problem
from certus.certificates.proposals import on_grid, softplus_roots
from certus.costs import Cost
from certus.inner import BarzilaiBorwein, Maximizer, Objective
from certus.kernel.radial import Neighborhoods
from certus.kernel.rounding import mean_down, mean_up
from certus.kernel.rules import DualBounds, Proposal, Rule, dual_bounds, gamma_within


class _LineSearch(BarzilaiBorwein):
    """Secant strides that are taken back where f does not rise: closer to smooth maxima in few gradients."""

    def _goes_on(self, objective: Objective) -> bool:
        return False


DEFAULT_ASCENT = _LineSearch(tolerance=3e-5, max_gradients=16)


@dataclass(frozen=True, eq=False)
class DualValues:
    """φ̄_γ and T̂_γ of n samples at one γ.

    Attributes:
        bounds: φ̄_γ ≥ φ_γ, proven by the kernel.
        transport_cost, loss: (n,) c(T̂, x₀), rounded up, and ℓ(T̂), rounded down: attained.
        attained_error_cost: (n,) cost of an error found on the way to T̂; ∞ without one.
        attained_label: (n,) label predicted there; −1 if unknown.
    """

    bounds: DualBounds
    transport_cost: Tensor
    loss: Tensor
    attained_error_cost: Tensor
    attained_label: Tensor

    @property
    def errors(self) -> AttainedErrors:
        return AttainedErrors(self.attained_error_cost, self.attained_label)

    @property
    def gamma(self) -> float:
        return self.bounds.gamma

    @property
    def bound(self) -> Tensor:
        """(n,) φ̄_γ."""
        return self.bounds.bound

    @property
    def rule(self) -> Tensor:
        """(n,) the ``Rule`` that proves each."""
        return self.bounds.rule

    def __getitem__(self, index: slice) -> DualValues:
        return DualValues(self.bounds[index], *(getattr(self, name)[index] for name in _ATTAINED))

    @staticmethod
    def unknown(bounds: DualBounds) -> DualValues:
        """Allocate values to be filled batch by batch, which avoids memory fragmentation; until then bounds
        are ∞."""
        zeros, endless = torch.zeros_like(bounds.bound), torch.full_like(bounds.bound, math.inf)
        return DualValues(bounds, zeros, -endless, endless, torch.full_like(endless, -1, dtype=torch.int64))

    def fill(self, index: slice | Tensor, part: DualValues) -> None:
        """Set the values of some samples."""
        self.bounds.fill(index, part.bounds)
        for name in _ATTAINED:
            getattr(self, name)[index] = getattr(part, name)


_ATTAINED = ("transport_cost", "loss", "attained_error_cost", "attained_label")


@dataclass(frozen=True)
class DualAggregate:
    """Attained means at one γ: the worst case at ρ̂ is at least ``loss``.

    Attributes:
        rho_hat, loss: E c(T̂_γ), rounded up, and E ℓ(T̂_γ), rounded down (eqn:tol-n).
        rules: share of the samples that each rule bounds best.
    """

    gamma: float
    rho_hat: float
    loss: float
    rules: dict[str, float]

    @staticmethod
    def of(values: DualValues, weights: Tensor | None = None) -> DualAggregate:
        counts = torch.bincount(values.rule.long(), minlength=len(Rule)) / len(values.rule)
        return DualAggregate(
            values.gamma,
            mean_up(values.transport_cost, weights),
            mean_down(values.loss, weights),
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


def proposed_moves(problem: Problem, gamma: float) -> Tensor:
    """(batch, …) float32 moves to where an ascent leads, on the grid of ``in_units`` and rounded towards
    zero: a box is not left, and frozen coordinates do not move."""
    return on_grid(climb(problem, gamma) - problem.inputs)


def solve_gamma(
    problem: Problem,
    around: Neighborhoods,
    gamma: float,
    moves: Tensor,
    weight: float = 1.0,
    clip: float | None = None,
) -> tuple[DualValues, Tensor]:
    """Bound φ_γ by all rules at one γ, for one batch and its proposed moves; also return the attained points.

    Args:
        weight, clip: w and B of the certified loss min(wℓ, B); all samples of the batch share w.
    """
    within = gamma_within(gamma, weight)
    with torch.no_grad():
        proposal = Proposal.at(problem.kernel, within, problem.inputs + moves.double())
        roots = softplus_roots(around.profile.score, within * around.profile.unit_cost)
        bounds = dual_bounds(around, gamma, proposal, roots, weight, clip)
        moved = _attained(problem, around, proposal)
        if problem.encoding is not None:
            moved = _attained_rows(problem, within, moved)
        loss = moved.losses if weight == 1 else round_down(weight * moved.losses)
        loss = loss if clip is None else loss.clamp_max(clip)
        errors, _ = nearest_on_line(problem, moved.points)
        return DualValues(bounds, moved.costs, loss, *errors), moved.points


def climb(problem: Problem, gamma: float, ascent: Maximizer = DEFAULT_ASCENT) -> Tensor:
    """Return (batch, …) final points of an ascent on f = ℓ − γc from each sample."""
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
    """Return the proposed points, projected on the domain; the samples themselves where a point overflows."""
    losses = proposal.loss - problem.kernel.slack(proposal.loss, proposal.rounding)
    moved = MovedPoints(proposal.point, problem.raised_cost(proposal.point), losses)
    points = problem.domain.project(proposal.point)
    outside = proposal.safe & (points != proposal.point).flatten(1).any(1)
    if outside.any():
        inside = MovedPoints(points, problem.raised_cost(points), loss_lower_bound(problem, points))
        moved = inside.where(outside, moved)
    good = proposal.safe & torch.isfinite(moved.losses) & torch.isfinite(moved.costs)
    return moved.where(good, unmoved(problem, around.values.start))


def _attained_rows(problem: Problem, gamma: float, hull: MovedPoints) -> MovedPoints:
    """Return rows of a table near the proposed points."""
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
