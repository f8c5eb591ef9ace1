"""Certificates of tree ensembles: brackets of the worst error rate and the worst loss.

Every row gets a few searches of fixed size (``tree_search``), which is all that counts for the population.
For the sample, rows are then refined lazily, in the order in which the knapsack spends: those whose proven
cost of an error is within what ρ pays for, and far below the attained one. It ends when the brackets at the ρ
asked for are as narrow as ``width``, when every such row has had the largest search, or after ``time_limit``.
Attained sides are rows that the model itself predicts otherwise, and losses of rows, rounded down.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from certus._progress import progress_bar
from certus._validation import checked_weights
from certus.bounds.analysis import kernel_cost
from certus.certificates.certificate import Certificate
from certus.certificates.dual_values import DualAggregate, DualValues
from certus.certificates.engine import budget_range
from certus.certificates.error_costs import proposed_gamma, worst_error
from certus.certificates.local_bounds import SampleValues, checked_class_weights
from certus.certificates.population import Population
from certus.costs import Cost, LabelCost, SquaredL2
from certus.data import Samples
from certus.errors import ArgumentError, UnsupportedError, require, require_number, require_numbers
from certus.kernel.costs import Cost as KernelCost
from certus.kernel.costs import Domain as KernelDomain
from certus.kernel.costs import Lp
from certus.kernel.error_rates import worst_error_rate
from certus.kernel.rounding import SOME, TINY, mean_down, mean_up, slack
from certus.kernel.rules import DualBounds, SampleBounds, over_labels
from certus.kernel.statement import Statement
from certus.kernel.tree_profiles import SPLITS, Profiles, TreeLoss, TreeProblem
from certus.kernel.trees import Ensemble, Prices, Proof
from certus.losses import CrossEntropy, Logistic, SquaredError

_LEVELS = 128  # of scores, at which costs are bounded
_SWEEPS = 3  # over rows whose losses have wide brackets
_LOSS_LEVELS = (0.1, 0.25, 0.5, 0.8)  # of the way from a row's score to the largest, which are searched
_FIXED = 8  # boxes of the searches that every row gets
_LARGEST = 4096  # boxes of the last search of a row
_GAMMAS = 28
_BYTES = 64  # of a column of a leaf, tables of its bounds and copies included
_MOST_BYTES = 2**34
_SECONDS = 5e-5  # of the first searches, for each row, score, and entry of a leaf's box
_PATIENCE = 43_200


class TreeReading(Protocol):
    """A tree model as it was read (``certus.bounds.trees.TreeModel``).

    ``output`` is "logistic", "softmax", "probability" or "number"; within ``ensemble.rounding`` of a tie
    either class may be predicted. ``encode`` maps rows as the model takes them to (n, columns) float64;
    ``predict`` is the model's own, on encoded rows: (n,) labels or numbers.
    """

    @property
    def ensemble(self) -> Ensemble: ...

    @property
    def output(self) -> str: ...

    def encode(self, rows: Any) -> Tensor: ...

    def encode_targets(self, targets: Any) -> Tensor: ...

    def predict(self, encoded: Tensor) -> Any: ...


class EncodedRows(NamedTuple):
    """(n, columns) rows as an ensemble takes them, with (n,) codes of classes or numbers."""

    rows: Tensor
    targets: Tensor


def tree_prices(cost: Cost | Prices, ensemble: Ensemble, label_price: float = math.inf) -> Prices:
    """The prices of a squared L2, weighted L2 or sup-norm cost, masked or not; missing values stay missing,
    and values present, unless ``Prices`` give a price."""
    if isinstance(cost, Prices):
        return Prices(cost.move, cost.gap, cost.discrete, cost.largest, label_price)
    kernel = kernel_cost(cost, (ensemble.columns,))
    if not isinstance(kernel, Lp) or kernel.p not in (2.0, math.inf):
        raise UnsupportedError(f"Trees are certified under squared L2 and sup-norm costs; got {cost}.")
    scales = torch.ones(ensemble.columns, dtype=torch.float64) if kernel.scales is None else kernel.scales
    move = scales.expand(ensemble.columns).clone()
    if kernel.free is not None:
        move[~kernel.free.expand(ensemble.columns)] = math.inf
    discrete = torch.zeros(ensemble.columns, dtype=torch.bool)
    discrete[ensemble.paths.categorical] = True
    return Prices(move, torch.full_like(move, math.inf), discrete, kernel.p == math.inf, label_price)


def tree_loss(criterion: Any) -> TreeLoss | None:
    """The loss of a criterion; None for that of the model's own output."""
    if criterion is None or criterion in (CrossEntropy(), Logistic()):
        return None
    if isinstance(criterion, SquaredError | nn.MSELoss):
        return TreeLoss.SQUARED
    if isinstance(criterion, nn.L1Loss):
        return TreeLoss.ABSOLUTE
    raise UnsupportedError(
        f"Trees have no bound for {criterion}; leave `criterion` out, or use torch.nn.L1Loss."
    )


