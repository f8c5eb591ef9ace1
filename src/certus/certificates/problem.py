"""The certified problem: the caller's model, samples, loss and cost, and their form for the kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from certus._validation import check_batch, check_domain, check_geometry, check_label_cost
from certus.bounds import Analysis, SmoothnessBound, input_smoothness
from certus.bounds.criteria import check_targets, check_values
from certus.bounds.equivalence import OriginalModel
from certus.costs import Cost, LabelCost
from certus.data import DataLike, RowEncoding, Samples, gather_samples, require_real
from certus.domains import Domain
from certus.errors import ArgumentError, CertusError, UnsupportedError, require
from certus.kernel import problem as trusted
from certus.kernel.graph import Graph
from certus.kernel.passes import Refused
from certus.kernel.smoothness import Bounds
from certus.losses import Criterion, ModelLoss, check_labels, predicted

BATCH = 512


class FunctionModule(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, points: Tensor) -> Tensor:
        return self.function(points)


@dataclass(frozen=True, eq=False)
class Problem:
    """The certified loss with its data, cost and bounds; constructed by ``Problem.of``.

    Attributes:
        loss: the network in float64 with its criterion.
        inputs, targets: the data, (n, …) float64 and (n,).
        smoothness: bounds over the whole space; analysis: computes bounds on balls.
        claimed: whether ``smoothness`` is the caller's claim.
        original_model: the caller's model, evaluated at every sample and every attained point.
        encoding: encoding of the rows of a table: lower bounds end at valid rows, and upper bounds hold for
            them; discrete columns change as a whole.
        deployment: "float32" for upper bounds about the network in float32.
    """

    loss: ModelLoss
    cost: Cost
    domain: Domain
    inputs: Tensor
    targets: Tensor
    label_cost: LabelCost | None
    smoothness: SmoothnessBound
    analysis: Analysis
    claimed: bool
    original_model: OriginalModel
    encoding: RowEncoding | None = None
    deployment: str | None = None

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
        """Construct a problem: read data and network, and check that they fit."""
        require(isinstance(model, nn.Module), "model", "be a torch.nn.Module", type(model))
        inputs, targets = gather(data)
        check_batch(inputs, targets)
        check_geometry(inputs, cost, domain)
        analysis = Analysis(model, criterion, input_shape=tuple(inputs.shape[1:]), cost=cost)
        bound = smoothness or input_smoothness(analysis)
        if smoothness is not None and not same_parts(smoothness.cost, cost):
            raise ArgumentError(f"`smoothness` must be in the norm of {cost}; got that of {smoothness.cost}.")
        classes = analysis.problem.classes
        if label_cost is not None and classes is not None:
            rule = f"have as many classes as the network, {classes}"
            require(label_cost.classes == classes, "label_cost", rule, label_cost.classes)
        problem = Problem(
            # The graph is what is bounded. It differs from the module itself: torch's softplus, for example,
            # is off by 2·10⁻⁹ where it switches to a linear function, which the bounds allow for.
            loss=ModelLoss(FunctionModule(analysis.graph.apply), criterion),
            cost=cost,
            domain=domain,
            inputs=inputs[:0],
            targets=torch.empty(0),
            label_cost=label_cost,
            smoothness=bound,
            analysis=analysis,
            claimed=smoothness is not None,
            original_model=OriginalModel(model, analysis.shape, normalized=analysis.normalized),
        )
        return problem.about((inputs, targets))

    def about(self, data: DataLike) -> Problem:
        """Return the same problem for other samples, checked."""
        inputs, targets = gather(data)
        check_batch(inputs, targets)
        check_domain(inputs, self.domain)
        if targets is None:
            if self.classes is None:
                raise UnsupportedError(
                    "`data` must have targets for a regression, which has no predicted labels."
                )
            with torch.no_grad():
                targets = predicted(torch.cat([self.loss.model(part) for part in inputs.split(BATCH)]))
        if self.label_cost is not None:
            check_label_cost(targets, self.label_cost)
        softmax = self.analysis.smoothness.softmax
        if softmax is not None and softmax.logistic:
            flat = targets.flatten() if targets.numel() == len(inputs) else targets  # (n, 1) too
            targets = check_targets(flat, len(inputs), 2)
        elif softmax is not None:
            outputs = torch.empty(len(inputs), self.classes or 0)
            check_labels(type(self.loss.criterion).__name__, outputs, targets)
        else:
            check_values(targets, torch.empty(len(inputs), math.prod(self.graph.out_shape)))
            targets = targets.double()
        return replace(self, inputs=inputs, targets=targets)

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Names of the assumptions of all bounds."""
        return self.kernel.assumptions

    @cached_property
    def kernel(self) -> trusted.Problem:
        """The problem in the kernel's form."""
        groups = () if self.encoding is None else self.encoding.discrete
        blank = self.analysis.over_rows(groups)
        price = math.inf if self.label_cost is None else self.label_cost.price
        claimed = _bounds(self.smoothness, self.classes) if self.claimed else None
        blank = blank.settled(self.domain.kernel(), price, claimed)
        blank = blank.deployed(self.deployment)
        try:
            return blank.about(self.inputs, self.targets)
        except Refused as reason:
            raise CertusError(f"The samples do not fit the network: {reason}.") from None

    def require_covered(self) -> None:
        """Raise ``UnsupportedError`` for a deployment that the kernel does not cover."""
        try:
            self.kernel.select(slice(0, 1)).deviation  # noqa: B018 (it refuses)
        except Refused as reason:
            raise UnsupportedError(f"`deployment` cannot be proven: {reason}.") from None

    @property
    def graph(self) -> Graph:
        return self.analysis.graph

    @property
    def classes(self) -> int | None:
        """Number of labels; None for regression."""
        return self.analysis.problem.classes

    @property
    def unit_cost(self) -> float:
        """g with c(x, x₀) ≥ g‖x − x₀‖²: half of the growth."""
        return self.cost.growth / 2

    def select(self, index: slice | Tensor) -> Problem:
        """Return the problem restricted to some samples."""
        return replace(self, inputs=self.inputs[index], targets=self.targets[index])

    def relabelled(self, places: int) -> Problem:
        """Return the problem with every label increased by ``places`` modulo the number of classes, and
        fixed labels."""
        assert self.label_cost is not None
        targets = (self.targets + places) % self.label_cost.classes
        return replace(self, targets=targets, label_cost=None)

    def raised_cost(self, points: Tensor) -> Tensor:
        """Return (batch,) costs c(point, sample), rounded up."""
        return self.kernel.cost.raised(points, self.inputs)


def _bounds(claim: SmoothnessBound, classes: int | None) -> Bounds:
    """Return the caller's claimed bounds in the kernel's form; margins that are left out are unbounded."""
    slopes, curvatures = (
        None if matrix is None or classes is None else matrix.double().unsqueeze(0)
        for matrix in (claim.margin_lipschitz, claim.margin_curvature)
    )
    numbers = torch.tensor([claim.curvature, claim.lipschitz, claim.output_lipschitz], dtype=torch.float64)
    curvature, lipschitz, outputs = numbers.split(1)
    return Bounds({"claimed": curvature}, lipschitz, outputs, slopes, curvatures)


def same_parts(first: object, second: object) -> bool:
    """Whether two costs, losses, domains or ensembles are equal, tensors and inner parts included; but for a
    root of a matrix, which is a proposal."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return first.shape == second.shape and bool((first == second).all())
    if type(first) is not type(second) or not is_dataclass(first):
        return first == second
    names = [field.name for field in fields(first) if field.init and field.name != "root"]
    return all(same_parts(getattr(first, name), getattr(second, name)) for name in names)


def gather(data: DataLike) -> tuple[Tensor, Tensor | None]:
    """Return inputs in float64 and targets, on the CPU."""
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
