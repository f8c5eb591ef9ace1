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
from typing import Any, Literal, Protocol

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
from certus.certificates.tree_search import TreeSearch
from certus.costs import Cost, LabelCost, SquaredL2
from certus.data import Samples
from certus.errors import UnsupportedError, require, require_number, require_numbers
from certus.kernel import problem as trusted
from certus.kernel.costs import Lp
from certus.kernel.knapsack import worst_error_rate
from certus.kernel.rounding import SOME, mean_down, slack
from certus.kernel.rules import DualBounds, SampleBounds, over_labels
from certus.kernel.statement import Statement
from certus.kernel.tree_profiles import Profiles, TreeLoss, TreeProblem
from certus.kernel.trees import Ensemble, Prices
from certus.losses import CrossEntropy, Logistic, SquaredError

_LEVELS = 48  # of scores, at which costs are bounded
_LOSS_LEVELS = (0.1, 0.25, 0.5, 0.8)  # of the way from a row's score to the largest, which are searched
_FIXED = 8  # boxes of the searches that every row gets
_LARGEST = 4096  # boxes of the last search of a row
_GAMMAS = 28


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
    price = math.inf if label_cost is None else label_cost.price
    prices = tree_prices(SquaredL2() if cost is None else cost, ensemble, price)
    default = {"number": TreeLoss.SQUARED, "probability": TreeLoss.PROBABILITIES}
    loss = default.get(reading.output, TreeLoss.SOFTMAX) if loss is None else loss
    if loss is TreeLoss.PROBABILITIES and clip is None:
        clip = math.log(1000)
    problem = TreeProblem(ensemble, prices, loss, rows, targets)
    labelled = problem.classes is not None
    require(not epsilons or labelled, "epsilon", "be left out for a regression: it has no errors", epsilon)
    by_class = None if class_weights is None else checked_class_weights(class_weights, problem.classes)
    gammas = _default_gammas(problem, rhos, clip)
    with progress_bar(progress, "certifying") as report:
        work = _Work(problem, reading, by_class, clip)
        for row in range(len(rows)):
            work.begin(row)
            if report is not None:
                report(0.5 * (row + 1) / len(rows))
        work.verify()
        population = None
        if confidence is not None:
            rule = "be given for a regression with `confidence`: a squared error has no bound"
            require(labelled or clip is not None, "clip", rule, None)
            require(weights is None, "confidence", "be left out for samples with weights", confidence)
            largest = 1.0 if by_class is None else float(by_class.max())
            ceiling = 2 * math.log(problem.classes or 1) * largest if clip is None else clip
            population = Population.of(
                *([work.values(gamma) for gamma in gammas], work.sample_values(), work.least_costs()),
                confidence=confidence,
                clip=ceiling,
                inequality=inequality or "betting",
                rhos=budget_range(rhos),
                seed=seed,
            )
        if labelled:
            work.refine(rhos, weights, width, time_limit, report)
        levels = [work.values(gamma) for gamma in gammas]
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
            population=population,
            classes=problem.classes,
            epsilons=epsilons,
            dual_values=tuple(levels),
            class_weights=None if by_class is None else tuple(by_class.tolist()),
            labels=labels,
            source=work,
        )
        certificate.curve()  # which raises where a bracket contradicts itself
        certificate.accuracies()
        if report is not None:
            report(1.0)
    return certificate


def _read(reading: TreeReading, data: Any, labels: str) -> tuple[Tensor, Tensor, Tensor | None]:
    """Encoded rows, labels as indices of classes or float64 targets, and weights with mean 1."""
    given, targets, weights = data if isinstance(data, tuple) and len(data) == 3 else (None, None, None)
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


def _levels(problem: TreeProblem) -> tuple[Tensor, Tensor]:
    """(n, scores) the largest scores, and (n, scores, J) levels from those of the rows up to them."""
    directions, offsets = problem.scores
    paths, values = problem.ensemble.paths, problem.ensemble.value
    leaf, trees = torch.einsum("lo,nko->nkl", values[paths.node], directions), len(problem.ensemble.roots)
    most = torch.full((*offsets.shape, trees), -math.inf, dtype=torch.float64)
    most = most.scatter_reduce(2, paths.tree.expand_as(leaf), leaf, "amax").sum(2)
    top = most + directions @ problem.ensemble.bias + offsets
    start = torch.einsum("nko,no->nk", directions, problem.ensemble.scores(problem.rows)) + offsets
    span = (top - start).clamp_min(0) * (1 + SOME) + SOME
    steps = torch.linspace(0, 1, _LEVELS, dtype=torch.float64)
    return top, start[:, :, None] + span[:, :, None] * steps