def tree_problem(
    reading: TreeReading,
    data: EncodedRows,
    loss: TreeLoss | None,
    cost: Cost | Prices | None,
    label_cost: LabelCost | None,
    clip: float | None,
) -> tuple[TreeProblem, float | None]:
    """Return the problem that ``certify_trees`` certifies, and the clip of its losses."""
    price = math.inf if label_cost is None else label_cost.price
    prices = tree_prices(SquaredL2() if cost is None else cost, reading.ensemble, price)
    default = {"number": TreeLoss.SQUARED, "probability": TreeLoss.PROBABILITIES}
    loss = default.get(reading.output, TreeLoss.SOFTMAX) if loss is None else loss
    if loss is TreeLoss.PROBABILITIES and clip is None:
        clip = math.log(1000)
    return TreeProblem(reading.ensemble, prices, loss, *data), clip


def certify_trees(
    reading: TreeReading,
    data: Any,
    *,
    rho: float | Sequence[float],
    epsilon: float | Sequence[float] | None = None,
    loss: TreeLoss | None = None,
    cost: Cost | Prices | None = None,
    label_cost: LabelCost | None = None,
    labels: Literal["given", "predicted"] = "given",
    confidence: float | None = None,
    clip: float | None = None,
    class_weights: Sequence[float] | None = None,
    inequality: str | None = None,
    width: float = 1.05,
    time_limit: float | None = None,
    seed: int = 0,
    progress: bool | Callable[[float], None] | None = None,
) -> Certificate:
    """Bracket the worst loss and error rate of a tree ensemble within transport cost ρ of the data.

    Args:
        data: (X, y), y None for the model's own predictions; or ``Samples``.
        loss: by default that of the decision: softmax, probabilities, or squared error. A loss of
            probabilities is clipped, at ln(1000) by default.
        width: the factor between both sides of the error rate at which refinement ends.
        time_limit: seconds for refinement; by default it ends with ``width``.
    """
    rhos = require_numbers("rho", rho, zero=True)
    epsilons = () if epsilon is None else require_numbers("epsilon", epsilon, zero=True)
    require_number("width", width)
    require(width >= 1, "width", "be at least 1", width)
    ensemble = reading.ensemble
    if isinstance(data, tuple) and data[1] is None:
        labels = "predicted"
    rows, targets, weights = _read(reading, data, labels)
    _require_feasible(ensemble, len(rows), time_limit)
    problem, clip = tree_problem(reading, EncodedRows(rows, targets), loss, cost, label_cost, clip)
    labelled = problem.classes is not None
    require(not epsilons or labelled, "epsilon", "be left out for a regression: it has no errors", epsilon)
    by_class = None if class_weights is None else checked_class_weights(class_weights, problem.classes)
    gammas = _default_gammas(problem, rhos, clip)
    with progress_bar(progress, "certifying") as report:
        work = _Work(problem, reading, by_class, clip)
        end = math.inf if time_limit is None else time.monotonic() + time_limit
        work.begin_all(math.inf if confidence is not None else end, report)
        population = None
        if confidence is not None:
            rule = "be given for a regression with `confidence`: a squared error has no bound"
            require(labelled or clip is not None, "clip", rule, None)
            require(weights is None, "confidence", "be left out for samples with weights", confidence)
            largest = 1.0 if by_class is None else float(by_class.max())
            ceiling = 2 * math.log(problem.classes or 1) * largest if clip is None else clip
            population = Population.of(
                *(work.values(gammas), work.sample_values(), work.least_costs()),
                confidence=confidence,
                clip=ceiling,
                inequality=inequality or "betting",
                rhos=budget_range(rhos),
                seed=seed,
            )
        work.refine(rhos, gammas, weights, width, end, report)
        gammas = _with_neighbours(gammas, work, rhos, weights)
        levels = work.values(gammas)
        samples = work.sample_values()
        certificate = Certificate(
            statement=Statement.of(
                samples.bounds,
                [level.bounds for level in levels],
                weights=weights,
                clip=clip,
                population=None if population is None else population.upper,
            ),
            rhos=rhos,
            aggregates=tuple(DualAggregate.of(level, weights) for level in levels),
            attained_clean_loss=mean_down(samples.start, weights),
            attained_error_cost=work.least_costs(),
            attained_label=work.attained_labels(),
            population=population,
            classes=problem.classes,
            epsilons=epsilons,
            dual_values=tuple(levels),
            class_weights=None if by_class is None else tuple(by_class.tolist()),
            labels=labels,
            about={"kind": "trees", "search": work.described(width, time_limit)},
            source=work,
        )
        certificate.curve()  # which raises where a bracket contradicts itself
        certificate.accuracies()
        if report is not None:
            report(1.0)
    return certificate


