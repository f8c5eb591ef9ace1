"""Local bounds around a batch of samples, under every label that they may take, and with class weights.

With class weights w, the certified loss is w_y·ℓ:

    sup {E_P w_y ℓ : W_c(P, P̂_n) ≤ ρ} ≤ min_γ γρ + E_n w_y φ̄_{γ/w_y},

since sup_x wℓ(x) − γc(x, x₀) = w·φ_{γ/w}(x₀). The distribution of the samples stays the same; weights of
*samples* change it. Samples of one label share one w, so they are solved together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from certus._tensor import per_sample
from certus.certificates.cache import spot_checked_samples
from certus.certificates.dual_values import DEFAULT_ASCENT, PER_SAMPLE, DualValues, solve_gamma
from certus.certificates.error_costs import proven_error_cost, surely_wrong
from certus.certificates.progress import BALL
from certus.certificates.proven.constants import Grid, Neighborhoods, bound_neighborhoods
from certus.certificates.proven.majorants import TangentPoints
from certus.certificates.proven.problem import Problem
from certus.certificates.tangent_points import touching_points
from certus.data import Samples
from certus.errors import require, require_numbers
from certus.inner import Maximizer
from certus.rounding import FEW, SOME, down, up


@dataclass(frozen=True, eq=False)
class SampleValues:
    """What is known at some samples themselves.

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
    def joined(parts: list[SampleValues]) -> SampleValues:
        def together(values: list[Tensor | None]) -> Tensor | None:
            return None if values[0] is None else torch.cat([value for value in values if value is not None])

        return SampleValues(
            torch.cat([part.loss for part in parts]),
            torch.cat([part.start for part in parts]),
            together([part.proven_error_cost for part in parts]),
            together([part.wrong for part in parts]),
        )


def round_down(losses: Tensor) -> Tensor:
    """Products that may have either sign, rounded down."""
    return losses - FEW * losses.abs()


@dataclass(frozen=True, eq=False)
class LocalBounds:
    """Some samples, and what is around them: looked at when it is first asked for.

    With a weight w it is wℓ that is certified, and sup wℓ − γc = w·φ_{γ/w}.

    Attributes:
        clip: B, if it is min(wℓ, B) that is certified.
        scales: w of the label that all of these samples have, and of those that they may take instead, each
            one place further on; all 1 by default.
        advance: told of the work that is done around them.
    """

    problem: Problem
    grid: Grid
    clip: float | None
    ascent: Maximizer = DEFAULT_ASCENT
    scales: tuple[float, ...] = ()
    advance: Callable[[float], None] | None = None

    def _scale(self, places: int) -> float:
        return self.scales[places] if self.scales else 1.0

    def _look(self, problem: Problem, places: int, touches: TangentPoints | None = None) -> Neighborhoods:
        clip, scale = self.clip, self._scale(places)
        if clip is not None and scale != 1:
            clip = up(clip / scale, FEW)
        return bound_neighborhoods(problem, self.grid, clip, touches, self._tell)

    def _solve(self, gamma: float, places: int) -> tuple[DualValues, Tensor]:
        scale = self._scale(places)
        if scale == 1:
            return solve_gamma(self.around[places], gamma, self.ascent)
        # A smaller γ has a larger bound.
        level, points = solve_gamma(self.around[places], down(gamma / scale, FEW), self.ascent)
        bound, loss = up(scale * level.bound, FEW), round_down(scale * level.loss)
        if self.clip is not None:
            bound, loss = bound.clamp_max(self.clip), loss.clamp_max(self.clip)
        return replace(level, gamma=gamma, bound=bound, loss=loss), points

    @cached_property
    def around(self) -> list[Neighborhoods]:
        """Under the label that each has, and under every other one that it may take."""
        label_cost = self.problem.label_cost
        labels = 1 if label_cost is None else label_cost.classes
        first = self._look(self.problem, 0, touching_points(self.problem))
        return [first, *(self._look(self.problem.relabelled(on), on) for on in range(1, labels))]

    def _tell(self) -> None:
        """A ball around every sample is done."""
        if self.advance is not None:
            self.advance(BALL * len(self.problem))

    @cached_property
    def probe(self) -> tuple[Tensor, LocalBounds]:
        """A few of the samples, always the same ones."""
        index = spot_checked_samples(len(self.problem))
        return index, replace(self, problem=self.problem.select(index), advance=None)

    @cached_property
    def samples(self) -> SampleValues:
        first, problem, wrong = self.around[0], self.problem, None
        if problem.classes is not None:
            with torch.no_grad():
                wrong = surely_wrong(problem, problem.inputs, problem.targets)
        scale = self._scale(0)
        loss, start = first.loss, first.start
        if scale != 1:
            loss, start = up(scale * loss, FEW), round_down(scale * start)
        costs = None if first.radius is None else proven_error_cost(problem, first.radius)
        return SampleValues(loss, start, costs, wrong)

    def level(self, gamma: float) -> tuple[DualValues, Samples]:
        """max(φ̄(x, y), max_{y'} φ̄(x, y') − γλ), and the better of the points reached."""
        level, points = self._solve(gamma, 0)
        targets, label_cost = self.problem.targets, self.problem.label_cost
        if label_cost is None:
            return level, Samples(points, targets)
        price = label_cost.price
        for places, each in enumerate(self.around[1:], 1):
            other, others = self._solve(gamma, places)
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
                attained_error_cost=level.attained_error_cost.clamp_max(price),
            )
            points = torch.where(per_sample(climb, points), others, points)
            targets = torch.where(climb, each.problem.targets, targets)
        return level, Samples(points, targets)


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