@dataclass(eq=False)
class _Work:
    """Rows, what is proven of them, and the moved rows that were attained; the source of the certificate."""

    problem: TreeProblem
    reading: TreeReading
    class_weights: Tensor | None
    clip: float | None
    candidates: list[tuple[int, Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        problem, count = self.problem, len(self.problem.rows)
        self.search = TreeSearch(problem.ensemble, problem.cost)
        self.top, levels = _levels(problem)
        self.profiles = Profiles.trivial(problem, levels)
        self.others = [Profiles.trivial(other, _levels(other)[1]) for other in self._relabelled()]
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

    def begin(self, row: int) -> None:
        """The searches that every row gets, of a size that depends on nothing else."""
        problem = self.problem
        for score in range(problem.scores[1].shape[1]):
            if score < problem.errors:
                self.improve(row, score, _FIXED)
            for share in _LOSS_LEVELS:
                self._loss_level(self.profiles, row, score, share)
        for profiles in self.others:
            for score in range(problem.scores[1].shape[1]):
                for share in _LOSS_LEVELS:
                    self._loss_level(profiles, row, score, share)

    def _loss_level(self, profiles: Profiles, row: int, score: int, share: float) -> None:
        problem = profiles.problem
        about = problem.scores[0][row, score], float(problem.scores[1][row, score])
        levels = profiles.levels[row, score]
        level = float(levels[0] + share * (levels[-1] - levels[0]))
        origin = problem.rows[row]
        rows, cost = self.search.rows(origin, about, level)
        if profiles is self.profiles and len(rows):
            self.pool[row].append(rows)
        proof, _, (point, met) = self.search.prove(origin, about, level, boxes=1, attained=cost, width=1.02)
        profiles.raise_by(row, score, proof)
        if profiles is self.profiles and met < math.inf:
            self.pool[row].append(point[None])

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
        self.profiles.raise_by(row, score, proof)

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
        weights: Tensor | None,
        width: float,
        time_limit: float | None,
        report: Callable[[float], None] | None,
    ) -> None:
        """Refine rows in the order in which the knapsack spends, until the brackets are narrow."""
        end = math.inf if time_limit is None else time.monotonic() + time_limit
        boxes = torch.full((len(self.problem.rows),), _FIXED)
        try:
            while time.monotonic() < end:
                proven, attained = self.profiles.error_costs.amin(1), self.error_cost
                due = torch.zeros(len(proven), dtype=torch.bool)
                for rho in rhos:
                    high = worst_error_rate(proven, rho, proposed_gamma(proven, rho, weights), weights)
                    if high > width * worst_error(attained, [rho], weights)[0] + SOME:
                        # Costs up to what the attained errors pay for decide.
                        last = proposed_gamma(attained, rho, weights)
                        due |= proven <= (1 / last if last > 0 else math.inf)
                due &= ~self.wrong & (proven * (1 + (width - 1) / 4) < attained) & (boxes < _LARGEST)
                if not bool(due.any()):
                    break
                for row in torch.nonzero(due).flatten()[proven[due].argsort()].tolist():
                    if time.monotonic() >= end:
                        break
                    boxes[row] *= 4
                    for score in self.profiles.error_costs[row].argsort().tolist():
                        if self.profiles.error_costs[row, score] < self.error_cost[row]:
                            self.improve(row, score, int(boxes[row]), 1 + (width - 1) / 4)
                    self.verify()
                if report is not None:
                    report(0.5 + 0.5 * float((boxes > _FIXED).double().mean()))
        except KeyboardInterrupt:  # what is proven so far counts
            pass

    def _label_weights(self) -> Tensor | None:
        return None if self.class_weights is None else self.class_weights[self.problem.targets]

    def _bounds(self, gamma: float) -> DualBounds:
        own = self.profiles.dual(gamma, self._label_weights(), self.clip)
        others = []
        for profiles in self.others:
            weights = None if self.class_weights is None else self.class_weights[profiles.problem.targets]
            others.append(profiles.dual(gamma, weights, self.clip))
        return over_labels(own, others) if others else own

    def _losses(self, rows: Tensor, place: int) -> Tensor:
        """(m,) the losses of moved rows of one sample, rounded down."""
        problem = self.problem
        directions, offsets = problem.scores[0][place], problem.scores[1][place]
        scores = problem.ensemble.scores(rows) @ directions.T + offsets
        sizes = directions.abs() @ problem.ensemble.bias.abs() + offsets.abs() + self.top[place].abs()
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

    def values(self, gamma: float) -> DualValues:
        """φ̄_γ and what is attained."""
        _, costs, losses = self._chosen(gamma)
        return DualValues(self._bounds(gamma), costs, losses, torch.full_like(costs, math.inf))

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

    def transported(self, gamma: float | None) -> Samples:
        """Encoded rows, moved by γ, or as they are."""
        rows = self.problem.rows if gamma is None else self._chosen(gamma)[0]
        return Samples(rows, self.problem.targets)

    def witnesses(self, gammas: Sequence[float]) -> tuple[trusted.Problem, dict[str, Tensor]]:
        raise UnsupportedError("the proofs of tree ensembles are not stored.")

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