def _require_feasible(ensemble: Ensemble, rows: int, time_limit: float | None) -> None:
    """Raise where memory does not suffice, or where nobody would wait for the first searches."""
    leaves, trees = int((ensemble.feature < 0).sum()), len(ensemble.roots)
    size = f"{trees:,} trees with {leaves:,} leaves and {ensemble.columns:,} columns"
    memory = leaves * ensemble.columns * _BYTES
    if memory > _MOST_BYTES:
        raise UnsupportedError(
            f"{size} need about {memory / 2**30:.0f} GiB for the boxes of their leaves, of at most "
            f"{_MOST_BYTES / 2**30:.0f}: certify fewer rounds or fewer columns."
        )
    depth = math.log2(max(2.0, leaves / max(1, trees)))
    seconds = rows * max(1, len(ensemble.bias) - 1) * leaves * depth * _SECONDS
    if time_limit is None and seconds > _PATIENCE:
        raise ArgumentError(
            f"`time_limit` must be given for {size}: the first searches of {rows:,} rows take about "
            f"{seconds / 3600:.0f} hours; or certify fewer rows, or fewer rounds."
        )


def _read(reading: TreeReading, data: Any, labels: str) -> tuple[Tensor, Tensor, Tensor | None]:
    """Encoded rows, labels as indices of classes or float64 targets, and weights with mean 1."""
    given, targets, weights = data if isinstance(data, tuple) and len(data) == 3 else (None, None, None)
    if isinstance(data, EncodedRows):
        predicted = labels == "predicted" and reading.output != "number"
        own = reading.encode_targets(reading.predict(data.rows)) if predicted else data.targets
        return data.rows, own, None
    if isinstance(data, Samples):
        given, targets, weights = data.inputs, data.targets, data.weights
    elif given is None:
        require(isinstance(data, tuple) and len(data) == 2, "data", "be (X, y)", type(data))
        given, targets = data
    rows = reading.encode(given).double()
    require(len(rows) > 0, "data", "hold at least one row", "none")
    if targets is None or labels == "predicted":
        if reading.output == "number":
            raise UnsupportedError(
                "A regression has no predicted labels to certify: give `data` with targets."
            )
        indices = reading.encode_targets(reading.predict(rows))
    else:
        indices = reading.encode_targets(targets)
    require(len(indices) == len(rows), "data", f"have {len(rows)} targets", len(indices))
    return rows, indices, None if weights is None else checked_weights(weights, len(rows))


def _default_gammas(problem: TreeProblem, rhos: tuple[float, ...], clip: float | None) -> tuple[float, ...]:
    """A grid of γ that depends on the model and ρ alone, from the largest on."""
    positive = [rho for rho in rhos if rho > 0] or [0.01]
    spread = float(problem.ensemble.value.amax() - problem.ensemble.value.amin()) * len(
        problem.ensemble.roots
    )
    unit = math.log(problem.classes) if problem.classes else max(spread, SOME)
    unit = unit**2 if problem.loss is TreeLoss.SQUARED else unit
    unit = unit if clip is None else min(unit, clip)
    ends = math.log(20 * unit / min(positive)), math.log(0.02 * unit / max(positive))
    return tuple(math.exp(log) for log in np.linspace(*ends, _GAMMAS))


def _with_neighbours(
    gammas: tuple[float, ...], work: _Work, rhos: Sequence[float], weights: Tensor | None
) -> tuple[float, ...]:
    """The grid, and for the sample alone γ between those that are best at some ρ and their neighbours."""
    means = [mean_up(level.bound, weights) for level in work.bounds(gammas)]
    more: set[float] = set()
    for rho in rhos:
        best = gammas[_best(gammas, means, rho)]
        more |= {best * (gammas[0] / gammas[1]) ** (step / 4) for step in (-3, -2, -1, 1, 2, 3)}
    return tuple(sorted({*gammas, *more}, reverse=True))


def _best(gammas: Sequence[float], means: Sequence[float], rho: float) -> int:
    """The place of the γ with the least bound γρ + mean."""
    return min(range(len(gammas)), key=lambda at: gammas[at] * rho + means[at])


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


