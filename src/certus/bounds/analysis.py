"""Bounds on λ_max(∇²_x ℓ) and on Lipschitz constants (section:examples, corrected and tightened).

    "paper"      √2·β_L + α_L², as printed                                          [corollary:softmax-smooth]
    "corrected"  max_{0 ≤ u ≤ ½} √(2 − u)·β_L + u·α_L², with exact constants and β₀ = 0
    "sum"        κ + D²/4: κ the curvature of the margins by the sum rule, D the slope of their differences
    "max"        the max rule from the loss down to the inputs

All four hold for every input and label; the smallest is the bound. On a ball around a sample the same rules
use the ranges of σ' and σ'' on the ball, and a bound on q, the probability of all other classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from certus._eval_mode import unwrapped
from certus._tensor import as_float64
from certus.bounds.activations import LogSoftmax, refuse_log_softmax
from certus.bounds.backward import BackwardPass, Outputs, geometry_of, read_outputs, sum_rule
from certus.bounds.criteria import Softmax, check_targets, check_values, read_criterion
from certus.bounds.equivalence import check_wrapper, random_points
from certus.bounds.network import infer_shape, read_network, whiten_steps
from certus.bounds.operators import Operator
from certus.bounds.passes import (
    Reach,
    Rows,
    Shape,
    Step,
    Trace,
    amplification,
    assumptions_of,
    forward,
    paper_constants,
    size,
    table_rows_of,
    times,
    widths,
)
from certus.bounds.smoothness import LayerBound, LocalBound, SmoothnessBound
from certus.costs import Cost, SquaredL2
from certus.costs.claims import cost_assumptions
from certus.data import require_real
from certus.errors import CertusError, UnreadableModelError, require
from certus.losses import Criterion, CrossEntropy
from certus.rounding import FEW, up

_MAX_AMPLIFICATION = 1e60
_L2 = SquaredL2()
_TRIED = (0.0, 0.1, 1.0, 10.0)  # sizes of the points at which a wrapper is compared with its module
_CROSS_ENTROPY = CrossEntropy()
_OVERFLOW = "The bounds overflow float64: the weights of this model are too large. Train with weight decay."


@dataclass(frozen=True, eq=False)
class AnalysisResult:
    """Bounds for a batch of balls, or for the whole space (batch 1); ``LocalBound`` explains the names."""

    reach: Reach
    bounds: dict[str, Tensor]
    lipschitz: Tensor
    output_lipschitz: Tensor
    margin_lipschitz: Tensor | None
    margin_curvature: Tensor | None
    error: Tensor | None
    margins: Tensor | None
    parts: dict[str, Tensor]
    trace: Trace


class Analysis:
    """A model, a criterion and a cost, read once; ``everywhere`` and ``run`` compute bounds.

    Args:
        model: any model that torch can export; its weights are read once, in eval mode.
        input_shape: shape of one input; optional if the model begins with a linear layer.

    Attributes:
        softmax: constants of the criterion; None for a squared error.
        normalized: whether the model ends in a log-softmax, which the bounds omit.
        assumptions: names of everything that the bounds rest on without proof.
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
        given, model = model, unwrapped(model)
        self.softmax, self.cost = read_criterion(criterion), cost
        self.shape = infer_shape(model) if input_shape is None else tuple(input_shape)
        check_wrapper(given, model, random_points(_TRIED, self.shape))
        steps = read_network(model, self.shape)
        self.normalized = bool(steps) and isinstance(steps[-1].stage, LogSoftmax)
        if self.normalized:
            if self.softmax is None or self.softmax.logistic:
                refuse_log_softmax()
            steps = steps[:-1]
        self.assumptions = (*assumptions_of(steps), *cost_assumptions(cost))
        self.geometry = geometry_of(cost, self.shape)
        if self.geometry.whitening is not None:
            steps = whiten_steps(steps, self.geometry.whitening, self.shape)
        _check_scales(steps)
        # The affine layers at the end belong to the outputs.
        self.head = steps[-1] if steps and isinstance(steps[-1].stage, Operator) else None
        self.steps: list[Step] = steps if self.head is None else steps[:-1]

    @cached_property
    def outputs(self) -> Outputs:
        logistic = self.softmax is not None and self.softmax.logistic
        shape = self.steps[-1].out_shape if self.steps else self.shape
        head = None if self.head is None else self.head.action
        assert head is None or isinstance(head, Operator)
        outputs = read_outputs(head, shape, logistic)
        if logistic:
            require(outputs.classes == 2, "model", "have one output for Logistic", outputs.classes - 1)
        if self.softmax is not None:
            rule = (
                "have at least 2 outputs for integer targets, which are labels: pass regression targets as "
                "floats, or use BCEWithLogitsLoss for a single logit"
            )
            require(outputs.classes >= 2, "model", rule, outputs.classes)
        return outputs

    @cached_property
    def backward_pass(self) -> BackwardPass:
        """The backward pass from the outputs."""
        return BackwardPass(self.steps, self.geometry, self.outputs)

    @cached_property
    def everywhere(self) -> AnalysisResult:
        """Bounds over the whole space."""
        return self.run(None, None, None)

    def run(self, points: Tensor | None, targets: Tensor | None, radius: Tensor | None) -> AnalysisResult:
        """Bound balls around (batch, …) float64 points, or the whole space."""
        reach, trace = forward(self.steps, self.geometry.start(self.shape, points), radius)
        if self.softmax is None:
            return self._squares(reach, trace, targets, radius)
        return self._softmax(self.softmax, reach, trace, targets, radius)

    def _softmax(
        self, criterion: Softmax, reach: Reach, trace: Trace, targets: Tensor | None, radius: Tensor | None
    ) -> AnalysisResult:
        count, classes = len(reach.length), self.outputs.classes
        labels = None if targets is None else check_targets(targets, count, classes)
        error, margins = torch.ones(count, dtype=torch.float64), None
        back = self.backward_pass
        bounds = back.margins(reach, trace) if labels is None else back.label_margins(reach, trace, labels)
        moving = bounds
        if labels is not None and criterion.smoothing:  # mass also moves between two other classes
            moving = back.margins(reach, trace)
        if labels is not None and radius is not None:
            margins, own = self._values(reach, labels)
            error = criterion.error(margins + bounds.slopes * radius.unsqueeze(1), own)
        weight = criterion.weight(error, classes)
        hull = self.outputs.hull(None if criterion.smoothing else labels)
        box = [part * weight.reshape(-1, *([1] * (part.dim() - 1))) for part in hull]
        apart = self.outputs.distances.max()
        curvatures = (criterion.variance(error) * apart**2).unsqueeze(1)
        start = Rows(box[0], box[1], (weight * apart).unsqueeze(1), curvatures)
        largest, steepest = back.descend(reach, trace, start)
        length, curvature = self.outputs.norm * reach.length, self.outputs.norm * reach.curvature
        return AnalysisResult(
            reach=reach,
            bounds={
                "corrected": up(criterion.corrected(curvature, length)),
                "sum": up(criterion.combine(moving.sharpest, moving.spread, error, classes)),
                "max": up(largest),
            },
            lipschitz=up(torch.minimum(weight * moving.steepest, steepest)),
            output_lipschitz=up(length),
            margin_lipschitz=up(bounds.slopes),
            margin_curvature=up(bounds.curvatures),
            error=error,
            margins=margins,
            parts={path: weight * part for path, part in moving.parts.items()},
            trace=trace,
        )

    def _values(self, reach: Reach, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Upper bounds on F_k − F_y at the samples, (batch, classes), and the bool mask of y."""
        logits, error = self._logits(reach)
        own = nn.functional.one_hot(labels, self.outputs.classes).to(torch.bool)
        margins = logits - logits[own].unsqueeze(1)
        slop = error + error[own].unsqueeze(1) + FEW * margins.abs()
        return torch.where(own, 0.0, margins + slop), own

    def _logits(self, reach: Reach) -> tuple[Tensor, Tensor]:
        assert reach.center is not None
        assert reach.error is not None
        logits, error = reach.center, reach.error
        if self.head is not None:
            head = self.head.stage
            assert isinstance(head, Operator)
            error = head.absolute(error) + head.rounding * head.sizes(logits.abs())
            logits = head.apply(logits)
        logits, error = logits.flatten(1), error.flatten(1)
        if self.softmax is not None and self.softmax.logistic:
            nothing = torch.zeros_like(logits)
            logits, error = torch.cat([nothing, logits], 1), torch.cat([nothing, error], 1)
        return logits, error

    def _squares(
        self, reach: Reach, trace: Trace, targets: Tensor | None, radius: Tensor | None
    ) -> AnalysisResult:
        """2JᵀJ ≤ 2α², and the residuals' term as one row; without a ball the residuals are unbounded."""
        count, outputs = len(reach.length), self.outputs
        length, curvature = outputs.norm * reach.length, outputs.norm * reach.curvature
        low = torch.full((count, outputs.classes), -math.inf, dtype=torch.float64)
        high = -low
        if targets is not None and radius is not None:
            logits, error = self._logits(reach)
            away = logits - check_values(targets, logits)
            each = outputs.singles()
            slopes = torch.minimum(
                self.backward_pass.totals(trace, each, count).lipschitz,
                each.length * reach.length.unsqueeze(1),
            )
            room = up(error + slopes * radius.unsqueeze(1)) + FEW * away.abs()
            low, high = away - room, away + room
        steep = 2 * size(torch.maximum(low.abs(), high.abs()))
        corrected = times(steep, curvature) + 2 * length**2
        lipschitz, parts = times(steep, length), {}
        bounds = dict.fromkeys(("corrected", "sum", "max"), up(corrected))
        if bool(torch.isfinite(high).all()):
            rows = outputs.mixture(2 * low, 2 * high)
            totals = self.backward_pass.totals(trace, rows, count)
            parts = {path: part[:, 0] for path, part in totals.convex.items()}
            own = torch.full((count, 1), 2 * outputs.norm * outputs.norm, dtype=torch.float64)
            largest, steepest = self.backward_pass.descend(reach, trace, replace(rows, curvature=own))
            bounds["sum"] = up(sum_rule(totals.convex, (count, 1))[:, 0] + 2 * length**2)
            bounds["max"], lipschitz = up(largest), torch.minimum(lipschitz, steepest)
        return AnalysisResult(
            reach=reach,
            bounds=bounds,
            lipschitz=up(lipschitz),
            output_lipschitz=up(length),
            margin_lipschitz=None,
            margin_curvature=None,
            error=None,
            margins=None,
            parts=parts,
            trace=trace,
        )


def _check_scales(steps: list[Step]) -> None:
    """Raise if numbers that underflow in float64 could grow back to a relevant size.

    A product below 10⁻³²³ underflows to 0, and so does a root of squares below 10⁻¹⁶¹. While nothing grows by
    more than 10⁶⁰ on its way, and a curvature by its square, no bound is off by 10⁻⁴⁰.
    """
    most = amplification(steps)
    if not most <= _MAX_AMPLIFICATION:
        raise UnreadableModelError(
            f"The layers of this model may amplify numbers by a factor of {most:.3g} in total; above "
            f"{_MAX_AMPLIFICATION:g} the bounds overflow or underflow float64. The weights are too large: "
            "train with weight decay, or rescale them."
        )


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
    bounds = {name: float(values[0]) for name, values in result.bounds.items()}
    if analysis.softmax is not None:
        bounds = {"paper": _paper_bound(analysis, analysis.softmax), **bounds}
    if any(math.isnan(bound) for bound in bounds.values()):
        raise CertusError(_OVERFLOW)
    layers = _table(analysis, result)
    obstacle = None
    if math.isinf(min(bounds.values())):
        kinked = [layer.path for layer in layers if math.isinf(layer.second_derivative)]
        obstacle = kinked[0] if kinked else "the residuals F − y are unbounded over all inputs"
    return SmoothnessBound(
        bounds=bounds,
        lipschitz=float(result.lipschitz[0]),
        output_lipschitz=float(result.output_lipschitz[0]),
        margin_lipschitz=None if result.margin_lipschitz is None else result.margin_lipschitz[0],
        margin_curvature=None if result.margin_curvature is None else result.margin_curvature[0],
        layers=layers,
        obstacle=obstacle,
        cost=analysis.cost,
        assumptions=analysis.assumptions,
    )


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
        radius: of the balls in the norm of ``cost``: a number, or (batch,).

    >>> model = nn.Sequential(nn.Linear(2, 8), nn.Softplus(), nn.Linear(8, 3))
    >>> inputs, targets = torch.zeros(5, 2), torch.zeros(5, dtype=torch.long)
    >>> everywhere = input_smoothness(model).curvature
    >>> bool((local_smoothness(model, inputs, targets, 0.1).curvature <= everywhere).all())
    True
    """
    if not isinstance(model, Analysis):
        model = Analysis(model, criterion, input_shape=tuple(inputs.shape[1:]), cost=cost)
    require(
        tuple(inputs.shape[1:]) == model.shape, "inputs", f"have shape (batch, {model.shape})", inputs.shape
    )
    require(len(inputs) > 0, "inputs", "hold at least one sample", "none")
    require_real(inputs=inputs, targets=targets)
    radii = as_float64(radius).expand(len(inputs))
    valid = bool((torch.isfinite(radii) & (radii >= 0)).all())
    require(valid, "radius", "be finite and not negative", radius)
    points = inputs.detach().cpu().double()
    require(bool(torch.isfinite(points).all()), "inputs", "be finite", "NaN or infinity")
    size = max(1, _CHUNK // (model.outputs.classes * max([1, *widths(model.steps)])))
    parts = [
        model.run(points[at : at + size], targets[at : at + size].cpu(), radii[at : at + size])
        for at in range(0, len(points), size)
    ]
    bounds = {name: torch.cat([part.bounds[name] for part in parts]) for name in parts[0].bounds}
    whole = model.everywhere  # what holds everywhere holds on a ball
    curvature = torch.stack(
        [*bounds.values(), *(part.expand(len(radii)) for part in whole.bounds.values())]
    ).amin(0)
    if bool(torch.isnan(curvature).any()):
        raise CertusError(_OVERFLOW)
    labels = targets.long().cpu()
    return LocalBound(
        bounds=bounds,
        curvature=curvature,
        lipschitz=torch.cat([part.lipschitz for part in parts]).minimum(whole.lipschitz),
        margin_lipschitz=_smaller([part.margin_lipschitz for part in parts], whole.margin_lipschitz, labels),
        margin_curvature=_smaller([part.margin_curvature for part in parts], whole.margin_curvature, labels),
        margins=_joined([part.margins for part in parts]),
        error=_joined([part.error for part in parts]),
        radius=radii,
        assumptions=model.assumptions,
    )


def _joined(parts: list[Tensor | None]) -> Tensor | None:
    tensors = [part for part in parts if part is not None]
    return torch.cat(tensors) if tensors else None


def _smaller(parts: list[Tensor | None], whole: Tensor | None, labels: Tensor) -> Tensor | None:
    """(batch, classes) elementwise minimum of the bounds on balls and of those on the whole space."""
    joined = _joined(parts)
    return joined if joined is None or whole is None else joined.minimum(whole[0].T[labels])


def _paper_bound(analysis: Analysis, softmax: Softmax) -> float:
    """√2·β_L + α_L² with the constants printed in the paper."""
    steps = analysis.steps if analysis.head is None else [*analysis.steps, analysis.head]
    length, curvature = paper_constants(steps, analysis.geometry.length)
    return up(softmax.paper_bound(curvature, length))


def _table(analysis: Analysis, result: AnalysisResult) -> list[LayerBound]:
    start = analysis.geometry.start(analysis.shape)
    lines, end = table_rows_of(analysis.steps, start, result.parts)
    if analysis.head is not None:
        more, _ = table_rows_of([analysis.head], end, result.parts)
        lines += more
    own = float(result.bounds["sum"][0]) - sum(line.curvature for line in lines)
    last = LayerBound(
        "", "loss", math.nan, math.nan, float(result.lipschitz[0]), max(own, 0.0) if own == own else 0.0
    )
    return [*lines, last]