@dataclass(frozen=True, eq=False)
class LocalBoundsByLabel:
    """``LocalBounds`` of samples whose losses count by their labels.

    Attributes:
        weights: (classes,) w.
        advance: told of the work that is done around them.
    """

    problem: Problem
    grid: Grid
    clip: float | None
    weights: Tensor
    ascent: Maximizer = DEFAULT_ASCENT
    advance: Callable[[float], None] | None = None

    @cached_property
    def _groups(self) -> list[tuple[Tensor, LocalBounds]]:
        """For each label that there is: where its samples are, and what is around them."""
        groups = []
        for label in self.problem.targets.unique().tolist():
            index = (self.problem.targets == label).nonzero().flatten()
            scales = tuple(self.weights.roll(-label).tolist())
            few = self.problem.select(index)
            part = LocalBounds(few, self.grid, self.clip, self.ascent, scales, self.advance)
            groups.append((index, part))
        return groups

    @cached_property
    def probe(self) -> tuple[Tensor, LocalBoundsByLabel]:
        """A few of the samples of each label, always the same ones."""
        index = torch.cat([each[spot_checked_samples(len(each))] for each, _ in self._groups]).sort().values
        return index, replace(self, problem=self.problem.select(index), advance=None)

    @cached_property
    def samples(self) -> SampleValues:
        joined = SampleValues.joined([part.samples for _, part in self._groups])
        back = self._order
        floor, wrong = joined.proven_error_cost, joined.wrong
        assert floor is not None  # there are labels
        assert wrong is not None
        return SampleValues(joined.loss[back], joined.start[back], floor[back], wrong[back])

    def level(self, gamma: float) -> tuple[DualValues, Samples]:
        """w·φ̄_{γ/w}, and the points reached."""
        pairs = [part.level(gamma) for _, part in self._groups]
        joined, back = DualValues.joined([level for level, _ in pairs]), self._order
        level = DualValues(gamma, **{name: getattr(joined, name)[back] for name in PER_SAMPLE})
        inputs = torch.cat([points.inputs for _, points in pairs])[back]
        return level, Samples(inputs, torch.cat([points.targets for _, points in pairs])[back])

    @property
    def _order(self) -> Tensor:
        """Where each sample is when the groups are put one behind the other."""
        return torch.cat([index for index, _ in self._groups]).argsort()
