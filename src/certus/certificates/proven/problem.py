"""The certified problem: network, samples, loss and cost, and the rounding of the cost.

A squared norm is a sum of positive terms: its rounding is relative to itself (``Problem.metric_slack``). A
divergence h(z) − h(z₀) − ⟨∇h(z₀), z − z₀⟩ cancels, and its rounding is relative to its terms, with h
computed as
accurately as a sum of as many terms as z has entries. A user's cost is assumed to cancel from
growth·(‖z‖₂ + ‖z₀‖₂)².
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from certus._validation import check_batch, check_domain, check_geometry, check_label_cost
from certus.bounds import Analysis, SmoothnessBound, input_smoothness
from certus.bounds.criteria import Softmax, check_targets
from certus.bounds.equivalence import OriginalModel
from certus.bounds.passes import run_steps
from certus.certificates.proven.float_error import Rounding, rounding_at
from certus.costs import Cost, LabelCost
from certus.costs.claims import domain_assumptions, is_builtin
from certus.costs.metric import Metric
from certus.data import DataLike, RowEncoding, Samples, gather_samples, require_real
from certus.domains import Domain, Intervals
from certus.errors import ArgumentError, UnsupportedError, require
from certus.losses import Criterion, ModelLoss, check_labels, predicted
from certus.rounding import SOME, slack

BATCH = 512


class Network(nn.Module):
    """The network as read layer by layer, in float64 on the CPU: the function that is bounded is evaluated.

    It differs from the module itself: torch's softplus, for example, is off by 2·10⁻⁹ where it switches to a
    linear function, which the bounds allow for.
    """

    def __init__(self, analysis: Analysis) -> None:
        super().__init__()
        self.steps = analysis.steps if analysis.head is None else [*analysis.steps, analysis.head]

    def forward(self, points: Tensor) -> Tensor:
        return run_steps(self.steps, points)


@dataclass(frozen=True, eq=False)
class Problem:
    """The certified loss and everything that its bounds rest on; constructed by ``Problem.of``.

    Attributes:
        loss: the network in float64 with its criterion.
        inputs, targets: (n, …) float64 and (n,) the data.
        predicted: whether the targets are the network's own predictions.
        smoothness: bounds that hold everywhere; analysis: for bounds on balls.
        claimed: whether ``smoothness`` is the caller's claim.
        original_model: the caller's model, evaluated at every sample and every attained point.
        encoding: of the rows of a table, for searches of lower bounds; no upper bound rests on it.
    """

    loss: ModelLoss
    cost: Cost
    domain: Domain
    inputs: Tensor
    targets: Tensor
    predicted: bool
    label_cost: LabelCost | None
    smoothness: SmoothnessBound
    analysis: Analysis
    claimed: bool
    original_model: OriginalModel
    encoding: RowEncoding | None = None

    @staticmethod
    def of(
        model: nn.Module,
        data: DataLike,
        criterion: Criterion,
        cost: Cost,
        domain: Domain,
        label_cost: LabelCost | None = None,
        smoothness: SmoothnessBound | None = None,
    ) -> Problem:
        """Read the data and the network, and check that they fit together."""
        require(isinstance(model, nn.Module), "model", "be a torch.nn.Module", type(model))
        inputs, targets = gather(data)
        check_batch(inputs, targets)
        check_geometry(inputs, cost, domain)
        analysis = Analysis(model, criterion, input_shape=tuple(inputs.shape[1:]), cost=cost)
        bound = smoothness or input_smoothness(analysis)
        if smoothness is not None and not _equal(smoothness.cost, cost):
            raise ArgumentError(f"`smoothness` must be in the norm of {cost}; got that of {smoothness.cost}.")
        if label_cost is not None and analysis.softmax is not None:
            classes = analysis.outputs.classes
            rule = f"have as many classes as the network, {classes}"
            require(label_cost.classes == classes, "label_cost", rule, label_cost.classes)
        problem = Problem(
            loss=ModelLoss(Network(analysis), criterion),
            cost=cost,
            domain=domain,
            inputs=inputs[:0],
            targets=torch.empty(0),
            predicted=False,
            label_cost=label_cost,
            smoothness=bound,
            analysis=analysis,
            claimed=smoothness is not None,
            original_model=OriginalModel(model, analysis.shape, normalized=analysis.normalized),
        )
        return problem.about((inputs, targets))

    def about(self, data: DataLike) -> Problem:
        """The same problem for other samples, which are checked."""
        inputs, targets = gather(data)
        check_batch(inputs, targets)
        check_domain(inputs, self.domain)
        predicted = targets is None
        if targets is None:
            if self.softmax is None:
                raise UnsupportedError(
                    "`data` must have targets for a regression, which has no predicted labels."
                )
            targets = predictions(self.loss.model, inputs)
        if self.label_cost is not None:
            check_label_cost(targets, self.label_cost)
        if self.softmax is not None and self.softmax.logistic:
            flat = targets.flatten() if targets.numel() == len(inputs) else targets  # (n, 1) too
            targets = check_targets(flat, len(inputs), 2)
        elif self.softmax is not None:
            outputs = torch.empty(len(inputs), self.analysis.outputs.classes)
            check_labels(type(self.loss.criterion).__name__, outputs, targets)
        return replace(self, inputs=inputs, targets=targets, predicted=predicted)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Names of everything that a bound rests on without proof."""
        claimed = ("the bounds given as `smoothness`",) if self.claimed else ()
        return (*self.analysis.assumptions, *domain_assumptions(self.domain), *claimed)

    @property
    def softmax(self) -> Softmax | None:
        """The constants of the criterion; None for regression."""
        return self.analysis.softmax

    @property
    def classes(self) -> int | None:
        """Number of labels; None for regression."""
        return None if self.softmax is None else self.analysis.outputs.classes

    @property
    def unit_cost(self) -> float:
        """g with c(x, x₀) ≥ g‖x − x₀‖²: half of the growth."""
        return self.cost.growth / 2

    def select(self, index: slice | Tensor) -> Problem:
        """The problem restricted to some samples."""
        return replace(self, inputs=self.inputs[index], targets=self.targets[index])

    def relabelled(self, places: int) -> Problem:
        """Every label increased by ``places`` modulo the number of classes; labels do not move any more."""
        assert self.label_cost is not None
        targets = (self.targets + places) % self.label_cost.classes
        return replace(self, targets=targets, label_cost=None)

    def batches(self) -> list[Problem]:
        """The samples in batches that fit into memory."""
        return [self.select(slice(at, at + BATCH)) for at in range(0, len(self), BATCH)]

    def outputs(self, points: Tensor) -> Tensor:
        """(batch, classes) outputs of the network; a logistic output gets a 0 beside it."""
        return self.margin_outputs(self.loss.model(points))

    def margin_outputs(self, values: Tensor) -> Tensor:
        """The same from the network's raw outputs."""
        values = values.flatten(1)
        if self.softmax is not None and self.softmax.logistic:
            return torch.cat([torch.zeros_like(values), values], 1)
        return values

    @cached_property
    def rounding(self) -> Rounding:
        """Rounding errors of the network at the samples."""
        return rounding_at(self.analysis, self.inputs)

    def slack(self, losses: Tensor, rounding: Rounding) -> Tensor:
        """(batch,) bound on the rounding of these losses."""
        own = SOME * (1 + losses.abs())
        if self.softmax is not None:
            return 2 * self.softmax.slope * rounding.values + self._softmax_rounding(rounding) + own
        error = rounding.values * math.sqrt(self.analysis.outputs.classes)
        return 2 * losses.clamp_min(0).sqrt() * error + error**2 + own

    def slope_error(self, losses: Tensor, rounding: Rounding) -> Tensor:
        """(batch,) L2 bound on the rounding of the gradients of these losses.

        A softmax is ½-Lipschitz from the sup-norm of its arguments to each of its entries, and ‖p − t‖² ≤ 2.
        """
        root = math.sqrt(self.analysis.outputs.classes)
        if self.softmax is not None:
            row = torch.full_like(losses, 1.5 * self.softmax.slope)
            off = self.softmax.slope * self.softmax.scale / 2 * rounding.values
            off = off + self.softmax.scale * self._softmax_rounding(rounding)
            return rounding.gradient(row, root * off)
        away = 2 * (losses + self.slack(losses, rounding)).clamp_min(0).sqrt()
        sizes = rounding.outputs + self.targets.abs().reshape(len(self), -1).amax(1)
        return rounding.gradient(away, root * (2 * rounding.values + slack(8) * sizes))

    def _softmax_rounding(self, rounding: Rounding) -> Tensor:
        """(batch,) the rounding of the criterion itself, relative to the terms that cancel."""
        softmax = self.softmax
        assert softmax is not None
        sizes = 1 + softmax.scale * (rounding.outputs + abs(softmax.offset))
        return softmax.slope / softmax.scale * slack(self.analysis.outputs.classes + 16) * sizes

    @property
    def metric(self) -> Metric:
        """The cost's norm, with safe roundings."""
        return self.analysis.geometry.metric

    @property
    def metric_slack(self) -> float:
        """Relative rounding of costs, and of the norms of moves and gradients."""
        return self.metric.rounding

    @cached_property
    def reach(self) -> Tensor:
        """(n,) bound on the distance of points of Z from the sample, in the cost's norm; may be ∞."""
        if not isinstance(self.domain, Intervals):
            return torch.full((len(self),), math.inf, dtype=torch.float64)
        low, high = self.domain.bounds(self.inputs)
        return self.metric.farthest(torch.maximum((self.inputs - low).abs(), (high - self.inputs).abs()))

    def feasible(self, slopes: Tensor) -> Tensor:
        """Gradients at the samples without components along which Z, or a mask, allows no move.

        ⟨g, δ⟩ ≤ ⟨g', δ⟩ for every move δ inside Z, where g' drops gᵢ if xᵢ is at a bound and gᵢ points
        outwards.
        """
        slopes = self.cost.free_part(slopes)
        if not isinstance(self.domain, Intervals) or self.metric.coupled:
            return slopes
        low, high = self.domain.bounds(self.inputs)
        blocked = ((self.inputs <= low) & (slopes < 0)) | ((self.inputs >= high) & (slopes > 0))
        return torch.where(blocked, 0.0, slopes)


