"""Runs over γ and over the data, remembers what is done, and combines labels that may move."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from certus.batches import per_sample
from certus.certificates.alarm import check_level
from certus.certificates.attained.errors_found import error_cost, errs, lowered_loss
from certus.certificates.attained.search import costs_beyond, nearest_costs, push
from certus.certificates.levels import DEFAULT_ASCENT, Level, solve_level
from certus.certificates.lines import Push
from certus.certificates.proven.constants import Around, Grid, look_around
from certus.certificates.proven.problem import Problem, gather
from certus.certificates.recall import disagreement, fault, probed_samples
from certus.certificates.touching_points import touching_points
from certus.outward import SOME, down, mean_down, mean_up
from certus.split import Split
from certus.surrogate import Maximizer

_RATIO = 1.1  # of neighbouring edges
_MOST_RINGS = 160

Progress = Callable[[int], None]


class Memory(Protocol):
    """Where finished levels are kept, so that an interrupted certification goes on where it was.

    ``reject`` is told of a level that was loaded and not used, and why.
    """

    def load(self, gamma: float) -> Level | None: ...

    def reject(self, gamma: float, reason: str) -> None: ...

    def save(self, level: Level) -> None: ...


def span(rhos: Sequence[float]) -> tuple[float, float]:
    """The smallest and the largest positive ρ."""
    positive = [rho for rho in rhos if rho > 0] or [0.01]
    return min(positive), max(positive)


def make_grid(problem: Problem, rhos: Sequence[float], gammas: Sequence[float], balls: int) -> Grid:
    """Edges and balls that suit these ρ and γ: a function of the network and the question, never of the
    samples."""
    low, high = (math.sqrt(rho / problem.unit_price) for rho in span(rhos))
    far = problem.smoothness.lipschitz / (2 * problem.unit_price * min(gammas))
    far = max(far, 16 * high) if math.isfinite(far) else 64 * high
    near = low / 8
    count = min(_MOST_RINGS, max(8, math.ceil(math.log(far / near) / math.log(_RATIO))))
    edges = torch.logspace(math.log10(near), math.log10(far), count, dtype=torch.float64)
    edges = torch.cat([edges.new_zeros(1), edges])
    radii = torch.logspace(math.log10(low / 2), math.log10(8 * high), balls, dtype=torch.float64)
    return Grid(edges, tuple(sorted({int((edges - radius).abs().argmin()) for radius in radii} - {0})))


@dataclass(eq=False)
class Engine:
    """All levels of one problem.

    Attributes:
        clip: B, if it is min(ℓ, B) that is certified.
        weights: (n,) with a mean of 1, of samples that count differently.
        attack_steps: of the attacks that the lower sides rest on beside the ascents.
        progress: called with the number of samples done at a level.
    """

    problem: Problem
    grid: Grid
    clip: float | None = None
    attack_steps: int = 10
    weights: Tensor | None = None
    ascent: Maximizer = DEFAULT_ASCENT
    memory: Memory | None = None
    progress: Progress | None = None
    _around: list[list[Around]] = field(default_factory=list)
    _levels: list[Level] = field(default_factory=list)

    def prepare(self) -> None:
        """Look around every sample, under every label that it may take."""
        for batch in self.problem.batches():
            self._around.append(self._look(batch))
            self._advance(len(batch))

    def _look(self, batch: Problem) -> list[Around]:
        labels = 1 if batch.label_cost is None else batch.label_cost.classes
        touches = touching_points(batch)
        first = look_around(batch, self.grid, self.clip, touches)
        others = [batch.relabelled(places) for places in range(1, labels)]
        return [first, *(look_around(part, self.grid, self.clip) for part in others)]

    @property
    def loss(self) -> Tensor:
        """(n,) ℓ at the samples, rounded up."""
        return torch.cat([parts[0].loss for parts in self._around])

    @property
    def start(self) -> Tensor:
        """(n,) the same, rounded down."""
        return torch.cat([parts[0].start for parts in self._around])

    def moved(self, gamma: float | None) -> Split:
        """T̂_γ of all samples, or the samples themselves: the points whose costs and losses ``level`` has."""
        if gamma is None:
            return Split(self.problem.inputs, self.problem.targets)
        found = [self._over_labels(around, gamma)[1] for around in self._around]
        return Split(torch.cat([part.inputs for part in found]), torch.cat([part.targets for part in found]))

    def pushed(self, rho: float) -> Split:
        """All samples moved within cost ρ each: the points of ``push``."""
        found = [push(batch, rho, self.attack_steps).points for batch in self.problem.batches()]
        return Split(torch.cat(found), self.problem.targets)

    def met(self, data: Split) -> tuple[float, float | None]:
        """Of other samples as they are: mean loss, rounded down, and share of errors beyond doubt, None for a
        regression."""
        inputs, targets = gather((data.inputs, data.targets))
        assert targets is not None
        other = replace(self.problem, inputs=inputs, targets=targets)
        losses, wrong = [], []
        with torch.no_grad():
            for batch in other.batches():
                losses.append(self._clipped(lowered_loss(batch, batch.inputs)))
                if other.classes is not None:
                    wrong.append(errs(batch, batch.inputs, batch.targets).double())
        return mean_down(torch.cat(losses)), float(torch.cat(wrong).mean()) if wrong else None

    def push(self, rho: float) -> tuple[Push, Tensor]:
        """An attack within cost ρ of every sample, and (n,) the costs of errors found on the way."""
        costs, losses, errors = [], [], []
        for batch in self.problem.batches():
            found = push(batch, rho, self.attack_steps)
            costs.append(found.costs)
            losses.append(self._clipped(found.losses))
            with torch.no_grad():
                errors.append(error_cost(batch, found.points))
            self._advance(len(batch))
        for level in self._levels:
            self._check(level, torch.cat(costs), torch.cat(losses), "an attack in balls")
        spent = min(mean_up(torch.cat(costs), self.weights), rho)
        return Push(rho, spent, mean_down(torch.cat(losses), self.weights)), torch.cat(errors)

    def nearest(self) -> Tensor:
        """(n,) costs of errors that a search of the nearest one finds."""
        found, farthest = [], float(self.grid.edges[-1])
        for batch in self.problem.batches():
            costs, touches = nearest_costs(batch, farthest, self.attack_steps), touching_points(batch)
            found.append(costs if touches is None else torch.minimum(costs, costs_beyond(batch, touches)))
            self._advance(len(batch))
        return torch.cat(found)

    @property
    def error_floor(self) -> Tensor | None:
        """(n,) no error costs less than this; None for regression."""
        found = []
        for parts in self._around:
            radius = parts[0].radius
            if radius is None:
                return None
            found.append(self.problem.unit_price * radius**2 * (1 - self.problem.metric_slack))
        costs = torch.cat(found)
        return costs if self.problem.label_cost is None else costs.clamp_max(self.problem.label_cost.price)

    @property
    def wrong(self) -> Tensor:
        """(n,) samples that are misclassified as they are, beyond doubt."""
        batches = self.problem.batches()
        with torch.no_grad():
            return torch.cat([errs(self.problem, batch.inputs, batch.targets) for batch in batches])

    def level(self, gamma: float) -> Level:
        """φ̄_γ and T̂_γ of all samples, none of which contradicts what is known from other γ."""
        known = self._recalled(gamma)
        level = known or self._solve(gamma)
        self._check(level, torch.zeros_like(self.start), self._clipped(self.start), "doing nothing")
        for other in self._levels:
            self._check(level, other.transport_cost, other.loss, f"the ascent at gamma = {other.gamma:.6g}")
        self._levels.append(level)
        for other in self._levels:
            self._check(other, level.transport_cost, level.loss, f"the ascent at gamma = {gamma:.6g}")
        if self.memory is not None and known is None:
            self.memory.save(level)
        return level

    def _recalled(self, gamma: float) -> Level | None:
        """The level that was kept, if there is one that nothing speaks against."""
        level = None if self.memory is None else self.memory.load(gamma)
        if self.memory is None or level is None:
            return None
        reason = fault(level, self._clipped(self.start), self.error_floor, self.clip)
        if reason is None:
            index, around = self._probe
            reason = disagreement(level, index, self._over_labels(around, gamma)[0])
        if reason is not None:
            self.memory.reject(gamma, reason)
            return None
        self._advance(len(self.problem))
        return level

    @cached_property
    def _probe(self) -> tuple[Tensor, list[Around]]:
        """A few samples, and all that is known around them."""
        index = probed_samples(len(self.problem))
        return index, self._look(self.problem.select(index))

    def _check(self, level: Level, costs: Tensor, losses: Tensor, origin: str) -> None:
        check_level(level, costs, losses, self.problem.assumptions, origin)

    def _clipped(self, losses: Tensor) -> Tensor:
        return losses if self.clip is None else losses.clamp_max(self.clip)

    def _solve(self, gamma: float) -> Level:
        parts = []
        for around in self._around:
            parts.append(self._over_labels(around, gamma)[0])
            self._advance(len(around[0].problem))
        names = ("bound", "rule", "transport_cost", "loss", "error_cost")
        return Level(gamma, **{name: torch.cat([getattr(part, name) for part in parts]) for name in names})

    def _over_labels(self, around: list[Around], gamma: float) -> tuple[Level, Split]:
        """max(φ̄(x, y), max_{y'} φ̄(x, y') − γλ), and the better of the points reached."""
        level, points = solve_level(around[0], gamma, self.ascent)
        targets, label_cost = around[0].problem.targets, self.problem.label_cost
        if label_cost is None:
            return level, Split(points, targets)
        price = label_cost.price
        for each in around[1:]:
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

    def _advance(self, count: int) -> None:
        if self.progress is not None:
            self.progress(count)