@dataclass(eq=False)
class _Work:
    """Rows, what is proven of them, and the moved rows that were attained; the source of the certificate."""

    problem: TreeProblem
    reading: TreeReading
    class_weights: Tensor | None
    clip: float | None
    candidates: list[tuple[int, Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        from certus.certificates.tree_search import TreeSearch  # numba takes its time to load

        problem, count = self.problem, len(self.problem.rows)
        self.search = TreeSearch(problem.ensemble, problem.cost)
        self.profiles = Profiles.trivial(problem, problem.levels(_LEVELS))
        self.others = [Profiles.trivial(other, other.levels(_LEVELS)) for other in self._relabelled()]
        self.proofs: dict[tuple[int, int, int], list[_Proven]] = {}
        self.fixed, self.unfinished = True, ""
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

    def begin_all(self, end: float, report: Callable[[float], None] | None) -> None:
        """The first searches of all rows; rows without any, because time was up, count as errors."""
        count = len(self.pool)
        for row in range(count):
            if row > 0 and time.monotonic() >= end:
                self.unfinished = f"time was up after the first searches of {row:,} of {count:,} rows"
                break
            self.begin(row)
            if report is not None:
                report(0.5 * (row + 1) / count)
        self.verify()

    def begin(self, row: int) -> None:
        """The searches that every row gets, of a size that depends on nothing else."""
        problem = self.problem
        for score in range(problem.scores[1].shape[1]):
            if score < problem.errors:
                self.improve(row, score, _FIXED)
        for profiles in (self.profiles, *self.others):
            for score in range(problem.scores[1].shape[1]):
                for share in _LOSS_LEVELS:
                    self._search_level(profiles, row, score, int(share * _LEVELS), 1)

    def _search_level(self, profiles: Profiles, row: int, score: int, place: int, boxes: int) -> None:
        """Search rows that reach a level of a score, and a bound on their cost."""
        problem = profiles.problem
        about = problem.scores[0][row, score], float(problem.scores[1][row, score])
        level, origin = float(profiles.levels[row, score, place]), problem.rows[row]
        rows, cost = self.search.rows(origin, about, level)
        proof, _, (point, met) = self.search.prove(
            origin, about, level, boxes=boxes, attained=cost, width=1.02
        )
        self._prove(profiles, row, score, proof)
        if profiles is self.profiles:
            self.pool[row] += [
                part for part in (rows, point[None] if met < math.inf else rows[:0]) if len(part)
            ]

    def improve(self, row: int, score: int, boxes: int, width: float = 1.0) -> None:
        """Search a nearer error, and a better bound on its cost, with a number of boxes."""
        problem = self.problem
        if self.wrong[row]:
            return
        about = problem.scores[0][row, score], float(problem.scores[1][row, score])
        origin, lost = problem.rows[row], float(problem.lost[row, score])
        if boxes == _FIXED:
            rows, cost = self.search.rows(origin, about, 2 * lost + SOME)
            if len(rows):
                self.pool[row].append(rows)
            if cost < math.inf:
                self.candidates.append((row, rows[-1]))
        attained = float(self.error_cost[row])
        proof, _, (point, met) = self.search.prove(
            origin, about, -lost, boxes=boxes, attained=attained, width=width
        )
        if met < attained:
            self.candidates.append((row, point))
            self.pool[row].append(point[None])
        self._prove(self.profiles, row, score, proof)

    def _prove(self, profiles: Profiles, row: int, score: int, proof: Proof) -> None:
        label = [self.profiles, *self.others].index(profiles)
        own = self.proofs.setdefault((label, row, score), [])
        own.append(_Proven(self.fixed, proof, profiles.raise_by(row, score, proof)))

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
                self.error_cost[place], self.error_row[place] = costs[index], points[index]
        self.candidates.clear()

    def refine(
        self,
        rhos: Sequence[float],
        gammas: Sequence[float],
        weights: Tensor | None,
        width: float,
        end: float,
        report: Callable[[float], None] | None,
    ) -> None:
        """Refine the row whose part of a bound that is too wide is the largest for the boxes that it takes,
        until the brackets of errors, then of losses, are narrow."""
        self.fixed = False
        try:
            if self.problem.errors:
                self._refine_errors(rhos, weights, width, end, report)
            self._refine_losses(rhos, gammas, weights, width, end, report)
        except KeyboardInterrupt:  # what is proven so far counts
            self.unfinished = "it was interrupted"
        else:
            if time.monotonic() >= end and not self.unfinished:
                self.unfinished = "time was up"

    def _refine_errors(
        self,
        rhos: Sequence[float],
        weights: Tensor | None,
        width: float,
        end: float,
        report: Callable[[float], None] | None,
    ) -> None:
        boxes, close = torch.full((len(self.wrong),), float(_FIXED)), 1 + (width - 1) / 4
        widest = 1.0
        while time.monotonic() < end:
            proven, attained = self.profiles.error_costs.amin(1), self.error_cost
            gains, ratio = torch.zeros_like(proven), 1.0
            for rho in rhos:
                gamma = max(proposed_gamma(proven, rho, weights), TINY)
                high = worst_error_rate(proven, rho, gamma, weights)
                low = worst_error(attained, [rho], weights)[0]
                if high > width * low + SOME:
                    # At the γ of the bound the last row that ρ pays for counts nothing.
                    gamma = max(proposed_gamma(attained, rho, weights), TINY)
                    own = (1 - gamma * proven).clamp_min(0) - (1 - gamma * attained).clamp_min(0)
                    gains, ratio = torch.maximum(gains, own), max(ratio, high / max(low, SOME))
            open_rows = ~self.wrong & (proven * close < attained) & (boxes < _LARGEST)
            gains = torch.where(open_rows, gains if weights is None else weights * gains, 0.0) / boxes
            row = int(gains.argmax())
            if float(gains[row]) <= 0:
                break
            boxes[row] *= 4
            for score in self.profiles.error_costs[row].argsort().tolist():
                if self.profiles.error_costs[row, score] < self.error_cost[row]:
                    self.improve(row, score, int(boxes[row]), close)
            self.verify()
            widest = max(widest, ratio)
            if report is not None:
                report(0.5 + 0.25 * (1 - math.log(ratio / width) / max(math.log(widest / width), SOME)))

    def _refine_losses(
        self,
        rhos: Sequence[float],
        gammas: Sequence[float],
        weights: Tensor | None,
        width: float,
        end: float,
        report: Callable[[float], None] | None,
    ) -> None:
        boxes = torch.ones(len(self.pool))
        for sweep in range(_SWEEPS):
            values = self.values(gammas)
            means = [mean_up(level.bounds.bound, weights) for level in values]
            best = {_best(gammas, means, rho) for rho in rhos if rho > 0}
            due: list[tuple[float, int, float]] = []
            for at in best:
                gamma, level = gammas[at], values[at]
                reached = level.loss - gamma * level.transport_cost
                gaps = level.bounds.bound - reached
                if means[at] <= width * mean_down(reached, weights) + SOME:
                    continue
                gaps = gaps if weights is None else gaps * weights
                order = (gaps / boxes).argsort(descending=True)
                share = (gaps[order].cumsum(0) / gaps.sum()) <= 0.7
                due += [(float(gaps[row]), row, gamma) for row in order[share].tolist() if gaps[row] > 0]
            for _, row, gamma in sorted(due, reverse=True):
                if time.monotonic() >= end:
                    return
                self._refine_loss(row, gamma, int(boxes[row]))
            for row in {row for _, row, _ in due}:
                boxes[row] *= 4
            if report is not None:
                report(0.75 + 0.25 * (sweep + 1) / _SWEEPS)

    def _refine_loss(self, row: int, gamma: float, boxes: int) -> None:
        """Raise the cost of the level at which the bound of a row is attained."""
        weight = self._label_weights()
        spent, losses = self.profiles.spent(torch.tensor([row]))
        losses = losses if weight is None else weight[row] * losses
        losses = losses if self.clip is None else losses.clamp_max(self.clip)
        at = int(torch.where(spent < math.inf, losses - gamma * spent, -math.inf).argmax())
        count = self.profiles.levels.shape[2]
        zeros = int((self.profiles.costs[row, 0] <= 0).sum()) - 1
        score, place = divmod(at - 1, count) if at > 0 else (0, max(zeros, 0))
        self._search_level(self.profiles, row, score, place, boxes)

    def _label_weights(self) -> Tensor | None:
        return None if self.class_weights is None else self.class_weights[self.problem.targets]

    def bounds(self, gammas: Sequence[float]) -> list[DualBounds]:
        duals = []
        for profiles in (self.profiles, *self.others):
            weights = None if self.class_weights is None else self.class_weights[profiles.problem.targets]
            duals.append(profiles.dual(gammas, weights, self.clip))
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
        work = _Work(other, self.reading, self.class_weights, self.clip)
        wrong = float(work.wrong.double().mean()) if other.errors else None
        return mean_down(work.sample_values().start), wrong
