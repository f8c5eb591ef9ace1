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

import torch
from torch import Tensor

from certus.kernel.curvature import Site
from certus.kernel.graph import Graph, Node, Trace
from certus.kernel.losses import Softmax
from certus.kernel.operators import Affine
from certus.kernel.passes import ForwardBound, GradientBound, Refused, Totals, norm, times
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
        parts: node → (batch,) what it adds to the curvature by the sum rule.
    """

    curvature: dict[str, Tensor]
    lipschitz: Tensor
    output_lipschitz: Tensor
    margin_lipschitz: Tensor | None
    margin_curvature: Tensor | None
    error: Tensor | None
    margins: Tensor | None
    parts: dict[int, Tensor]


@dataclass(frozen=True, eq=False)
class _Margins:
    """Lipschitz constants and curvatures of margins, (batch, …); their largest spread D, (batch,); and what
    each node adds to the largest curvature."""

    lipschitz: Tensor
    curvature: Tensor
    spread: Tensor
    parts: dict[int, Tensor]


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
        self.norm = 1.0 if head is None else head.norm
        self.rows = basis if head is None else head.transpose(basis)
        self.rounding = (
            torch.zeros_like(basis) if head is None else head.rounding * head.absolute_transpose(basis)
        )
        if with_zero:
            nothing = torch.zeros_like(self.rows[:1])
            self.rows = torch.cat([nothing, self.rows])
            self.rounding = torch.cat([nothing, self.rounding])

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
        apart = self.rows[first] - self.rows[second]
        room = self.rounding[first] + self.rounding[second] + slack(1) * apart.abs()
        return _rows((apart - room).unsqueeze(0), (apart + room).unsqueeze(0))

    def against(self, labels: Tensor) -> GradientBound:
        """F_k − F_y for all k, y the label of each sample: (batch, classes, *shape)."""
        apart = self.rows.unsqueeze(0) - self.rows[labels].unsqueeze(1)
        room = self.rounding.unsqueeze(0) + self.rounding[labels].unsqueeze(1) + slack(1) * apart.abs()
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
        flat = self.rows.flatten(1)
        center, room = (low + high) / 2, (high - low) / 2
        room = room + slack(self.classes) * torch.maximum(low.abs(), high.abs())
        sizes = torch.maximum(low.abs(), high.abs()) @ self.rounding.flatten(1)
        middle, spread = center @ flat, (room @ flat.abs()) * (1 + slack(self.classes)) + sizes
        form = (len(low), 1, *self.rows.shape[1:])
        return _rows((middle - spread).reshape(form), (middle + spread).reshape(form))


def _rows(low: Tensor, high: Tensor) -> GradientBound:
    bound = GradientBound(low, high, low.new_zeros(low.shape[:2]))
    return replace(bound, norm=norm(bound.largest, 2) * (1 + slack(low[0, 0].numel())))


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
        last = graph.nodes[-1].primitive
        self.head: Node | None = graph.nodes[-1] if isinstance(last, Affine) else None
        self.body = graph if self.head is None else Graph(graph.nodes[:-1])

    def check_scales(self) -> None:
        """Raise ``Refused`` if numbers that vanish in float64 could grow back to a relevant size.

        While nothing grows by more than 10⁶⁰ on its way, and a curvature by its square, no bound is off by
        10⁻⁴⁰ for what vanishes below 10⁻³²³, or as a square below 10⁻¹⁶¹.
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
        logistic = self.softmax is not None and self.softmax.logistic
        return Outputs(head, self.body.out_shape, with_zero=logistic)

    @cached_property
    def everywhere(self) -> Bounds:
        """Bounds that hold at every input, for every label."""
        return self.bound(None, None, None)

    def bound(self, points: Tensor | None, targets: Tensor | None, radius: Tensor | None) -> Bounds:
        """Bound the loss on balls around (batch, *shape) float64 points, or everywhere.

        Args:
            targets: (batch,) labels, or (batch, K) numbers for a squared error.
            radius: (batch,) in the norm of the cost.
        """
        self.check_scales()
        end, trace = self.body.forward(self.start(points), radius)
        if self.softmax is None:
            return self._squared_error(end, trace, targets, radius)
        return self._softmax(self.softmax, end, trace, targets, radius)

    def start(self, points: Tensor | None) -> ForwardBound:
        """The inputs at (batch, *shape) points, or anywhere, under moves of length 1."""
        count = 1 if points is None else len(points)
        ones = torch.ones(count, dtype=torch.float64)
        return ForwardBound(
            self.length * ones,
            torch.full((count, *self.graph.shape), self.unit, dtype=torch.float64),
            torch.zeros_like(ones),
            points,
            None if points is None else torch.zeros_like(points),
            identity=self.length == 1,
        )

    def _softmax(
        self, loss: Softmax, end: ForwardBound, trace: Trace, labels: Tensor | None, radius: Tensor | None
    ) -> Bounds:
        count, classes = len(end.lipschitz), self.outputs.classes
        error, values = torch.ones(count, dtype=torch.float64), None
        margins = self._all_margins(end, trace) if labels is None else self._own_margins(end, trace, labels)
        # With label smoothing mass also moves between two other classes.
        moving = self._all_margins(end, trace) if labels is not None and loss.smoothing else margins
        if labels is not None and radius is not None:
            values, own = self._margin_values(end, labels)
            error = loss.error(values + margins.lipschitz * radius.unsqueeze(1), own)
        weight = loss.weight(error, classes)
        hull = self.outputs.hull(None if loss.smoothing else labels)
        box = [part * weight.reshape(-1, *([1] * (part.dim() - 1))) for part in hull]
        apart = self.outputs.distances.max()
        start = GradientBound(
            box[0],
            box[1],
            (weight * apart).unsqueeze(1),
            (loss.variance(error) * apart**2).unsqueeze(1),
        )
        largest, steepest = self._max_rule(end, trace, start)
        lipschitz, curvature = self.outputs.norm * end.lipschitz, self.outputs.norm * end.curvature
        widest = moving.lipschitz.flatten(1).amax(1)
        return Bounds(
            curvature={
                "corrected": up(loss.corrected(curvature, lipschitz)),
                "sum": up(loss.combine(moving.curvature.flatten(1).amax(1), moving.spread, error, classes)),
                "max": up(largest),
            },
            lipschitz=up(torch.minimum(weight * widest, steepest)),
            output_lipschitz=up(lipschitz),
            margin_lipschitz=up(margins.lipschitz),
            margin_curvature=up(margins.curvature),
            error=error,
            margins=values,
            parts={node: weight * part for node, part in moving.parts.items()},
        )

    def _squared_error(
        self, end: ForwardBound, trace: Trace, targets: Tensor | None, radius: Tensor | None
    ) -> Bounds:
        """2JᵀJ ≤ 2α², and the residuals' part as one row; without a ball the residuals have no bound."""
        count, outputs = len(end.lipschitz), self.outputs
        length, curvature = outputs.norm * end.lipschitz, outputs.norm * end.curvature
        low = torch.full((count, outputs.classes), -math.inf, dtype=torch.float64)
        high = -low
        if targets is not None and radius is not None:
            values, error = self._values(end)
            away = values - targets
            each = outputs.singles()
            slopes = torch.minimum(
                self._totals(trace, each, count).lipschitz, each.norm * end.lipschitz.unsqueeze(1)
            )
            room = up(error + slopes * radius.unsqueeze(1)) + FEW * away.abs()
            low, high = away - room, away + room
        steep = 2 * norm(torch.maximum(low.abs(), high.abs()))
        lipschitz, parts = times(steep, length), dict[int, Tensor]()
        bounds = dict.fromkeys(("corrected", "sum", "max"), up(times(steep, curvature) + 2 * length**2))
        if bool(torch.isfinite(high).all()):
            rows = outputs.mixture(2 * low, 2 * high)
            totals = self._totals(trace, rows, count)
            parts = {node: part[:, 0] for node, part in totals.convex.items()}
            own = torch.full((count, 1), 2 * outputs.norm * outputs.norm, dtype=torch.float64)
            largest, steepest = self._max_rule(end, trace, replace(rows, curvature=own))
            bounds["sum"] = up(_total(totals.convex, (count, 1))[:, 0] + 2 * length**2)
            bounds["max"], lipschitz = up(largest), torch.minimum(lipschitz, steepest)
        return Bounds(bounds, up(lipschitz), up(length), None, None, None, None, parts)

    def _margin_values(self, end: ForwardBound, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Upper bounds on F_k − F_y at the samples, (batch, classes), and the bool mask of y."""
        values, error = self._values(end)
        own = torch.arange(self.outputs.classes) == labels.unsqueeze(1)
        margins = values - values[own].unsqueeze(1)
        room = error + error[own].unsqueeze(1) + FEW * margins.abs()
        return torch.where(own, 0.0, margins + room), own

    def _values(self, end: ForwardBound) -> tuple[Tensor, Tensor]:
        """(batch, classes) outputs at the samples, and their rounding."""
        assert end.center is not None
        assert end.error is not None
        values, error = end.center, end.error
        if self.head is not None:
            assert self.head.primitive is not None
            values, error, _ = self.head.primitive.rounded(values, error)
        values, error = values.flatten(1), error.flatten(1)
        if self.softmax is not None and self.softmax.logistic:
            nothing = torch.zeros_like(values)
            values, error = torch.cat([nothing, values], 1), torch.cat([nothing, error], 1)
        return values, error

    def _totals(self, trace: Trace, rows: GradientBound, count: int, sides: int = 1) -> Totals:
        """A backward pass of the same rows for every sample."""
        low, high, length = (part.expand(count, *part.shape[1:]) for part in (rows.low, rows.high, rows.norm))
        infinite = torch.full(length.shape, math.inf, dtype=torch.float64)
        totals = Totals(infinite, torch.ones(count, dtype=torch.float64), sides=sides)
        self._backward(trace, GradientBound(low, high, length), totals)
        return totals

    def _backward(self, trace: Trace, start: GradientBound, totals: Totals) -> GradientBound:
        # For one row of balls in L2 the cut at the input costs more than all the rest, and seldom wins.
        whole = len(start.norm) == 1 or self.length != 1
        end = self.body.backward(trace, start, totals, whole=whole)
        if whole:
            single = end.largest.flatten(2).sum(2) * self.unit
            totals.lipschitz = torch.minimum(totals.lipschitz, torch.minimum(single, end.norm * self.length))
        return end

    def _max_rule(self, end: ForwardBound, trace: Trace, start: GradientBound) -> tuple[Tensor, Tensor]:
        """The max rule from the outputs to the input, and the slope of the row, both (batch,)."""
        count = len(end.lipschitz)
        slopes = start.norm * end.lipschitz.unsqueeze(1)
        totals = Totals(slopes, torch.ones(count, dtype=torch.float64), sides=0)
        bound = self._backward(trace, start, totals)
        assert bound.curvature is not None
        curvature = bound.curvature * self.length**2
        if totals.input_curvature is not None:
            curvature = torch.minimum(curvature, totals.input_curvature)
        return curvature[:, 0], totals.lipschitz[:, 0]

    def _all_margins(self, end: ForwardBound, trace: Trace) -> _Margins:
        """Of all pairs of classes: [k, y] of F_k − F_y, (batch, K, K)."""
        classes, count = self.outputs.classes, len(end.lipschitz)
        cut = self.outputs.distances * end.lipschitz.reshape(-1, 1, 1)
        if classes > MOST_CLASSES:
            low, high = self.outputs.hull(None)
            rows = GradientBound(low, high, self.outputs.distances.max().reshape(1, 1))
            totals = self._totals(trace, rows, count)
            total = _total(totals.convex, (count, 1))
            curvature = torch.where(torch.eye(classes, dtype=torch.bool), 0.0, total.unsqueeze(2))
            parts = {node: part[:, 0] for node, part in totals.convex.items()}
            return _Margins(cut, curvature, cut.flatten(1).amax(1), parts)
        rows = self.outputs.differences
        totals = self._totals(trace, rows, count, sides=2)
        first, second = self.outputs.pairs()
        ends = (rows.largest * end.unit.unsqueeze(1)).flatten(2).sum(2)
        slopes = torch.minimum(totals.lipschitz, ends)
        lipschitz = torch.minimum(cut, _matrix(slopes, slopes, first, second, classes))
        convex, concave = (_total(part, (count, len(first))) for part in (totals.convex, totals.concave))
        largest = torch.cat([convex, concave], 1).argmax(1, keepdim=True)
        parts = {
            node: torch.cat([totals.convex[node], totals.concave[node]], 1).gather(1, largest)[:, 0]
            for node in totals.convex
        }
        curvature = _matrix(convex, concave, first, second, classes)
        return _Margins(lipschitz, curvature, lipschitz.flatten(1).amax(1), parts)

    def _own_margins(self, end: ForwardBound, trace: Trace, labels: Tensor) -> _Margins:
        """Against the label y of each sample: [k] of F_k − F_y, (batch, K)."""
        rows = self.outputs.against(labels)
        totals = self._totals(trace, rows, len(labels))
        ends = (rows.largest * end.unit.unsqueeze(1)).flatten(2).sum(2)
        slopes = torch.minimum(totals.lipschitz, torch.minimum(ends, rows.norm * end.lipschitz.unsqueeze(1)))
        own = torch.arange(self.outputs.classes) == labels.unsqueeze(1)
        slopes = torch.where(own, 0.0, slopes)
        curvature = torch.where(own, 0.0, _total(totals.convex, tuple(slopes.shape)))
        # F_i − F_j = (F_i − F_y) − (F_j − F_y), or by a cut at the end, or before the last activation.
        spread = torch.minimum(
            slopes.topk(2, dim=1).values.sum(1), self.outputs.distances.max() * end.lipschitz
        )
        last = trace.memory[-1]
        if isinstance(last, Site) and self.outputs.classes <= MOST_CLASSES:
            apart, steep = self.outputs.differences.largest[0].flatten(1), last.steepest.flatten(1)
            cut = (steep**2 @ (apart**2).T).sqrt() * last.lipschitz.unsqueeze(1)
            single = (steep * last.unit.flatten(1)) @ apart.T
            spread = torch.minimum(spread, up(torch.minimum(cut, single).amax(1)))
        chosen = curvature.argmax(1, keepdim=True)
        parts = {node: part.gather(1, chosen)[:, 0] for node, part in totals.convex.items()}
        return _Margins(slopes, curvature, spread, parts)


def _total(parts: dict[int, Tensor], shape: tuple[int, ...]) -> Tensor:
    """κ by the sum rule: all activations together."""
    return torch.stack([torch.zeros(shape, dtype=torch.float64), *parts.values()]).sum(0)


def _matrix(upper: Tensor, lower: Tensor, first: Tensor, second: Tensor, classes: int) -> Tensor:
    """(batch, K, K) with [i, j] from ``upper`` and [j, i] from ``lower``, (batch, pairs) each; 0 on the
    diagonal."""
    matrix = upper.new_zeros(len(upper), classes, classes)
    matrix[:, first, second], matrix[:, second, first] = upper, lower
    return matrix
