"""Bounds on λ_max(∇²_x ℓ) and on Lipschitz constants (section:examples, corrected and tightened).

    "paper"      √2·β_L + α_L², as printed                                          [corollary:softmax-smooth]
    "corrected"  max_{0 ≤ u ≤ ½} √(2 − u)·β_L + u·α_L², with exact constants and β₀ = 0
    "sum"        κ + D²/4: κ the curvature of the margins by the sum rule, D the slope of their differences
    "max"        the max rule from the loss down to the inputs

All four hold for every input and label; the smallest is the bound, and is never the first. On a ball around a
sample the same rules use the ranges of σ' and σ'' on the ball, and a bound on q, the probability of all other
classes. The model is read here; the bounds are the kernel's (``certus.kernel.smoothness``).
"""

from __future__ import annotations

import math
from functools import cached_property

import torch
from torch import Tensor, nn

from certus._eval_mode import unwrapped
from certus._tensor import as_float64
from certus.bounds.criteria import check_targets, check_values, read_criterion
from certus.bounds.equivalence import check_wrapper, random_points
from certus.bounds.layer_rules import refuse_log_softmax
from certus.bounds.layer_summary import layer_table, paper_bound
from certus.bounds.network import infer_shape, read_network
from certus.bounds.norm_proposals import claim_norms
from certus.bounds.smoothness import LocalBound, SmoothnessBound, derived
from certus.costs import Cost, SquaredL2
from certus.costs.claims import check_claims_everywhere
from certus.data import require_real
from certus.errors import CertusError, UnreadableModelError, UnsupportedError, require
from certus.kernel.costs import Cost as KernelCost
from certus.kernel.costs import Domain
from certus.kernel.graph import Graph
from certus.kernel.passes import Refused, Shape
from certus.kernel.problem import Problem
from certus.kernel.rows import with_columns
from certus.kernel.smoothness import Bounds, Smoothness
from certus.losses import Criterion, CrossEntropy

_L2 = SquaredL2()
_TRIED = (0.0, 0.1, 1.0, 10.0)  # sizes of the points at which a wrapper is compared with its module
_CROSS_ENTROPY = CrossEntropy()
_OVERFLOW = "The bounds overflow float64: the weights of this model are too large. Train with weight decay."


def kernel_cost(cost: Cost, shape: Shape) -> KernelCost:
    """Return the cost in the kernel's form for inputs of one shape; raise an error if it does not fit, or
    if points refute its claims."""
    cost.check_shape(torch.zeros(1, *shape))
    check_claims_everywhere(cost, shape)
    try:
        return cost.kernel(shape)
    except Refused as reason:
        raise UnsupportedError(
            f"No bound can be proven for this cost: {reason}. Regularise its matrix."
        ) from None


