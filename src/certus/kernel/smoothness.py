"""Smoothness of the loss of a network: bounds on λ_max(∇²_x ℓ) and on Lipschitz constants (section:examples).

    "corrected"  max_{0 ≤ u ≤ ½} √(2 − u)·β_L + u·α_L², with exact constants and β₀ = 0
    "sum"        κ + D²/4: κ the curvature of the margins by the sum rule, D the slope of their differences
    "max"        the max rule from the loss down to the inputs

All of them hold for every input and label, so the smallest is *the* bound. On a ball around a sample the same
rules run with the ranges that σ' and σ'' have there, and with a bound on q, the probability of all other
classes.

The affine layers behind the last activation are linear, so they are pulled through at once: F_k has the
gradient w_k, exact up to rounding, and F_i − F_j has w_i − w_j. With many classes all pairs are too many;
then a box around all differences stands for them, and only distances ‖w_i − w_j‖ are kept for each pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from certus.kernel.graph import Graph, Node, Trace
from certus.kernel.losses import Softmax
from certus.kernel.operators import Affine
from certus.kernel.passes import (
    ForwardBound,
    GradientBound,
    Refused,
    Rounded,
    Totals,
    norm,
    per_sample,
    times,
)
from certus.kernel.pointwise import Site
from certus.kernel.rounding import FEW, slack, up

MOST_CLASSES = 32
_MOST_AMPLIFICATION = 1e60


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds on balls around samples, or everywhere (batch 1).

    Attributes:
        curvature: rule → (batch,) bound on λ_max(∇²ℓ).
        lipschitz, output_lipschitz: (batch,) of the loss, and of all outputs together.
        margin_lipschitz, margin_curvature: (batch, K) of F_k − F_y for the label y of each sample, or
            (batch, K, K) of [k, y] everywhere; None for a squared error.
        error: (batch,) largest probability q of all other classes; margins: (batch, K) F_k − F_y at the
            samples, rounded up; None where there are none.
        totals: of the pass that bounds all margins everywhere, node by node.
    """

    curvature: dict[str, Tensor]
    lipschitz: Tensor
    output_lipschitz: Tensor
    margin_lipschitz: Tensor | None = None
    margin_curvature: Tensor | None = None
    error: Tensor | None = None
    margins: Tensor | None = None
    totals: Totals | None = None


class _Balls(NamedTuple):
    """Balls around samples: the target and (batch,) radius of each, and the outputs, (batch, K)."""

    targets: Tensor
    radius: Tensor
    outputs: Rounded


class _Margins(NamedTuple):
    """Lipschitz constants and curvatures of margins, (batch, …); their largest spread D, (batch,); and the
    totals that they are from."""

    lipschitz: Tensor
    curvature: Tensor
    spread: Tensor
    totals: Totals


