"""Local bounds around a batch of samples, for every label that they may take, and with class weights.

With class weights w, the certified loss is w_y·ℓ. The distribution of the samples stays the same; weights of
*samples* change it. Samples of one label share one w, so they are solved together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from certus._tensor import per_sample
from certus.certificates.dual_values import DualValues, proposed_moves, solve_gamma
from certus.certificates.error_costs import surely_wrong
from certus.certificates.lower_bounds import round_down
from certus.certificates.problem import Problem
from certus.certificates.progress import BALL
from certus.certificates.proposals import tangent_points, with_parabolas
from certus.data import Samples
from certus.errors import CertusError, require, require_numbers
from certus.kernel.majorants import Tangents
from certus.kernel.passes import Refused
from certus.kernel.problem import Values
from certus.kernel.radial import Neighborhoods, neighborhoods
from certus.kernel.rules import DualBounds, SampleBounds, clip_within, gamma_within, over_labels


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
    """Losses and error costs of unmoved samples.

    Attributes:
        bounds: bounds on the loss and on the cost of an error, proven by the kernel.
        start: (n,) losses, rounded down.
        wrong: (n,) whether each is certainly misclassified; None for regression.
    """

    bounds: SampleBounds
    start: Tensor
    wrong: Tensor | None

    @staticmethod
    def joined(parts: Sequence[SampleValues], order: Tensor | slice = slice(None)) -> SampleValues:
        wrong = [part.wrong for part in parts if part.wrong is not None]
        return SampleValues(
            SampleBounds.joined([part.bounds for part in parts], order),
            torch.cat([part.start for part in parts])[order],
            torch.cat(wrong)[order] if wrong else None,
        )


def checked_class_weights(weights: object, classes: int | None) -> Tensor:
    """Return (classes,) weights as float64, checked."""
    require(classes is not None, "class_weights", "be left out for regression", weights)
    numbers = require_numbers("class_weights", weights)
    rule = f"be {classes} numbers, one for each class"
    require(len(numbers) == classes, "class_weights", rule, f"{len(numbers)} numbers")
    return torch.tensor(numbers, dtype=torch.float64)


def weighted_losses(losses: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Return (n,) losses times the weights of their labels, rounded down."""
    return losses if weights is None else round_down(losses * weights[targets])


class Labelled(NamedTuple):
    """Samples whose labels share a weight w, the bounds around them, and the proposed parabolas."""

    problem: Problem
    weight: float
    around: Neighborhoods
    tangents: dict[str, Tangents]


@dataclass(frozen=True, eq=False)
class DetachedBounds:
    """Local bounds without their problem, as another process returns them: that has them already."""

    groups: list[list[Labelled]]

    def attached(
        self, problem: Problem, grid: Grid, clip: float | None, class_weights: Tensor | None
    ) -> LocalBounds:
        """The bounds around the samples of this problem, which they were computed for."""
        local = LocalBounds(problem, grid, clip, class_weights)
        groups = []
        for index, group in zip(local._indices, self.groups, strict=True):
            own, around = problem if class_weights is None else problem.select(index), []
            for shift, under in enumerate(group):
                labelled = own.relabelled(shift) if shift else own
                near = replace(under.around, problem=labelled.kernel)
                around.append(Labelled(labelled, under.weight, near, under.tangents))
            groups.append(around)
        local.__dict__["_groups"] = groups
        return local


