"""Local bounds around a batch of samples, under every label that they may take, and with class weights.

With class weights w, the certified loss is w_y·ℓ:

    sup {E_P w_y ℓ : W_c(P, P̂_n) ≤ ρ} ≤ min_γ γρ + E_n w_y φ̄_{γ/w_y},

since sup_x wℓ(x) − γc(x, x₀) = w·φ_{γ/w}(x₀). The distribution of the samples stays the same; weights of
*samples* change it. Samples of one label share one w, so they are solved together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from certus._tensor import per_sample
from certus.certificates.cache import spot_checked_samples
from certus.certificates.dual_values import DualValues, solve_gamma
from certus.certificates.error_costs import surely_wrong
from certus.certificates.problem import Problem
from certus.certificates.progress import BALL
from certus.certificates.proposals import tangent_points, with_parabolas
from certus.data import Samples
from certus.errors import CertusError, require, require_numbers
from certus.kernel.passes import Refused
from certus.kernel.problem import Values
from certus.kernel.radial import Neighborhoods, neighborhoods
from certus.kernel.rounding import FEW, down, up
from certus.kernel.rules import error_costs, over_labels


@dataclass(frozen=True, eq=False)
class Grid:
    """Distances at which profiles are computed, fixed before any sample is seen.

    Attributes:
        edges: (rings + 1,) starting at 0.
        balls: indices of the edges that are radii of balls with their own bounds.
    """

    edges: Tensor
    balls: tuple[int, ...]


class SampleValues(NamedTuple):
    """Values at some samples themselves.

    Attributes:
        loss, start: (n,) ℓ there, rounded up, and rounded down.
        proven_error_cost: (n,) no error costs less than this; None for regression.
        wrong: (n,) those that are misclassified as they are, beyond doubt; None for regression.
    """

    loss: Tensor
    start: Tensor
    proven_error_cost: Tensor | None
    wrong: Tensor | None

    @staticmethod
    def joined(parts: list[SampleValues], order: Tensor | slice = slice(None)) -> SampleValues:
        columns: Any = zip(*parts, strict=True)
        whole: Any = (None if each[0] is None else torch.cat(each)[order] for each in columns)
        return SampleValues(*whole)


def round_down(losses: Tensor) -> Tensor:
    """Products that may have either sign, rounded down."""
    return losses - FEW * losses.abs()


def checked_class_weights(weights: object, classes: int | None) -> Tensor:
    """(classes,) as float64."""
    require(classes is not None, "class_weights", "be left out for regression", weights)
    numbers = require_numbers("class_weights", weights)
    rule = f"be {classes} numbers, one for each class"
    require(len(numbers) == classes, "class_weights", rule, f"{len(numbers)} of them")
    return torch.tensor(numbers, dtype=torch.float64)


def weighted_losses(losses: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """(n,) losses by the weights of their labels, rounded down."""
    return losses if weights is None else round_down(losses * weights[targets])


class _Labelled(NamedTuple):
    """Samples under labels of one weight w, and the bounds around them."""

    problem: Problem
    weight: float
    around: Neighborhoods


@dataclass(frozen=True, eq=False)
class LocalBounds:
    """A batch of samples, and the bounds around them, which are computed when they are first used.

    Attributes:
        clip: B, if it is min(wℓ, B) that is certified.
        class_weights: (classes,) w; None if all are 1.
        advance: called with the work that is done around them.
    """

    problem: Problem
    grid: Grid
    clip: float | None
    class_weights: Tensor | None = None
    advance: Callable[[float], None] | None = None

    @cached_property
    def _indices(self) -> list[Tensor]:
        """Positions of the samples that are solved together, those of one weight."""
        targets = self.problem.targets
        if self.class_weights is None:
            return [torch.arange(len(targets))]
        return [(targets == label).nonzero().flatten() for label in targets.unique()]

    @cached_property
    def _groups(self) -> list[list[_Labelled]]:
        """Each group under its own labels, and under every other one that it may take."""
        label_cost = self.problem.label_cost
        shifts = range(1 if label_cost is None else label_cost.classes)
        if self.class_weights is None:
            return [[self._bounded(self.problem, shift, 1.0) for shift in shifts]]
        groups = []
        for own in map(self.problem.select, self._indices):
            weights = self.class_weights.roll(-int(own.targets[0])).tolist()
            groups.append([self._bounded(own, shift, weights[shift]) for shift in shifts])
        return groups

    def _bounded(self, own: Problem, shift: int, weight: float) -> _Labelled:
        problem = own.relabelled(shift) if shift else own
        clip = self.clip if self.clip is None or weight == 1 else up(self.clip / weight, FEW)
        on_ball = None if self.advance is None else partial(self.advance, BALL * len(problem))
        tangents = None if shift else tangent_points(problem)
        try:
            values = Values.at(problem.kernel)
            bounds = with_parabolas(problem.kernel, values, tangents)
            edges, balls = self.grid.edges, self.grid.balls
            around = neighborhoods(problem.kernel, values, bounds, edges, balls, clip, on_ball)
        except Refused as reason:
            raise CertusError(f"Nothing can be proven about these samples: {reason}.") from None
        return _Labelled(problem, weight, around)

    def _solve(self, gamma: float, under: _Labelled) -> tuple[DualValues, Tensor]:
        problem, weight, around = under
        if weight == 1:
            return solve_gamma(problem, around, gamma)
        # A smaller γ has a larger bound.
        level, points = solve_gamma(problem, around, down(gamma / weight, FEW))
        bound, loss = up(weight * level.bound, FEW), round_down(weight * level.loss)
        if self.clip is not None:
            bound, loss = bound.clamp_max(self.clip), loss.clamp_max(self.clip)
        return replace(level, gamma=gamma, bound=bound, loss=loss), points

    @cached_property
    def spot_check(self) -> tuple[Tensor, LocalBounds]:
        """A few of the samples, always the same ones: their positions, and the bounds around them."""
        few = [index[spot_checked_samples(len(index))] for index in self._indices]
        index = torch.cat(few).sort().values
        return index, replace(self, problem=self.problem.select(index), advance=None)

    @cached_property
    def samples(self) -> SampleValues:
        parts = []
        for (problem, weight, around), *_ in self._groups:
            wrong = costs = None
            if around.radius is not None:
                with torch.no_grad():
                    wrong = surely_wrong(problem, problem.inputs, problem.targets)
                costs = error_costs(problem.kernel, around.radius)
            loss, start = around.values.loss, around.values.start
            if weight != 1:
                loss, start = up(weight * loss, FEW), round_down(weight * start)
            parts.append(SampleValues(loss, start, costs, wrong))
        return SampleValues.joined(parts, torch.cat(self._indices).argsort())

    def level(self, gamma: float) -> tuple[DualValues, Samples]:
        """w·φ̄_{γ/w}, over all labels that a sample may take, and the points reached."""
        whole = DualValues.empty(gamma, len(self.problem))
        points, targets = self.problem.inputs.clone(), self.problem.targets.clone()
        for index, group in zip(self._indices, self._groups, strict=True):
            part, points[index], targets[index] = self._over_labels(gamma, group)
            whole.fill(index, part)
        return whole, Samples(points, targets)

    def _over_labels(self, gamma: float, group: list[_Labelled]) -> tuple[DualValues, Tensor, Tensor]:
        """max(φ̄(x, y), max_{y'} φ̄(x, y') − γλ), and the better of the points reached, with its label."""
        level, points = self._solve(gamma, group[0])
        targets, label_cost = group[0].problem.targets, self.problem.label_cost
        if label_cost is None:
            return level, points, targets
        price = label_cost.price
        for under in group[1:]:
            other, others = self._solve(gamma, under)
            bound = over_labels(level.bound, [other.bound], gamma, price)
            gain = other.loss - gamma * (other.transport_cost + price)
            climb = gain > level.loss - gamma * level.transport_cost
            level = replace(
                level,
                bound=bound,
                rule=torch.where(bound > level.bound, other.rule, level.rule),
                loss=torch.where(climb, other.loss, level.loss),
                transport_cost=torch.where(climb, other.transport_cost + price, level.transport_cost),
                attained_error_cost=level.attained_error_cost.clamp_max(price),
            )
            points = torch.where(per_sample(climb, points), others, points)
            targets = torch.where(climb, under.problem.targets, targets)
        return level, points, targets