class Outputs:
    """Gradients w_k of the outputs in the last hidden layer, (classes, *shape), with their rounding.

    Args:
        head: the affine layer at the end; None if the network ends in an activation.
        with_zero: put an output 0 before the others, as the logistic loss does.
    """

    def __init__(self, head: Affine | None, shape: tuple[int, ...], *, with_zero: bool) -> None:
        out_shape = shape if head is None else head.out_shape
        count = math.prod(out_shape)
        basis = torch.eye(count, dtype=torch.float64).reshape(count, *out_shape)
        self.norm, self.rows, self.rounding = 1.0, basis, torch.zeros_like(basis)
        if head is not None:
            self.norm, self.rows = head.norm, head.transpose(basis)
            self.rounding = head.rounding * head.absolute_transpose(basis)
        if with_zero:
            nothing = torch.zeros_like(self.rows[:1])
            self.rows, self.rounding = (torch.cat([nothing, each]) for each in (self.rows, self.rounding))

    @property
    def classes(self) -> int:
        return len(self.rows)

    def pairs(self) -> tuple[Tensor, Tensor]:
        """Indices i < j of all pairs."""
        first, second = torch.triu_indices(self.classes, self.classes, 1)
        return first, second

    def singles(self) -> GradientBound:
        """Each F_k, as one batch entry."""
        return _rows((self.rows - self.rounding).unsqueeze(0), (self.rows + self.rounding).unsqueeze(0))

    @cached_property
    def differences(self) -> GradientBound:
        """F_i − F_j for all pairs, as one batch entry."""
        first, second = self.pairs()
        return self._apart(first.unsqueeze(0), second.unsqueeze(0))

    def against(self, labels: Tensor) -> GradientBound:
        """F_k − F_y for all k, y the label of each sample: (batch, classes, *shape)."""
        return self._apart(torch.arange(self.classes).unsqueeze(0), labels.unsqueeze(1))

    def _apart(self, first: Tensor, second: Tensor) -> GradientBound:
        """F_i − F_j for indices i and j that broadcast to (batch, rows)."""
        apart = self.rows[first] - self.rows[second]
        room = self.rounding[first] + self.rounding[second] + slack(1) * apart.abs()
        return _rows(apart - room, apart + room)

    @cached_property
    def distances(self) -> Tensor:
        """(classes, classes) bounds on ‖w_i − w_j‖."""
        flat, own = self.rows.flatten(1), norm(self.rounding)
        apart = [norm(flat - row) for row in flat]
        return torch.stack(apart) * (1 + slack(flat.shape[1])) + own[:, None] + own[None, :]

    def hull(self, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """(batch, 1, *shape) box around 0 and all F_k − F_y, y the label of each sample, or any."""
        room = self.rounding.amax(0) * 2 + 2 * slack(1) * self.rows.abs().amax(0)
        top, bottom = self.rows.amax(0), self.rows.amin(0)
        if labels is None:
            spread = (top - bottom + room)[None, None]
            return -spread, spread
        own = self.rows[labels]
        return (bottom - own - room).unsqueeze(1), (top - own + room).unsqueeze(1)

    def mixture(self, low: Tensor, high: Tensor) -> GradientBound:
        """Σ_k u_k F_k with coefficients u between ``low`` and ``high``, (batch, classes), as one row each."""
        flat, largest = self.rows.flatten(1), torch.maximum(low.abs(), high.abs())
        center, room = (low + high) / 2, (high - low) / 2 + slack(self.classes) * largest
        spread = (room @ flat.abs()) * (1 + slack(self.classes)) + largest @ self.rounding.flatten(1)
        middle, form = center @ flat, (len(low), 1, *self.rows.shape[1:])
        return _rows((middle - spread).reshape(form), (middle + spread).reshape(form))


def _rows(low: Tensor, high: Tensor) -> GradientBound:
    bound = GradientBound(low, high, low.new_full(low.shape[:2], math.inf)).tightened()
    return replace(bound, norm=bound.norm * (1 + slack(low[0, 0].numel())))


class Smoothness:
    """Bounds on the smoothness of a loss of a network, everywhere and on balls.

    Args:
        softmax: the constants of the loss; None for a squared error.
        length, unit: ‖u‖₂ ≤ length and |u_i| ≤ unit for every move u of length 1 in the norm of the cost.
    """

    def __init__(
        self, graph: Graph, softmax: Softmax | None, *, length: float = 1.0, unit: float = 1.0
    ) -> None:
        self.graph, self.softmax, self.length, self.unit = graph, softmax, length, unit
        self.logistic = softmax is not None and softmax.logistic
        last = graph.nodes[-1].primitive
        self.head: Node | None = graph.nodes[-1] if isinstance(last, Affine) else None
        self.body = graph if self.head is None else Graph(graph.nodes[:-1])

    def check_scales(self) -> None:
        """Raise ``Refused`` if numbers that vanish in float64 could grow back to a relevant size.

        While nothing grows by more than 10⁶⁰ on its way, and a curvature by its square, what vanishes below
        10⁻³²³, or as a square below 10⁻¹⁶¹, changes no loss by 10⁻⁴⁰ within the distance 10¹⁵.
        """
        amplification = self.graph.amplification()
        if not amplification <= _MOST_AMPLIFICATION:
            raise Refused(
                f"its layers may amplify numbers by a factor of {amplification:.3g} in total; above "
                f"{_MOST_AMPLIFICATION:g} the bounds overflow or underflow float64"
            )

    @cached_property
    def outputs(self) -> Outputs:
        """The outputs as functions of the last hidden layer, in the units of the cost."""
        head = None if self.head is None else self.head.action
        assert head is None or isinstance(head, Affine)
        return Outputs(head, self.body.out_shape, with_zero=self.logistic)

    def start(self, count: int = 1) -> ForwardBound:
        """The inputs of some samples, or anywhere, under moves of length 1."""
        ones = torch.ones(count, dtype=torch.float64)
        unit = torch.full((count, *self.graph.shape), self.unit, dtype=torch.float64)
        return ForwardBound(self.length * ones, unit, torch.zeros_like(ones), identity=self.length == 1)

    @cached_property
    def everywhere(self) -> Bounds:
        """Bounds that hold at every input, for every label."""
        self.check_scales()
        return self._bounds(*self.body.forward(self.start()), None)

    def bound(self, points: Tensor, targets: Tensor, radius: Tensor) -> Bounds:
        """Bound the loss on balls around (batch, *shape) float64 points.

        Args:
            targets: (batch,) labels, or (batch, K) numbers for a squared error.
            radius: (batch,) in the norm of the cost.
        """
        self.check_scales()
        *outputs, at = self.graph.rounded(points)
        value, error = (each.flatten(1) for each in outputs)
        if self.logistic:
            value, error = (torch.cat([torch.zeros_like(each), each], 1) for each in (value, error))
        end, trace = self.body.forward(self.start(len(points)), at, radius)
        return self._bounds(end, trace, _Balls(targets, radius, Rounded(value, error)))

    def _bounds(self, end: ForwardBound, trace: Trace, balls: _Balls | None) -> Bounds:
        if self.softmax is None:
            return self._squared_error(end, trace, balls)
        return self._softmax(self.softmax, end, trace, balls)

    def _softmax(self, loss: Softmax, end: ForwardBound, trace: Trace, balls: _Balls | None) -> Bounds:
        outputs, classes = self.outputs, self.outputs.classes
        error, values, labels = torch.ones_like(end.lipschitz), None, None
        if balls is None:
            margins = moving = self._all_margins(end, trace)
        else:
            labels = balls.targets
            margins = self._own_margins(end, trace, labels)
            # With label smoothing mass also moves between two other classes.
            moving = self._all_margins(end, trace) if loss.smoothing else margins
            values, own = _margin_values(balls)
            # Margins and rises may cancel, so that these are rounded up before they are added.
            error = loss.error(values + up(times(margins.lipschitz, balls.radius.unsqueeze(1))), own)
        weight, apart = loss.weight(error, classes), outputs.distances.max()
        hull = outputs.hull(None if loss.smoothing else labels)
        low, high = (part * per_sample(weight, part) for part in hull)
        curvature = (loss.variance(error) * apart**2).unsqueeze(1)
        start = GradientBound(low, high, (weight * apart).unsqueeze(1), curvature)
        largest, steepest = self._max_rule(end, trace, start)
        lipschitz = outputs.norm * end.lipschitz
        curved, widest = (each.flatten(1).amax(1) for each in (moving.curvature, moving.lipschitz))
        return Bounds(
            curvature={
                "corrected": up(loss.corrected(times(outputs.norm, end.curvature), lipschitz)),
                "sum": up(loss.combine(curved, moving.spread, error, classes)),
                "max": up(largest),
            },
            lipschitz=up(torch.minimum(weight * widest, steepest)),
            output_lipschitz=up(lipschitz),
            margin_lipschitz=up(margins.lipschitz),
            margin_curvature=up(margins.curvature),
            error=error,
            margins=values,
            totals=margins.totals if balls is None else None,
        )

    def _squared_error(self, end: ForwardBound, trace: Trace, balls: _Balls | None) -> Bounds:
        """2JᵀJ ≤ 2α², and the residuals' part as one row; without a ball the residuals have no bound."""
        count, outputs = len(end.lipschitz), self.outputs
        length, curvature = outputs.norm * end.lipschitz, times(outputs.norm, end.curvature)
        high = torch.full((count, outputs.classes), math.inf, dtype=torch.float64)
        low = -high
        if balls is not None:
            away = balls.outputs.value - balls.targets
            slopes = self._pull(end, trace, outputs.singles())[0].lipschitz
            room = up(balls.outputs.error + slopes * balls.radius.unsqueeze(1)) + FEW * away.abs()
            low, high = away - room, away + room
        steep = 2 * norm(torch.maximum(low.abs(), high.abs()))
        lipschitz = times(steep, length)
        bounds = dict.fromkeys(("corrected", "sum", "max"), up(times(steep, curvature) + 2 * length**2))
        if bool(torch.isfinite(high).all()):
            rows = outputs.mixture(2 * low, 2 * high)
            bounds["sum"] = up(self._pull(end, trace, rows)[0].sums()[0][:, 0] + 2 * length**2)
            own = torch.full((count, 1), 2 * outputs.norm * outputs.norm, dtype=torch.float64)
            largest, steepest = self._max_rule(end, trace, replace(rows, curvature=own))
            bounds["max"], lipschitz = up(largest), torch.minimum(lipschitz, steepest)
        return Bounds(bounds, up(lipschitz), up(length))

    def _pull(
        self, end: ForwardBound, trace: Trace, rows: GradientBound, sides: int = 1
    ) -> tuple[Totals, GradientBound]:
        """A backward pass of rows, or of the same rows for every sample; and their gradients at the input."""
        count = len(end.lipschitz)
        low, high, length = (part.expand(count, *part.shape[1:]) for part in (rows.low, rows.high, rows.norm))
        rows = GradientBound(low, high, length, rows.curvature)
        totals = Totals(_slopes(rows, end), torch.ones_like(end.lipschitz), sides=sides)
        # For one row of balls in L2 the cut at the input costs more than all the rest, and seldom wins.
        whole = count == 1 or self.length != 1
        bound = self.body.backward(trace, rows, totals, whole=whole)
        if whole:
            totals.lipschitz = torch.minimum(totals.lipschitz, _slopes(bound, self.start()))
        return totals, bound

    def _max_rule(self, end: ForwardBound, trace: Trace, start: GradientBound) -> tuple[Tensor, Tensor]:
        """The max rule from the outputs to the input, and the slope of the row, both (batch,)."""
        totals, bound = self._pull(end, trace, start, sides=0)
        assert bound.curvature is not None
        curvature = bound.curvature * self.length**2
        if totals.input_curvature is not None:
            curvature = torch.minimum(curvature, totals.input_curvature)
        return curvature[:, 0], totals.lipschitz[:, 0]

    def _all_margins(self, end: ForwardBound, trace: Trace) -> _Margins:
        """Bound the margins of all pairs of classes, [k, y] of F_k − F_y, (batch, K, K)."""
        classes = self.outputs.classes
        lipschitz = self.outputs.distances * end.lipschitz.reshape(-1, 1, 1)
        if classes > MOST_CLASSES:
            low, high = self.outputs.hull(None)
            rows = GradientBound(low, high, self.outputs.distances.max().reshape(1, 1))
            totals, _ = self._pull(end, trace, rows)
            total = totals.sums()[0].unsqueeze(2)
            curvature = torch.where(torch.eye(classes, dtype=torch.bool), 0.0, total)
        else:
            totals, _ = self._pull(end, trace, self.outputs.differences, sides=2)
            lipschitz = torch.minimum(lipschitz, self._matrix(totals.lipschitz, totals.lipschitz))
            curvature = self._matrix(*totals.sums())
        return _Margins(lipschitz, curvature, lipschitz.flatten(1).amax(1), totals)

    def _matrix(self, upper: Tensor, lower: Tensor) -> Tensor:
        """(batch, K, K) with [i, j] from ``upper`` and [j, i] from ``lower``, (batch, pairs); 0 for i = j."""
        first, second = self.outputs.pairs()
        matrix = upper.new_zeros(len(upper), self.outputs.classes, self.outputs.classes)
        matrix[:, first, second], matrix[:, second, first] = upper, lower
        return matrix

    def _own_margins(self, end: ForwardBound, trace: Trace, labels: Tensor) -> _Margins:
        """Against the label y of each sample: [k] of F_k − F_y, (batch, K)."""
        totals, _ = self._pull(end, trace, self.outputs.against(labels))
        own = torch.arange(self.outputs.classes) == labels.unsqueeze(1)
        slopes, curvature = (torch.where(own, 0.0, each) for each in (totals.lipschitz, totals.sums()[0]))
        # F_i − F_j = (F_i − F_y) − (F_j − F_y), or by a cut at the end, or before the last activation.
        cut = self.outputs.distances.max() * end.lipschitz
        spread = torch.minimum(slopes.topk(2, dim=1).values.sum(1), cut)
        last = trace.memory[-1]
        if isinstance(last, Site) and self.outputs.classes <= MOST_CLASSES:
            apart, steep = self.outputs.differences.largest[0].flatten(1), last.steepest.flatten(1)
            cuts = (steep**2 @ (apart**2).T).sqrt() * last.lipschitz.unsqueeze(1)
            single = (steep * last.unit.flatten(1)) @ apart.T
            spread = torch.minimum(spread, up(torch.minimum(cuts, single).amax(1)))
        return _Margins(slopes, curvature, spread, totals)


def _slopes(rows: GradientBound, at: ForwardBound) -> Tensor:
    """(batch, rows) Lipschitz constants by a cut at a node: ‖v‖·‖Aδ‖, or Σ|v_n|·|(Aδ)_n|."""
    single = (rows.largest * at.unit.unsqueeze(1)).flatten(2).sum(2)
    return torch.minimum(single, rows.norm * at.lipschitz.unsqueeze(1))


def _margin_values(balls: _Balls) -> tuple[Tensor, Tensor]:
    """Upper bounds on F_k − F_y at the samples, (batch, classes), and the bool mask of y."""
    values, error = balls.outputs
    own = torch.arange(values.shape[1]) == balls.targets.unsqueeze(1)
    margins = values - values[own].unsqueeze(1)
    room = error + error[own].unsqueeze(1) + FEW * margins.abs()
    return torch.where(own, 0.0, margins + room), own