class Analysis:
    """A model, a criterion and a cost, read once; ``everywhere`` and ``run`` compute bounds.

    Args:
        model: any model that torch can export; its weights are read once, in eval mode.
        input_shape: shape of one input; optional if the model begins with a linear layer.

    Attributes:
        problem: network, loss and cost in the kernel's form, without samples; with the assumptions of all
            bounds.
        normalized: whether the model ends in a log-softmax, which the bounds omit.
    """

    def __init__(
        self,
        model: nn.Module,
        criterion: Criterion = _CROSS_ENTROPY,
        *,
        input_shape: Shape | None = None,
        cost: Cost = _L2,
    ) -> None:
        require(isinstance(model, nn.Module), "model", "be a torch.nn.Module", type(model))
        wrapper, model = model, unwrapped(model)
        loss, self.cost = read_criterion(criterion), cost
        self.shape = infer_shape(model) if input_shape is None else tuple(input_shape)
        check_wrapper(wrapper, model, random_points(_TRIED, self.shape))
        network = read_network(model, self.shape)
        self.normalized = network.normalized
        if self.normalized and (loss is None or loss.logistic):
            refuse_log_softmax()
        outputs = math.prod(network.graph.out_shape)
        targets = torch.empty(0, dtype=torch.int64)
        if loss is None:
            targets = torch.empty(0, outputs, dtype=torch.float64)
        elif loss.logistic:
            require(outputs == 1, "model", "have one output for Logistic", outputs)
        else:
            rule = (
                "have at least 2 outputs for integer targets, which are labels: pass regression targets as "
                "floats, or use BCEWithLogitsLoss for a single logit"
            )
            require(outputs >= 2, "model", rule, outputs)
        nothing = torch.empty(0, *self.shape, dtype=torch.float64), targets
        self.problem = Problem.of(network.graph, loss, kernel_cost(cost, self.shape), Domain(), nothing)
        claim_norms(self.problem.graph)
        try:
            self.problem.smoothness.check_scales()
        except Refused as reason:
            raise UnreadableModelError(
                f"The weights of the model are too large: {reason}. Train with weight decay, or rescale them."
            ) from None

        self._over_rows: dict[tuple[tuple[int, ...], ...], Problem] = {(): self.problem}

    def over_rows(self, groups: tuple[tuple[int, ...], ...]) -> Problem:
        """The problem over rows of a table with these groups of inputs as discrete columns."""
        if groups not in self._over_rows:
            self._over_rows[groups] = with_columns(self.problem, groups)
        return self._over_rows[groups]

    @classmethod
    def stored(cls, problem: Problem, cost: Cost) -> Analysis:
        """The analysis of a network that the kernel has read from its files; ``problem`` is about no
        samples."""
        analysis = cls.__new__(cls)
        analysis.problem, analysis.cost = problem, cost
        analysis.shape, analysis.normalized = problem.graph.shape, False
        analysis._over_rows = {(): problem}
        return analysis

    @property
    def smoothness(self) -> Smoothness:
        """Bounds on the smoothness of the loss."""
        return self.problem.smoothness

    @property
    def graph(self) -> Graph:
        """The network, with the whitening of the cost merged into its first layer."""
        return self.problem.graph

    @cached_property
    def everywhere(self) -> Bounds:
        """Return bounds over the whole space."""
        return self.smoothness.everywhere

    def run(self, points: Tensor, targets: Tensor, radius: Tensor) -> Bounds:
        """Return bounds on balls around (batch, …) float64 points."""
        if self.problem.classes is None:
            targets = check_values(targets, torch.empty(len(points), math.prod(self.graph.out_shape)))
        else:
            targets = check_targets(targets, len(points), self.problem.classes)
        return self.smoothness.bound(points, targets, radius)


_CHUNK = 1 << 18  # numbers in one tensor of a pass: 2 MB, which fits into the cache


def input_smoothness(
    model: nn.Module | Analysis,
    criterion: Criterion = _CROSS_ENTROPY,
    *,
    input_shape: Shape | None = None,
    cost: Cost = _L2,
) -> SmoothnessBound:
    """Bound the smoothness of x ↦ ℓ(θ; (x, y)) for every input and label, layer by layer.

    Args:
        model: a model of layers with rules, which is read in eval mode and not changed; or an ``Analysis``,
            which has its own criterion, shape and cost.
        criterion: ``CrossEntropy``, ``SquaredError``, ``Logistic`` or ``SmoothMargin``.
        input_shape: shape of one input; optional if the model begins with a linear layer.
        cost: all bounds are in its norm. For a norm without inner product L⁺ means
            ℓ(x + δ) ≤ ℓ(x) + ⟨∇ℓ(x), δ⟩ + (L⁺/2)‖δ‖².

    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False))
    >>> _ = model[0].weight.data.copy_(torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
    >>> round(input_smoothness(model).curvature, 6)              # D²/4, D = ‖w₁ − w₂‖ = 5
    6.25
    """
    analysis = model
    if not isinstance(analysis, Analysis):
        analysis = Analysis(analysis, criterion, input_shape=input_shape, cost=cost)
    result = analysis.everywhere
    bounds = {name: float(values[0]) for name, values in result.curvature.items()}
    softmax = analysis.smoothness.softmax
    if softmax is not None:
        bounds = {"paper": paper_bound(analysis.graph, softmax, analysis.smoothness.length), **bounds}
    if any(math.isnan(bound) for bound in bounds.values()):
        raise CertusError(_OVERFLOW)
    layers = layer_table(analysis.smoothness, result)
    kinked = [layer.path for layer in layers if math.isinf(layer.second_derivative)]
    obstacle = (*kinked, "the residuals F − y are unbounded over all inputs")[0]
    bound = SmoothnessBound(
        bounds=bounds,
        lipschitz=float(result.lipschitz[0]),
        output_lipschitz=float(result.output_lipschitz[0]),
        margin_lipschitz=None if result.margin_lipschitz is None else result.margin_lipschitz[0],
        margin_curvature=None if result.margin_curvature is None else result.margin_curvature[0],
        layers=layers,
        obstacle=obstacle if math.isinf(min(bounds.values())) else None,
        cost=analysis.cost,
    )
    return derived(bound, analysis.problem)


