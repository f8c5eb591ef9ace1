"""The certification loop over samples and γ, and the grid of γ.

For each batch of samples, all requested γ are solved, and the local bounds around its samples are released.
The results are ``DualValues``, five numbers per sample and γ, and ``SampleValues``, four per sample. Further
γ depend on these and take another pass over the data. The local bounds of the first batches are kept for that
pass.

γρ + E φ̄_γ is a bound at every γ, so the grid affects its tightness, not its validity. Bounds on
the population rest on a grid that is fixed before any sample is seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from certus.certificates.batching import Portions
from certus.certificates.cache import ProposalCache
from certus.certificates.consistency import check_dual_values
from certus.certificates.dual_values import AttackAggregate, DualAggregate, DualValues
from certus.certificates.error_costs import (
    AttainedErrors,
    error_candidates,
    nearest_errors,
    nearest_on_line,
    surely_wrong,
)
from certus.certificates.local_bounds import DetachedBounds, Grid, LocalBounds, SampleValues
from certus.certificates.lower_bounds import attack_balls, checked_outputs, loss_lower_bound
from certus.certificates.parallel import Mapper, Progress, Question, Task
from certus.certificates.problem import BATCH, Problem, gather
from certus.certificates.progress import ATTACK, BALL, GAMMA, NEAREST, READ
from certus.certificates.witnesses import Witnesses, collect, portion_witnesses
from certus.data import Samples
from certus.errors import UnsupportedError
from certus.kernel import problem as trusted
from certus.kernel.costs import Cost as KernelCost
from certus.kernel.costs import Domain as KernelDomain
from certus.kernel.rounding import mean_down, mean_up
from certus.kernel.rules import DualBounds

_RATIO = 1.1  # of neighbouring edges
_MOST_RINGS = 160
HELD = 20  # batches, some 10,000 samples, whose local bounds are kept from one pass to the next


def budget_range(rhos: Sequence[float]) -> tuple[float, float]:
    """The smallest and the largest positive ρ."""
    positive = [rho for rho in rhos if rho > 0] or [0.01]
    return min(positive), max(positive)


def make_grid(problem: Problem, rhos: Sequence[float], gammas: Sequence[float], balls: int) -> Grid:
    """Choose edges and balls for these ρ and γ: a function of the network and the options, never of the
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


@dataclass
class Moves:
    """The moves of one portion: cached ones, and new ones of an ascent.

    Attributes:
        number: of the portion, for the cache.
        stored: γ → cached moves in memory; fresh: γ → new ones for the process that has the cache, None if it
            is this one.
    """

    number: int
    cache: ProposalCache | None
    stored: dict[float, Tensor] = field(default_factory=dict)
    fresh: dict[float, Tensor] | None = None

    def at(self, gamma: float, here: LocalBounds) -> Tensor:
        """Return the moves at γ; new ones are cached."""
        moves = self.stored[gamma] if gamma in self.stored else self._read(gamma, here.problem)
        if moves is None:
            moves = here.proposals(gamma)
            if self.fresh is not None:
                self.fresh[gamma] = moves
            elif self.cache is not None:
                self.cache.save(gamma, self.number, moves)
        return moves

    def without_cache(self, gammas: Sequence[float], portion: Problem) -> Moves:
        """Return moves for another process, with those of these γ that are cached."""
        read = {gamma: self._read(gamma, portion) for gamma in gammas}
        stored = {gamma: moves for gamma, moves in read.items() if moves is not None}
        return Moves(self.number, None, stored, None if self.cache is None else {})

    def _read(self, gamma: float, portion: Problem) -> Tensor | None:
        labels = 1 if portion.label_cost is None else portion.label_cost.classes
        shape = labels, *portion.inputs.shape
        return None if self.cache is None else self.cache.load(gamma, self.number, shape)


class Solved(NamedTuple):
    """One portion at some γ.

    Attributes:
        values: at the samples themselves, if they were asked for; dual_values: at each γ.
        moves: γ → moves that the caller is to cache; local: the bounds around the samples, if they are kept.
    """

    values: SampleValues | None
    dual_values: list[DualValues]
    moves: dict[float, Tensor]
    local: LocalBounds | DetachedBounds | None


Held = LocalBounds | DetachedBounds | None


def _local(question: Question, portion: Problem, held: Held, progress: Progress | None) -> LocalBounds:
    if isinstance(held, LocalBounds):
        return held
    about = question.grid, question.clip, question.class_weights
    if held is not None:
        return held.attached(portion, *about)
    return LocalBounds(portion, *about, progress)


