"""Refinement of tree certificates: proofs of rows, in the order in which they narrow the bounds most.

After a few searches of fixed size for every row, rows are refined in the order in which the knapsack spends:
those whose proven cost of an error is within what ρ pays for, and far below the attained one; then those with
the largest gap between bound and attained value of the loss, at the level at which the bound is attained.
Rounds of refinement do not depend on the number of workers.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from certus._progress import describe
from certus.certificates.dual_values import DualValues
from certus.certificates.error_costs import proposed_gamma, worst_error
from certus.certificates.local_bounds import SampleValues
from certus.certificates.tree_workers import TreeWorkers
from certus.data import Samples
from certus.errors import UnsupportedError
from certus.kernel.costs import Cost as KernelCost
from certus.kernel.costs import Domain as KernelDomain
from certus.kernel.costs import Lp
from certus.kernel.error_rates import worst_error_rate
from certus.kernel.rounding import SOME, TINY, mean_down, mean_up, slack
from certus.kernel.rules import DualBounds, SampleBounds, over_labels
from certus.kernel.tree_profiles import SPLITS, Profiles, TreeLoss, TreeProblem
from certus.kernel.trees import Ensemble, Proof

if TYPE_CHECKING:
    from certus.certificates.tree_search import Answer, Question

_LEVELS = 256  # of scores, at which costs are bounded
_LOSS_LEVELS = (0.1, 0.25, 0.5, 0.8)  # of the way from a row's score to the largest, which are searched
_FIXED = 8  # boxes of the searches that every row gets
_LARGEST = 4096  # boxes of the last search of a row
_BLOCK = 8  # rows whose first searches are asked for at once, for each worker
_ROUND = 32  # rows, at most, that are refined at once
_LOSS_BOXES = 64  # of the searches that narrow the loss, for each row in the mean; more in a limited time

INTERRUPTED = "it was interrupted"


class TreeReading(Protocol):
    """A tree model as it was read (``certus.bounds.trees.TreeModel``).

    ``columns`` have a ``name`` each. ``output`` is "logistic", "softmax", "probability" or "number"; within
    ``ensemble.rounding`` of a tie either class may be predicted. ``encode`` maps rows as the model takes them
    to (n, columns) float64; ``predict`` is the model's own, on encoded rows: (n,) labels or numbers.
    """

    @property
    def ensemble(self) -> Ensemble: ...

    @property
    def output(self) -> str: ...

    @property
    def columns(self) -> Sequence[Any]: ...

    def encode(self, rows: Any) -> Tensor: ...

    def encode_targets(self, targets: Any) -> Tensor: ...

    def predict(self, encoded: Tensor) -> Any: ...


def best_gamma(gammas: Sequence[float], means: Sequence[float], rho: float) -> int:
    """The place of the γ with the least bound γρ + mean."""
    return min(range(len(gammas)), key=lambda at: gammas[at] * rho + means[at])


def _worth_most(gains: Tensor, boxes: Tensor, weights: Tensor | None) -> list[int]:
    """The rows that gain most for their boxes, and those that gain at least half as much."""
    worth = (gains if weights is None else weights * gains) / boxes
    order = worth.argsort(descending=True, stable=True)[:_ROUND]
    return order[(worth[order] > 0) & (worth[order] >= worth[order[0]] / 2)].tolist()


class _Proven(NamedTuple):
    """A proof of one row, label and score, whether its search was fixed, and the costs that it proves."""

    fixed: bool
    proof: Proof
    costs: Tensor


def _needed(proven: Sequence[_Proven]) -> list[tuple[bool, Proof]]:
    """Select the proofs without which the costs of the fixed ones, or of all, were smaller at some level."""
    needed: list[int] = []
    for part in ([place for place, each in enumerate(proven) if each.fixed], list(range(len(proven)))):
        if part:
            costs = torch.stack([proven[place].costs for place in part])
            best = costs.amax(0)
            left = best > torch.stack([best * 0, *(proven[place].costs for place in needed)]).amax(0)
            for place in reversed(part):
                if place not in needed and bool((left & (proven[place].costs >= best)).any()):
                    needed.append(place)
                    left &= proven[place].costs < best
    return [(proven[place].fixed, proven[place].proof) for place in sorted(needed)]


class Aim(NamedTuple):
    """The aim of refinement: brackets at ρ, from γ of a grid, within a factor, by ``end`` on the clock."""

    rhos: Sequence[float]
    gammas: Sequence[float]
    weights: Tensor | None
    width: float
    end: float
    report: Callable[[float], None] | None

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.end

    def show(self, share: float, words: str) -> None:
        if self.report is not None:
            describe(self.report, words)
            self.report(share)


class _Task(NamedTuple):
    """A question about a row and score under a label, counted from the row's own; whether it is about an
    error."""

    label: int
    row: int
    score: int
    question: Question
    error: bool = False


@dataclass(eq=False)
class TreeWork:
    """Rows, what is proven of them, and the moved rows that were attained; the source of the certificate."""

    problem: TreeProblem
    reading: TreeReading
    class_weights: Tensor | None
    clip: float | None
    workers: TreeWorkers
    candidates: list[tuple[int, Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        problem, count = self.problem, len(self.problem.rows)
        labels = [problem, *self._relabelled()]
        self.labelled = [Profiles.trivial(each, each.levels(_LEVELS)) for each in labels]
        self.profiles = self.labelled[0]
        self.proofs: dict[tuple[int, int, int], list[_Proven]] = {}
        self.evaluating: tuple[_Task, Proof] | None = None
        self.fixed, self.begun, self.unfinished = True, 0, ""
        self.wrong = torch.zeros(count, dtype=torch.bool)
        if problem.errors:
            self.wrong = self.reading.encode_targets(self.reading.predict(problem.rows)) != problem.targets
        self.error_cost = torch.where(self.wrong, 0.0, math.inf).double()
        self.error_row = problem.rows.clone()
        self.pool: list[list[Tensor]] = [[row[None]] for row in problem.rows]

    def _relabelled(self) -> list[TreeProblem]:
        """The problem under every other label, where labels have a price."""
        problem, classes = self.problem, self.problem.classes
        if classes is None or problem.cost.label_price == math.inf:
            return []
        return [replace(problem, targets=(problem.targets + shift) % classes) for shift in range(1, classes)]

    def begin_all(self, aim: Aim) -> None:
        """The first searches of all rows; rows without any, because time was up, count as errors."""
        count, block = len(self.pool), _BLOCK * self.workers.jobs
        try:
            while self.begun < count and not (self.begun and aim.over):
                rows = range(self.begun, min(self.begun + block, count))
                self._ask([task for row in rows for task in self._first(row)])
                self.verify()
                self.begun = rows.stop
                aim.show(0.5 * self.begun / count, self.known(aim))
        except KeyboardInterrupt:
            if not self.proofs:  # there is nothing to keep
                raise
            self._interrupted()
        if self.begun < count:
            early = self.unfinished or "time was up"
            self.unfinished = f"{early} after the first searches of {self.begun:,} of {count:,} rows"

    def _interrupted(self) -> None:
        """Finish what was begun, so that every bound has its stored proof."""
        self.unfinished = INTERRUPTED
        if self.evaluating is not None:
            self._prove(*self.evaluating)
        self.verify()

    def _first(self, row: int) -> list[_Task]:
        """The searches that every row gets, of a size that depends on nothing else."""
        problem, lost, tasks = self.problem, self.problem.lost[row], []
        if not self.wrong[row]:
            tasks = [
                self._error_task(row, score, _FIXED, greedy=2 * float(lost[score]) + SOME)
                for score in range(problem.errors)
            ]
        for label, profiles in enumerate(self.labelled):
            for score in range(problem.scores[1].shape[1]):
                for share in _LOSS_LEVELS:
                    place = int(share * _LEVELS)
                    level = float(profiles.levels[row, score, place])
                    tasks.append(self._task(label, row, score, level, 1, width=1.02, greedy=level))
        return tasks

    def _error_task(self, row: int, score: int, boxes: int, **options: Any) -> _Task:
        level, attained = -float(self.problem.lost[row, score]), float(self.error_cost[row])
        return self._task(0, row, score, level, boxes, attained=attained, **options)._replace(error=True)

    def _task(self, label: int, row: int, score: int, level: float, boxes: int, **options: Any) -> _Task:
        from certus.certificates.tree_search import Question  # numba takes its time to load

        directions, offsets = self.labelled[label].problem.scores
        about = directions[row, score], float(offsets[row, score])
        question = Question(self.problem.rows[row], about, level, boxes, **options)
        return _Task(label, row, score, question)

    def _ask(self, tasks: Sequence[_Task], end: float = math.inf) -> None:
        """Have questions answered, and their proofs evaluated, until time is up."""
        answers = self.workers.answers([task.question for task in tasks])
        for task, answer in zip(tasks, answers, strict=True):
            self._take(task, answer)
            if time.monotonic() >= end:
                answers.close()
                break

    def _take(self, task: _Task, answer: Answer) -> None:
        if task.label == 0 and len(answer.rows):
            self.pool[task.row].append(answer.rows)
        if task.error:
            last = len(answer.rows) - 1
            if answer.met < math.inf:
                self.candidates.append((task.row, answer.rows[last]))
                last -= 1
            if answer.reached < math.inf and last >= 0:
                self.candidates.append((task.row, answer.rows[last]))
        self._prove(task, answer.proof)

    def _prove(self, task: _Task, proof: Proof) -> None:
        self.evaluating = task, proof
        costs = self.labelled[task.label].raise_by(task.row, task.score, proof)
        own = self.proofs.setdefault((task.label, task.row, task.score), [])
        own.append(_Proven(self.fixed, proof, costs))
        self.evaluating = None

    def described(self, width: float, time_limit: float | None) -> dict[str, Any]:
        """Return JSON about the search: why it ended early, and the number of rows with a wide bracket."""
        asked: dict[str, Any] = {"width": width, "time_limit": time_limit, "unfinished": self.unfinished}
        if self.problem.errors:
            wide = self.profiles.error_costs.amin(1) * width < self.error_cost
            asked["wide_rows"] = int((wide & ~self.wrong).sum())
        return asked

    def verify(self) -> None:
        """Count candidates that the model itself predicts otherwise."""
        if not self.candidates:
            return
        places = torch.tensor([place for place, _ in self.candidates])
        points = torch.stack([point for _, point in self.candidates])
        wrong = self.reading.encode_targets(self.reading.predict(points)) != self.problem.targets[places]
        costs = self.problem.cost.value(points, self.problem.rows[places])
        for index in torch.nonzero(wrong).flatten().tolist():
            place = int(places[index])
            if costs[index] < self.error_cost[place]:
                self.error_row[place] = points[index]
                self.error_cost[place] = costs[index]
        self.candidates.clear()

    def known(self, aim: Aim) -> str:
        """The bracket so far at the largest ρ, in words."""
        rho, weights = max(aim.rhos), aim.weights
        if self.problem.errors:
            costs = self.profiles.error_costs.amin(1)
            high = worst_error_rate(costs, rho, proposed_gamma(costs, rho, weights), weights)
            return f"error {worst_error(self.error_cost, [rho], weights)[0]:.3g} – {high:.3g} at rho {rho:g}"
        means = [mean_up(level.bound, weights) for level in self.bounds(aim.gammas)]
        at = best_gamma(aim.gammas, means, rho)
        return f"loss at most {aim.gammas[at] * rho + means[at]:.3g} at rho {rho:g}"

    def refine(self, aim: Aim) -> None:
        """Refine the rows whose part of a bound that is too wide is the largest for the boxes that it takes,
        until the brackets of errors, then of losses, are narrow."""
        self.fixed = False
        if self.unfinished:
            return
        try:
            if self.problem.errors:
                self._refine_errors(aim)
            self._refine_losses(aim)
        except KeyboardInterrupt:  # what is proven so far counts
            self._interrupted()
        else:
            if aim.over:
                self.unfinished = "time was up"

    def _refine_errors(self, aim: Aim) -> None:
        weights, close, widest = aim.weights, 1 + (aim.width - 1) / 4, 1.0
        boxes = torch.full((len(self.wrong),), float(_FIXED))
        while not aim.over:
            proven, attained = self.profiles.error_costs.amin(1), self.error_cost
            gains, ratio = torch.zeros_like(proven), 1.0
            for rho in aim.rhos:
                gamma = max(proposed_gamma(proven, rho, weights), TINY)
                high = worst_error_rate(proven, rho, gamma, weights)
                low = worst_error(attained, [rho], weights)[0]
                if high > aim.width * low + SOME:
                    # At the γ of the bound the last row that ρ pays for counts nothing.
                    gamma = max(proposed_gamma(attained, rho, weights), TINY)
                    own = (1 - gamma * proven).clamp_min(0) - (1 - gamma * attained).clamp_min(0)
                    gains, ratio = torch.maximum(gains, own), max(ratio, high / max(low, SOME))
            open_rows = ~self.wrong & (proven * close < attained) & (boxes < _LARGEST)
            rows = _worth_most(torch.where(open_rows, gains, 0.0), boxes, weights)
            if not rows:
                break
            boxes[rows] *= 4
            tasks = []
            for row in rows:
                for score in self.profiles.error_costs[row].argsort().tolist():
                    if self.profiles.error_costs[row, score] < self.error_cost[row]:
                        tasks.append(self._error_task(row, score, int(boxes[row]), width=close))
            self._ask(tasks, aim.end)
            self.verify()
            widest = max(widest, ratio)
            left = math.log(ratio / aim.width) / max(math.log(widest / aim.width), SOME)
            aim.show(0.5 + 0.25 * (1 - left), self.known(aim))

    def _refine_losses(self, aim: Aim) -> None:
        weights, widest = aim.weights, 1.0
        boxes, spent = torch.full((len(self.pool),), 2.0), 0.0
        most = _LOSS_BOXES * len(boxes) if aim.end == math.inf else math.inf
        while not aim.over and spent < most:
            bounds = self.bounds(aim.gammas)
            means = [mean_up(level.bound, weights) for level in bounds]
            reached = self._reached(aim.gammas)
            lows = [mean_down(each, weights) for each in reached]
            gains, ratio = torch.zeros_like(reached[0]), 1.0
            level, goal = torch.zeros_like(gains), torch.zeros_like(gains)
            for rho in aim.rhos:
                # The γ that the bound is to be attained at, if it gets as small as what was attained.
                at, best = best_gamma(aim.gammas, lows, rho), best_gamma(aim.gammas, means, rho)
                low = aim.gammas[at] * rho + lows[at]
                high = aim.gammas[best] * rho + means[best]
                if rho > 0 and high > aim.width * low + SOME:
                    allowed = reached[at] + (aim.width - 1) / 4 * low
                    own = (bounds[at].bound - allowed).clamp_min(0)
                    level = torch.where(own > gains, aim.gammas[at], level)
                    goal = torch.where(own > gains, allowed, goal)
                    gains, ratio = torch.maximum(gains, own), max(ratio, high / max(low, SOME))
            rows = _worth_most(torch.where(boxes < _LARGEST, gains, 0.0), boxes, weights)
            if not rows:
                break
            boxes[rows] *= 2
            spent += float(boxes[rows].sum())
            self._ask(
                [self._loss_task(row, float(level[row]), float(goal[row]), int(boxes[row])) for row in rows],
                aim.end,
            )
            widest = max(widest, ratio)
            left = math.log(ratio / aim.width) / max(math.log(widest / aim.width), SOME)
            aim.show(0.75 + 0.25 * (1 - left), self.known(aim))

    def _loss_task(self, row: int, gamma: float, goal: float, boxes: int) -> _Task:
        """About the level at which the bound of a row is attained: the bound is to fall to a goal."""
        best, place, worst = -math.inf, 0, 0
        for label, profiles in enumerate(self.labelled):
            spent, losses = profiles.spent(torch.tensor([row]))
            weight = self._label_weights(profiles)
            losses = losses if weight is None else weight[row] * losses
            losses = losses if self.clip is None else losses.clamp_max(self.clip)
            values = torch.where(spent < math.inf, losses - gamma * spent, -math.inf)[0]
            price = gamma * self.problem.cost.label_price if label else 0.0
            if float(values.max()) - price > best:
                best, place, worst = float(values.max()) - price, int(values.argmax()), label
                need = (float(losses[0, place]) - goal - price) / gamma
        profiles = self.labelled[worst]
        count = profiles.levels.shape[2]
        if place > 0:
            score, at = divmod(place - 1, count)
        else:  # nothing is spent: the last levels that may cost nothing
            free = (profiles.costs[row] <= 0).sum(1) - 1
            tops = profiles.levels[row].gather(1, free.clamp_min(0)[:, None])[:, 0]
            score = int(tops.argmax())
            at = int(free[score].clamp_min(0))
        at_level = float(profiles.levels[row, score, at])
        return self._task(worst, row, score, at_level, boxes, attained=max(need, TINY), greedy=at_level)

    def _label_weights(self, profiles: Profiles | None = None) -> Tensor | None:
        targets = (profiles or self.profiles).problem.targets
        return None if self.class_weights is None else self.class_weights[targets]

    def bounds(self, gammas: Sequence[float]) -> list[DualBounds]:
        duals = [each.dual(gammas, self._label_weights(each), self.clip) for each in self.labelled]
        return [over_labels(own, others) if others else own for own, *others in zip(*duals, strict=True)]

    def _losses(self, rows: Tensor, place: int) -> Tensor:
        """(m,) the losses of moved rows of one sample, rounded down."""
        problem = self.problem
        directions, offsets = problem.scores[0][place], problem.scores[1][place]
        scores = problem.ensemble.scores(rows) @ directions.T + offsets
        sizes = directions.abs() @ problem.ensemble.bias.abs() + offsets.abs() + problem.top[place].abs()
        scores = (
            scores - problem.lost[place] - slack(len(problem.ensemble.roots) + 8) * (scores.abs() + sizes)
        )
        if problem.loss is TreeLoss.SOFTMAX:
            values = torch.logsumexp(torch.cat([torch.zeros(len(rows), 1).double(), scores], 1), 1)
        elif problem.loss is TreeLoss.PROBABILITIES:
            values = -(1 - scores[:, -1]).clamp_min(0).log()
        else:
            worst = scores.amax(1).clamp_min(0)
            values = worst**2 if problem.loss is TreeLoss.SQUARED else worst
        weights = self._label_weights()
        values = (values if weights is None else weights[place] * values) * (1 - SOME) - SOME
        return (values if self.clip is None else values.clamp_max(self.clip)).clamp_min(0)

    def _moved(self, place: int) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of one sample that were met, their costs, rounded up, and losses, rounded down."""
        rows = torch.cat(self.pool[place])
        costs = self.problem.cost.value(rows, self.problem.rows[place].expand_as(rows))
        return rows, costs, self._losses(rows, place)

    def _reached(self, gammas: Sequence[float]) -> Tensor:
        """(gammas, n) the largest ℓ − γc among the rows that were met."""
        tables = [self._table(place) for place in range(len(self.pool))]
        costs, losses = (torch.cat([table[part] for table in tables]) for part in (1, 2))
        place = torch.repeat_interleave(
            torch.arange(len(tables)), torch.tensor([len(table[1]) for table in tables])
        )
        least = torch.full((len(tables),), -math.inf, dtype=torch.float64)
        return torch.stack(
            [least.scatter_reduce(0, place, losses - gamma * costs, "amax") for gamma in gammas]
        )

    def _chosen(self, gamma: float) -> tuple[Tensor, Tensor, Tensor]:
        """T̂_γ among the rows that were met, with costs and losses."""
        parts = []
        for place in range(len(self.pool)):
            rows, costs, losses = self._table(place)
            best = int((losses - gamma * costs).argmax())
            parts.append((rows[best], costs[best], losses[best]))
        rows, costs, losses = (torch.stack(part) for part in zip(*parts, strict=True))
        return rows, costs, losses

    def _table(self, place: int) -> tuple[Tensor, Tensor, Tensor]:
        tables: dict[int, tuple[int, tuple[Tensor, Tensor, Tensor]]] = self.__dict__.setdefault("tables", {})
        if place not in tables or tables[place][0] != len(self.pool[place]):
            tables[place] = len(self.pool[place]), self._moved(place)
        return tables[place][1]

    def values(self, gammas: Sequence[float]) -> list[DualValues]:
        """φ̄_γ and what is attained, at each γ."""
        values = []
        for bounds in self.bounds(gammas):
            _, costs, losses = self._chosen(bounds.gamma)
            values.append(replace(DualValues.unknown(bounds), transport_cost=costs, loss=losses))
        return values

    def sample_values(self) -> SampleValues:
        bounds: SampleBounds = self.profiles.samples(self._label_weights())
        start = torch.stack(
            [self._losses(row[None], place)[0] for place, row in enumerate(self.problem.rows)]
        )
        return SampleValues(bounds, start, self.wrong if self.problem.errors else None)

    def least_costs(self) -> Tensor | None:
        """(n,) attained costs of errors; None for a regression."""
        if not self.problem.errors:
            return None
        return self.error_cost.clamp_max(self.problem.cost.label_price).clone()

    def attained_labels(self) -> Tensor | None:
        """(n,) what the model predicts for the errors; −1 where none was found. None for a regression."""
        if not self.problem.errors:
            return None
        labels = self.reading.encode_targets(self.reading.predict(self.error_row))
        return labels.where(self.error_cost < math.inf, -1)

    def transported(self, gamma: float | None) -> Samples:
        """Encoded rows, moved by γ, or as they are."""
        rows = self.problem.rows if gamma is None else self._chosen(gamma)[0]
        return Samples(rows, self.problem.targets)

    def witnesses(
        self, gammas: Sequence[float], limits: Tensor | None = None
    ) -> tuple[TreeProblem, dict[str, Tensor]]:
        """The proofs that bounds rest on; those of all γ are the same."""
        tensors: dict[str, list[Tensor]] = {name: [] for name in (*SPLITS, "slope", "weight")}
        width = self.problem.ensemble.paths.codes.shape[2] - 1
        tensors["sets"], about = [torch.zeros(0, width, dtype=torch.bool)], []
        for (label, row, score), proven in self.proofs.items():
            for fixed, proof in _needed(proven):
                partition = proof.partition
                about.append((label, row, score, fixed, len(partition.feature), len(partition.sets)))
                for name in tensors:
                    of = proof if name in ("slope", "weight") else partition
                    tensors[name].append(getattr(of, name))
        stored = {name: torch.cat(parts) for name, parts in tensors.items()}
        stored |= {"proofs": torch.tensor(about).reshape(-1, 6), "levels": torch.tensor([_LEVELS])}
        return self.problem, stored

    def geometry(self) -> tuple[KernelCost, KernelDomain, tuple[tuple[int, ...], ...]]:
        """Cost and domain of encoded rows, as the kernel has them."""
        prices = self.problem.cost
        if bool(prices.discrete.any()):
            raise UnsupportedError(
                "Trees with categorical columns cannot be monitored: their codes are no distances."
            )
        free = torch.isfinite(prices.move)
        scales = torch.where(free, prices.move, 1.0)
        p = math.inf if prices.largest else 2.0
        cost = Lp(shape=(len(free),), free=free, label_price=prices.label_price, p=p, scales=scales)
        return cost, KernelDomain(), ()

    def attacked(self, rho: float) -> Samples:
        return self.transported(None)

    def nearest_errors(self, rhos: Sequence[float]) -> tuple[Tensor, Samples]:
        """The costs of errors, and the encoded rows."""
        if not self.problem.errors:
            raise UnsupportedError("A regression has no errors.")
        return self.error_cost, Samples(self.error_row, self.problem.targets)

    def evaluate(self, data: Samples) -> tuple[float, float | None]:
        """Mean loss of encoded rows, rounded down, and the share that the model predicts otherwise."""
        other = TreeProblem(
            *(self.problem.ensemble, self.problem.cost, self.problem.loss, data.inputs.double(), data.targets)
        )
        work = TreeWork(other, self.reading, self.class_weights, self.clip, self.workers)
        wrong = float(work.wrong.double().mean()) if other.errors else None
        return mean_down(work.sample_values().start), wrong
