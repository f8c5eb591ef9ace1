"""The certification loop over samples and γ, and the grid of γ.

For each batch of samples, all requested γ are solved, and the local bounds around its samples are released.
What remains is ``DualValues``, five numbers of each sample for each γ, and ``SampleValues``, four more.
Further γ, which depend on these, take another pass over the data. The local bounds of the first batches are
kept for it, so that only those of large data are computed again.

γρ + E φ̄_γ is a bound at every γ, so the grid decides how tight it is and never whether it holds. Bounds on
the population rest on a grid that is fixed before any sample is seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import torch
from torch import Tensor

from certus.certificates.alarm import check_dual_values
from certus.certificates.batching import Portions
from certus.certificates.cache import ProposalCache
from certus.certificates.dual_values import AttackAggregate, DualAggregate, DualValues
from certus.certificates.error_costs import (
    error_candidates,
    nearest_errors,
    nearest_on_line,
    surely_wrong,
)
from certus.certificates.local_bounds import Grid, LocalBounds, SampleValues, weighted_losses
from certus.certificates.lower_bounds import attack_balls, checked_outputs, loss_lower_bound
from certus.certificates.problem import BATCH, Problem, gather
from certus.certificates.progress import LEVEL, LOOK, NEAREST, PUSH
from certus.certificates.witnesses import Witnesses, collect
from certus.data import Samples
from certus.errors import UnsupportedError
from certus.kernel import problem as trusted
from certus.kernel.rounding import mean_down, mean_up
from certus.kernel.rules import DualBounds

_RATIO = 1.1  # of neighbouring edges
_MOST_RINGS = 160
HELD = 20  # batches, some 10,000 samples, whose local bounds are kept from one pass to the next

Progress = Callable[[float], None]


def budget_range(rhos: Sequence[float]) -> tuple[float, float]:
    """The smallest and the largest positive ρ."""
    positive = [rho for rho in rhos if rho > 0] or [0.01]
    return min(positive), max(positive)


def make_grid(problem: Problem, rhos: Sequence[float], gammas: Sequence[float], balls: int) -> Grid:
    """Edges and balls that suit these ρ and γ: a function of the network and the question, never of the
    samples."""
    low, high = (math.sqrt(rho / problem.unit_cost) for rho in budget_range(rhos))
    far = problem.smoothness.lipschitz / (2 * problem.unit_cost * min(gammas))
    far = max(far, 16 * high) if math.isfinite(far) else 64 * high
    near = low / 8
    count = min(_MOST_RINGS, max(8, math.ceil(math.log(far / near) / math.log(_RATIO))))
    edges = torch.logspace(math.log10(near), math.log10(far), count, dtype=torch.float64)
    edges = torch.cat([edges.new_zeros(1), edges])
    radii = torch.logspace(math.log10(low / 2), math.log10(8 * high), balls, dtype=torch.float64)
    return Grid(edges, tuple(sorted({int((edges - radius).abs().argmin()) for radius in radii} - {0})))


@dataclass(eq=False)
class Engine:
    """The dual values of one problem at any γ, and its lower bounds.

    Attributes:
        clip: B, if it is min(ℓ, B) that is certified.
        weights: (n,) with a mean of 1, of samples that count differently.
        class_weights: (classes,) by which losses count; None if all count alike.
        attack_steps: of the attacks that the lower sides rest on beside the ascents.
        progress: called with the work that was done, in the units of ``total_work``.
        differing_predictions: the number of samples read so far that the caller's model, in its own
            precision, predicts otherwise than the network that is certified.
    """

    portions: Portions
    grid: Grid
    clip: float | None = None
    attack_steps: int = 10
    weights: Tensor | None = None
    cache: ProposalCache | None = None
    progress: Progress = lambda units: None
    class_weights: Tensor | None = None
    differing_predictions: int = 0
    _held: dict[int, LocalBounds] = field(default_factory=dict)
    _known: list[SampleValues] = field(default_factory=list)
    _levels: list[DualValues] = field(default_factory=list)

    @property
    def problem(self) -> Problem:
        return self.portions.question

    @property
    def labels(self) -> int:
        """The number of labels that each sample may take."""
        return 1 if self.problem.label_cost is None else self.problem.label_cost.classes

    @cached_property
    def samples(self) -> SampleValues:
        """Values at all samples, once ``levels`` has read them."""
        return SampleValues.joined(self._known)

    def levels(self, gammas: Sequence[float]) -> list[DualValues]:
        """φ̄_γ and T̂_γ of all samples at some γ, in one pass, checked against those of other γ."""
        count, assumptions = len(self.portions), self.problem.assumptions
        wholes = [DualBounds.unknown(gamma, count, self.clip, assumptions) for gamma in gammas]
        levels = [DualValues.unknown(whole) for whole in wholes]
        first = 0
        for number, here in enumerate(self._local_bounds()):
            if len(self._known) == number:
                self._known.append(here.samples)
                self.differing_predictions += _differing(here.problem)
                self.progress(LOOK * len(here.problem) * self.labels)
            index = slice(first, first + len(here.problem))
            others = [level[index] for level in self._levels]
            for whole in levels:
                whole.fill(index, self._level(whole.gamma, number, here, others, first))
                others.append(whole[index])
            first = index.stop
        self._levels += levels
        return levels

    def _local_bounds(self) -> Iterator[LocalBounds]:
        """Yield those of each portion; those of the first portions are kept."""
        for number, portion in enumerate(self.portions):
            # A portion that is read again is no part of the planned work.
            progress = None if number < len(self._known) else self.progress
            fresh = LocalBounds(portion, self.grid, self.clip, self.class_weights, progress)
            yield self._held.setdefault(number, fresh) if number < HELD else fresh

    def _level(
        self, gamma: float, number: int, here: LocalBounds, others: Sequence[DualValues], first: int
    ) -> DualValues:
        """Dual values of one portion, from cached or new proposals, checked against doing nothing and against
        other γ."""
        shape = (self.labels, *here.problem.inputs.shape)
        cached = None if self.cache is None else self.cache.load(gamma, number, shape)
        moves = here.proposals(gamma) if cached is None else cached
        level, _ = here.level(gamma, moves)
        start = self._clipped(self._known[number].start)
        check_dual_values(level.bounds, torch.zeros_like(start), start, "doing nothing", first)
        for one, other in [(level, each) for each in (*others, level)] + [(each, level) for each in others]:
            origin = f"the ascent at gamma = {other.gamma:.6g}"
            check_dual_values(one.bounds, other.transport_cost, other.loss, origin, first)
        if self.cache is not None and cached is None:
            self.cache.save(gamma, number, moves)
        self.progress(LEVEL * len(start) * self.labels)
        return level

    def witnesses(self, gammas: Sequence[float]) -> tuple[trusted.Problem, Witnesses]:
        """The kernel's problem about all samples, and what it needs to prove these γ again. Ascents are
        repeated, unless their moves are cached: to keep all of them would take more memory than the data."""
        if self.problem.claimed:
            raise UnsupportedError("the bounds given as `smoothness` are claims, which no file can prove.")

        def moves(number: int, here: LocalBounds, gamma: float) -> Tensor:
            shape = (self.labels, *here.problem.inputs.shape)
            cached = None if self.cache is None else self.cache.load(gamma, number, shape)
            return here.proposals(gamma) if cached is None else cached

        local = enumerate(self._local_bounds())
        return collect(((here, partial(moves, number, here)) for number, here in local), self.grid, gammas)

    def transported(self, gamma: float | None) -> Samples:
        """T̂_γ of all samples, or the samples themselves: the points whose costs and losses ``levels`` has."""
        if gamma is None:
            return Samples.concatenate(Samples(portion.inputs, portion.targets) for portion in self.portions)
        return Samples.concatenate(_reached(here, gamma) for here in self._local_bounds())

    def attacked(self, rho: float) -> Samples:
        """All samples moved within cost ρ each: the points of ``push``."""
        return Samples.concatenate(
            Samples(attack_balls(portion, rho, self.attack_steps).points, portion.targets)
            for portion in self.portions
        )

    def evaluate(self, data: Samples) -> tuple[float, float | None]:
        """Of other samples as they are: mean loss, rounded down, and share of errors beyond doubt, None for a
        regression."""
        inputs, targets = gather((data.inputs, data.targets))
        assert targets is not None
        other = replace(self.problem, inputs=inputs, targets=targets)
        losses, wrong = [], []
        with torch.no_grad():
            for at in range(0, len(other), BATCH):
                batch = other.select(slice(at, at + BATCH))
                losses.append(self._counted(loss_lower_bound(batch, batch.inputs), batch))
                if other.classes is not None:
                    wrong.append(surely_wrong(batch, batch.inputs, batch.targets).double())
        return mean_down(torch.cat(losses)), float(torch.cat(wrong).mean()) if wrong else None

    def push(self, rho: float) -> tuple[AttackAggregate, Tensor]:
        """An attack within cost ρ of every sample, and (n,) the costs of errors found on the way."""
        costs, losses, errors = [], [], []
        for portion in self.portions:
            moved = attack_balls(portion, rho, self.attack_steps)
            costs.append(moved.costs)
            losses.append(self._counted(moved.losses, portion))
            with torch.no_grad():
                errors.append(nearest_on_line(portion, moved.points)[0])
            self.progress(PUSH * len(portion))
        cost, loss = torch.cat(costs), torch.cat(losses)
        for level in self._levels:
            check_dual_values(level.bounds, cost, loss, "an attack in balls")
        spent = min(mean_up(cost, self.weights), rho)
        return AttackAggregate(rho, spent, mean_down(loss, self.weights)), torch.cat(errors)

    def nearest(self) -> Tensor:
        """(n,) costs of the nearest errors that a search finds; ∞ where it finds none."""
        costs, farthest = [], float(self.grid.edges[-1])
        for portion in self.portions:
            costs.append(nearest_errors(portion, error_candidates(portion, farthest, self.attack_steps))[0])
            self.progress(NEAREST * len(portion))
        return torch.cat(costs)

    def nearest_errors(self, rhos: Sequence[float]) -> tuple[Tensor, Samples]:
        """(n,) the least cost of an error that was found, and the errors, the samples where none was;
        ``rhos`` are those of the attacks in balls."""
        if self.problem.label_cost is not None:
            raise UnsupportedError(
                "Nearest errors are not defined with a label cost, which lets labels change."
            )

        def candidates(here: LocalBounds) -> Iterator[tuple[Tensor | None, Tensor]]:
            problem = here.problem
            yield None, problem.inputs
            for level in self._levels:
                yield None, _reached(here, level.gamma).inputs
            if self.attack_steps > 0:
                yield from error_candidates(problem, float(self.grid.edges[-1]), self.attack_steps)
                for rho in rhos:
                    yield None, attack_balls(problem, rho, self.attack_steps).points

        costs, errors = [], []
        for here in self._local_bounds():
            cost, points = nearest_errors(here.problem, candidates(here))
            costs.append(cost)
            errors.append(Samples(points, here.problem.targets))
        return torch.cat(costs), Samples.concatenate(errors)

    def _counted(self, losses: Tensor, problem: Problem) -> Tensor:
        return self._clipped(weighted_losses(losses, problem.targets, self.class_weights))

    def _clipped(self, losses: Tensor) -> Tensor:
        return losses if self.clip is None else losses.clamp_max(self.clip)


def _reached(here: LocalBounds, gamma: float) -> Samples:
    """T̂_γ of the samples of one portion."""
    return here.level(gamma, here.proposals(gamma))[1]


def _differing(problem: Problem) -> int:
    with torch.no_grad():
        outputs, _ = checked_outputs(problem, problem.inputs)
    labels = problem.classes is not None
    return int(problem.original_model.differing(problem.inputs, outputs, labels=labels).sum())


_STEP = math.sqrt(2)  # ratio of neighbouring γ
_BELOW = 64  # how far below the Lipschitz rule's best γ the grid goes
_LEAST = 1e-12  # no γ below it is added
_MOST_ADDED = 64  # γ above the grid


def default_gammas(
    problem: Problem, rhos: Sequence[float], clip: float | None, weights: tuple[float, float] = (1.0, 1.0)
) -> tuple[float, ...]:
    """Γ from the network and ρ alone: around G/(2√(gρ)), the best γ of the Lipschitz rule, far below it, and
    up to where no label moves for what min(ℓ, B) can gain by it: B/price, with B = 2 ln K unless clipped.

    Args:
        weights: the least and the largest by which losses count.
    """
    slope, price, root = problem.smoothness.lipschitz, problem.unit_cost, problem.smoothness.output_lipschitz
    if not math.isfinite(slope) and clip is None:
        # Squared errors: no bound below γg = α², and a pole there.
        low, high = 1.02 * root**2 / price, 512 * root**2 / price
    else:
        if not math.isfinite(slope):
            assert clip is not None
            slope = 2 * math.sqrt(clip) * root  # of min(ℓ, B)
        high, low = (slope / (2 * math.sqrt(price * rho)) for rho in budget_range(rhos))
        low /= _BELOW
    if not 0 < low < math.inf:
        low = high = 1.0  # a network that does not depend on its inputs
    low, high = low * weights[0], high * weights[1]
    if problem.label_cost is not None:
        most = 2 * math.log(problem.label_cost.classes) * weights[1] if clip is None else clip
        high = max(high, most / problem.label_cost.price)
    count = 1 + math.ceil(math.log(high / low) / math.log(_STEP))
    return tuple(high / _STEP**index for index in range(count))


def refine_gammas(
    engine: Engine, levels: list[DualValues], rhos: Sequence[float], rounds: int
) -> list[DualValues]:
    """Further γ: up until none is best for a ρ, down until T̂ moves the data by the largest ρ, and between
    those that are best for some ρ.

    Up it goes for labels: what a label gains is bounded by no slope, and may take a γ of that over its price.
    """
    if rounds == 0:
        return levels
    least = budget_range(rhos)[0]
    for _ in range(_MOST_ADDED):
        ends = [level.gamma * least + mean_up(level.bound, engine.weights) for level in levels[:2]]
        if len(ends) < 2 or not ends[0] < ends[1]:
            break
        levels.insert(0, *engine.levels([levels[0].gamma * _STEP]))
    for _ in range(24):
        last = DualAggregate.of(levels[-1], engine.weights)
        if last.rho_hat >= budget_range(rhos)[1] or last.gamma < _LEAST:
            break
        levels += engine.levels([levels[-1].gamma / 4])
    for turn in range(rounds):
        levels.sort(key=lambda level: -level.gamma)
        step = _STEP ** (0.5 ** (turn + 1))
        gammas = [level.gamma for level in levels]
        means = [mean_up(level.bound, engine.weights) for level in levels]
        best = {min(gammas, key=lambda gamma: gamma * rho + means[gammas.index(gamma)]) for rho in rhos}
        wanted: list[float] = []
        for gamma in sorted(gamma * factor for gamma in best for factor in (step, 1 / step)):
            if all(abs(gamma / other - 1) > 0.02 for other in (*gammas, *wanted)):
                wanted.append(gamma)
        if wanted:
            levels += engine.levels(wanted)
    return sorted(levels, key=lambda level: -level.gamma)