def solve(
    question: Question,
    portion: Problem,
    held: Held,
    gammas: Sequence[float],
    moves: Moves,
    first: bool,
    keep: bool,
    progress: Progress,
) -> Solved:
    """φ̄_γ and T̂_γ of the samples of one portion.

    Args:
        first: whether the portion is read for the first time; keep: whether to return its local bounds.
    """
    here = _local(question, portion, held, progress if first else None)
    count, dual_values = len(portion) * question.labels, list[DualValues]()
    if first:
        assert here.samples is not None
        progress(READ * count)
    for gamma in gammas:
        dual_values.append(here.dual_values(gamma, moves.at(gamma, here))[0])
        progress(GAMMA * count)
    return Solved(here.samples if first else None, dual_values, moves.fresh or {}, here if keep else None)


def search_errors(
    question: Question, portion: Problem, farthest: float, progress: Progress
) -> AttainedErrors:
    """Search for the nearest errors of one portion."""
    errors, _ = nearest_errors(portion, error_candidates(portion, farthest, question.attack_steps))
    progress(NEAREST * len(portion))
    return errors


def attack_portion(
    question: Question, portion: Problem, rho: float, progress: Progress
) -> tuple[Tensor, Tensor, AttainedErrors]:
    """Attack one portion within ρ of each sample: (n,) costs and losses, and errors found on the way."""
    moved = attack_balls(portion, rho, question.attack_steps)
    losses = question.weighted(moved.losses, portion)
    with torch.no_grad():
        errors = nearest_on_line(portion, moved.points)[0]
    progress(ATTACK * len(portion))
    return moved.costs, losses, errors


def find_witnesses(
    question: Question,
    portion: Problem,
    held: Held,
    gammas: Sequence[float],
    limits: Tensor | None,
    moves: Moves,
    progress: Progress,
) -> Witnesses:
    """Return the witnesses from which the kernel proves these γ again for one portion."""
    here = _local(question, portion, held, None)
    return portion_witnesses(here, {gamma: moves.at(gamma, here) for gamma in gammas}, limits)