def local_smoothness(
    model: nn.Module | Analysis,
    inputs: Tensor,
    targets: Tensor,
    radius: float | Tensor,
    criterion: Criterion = _CROSS_ENTROPY,
    *,
    cost: Cost = _L2,
) -> LocalBound:
    """Bound the smoothness on a ball around each input, for its own target.

    Args:
        model: a model, or an ``Analysis``, which has its own criterion and cost.
        inputs, targets: (batch, …) and (batch,).
        radius: radius of the balls in the norm of ``cost``: a number, or (batch,).

    >>> model = nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 3))
    >>> inputs, targets = torch.zeros(5, 2), torch.zeros(5, dtype=torch.long)
    >>> everywhere = input_smoothness(model).curvature
    >>> bool((local_smoothness(model, inputs, targets, 0.1).curvature <= everywhere).all())
    True
    """
    if not isinstance(model, Analysis):
        model = Analysis(model, criterion, input_shape=tuple(inputs.shape[1:]), cost=cost)
    fits = tuple(inputs.shape[1:]) == model.shape
    require(fits, "inputs", f"have shape (batch, {model.shape})", inputs.shape)
    require(len(inputs) > 0, "inputs", "hold at least one sample", "none")
    require_real(inputs=inputs, targets=targets)
    radii = as_float64(radius).expand(len(inputs))
    valid = bool((torch.isfinite(radii) & (radii >= 0)).all())
    require(valid, "radius", "be finite and not negative", radius)
    points = inputs.detach().cpu().double()
    require(bool(torch.isfinite(points).all()), "inputs", "be finite", "NaN or infinity")
    widest = max(math.prod(node.shape) for node in model.graph.nodes)
    size = max(1, _CHUNK // (model.smoothness.outputs.classes * widest))
    parts = [
        model.run(points[at : at + size], targets[at : at + size].cpu(), radii[at : at + size])
        for at in range(0, len(points), size)
    ]
    bounds = {name: torch.cat([part.curvature[name] for part in parts]) for name in parts[0].curvature}
    whole = model.everywhere  # what holds everywhere holds on a ball
    everywhere = [part.expand(len(radii)) for part in whole.curvature.values()]
    curvature = torch.stack([*bounds.values(), *everywhere]).amin(0)
    if bool(torch.isnan(curvature).any()):
        raise CertusError(_OVERFLOW)
    labels = targets.long().cpu()
    bound = LocalBound(
        bounds=bounds,
        curvature=curvature,
        lipschitz=torch.cat([part.lipschitz for part in parts]).minimum(whole.lipschitz),
        margin_lipschitz=_joined([part.margin_lipschitz for part in parts], whole.margin_lipschitz, labels),
        margin_curvature=_joined([part.margin_curvature for part in parts], whole.margin_curvature, labels),
        margins=_joined([part.margins for part in parts]),
        error=_joined([part.error for part in parts]),
        radius=radii,
    )
    return derived(bound, model.problem)


def _joined(
    parts: list[Tensor | None], whole: Tensor | None = None, labels: Tensor | None = None
) -> Tensor | None:
    """Return (batch, …) bounds on balls, at most those over the whole space."""
    tensors = [part for part in parts if part is not None]
    joined = torch.cat(tensors) if tensors else None
    return joined if joined is None or whole is None else joined.minimum(whole[0].T[labels])
