"""Certificates of tree ensembles: brackets of the worst error rate and the worst loss.

Every row gets a few searches of fixed size (``tree_search``), which is all that counts for the population.
For the sample, rows are then refined (``tree_refinement``), until the brackets at the requested ρ are as
narrow as ``width``, every such row has had the largest search, ``time_limit`` is over, or Ctrl-C comes.
Attained sides are rows that the model itself predicts otherwise, and losses of rows, rounded down.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from certus._progress import progress_bar
from certus._validation import checked_weights
from certus.bounds.analysis import kernel_cost
from certus.certificates.certificate import Certificate
from certus.certificates.dual_values import DualAggregate
from certus.certificates.engine import budget_range
from certus.certificates.local_bounds import checked_class_weights
from certus.certificates.population import Population
from certus.certificates.tree_refinement import Aim, TreeReading, TreeWork, best_gamma
from certus.certificates.tree_workers import TreeWorkers
from certus.costs import ColumnPrices, Cost, LabelCost, SquaredL2
from certus.data import Samples
from certus.errors import ArgumentError, UnsupportedError, require, require_number, require_numbers
from certus.kernel.costs import Lp
from certus.kernel.rounding import SOME, mean_down, mean_up
from certus.kernel.statement import Statement
from certus.kernel.tree_profiles import TreeLoss, TreeProblem
from certus.kernel.trees import Ensemble, Prices
from certus.losses import CrossEntropy, Logistic, SquaredError

_GAMMAS = 28
_BYTES = 64  # of a column of a leaf, tables of its bounds and copies included
_MOST_BYTES = 2**34
_SECONDS = 1e-5  # of the first searches, for each row, score, and entry of a leaf's box
_PATIENCE = 14_400


class EncodedRows(NamedTuple):
    """(n, columns) rows as an ensemble takes them, with (n,) codes of classes or numbers."""

    rows: Tensor
    targets: Tensor


def tree_prices(
    cost: Cost | ColumnPrices | Prices, reading: TreeReading, label_price: float = math.inf
) -> Prices:
    """The prices of a squared L2, weighted L2 or sup-norm cost, masked or not; missing values stay missing,
    and values present, unless ``ColumnPrices`` give a price."""
    if isinstance(cost, Prices):
        return Prices(cost.move, cost.gap, cost.discrete, cost.largest, label_price)
    ensemble = reading.ensemble
    categorical = ensemble.paths.categorical.tolist()
    if isinstance(cost, ColumnPrices):
        return cost.prices([column.name for column in reading.columns], categorical, label_price)
    kernel = kernel_cost(cost, (ensemble.columns,))
    if not isinstance(kernel, Lp) or kernel.p not in (2.0, math.inf):
        raise UnsupportedError(f"Trees are certified under squared L2 and sup-norm costs; got {cost}.")
    scales = torch.ones(ensemble.columns, dtype=torch.float64) if kernel.scales is None else kernel.scales
    move = scales.expand(ensemble.columns).clone()
    if kernel.free is not None:
        move[~kernel.free.expand(ensemble.columns)] = math.inf
    discrete = torch.zeros(ensemble.columns, dtype=torch.bool)
    discrete[categorical] = True
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
    cost: Cost | ColumnPrices | Prices | None,
    label_cost: LabelCost | None,
    clip: float | None,
) -> tuple[TreeProblem, float | None]:
    """Return the problem that ``certify_trees`` certifies, and the clip of its losses."""
    price = math.inf if label_cost is None else label_cost.price
    prices = tree_prices(SquaredL2() if cost is None else cost, reading, price)
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
    cost: Cost | ColumnPrices | Prices | None = None,
    label_cost: LabelCost | None = None,
    labels: Literal["given", "predicted"] = "given",
    confidence: float | None = None,
    clip: float | None = None,
    class_weights: Sequence[float] | None = None,
    inequality: str | None = None,
    width: float = 1.05,
    time_limit: float | None = None,
    jobs: int = 1,
    seed: int = 0,
    progress: bool | Callable[[float], None] | None = None,
) -> Certificate:
    """Bracket the worst loss and error rate of a tree ensemble within transport cost ρ of the data.

    Args:
        data: (X, y), y None for the model's own predictions; or ``Samples``.
        loss: by default that of the decision: softmax, probabilities, or squared error. A loss of
            probabilities is clipped, at ln(1000) by default.
        width: the factor between both sides of the error rate, and of the loss, at which refinement ends.
        time_limit: seconds for all searches; by default they end with ``width``. For a statement about the
            population every row gets its first searches in any case.
        jobs: number of processes that search.
    """
    rhos = require_numbers("rho", rho, zero=True)
    epsilons = () if epsilon is None else require_numbers("epsilon", epsilon, zero=True)
    require_number("width", width)
    time_limit = None if time_limit is None else require_number("time_limit", time_limit)
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
    if confidence is not None:
        rule = "be given for a regression with `confidence`: a squared error has no bound"
        require(labelled or clip is not None, "clip", rule, None)
        require(weights is None, "confidence", "be left out for samples with weights", confidence)
    gammas = _default_gammas(problem, rhos, clip)
    end = math.inf if time_limit is None else time.monotonic() + time_limit
    with progress_bar(progress, "certifying") as report:
        aim = Aim(rhos, gammas, weights, width, end, report)
        work = TreeWork(problem, reading, by_class, clip, TreeWorkers(ensemble, problem.cost, jobs))
        work.begin_all(aim if confidence is None else aim._replace(end=math.inf))
        population = None
        if confidence is not None and work.begun == len(rows):
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
        work.refine(aim)
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


def first_seconds(ensemble: Ensemble, rows: int) -> float:
    """Estimate the processor time of the first searches, on a machine of 2026; twice as long is possible."""
    leaves, trees = int((ensemble.feature < 0).sum()), len(ensemble.roots)
    depth = math.log2(max(2.0, leaves / max(1, trees)))
    return rows * max(1, len(ensemble.bias) - 1) * leaves * depth * _SECONDS


def in_words(seconds: float) -> str:
    """Return a duration in minutes or hours.

    >>> in_words(90), in_words(9000)
    ('2 minutes', '2.5 hours')
    """
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{max(1, math.ceil(seconds / 60))} minutes"


def _require_feasible(ensemble: Ensemble, rows: int, time_limit: float | None) -> None:
    """Raise where memory does not suffice, or where the first searches would take hours."""
    leaves, trees = int((ensemble.feature < 0).sum()), len(ensemble.roots)
    size = f"{trees:,} trees with {leaves:,} leaves and {ensemble.columns:,} columns"
    memory = leaves * ensemble.columns * _BYTES
    if memory > _MOST_BYTES:
        raise UnsupportedError(
            f"{size} need about {memory / 2**30:.0f} GiB for the boxes of their leaves, of at most "
            f"{_MOST_BYTES / 2**30:.0f}: certify fewer rounds or fewer columns."
        )
    seconds = first_seconds(ensemble, rows)
    if time_limit is None and seconds > _PATIENCE:
        raise ArgumentError(
            f"`time_limit` must be given for {size}: the first searches of {rows:,} rows take about "
            f"{in_words(seconds)}; or certify fewer rows, or fewer rounds."
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
    gammas: tuple[float, ...], work: TreeWork, rhos: Sequence[float], weights: Tensor | None
) -> tuple[float, ...]:
    """The grid, and for the sample alone γ between those that are best at some ρ and their neighbours."""
    means = [mean_up(level.bound, weights) for level in work.bounds(gammas)]
    more: set[float] = set()
    for rho in rhos:
        best = gammas[best_gamma(gammas, means, rho)]
        more |= {best * (gammas[0] / gammas[1]) ** (step / 4) for step in (-3, -2, -1, 1, 2, 3)}
    return tuple(sorted({*gammas, *more}, reverse=True))