@dataclass(eq=False)
class Engine:
    """The dual values of one problem at any γ, and its lower bounds.

    Attributes:
        mapper: asks the question of each portion, here or in other processes.
        weights: (n,) with a mean of 1, of samples that count differently.
        progress: called with the work that was done, in the units of ``total_work``.
        keeps: whether local bounds of the first portions are kept for a further pass.
        differing_predictions: the number of samples read so far that the caller's model, in its own
            precision, predicts otherwise than the network that is certified.
    """

    portions: Portions
    mapper: Mapper
    weights: Tensor | None = None
    cache: ProposalCache | None = None
    progress: Progress = lambda units: None
    keeps: bool = True
    differing_predictions: int = 0
    _held: dict[int, Held] = field(default_factory=dict)
    _known: list[SampleValues] = field(default_factory=list)
    _solved: list[DualValues] = field(default_factory=list)

    @property
    def problem(self) -> Problem:
        return self.portions.question

    @property
    def question(self) -> Question:
        return self.mapper.question

    @property
    def grid(self) -> Grid:
        return self.question.grid

    @property
    def labels(self) -> int:
        """The number of labels that each sample may take."""
        return self.question.labels

    @cached_property
    def samples(self) -> SampleValues:
        """Values at all samples, after ``dual_values`` has read them."""
        return SampleValues.joined(self._known)

    def dual_values(self, gammas: Sequence[float]) -> list[DualValues]:
        """Return φ̄_γ and T̂_γ of all samples at several γ, from one pass, checked against those at other γ."""
        count, assumptions = len(self.portions), self.problem.assumptions
        clip = self.question.clip
        wholes = [DualBounds.unknown(gamma, count, clip, assumptions) for gamma in gammas]
        dual_values, new = [DualValues.unknown(whole) for whole in wholes], not self._known
        sizes: list[int] = []
        first, own = 0, self.progress if self.mapper.jobs == 1 else _silent
        results = self.mapper.map(solve, self._asked(gammas, sizes, new=new), own)
        for number, solved in enumerate(results):
            size = sizes[number]
            index = slice(first, first + size)
            if solved.values is not None:
                self._known.append(solved.values)
            if solved.local is not None:
                self._held[number] = solved.local
            if self.cache is not None:
                for gamma, moves in solved.moves.items():
                    self.cache.save(gamma, self.portions.offset + number, moves)
            others = [values[index] for values in self._solved]
            for whole, values in zip(dual_values, solved.dual_values, strict=True):
                self._check(values, self._known[number].start, others, first)
                whole.fill(index, values)
                others.append(values)
            if own is _silent:
                balls = 0 if self.problem.claimed else len(self.grid.balls)
                each = GAMMA * len(gammas) + (READ + BALL * balls if new else 0)
                self.progress(each * size * self.labels)
            first = index.stop
        self._solved += dual_values
        return dual_values

    def _asked(
        self, gammas: Sequence[float], sizes: list[int], *, new: bool
    ) -> Iterator[tuple[Problem, tuple[Any, ...]]]:
        """Yield the portions, with the arguments of ``solve``; ``sizes`` is filled on the way."""
        for number, portion in enumerate(self.portions):
            sizes.append(len(portion))
            if new:
                self.differing_predictions += _differing(portion)
            moves = Moves(self.portions.offset + number, self.cache)
            if self.mapper.jobs > 1:
                moves = moves.without_cache(gammas, portion)
            keep = self.keeps and number < HELD // self.portions.factor and number not in self._held
            yield portion, (self._held.get(number), gammas, moves, new, keep)

    def _check(self, values: DualValues, losses: Tensor, others: Sequence[DualValues], first: int) -> None:
        """Compare one portion with doing nothing, and with other γ."""
        start = self.question.clipped(losses)
        check_dual_values(values.bounds, torch.zeros_like(start), start, "doing nothing", first)
        for bounded, other in [(values, each) for each in (*others, values)] + [
            (each, values) for each in others
        ]:
            origin = f"the ascent at gamma = {other.gamma:.6g}"
            check_dual_values(bounded.bounds, other.transport_cost, other.loss, origin, first)

    def _local_bounds(self) -> Iterator[LocalBounds]:
        """Yield those of each portion; those of the first portions are kept."""
        for number, portion in enumerate(self.portions):
            yield _local(self.question, portion, self._held.get(number), None)

    def witnesses(
        self, gammas: Sequence[float], limits: Tensor | None = None
    ) -> tuple[trusted.Problem, Witnesses]:
        """Return the kernel's problem for all samples, and the witnesses for these γ, and for costs of
        predictions up to (classes,) limits. Ascents whose moves are not cached are repeated: all moves would
        take more memory than the data."""
        if self.problem.claimed:
            raise UnsupportedError(
                "the bounds given as `smoothness` are claims, which cannot be checked from files."
            )
        problems: list[trusted.Problem] = []

        def asked() -> Iterator[tuple[Problem, tuple[Any, ...]]]:
            for number, portion in enumerate(self.portions):
                problems.append(portion.kernel)
                moves = Moves(self.portions.offset + number, self.cache).without_cache(gammas, portion)
                yield portion, (self._held.get(number), gammas, limits, moves)

        pieces = list(self.mapper.map(find_witnesses, asked()))
        return collect(zip(problems, pieces, strict=True), self.grid)

    def transported(self, gamma: float | None) -> Samples:
        """Return T̂_γ of all samples, or the samples: the points whose costs and losses are those of
        ``dual_values``."""
        if gamma is None:
            return Samples.concatenate(Samples(portion.inputs, portion.targets) for portion in self.portions)
        return Samples.concatenate(_reached(here, gamma) for here in self._local_bounds())

    def geometry(self) -> tuple[KernelCost, KernelDomain, tuple[tuple[int, ...], ...]]:
        """Cost, domain and discrete columns, as the kernel has them."""
        problem = self.problem.kernel
        groups = () if problem.columns is None else problem.columns.groups
        return problem.cost, problem.domain, groups

    def attacked(self, rho: float) -> Samples:
        """Return all samples, each moved within cost ρ: the points of ``attack``."""
        return Samples.concatenate(
            Samples(attack_balls(portion, rho, self.question.attack_steps).points, portion.targets)
            for portion in self.portions
        )

    def evaluate(self, data: Samples) -> tuple[float, float | None]:
        """Return the mean loss of unmoved samples, rounded down, and their share of certain errors; None for
        a regression."""
        inputs, targets = gather((data.inputs, data.targets))
        assert targets is not None
        other = replace(self.problem, inputs=inputs, targets=targets)
        losses, wrong = [], []
        with torch.no_grad():
            for at in range(0, len(other), BATCH):
                batch = other.select(slice(at, at + BATCH))
                losses.append(self.question.weighted(loss_lower_bound(batch, batch.inputs), batch))
                if other.classes is not None:
                    wrong.append(surely_wrong(batch, batch.inputs, batch.targets).double())
        return mean_down(torch.cat(losses)), float(torch.cat(wrong).mean()) if wrong else None

    def attack(self, rho: float) -> tuple[AttackAggregate, AttainedErrors]:
        """Attack every sample within cost ρ; also return the errors found on the way."""
        costs, losses, errors = zip(*self._mapped(attack_portion, ATTACK, rho), strict=True)
        cost, loss = torch.cat(costs), torch.cat(losses)
        for values in self._solved:
            check_dual_values(values.bounds, cost, loss, "an attack in balls")
        spent = min(mean_up(cost, self.weights), rho)
        return AttackAggregate(rho, spent, mean_down(loss, self.weights)), _joined(errors)

    def nearest(self) -> AttainedErrors:
        """Search for the nearest errors."""
        return _joined(list(self._mapped(search_errors, NEAREST, float(self.grid.edges[-1]))))

    def wrong(self) -> AttainedErrors:
        """Samples that are errors as they are."""
        wrong, parts, first = self.samples.wrong, [], 0
        assert wrong is not None
        with torch.no_grad():
            for portion in self.portions:
                parts.append(AttainedErrors.of_samples(portion, wrong[first : first + len(portion)]))
                first += len(portion)
        return _joined(parts)

    def _mapped(self, task: Task, units: float, *arguments: Any) -> Iterator[Any]:
        """Yield the results of a task for all portions, each with the same arguments."""
        sizes: list[int] = []

        def asked() -> Iterator[tuple[Problem, tuple[Any, ...]]]:
            for portion in self.portions:
                sizes.append(len(portion))
                yield portion, arguments

        own = self.progress if self.mapper.jobs == 1 else _silent
        for number, result in enumerate(self.mapper.map(task, asked(), own)):
            if own is _silent:
                self.progress(units * sizes[number])
            yield result

    def nearest_errors(self, rhos: Sequence[float]) -> tuple[Tensor, Samples]:
        """Return (n,) least costs of the errors found, and the errors, or the sample where none was found;
        ``rhos`` are the ρ of the attacks in balls."""
        if self.problem.label_cost is not None:
            raise UnsupportedError(
                "Nearest errors are not defined with a label cost, which lets labels change."
            )

        def candidates(here: LocalBounds) -> Iterator[tuple[Tensor | None, Tensor]]:
            problem = here.problem
            yield None, problem.inputs
            for values in self._solved:
                yield None, _reached(here, values.gamma).inputs
            steps = self.question.attack_steps
            if steps > 0:
                yield from error_candidates(problem, float(self.grid.edges[-1]), steps)
                for rho in rhos:
                    yield None, attack_balls(problem, rho, steps).points

        costs, errors = [], []
        for here in self._local_bounds():
            (cost, _), points = nearest_errors(here.problem, candidates(here))
            costs.append(cost)
            errors.append(Samples(points, here.problem.targets))
        return torch.cat(costs), Samples.concatenate(errors)