def _equal(first: object, second: object) -> bool:
    """Whether two costs are equal, including tensors and inner costs."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.shape == second.shape and bool((first == second).all())
    if type(first) is not type(second) or not is_dataclass(first):
        return first == second
    names = [field.name for field in fields(first) if field.init]
    return all(_equal(getattr(first, name), getattr(second, name)) for name in names)


def gather(data: DataLike) -> tuple[Tensor, Tensor | None]:
    """Inputs in float64 and targets, on the CPU."""
    targets: Tensor | None
    if isinstance(data, Samples):
        inputs, targets = data.inputs, data.targets
    elif isinstance(data, tuple):
        require(len(data) == 2, "data", "be (inputs, targets) or (inputs, None)", f"{len(data)} entries")
        inputs, targets = data
    else:
        whole = gather_samples(data)
        inputs, targets = whole.inputs, whole.targets
    require(isinstance(inputs, Tensor), "data", "hold tensors", type(inputs))
    require_real(inputs=inputs, targets=targets)
    require(
        inputs.dim() >= 2 and len(inputs) > 0, "data", "hold samples of shape (n, …)", tuple(inputs.shape)
    )
    inputs = inputs.detach().cpu().double()
    if targets is not None:
        targets = targets.detach().cpu()
        targets = targets.double() if targets.is_floating_point() else targets.long()
    return inputs, targets


def predictions(network: nn.Module, inputs: Tensor) -> Tensor:
    """(n,) labels predicted by the network."""
    with torch.no_grad():
        outputs = torch.cat([network(batch) for batch in inputs.split(BATCH)])
    return predicted(outputs)


def raised_cost(problem: Problem, points: Tensor) -> Tensor:
    """(batch,) c(point, sample), rounded up."""
    costs = problem.cost.value(points, problem.inputs)
    return costs * (1 + problem.metric_slack) + cost_error(problem, points)


def cost_error(problem: Problem, points: Tensor) -> Tensor:
    """(batch,) absolute error bound of c, beside its relative rounding."""
    cost = problem.cost.unmasked
    return _rounding(cost, cost.value_terms, points, problem.inputs)


def cost_gradient_error(problem: Problem, points: Tensor) -> Tensor:
    """(batch,) absolute L2 error bound of ∇c, beside its relative rounding."""
    cost = problem.cost.unmasked
    return _rounding(cost, cost.gradient_terms, points, problem.inputs)


def _rounding(
    cost: Cost, terms: Callable[[Tensor, Tensor], Tensor], points: Tensor, origins: Tensor
) -> Tensor:
    if is_builtin(cost):
        return torch.zeros(len(points), dtype=points.dtype)
    return slack(8 * points[0].numel()) * terms(points, origins)