@dataclass(frozen=True, eq=False)
class LocalBounds:
    """A batch of samples, and the bounds around them, computed at first use.

    Attributes:
        clip: B of the certified loss min(wℓ, B), if it is clipped.
        class_weights: (classes,) w; None if all are 1.
        advance: called with finished work.
    """

    problem: Problem
    grid: Grid
    clip: float | None
    class_weights: Tensor | None = None
    advance: Callable[[float], None] | None = None

    @cached_property
    def _indices(self) -> list[Tensor]:
        """Positions of the samples that are solved together, by weight of their labels."""
        targets = self.problem.targets
        if self.class_weights is None:
            return [torch.arange(len(targets))]
        return [(targets == label).nonzero().flatten() for label in targets.unique()]

    @cached_property
    def _groups(self) -> list[list[Labelled]]:
        """Each group under its own labels, and under every other label that it may take."""
        label_cost = self.problem.label_cost
        shifts = range(1 if label_cost is None else label_cost.classes)
        if self.class_weights is None:
            return [[self._bounded(self.problem, shift, 1.0) for shift in shifts]]
        groups = []
        for own in map(self.problem.select, self._indices):
            weights = self.class_weights.roll(-int(own.targets[0])).tolist()
            groups.append([self._bounded(own, shift, weights[shift]) for shift in shifts])
        return groups

    def _bounded(self, own: Problem, shift: int, weight: float) -> Labelled:
        problem = own.relabelled(shift) if shift else own
        clip = clip_within(self.clip, weight)
        on_ball = None if self.advance is None else partial(self.advance, BALL * len(problem))
        tangents, record = None if shift else tangent_points(problem), dict[str, Tangents]()
        try:
            values = Values.at(problem.kernel)
            bounds = with_parabolas(problem.kernel, values, tangents, record)
            edges, balls = self.grid.edges, self.grid.balls
            around = neighborhoods(problem.kernel, values, bounds, edges, balls, clip, on_ball)
        except Refused as reason:
            raise CertusError(f"Nothing can be proven about these samples: {reason}.") from None
        return Labelled(problem, weight, around, record)

    @cached_property
    def samples(self) -> SampleValues:
        parts = []
        for (problem, weight, around, _), *_ in self._groups:
            wrong, start = None, around.values.start
            if around.radius is not None:
                with torch.no_grad():
                    wrong = surely_wrong(problem, problem.inputs, problem.targets)
            start = start if weight == 1 else round_down(weight * start)
            parts.append(SampleValues(SampleBounds.at(around, weight), start, wrong))
        return SampleValues.joined(parts, torch.cat(self._indices).argsort())

    def __reduce__(self) -> tuple[type[DetachedBounds], tuple[list[list[Labelled]]]]:
        groups = [
            [
                under._replace(problem=None, around=replace(under.around, problem=None))  # type: ignore[arg-type]
                for under in group
            ]
            for group in self._groups
        ]
        return DetachedBounds, (groups,)

    def groups(self) -> Iterator[tuple[Tensor, list[Labelled]]]:
        """Return positions of the samples that are solved together, and the samples under each label."""
        return zip(self._indices, self._groups, strict=True)

    def proposals(self, gamma: float) -> Tensor:
        """Return (labels, n, …) float32 moves of the samples, for their own and every other label."""
        inputs = self.problem.inputs
        moves = torch.zeros(len(self._groups[0]), *inputs.shape, dtype=torch.float32)
        for index, group in self.groups():
            for shift, under in enumerate(group):
                moves[shift, index] = proposed_moves(under.problem, gamma_within(gamma, under.weight))
        return moves

    def dual_values(self, gamma: float, moves: Tensor) -> tuple[DualValues, Samples]:
        """Return w·φ̄_{γ/w}, the maximum over all labels of a sample, from proposed moves; and the attained
        points."""
        count, assumptions = len(self.problem), self.problem.assumptions
        whole = DualValues.unknown(DualBounds.unknown(gamma, count, self.clip, assumptions))
        points, targets = self.problem.inputs.clone(), self.problem.targets.clone()
        for index, group in self.groups():
            part, points[index], targets[index] = self._over_labels(gamma, group, moves[:, index])
            whole.fill(index, part)
        return whole, Samples(points, targets)

    def _over_labels(
        self, gamma: float, group: list[Labelled], moves: Tensor
    ) -> tuple[DualValues, Tensor, Tensor]:
        """Return max(φ̄(x, y), max_{y'} φ̄(x, y') − γλ), and the best attained point with its label."""
        price = 0.0 if self.problem.label_cost is None else self.problem.label_cost.price
        bounds: list[DualBounds] = []
        for (problem, weight, around, _), move in zip(group, moves, strict=True):
            other, reached = solve_gamma(problem, around, gamma, move, weight, self.clip)
            bounds.append(other.bounds)
            if len(bounds) == 1:
                values, points, targets = other, reached, problem.targets
                continue
            gain = other.loss - gamma * (other.transport_cost + price)
            climb = gain > values.loss - gamma * values.transport_cost
            values = replace(
                values,
                loss=torch.where(climb, other.loss, values.loss),
                transport_cost=torch.where(climb, other.transport_cost + price, values.transport_cost),
                attained_error_cost=values.attained_error_cost.clamp_max(price),
            )
            points = torch.where(per_sample(climb, points), reached, points)
            targets = torch.where(climb, problem.targets, targets)
        if self.problem.label_cost is not None:
            values = replace(values, bounds=over_labels(bounds[0], bounds[1:]))
        return values, points, targets