def _silent(units: float) -> None:
    """Report nothing: the parent counts what workers have done."""


def _joined(parts: Sequence[AttainedErrors]) -> AttainedErrors:
    return AttainedErrors(*(torch.cat(side) for side in zip(*parts, strict=True)))


def _reached(here: LocalBounds, gamma: float) -> Samples:
    """Return T̂_γ of the samples of one portion."""
    return here.dual_values(gamma, here.proposals(gamma))[1]


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
    """Return Γ, a function of the network and ρ alone: γ around G/(2√(gρ)), the best of the Lipschitz rule,
    and far below; with a label cost up to B/price, above which no label moves. B = 2 ln K unless clipped.

    Args:
        weights: smallest and largest class weight.
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
    engine: Engine, dual_values: list[DualValues], rhos: Sequence[float], rounds: int
) -> list[DualValues]:
    """Add further γ: above the largest until it is best for no ρ, below the smallest until T̂ moves the
    data by the largest ρ, and between neighbours that are best for some ρ.

    Larger γ matter with a label cost, since the gain of a changed label is not bounded by a slope.
    """
    if rounds == 0:
        return dual_values
    least = budget_range(rhos)[0]
    for _ in range(_MOST_ADDED):
        ends = [values.gamma * least + mean_up(values.bound, engine.weights) for values in dual_values[:2]]
        if len(ends) < 2 or not ends[0] < ends[1]:
            break
        dual_values.insert(0, *engine.dual_values([dual_values[0].gamma * _STEP]))
    for _ in range(24):
        last = DualAggregate.of(dual_values[-1], engine.weights)
        if last.rho_hat >= budget_range(rhos)[1] or last.gamma < _LEAST:
            break
        dual_values += engine.dual_values([dual_values[-1].gamma / 4])
    for turn in range(rounds):
        dual_values.sort(key=lambda values: -values.gamma)
        step = _STEP ** (0.5 ** (turn + 1))
        gammas = [values.gamma for values in dual_values]
        means = [mean_up(values.bound, engine.weights) for values in dual_values]
        best = {min(gammas, key=lambda gamma: gamma * rho + means[gammas.index(gamma)]) for rho in rhos}
        wanted: list[float] = []
        for gamma in sorted(gamma * factor for gamma in best for factor in (step, 1 / step)):
            if all(abs(gamma / other - 1) > 0.02 for other in (*gammas, *wanted)):
                wanted.append(gamma)
        if wanted:
            dual_values += engine.dual_values(wanted)
    return dual_values
