"""What is known around a portion of the samples, under every label that they may take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from certus.batches import per_sample
from certus.certificates.attained.errors_found import errs
from certus.certificates.levels import DEFAULT_ASCENT, Level, solve_level
from certus.certificates.proven.constants import Around, Grid, look_around
from certus.certificates.proven.problem import Problem
from certus.certificates.recall import probed_samples
from certus.certificates.touching_points import touching_points
from certus.outward import SOME, down
from certus.split import Split
from certus.surrogate import Maximizer


@dataclass(frozen=True, eq=False)
class Samples:
    """What is known at some samples themselves.

    Attributes:
        loss, start: (n,) ℓ there, rounded up, and rounded down.
        error_floor: (n,) no error costs less than this; None for regression.
        wrong: (n,) those that are misclassified as they are, beyond doubt; None for regression.
    """

    loss: Tensor
    start: Tensor
    error_floor: Tensor | None
    wrong: Tensor | None

    @staticmethod
    def joined(parts: list[Samples]) -> Samples:
        def together(values: list[Tensor | None]) -> Tensor | None:
            return None if values[0] is None else torch.cat([value for value in values if value is not None])

        return Samples(
            torch.cat([part.loss for part in parts]),
            torch.cat([part.start for part in parts]),
            together([part.error_floor for part in parts]),
            together([part.wrong for part in parts]),
        )


@dataclass(frozen=True, eq=False)
class Surroundings:
    """Some samples, and what is around them: looked at when it is first asked for.

    Attributes:
        clip: B, if it is min(ℓ, B) that is certified.
    """

    problem: Problem
    grid: Grid
    clip: float | None
    ascent: Maximizer = DEFAULT_ASCENT

    @cached_property
    def around(self) -> list[Around]:
        """Under the label that each has, and under every other one that it may take."""
        label_cost = self.problem.label_cost
        labels = 1 if label_cost is None else label_cost.classes
        touches = touching_points(self.problem)
        first = look_around(self.problem, self.grid, self.clip, touches)
        others = [self.problem.relabelled(places) for places in range(1, labels)]
        return [first, *(look_around(part, self.grid, self.clip) for part in others)]

    @cached_property
    def probe(self) -> tuple[Tensor, Surroundings]:
        """A few of the samples, always the same ones."""
        index = probed_samples(len(self.problem))
        return index, replace(self, problem=self.problem.select(index))

    @cached_property
    def samples(self) -> Samples:
        first, problem, wrong = self.around[0], self.problem, None
        if problem.classes is not None:
            with torch.no_grad():
                wrong = errs(problem, problem.inputs, problem.targets)
        return Samples(first.loss, first.start, self._error_floor(), wrong)

    def _error_floor(self) -> Tensor | None:
        radius, problem = self.around[0].radius, self.problem
        if radius is None:
            return None
        costs = problem.unit_price * radius**2 * (1 - problem.metric_slack)
        return costs if problem.label_cost is None else costs.clamp_max(problem.label_cost.price)

    def level(self, gamma: float) -> tuple[Level, Split]:
        """max(φ̄(x, y), max_{y'} φ̄(x, y') − γλ), and the better of the points reached."""
        level, points = solve_level(self.around[0], gamma, self.ascent)
        targets, label_cost = self.problem.targets, self.problem.label_cost
        if label_cost is None:
            return level, Split(points, targets)
        price = label_cost.price
        for each in self.around[1:]:
            other, others = solve_level(each, gamma, self.ascent)
            dearer = other.bound - down(gamma * price, SOME)
            switch = dearer > level.bound
            gain = other.loss - gamma * (other.transport_cost + price)
            climb = gain > level.loss - gamma * level.transport_cost
            level = replace(
                level,
                bound=torch.maximum(level.bound, dearer),
                rule=torch.where(switch, other.rule, level.rule),
                loss=torch.where(climb, other.loss, level.loss),
                transport_cost=torch.where(climb, other.transport_cost + price, level.transport_cost),
                error_cost=level.error_cost.clamp_max(price),
            )
            points = torch.where(per_sample(climb, points), others, points)
            targets = torch.where(climb, each.problem.targets, targets)
        return level, Split(points, targets)
