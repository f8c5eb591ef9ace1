"""Backward passes: Lipschitz constants and curvatures of outputs and margins, in the norm of a cost.

``Geometry`` measures moves of the inputs in the cost's norm. Where the cost has a linear map S with
‖Su‖ = ‖u‖₂, S is merged into the first layer and the norm becomes Euclidean.

``Outputs`` are the rows that a backward pass starts from. The affine layers behind the last activation are
transposed at once: F_k has the gradient w_k, exact up to rounding, and F_i − F_j has w_i − w_j. With many
classes all pairs would be too many rows: a box around all differences replaces them, and only the distances
‖w_i − w_j‖ are stored for each pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from certus.bounds.curvature_rules import Site
from certus.bounds.operators import Dense, Diagonal, Operator
from certus.bounds.passes import Reach, Rows, Shape, Step, Totals, Trace, backward, size
from certus.costs import Cost
from certus.costs.claims import check_claims_everywhere
from certus.costs.metric import Metric
from certus.rounding import slack, up


@dataclass(frozen=True, eq=False)
class Geometry:
    """Moves of the inputs of length 1 in the cost's norm.

    Attributes:
        metric: the cost's norm for inputs of this shape.
        whitening: S, or None for the identity.
    """

    metric: Metric
    whitening: Operator | None

    @property
    def length(self) -> float:
        """‖u‖₂ ≤ length."""
        return self.metric.length

    @property
    def unit(self) -> float:
        """|u_i| ≤ unit for every coordinate."""
        return self.metric.unit

    def start(self, shape: Shape, points: Tensor | None = None) -> Reach:
        """The reach of the inputs at (batch, *shape) points, or over the whole space."""
        count = 1 if points is None else len(points)
        ones = torch.ones(count, dtype=torch.float64)
        unit = torch.full((count, *shape), self.unit, dtype=torch.float64)
        error = None if points is None else torch.zeros_like(points)
        curvature = torch.zeros_like(ones)
        return Reach(self.length * ones, unit, curvature, points, error, identity=self.length == 1)


def geometry_of(cost: Cost, shape: Shape) -> Geometry:
    """The geometry of a cost for inputs of a given shape."""
    cost.check_shape(torch.zeros(1, *shape))
    check_claims_everywhere(cost, shape)
    metric = cost.metric(shape)
    whitening = metric.whitening
    if whitening is None:
        return Geometry(metric, None)
    diagonal = whitening.shape == shape
    operator = Diagonal(whitening, None, shape) if diagonal else Dense(whitening, None, shape, shape)
    return Geometry(metric, operator)


MOST_CLASSES = 32


@dataclass(frozen=True, eq=False)
class Outputs:
    """Gradients of the outputs, (classes, *shape), their rounding, and the norm of the matrix they form."""

    rows: Tensor
    rounding: Tensor
    norm: float

    @property
    def classes(self) -> int:
        return len(self.rows)

    def pairs(self) -> tuple[Tensor, Tensor]:
        """Indices i < j of all pairs."""
        first, second = torch.triu_indices(self.classes, self.classes, 1)
        return first, second

    def singles(self) -> Rows:
        """Rows of each F_k, with batch size 1."""
        return _as_rows((self.rows - self.rounding).unsqueeze(0), (self.rows + self.rounding).unsqueeze(0))

    def differences(self) -> Rows:
        """Rows of F_i − F_j for all pairs, with batch size 1."""
        first, second = self.pairs()
        apart = self.rows[first] - self.rows[second]
        slop = self.rounding[first] + self.rounding[second] + slack(1) * apart.abs()
        return _as_rows((apart - slop).unsqueeze(0), (apart + slop).unsqueeze(0))

    def against(self, labels: Tensor) -> Rows:
        """Rows of F_k − F_y for all k and the label y of each sample: (batch, classes, *shape)."""
        apart = self.rows.unsqueeze(0) - self.rows[labels].unsqueeze(1)
        slop = self.rounding.unsqueeze(0) + self.rounding[labels].unsqueeze(1) + slack(1) * apart.abs()
        return _as_rows(apart - slop, apart + slop)

    @cached_property
    def distances(self) -> Tensor:
        """(classes, classes) bounds on ‖w_i − w_j‖."""
        flat, own = self.rows.flatten(1), size(self.rounding)
        apart = [size(flat - row) for row in flat]
        return torch.stack(apart) * (1 + slack(flat.shape[1])) + own[:, None] + own[None, :]

    def hull(self, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """(batch, 1, *shape) box around 0 and all F_k − F_y, y the label of each sample, or any label."""
        slop = self.rounding.amax(0) * 2 + 2 * slack(1) * self.rows.abs().amax(0)
        top, bottom = self.rows.amax(0), self.rows.amin(0)
        if labels is None:
            spread = (top - bottom + slop)[None, None]
            return -spread, spread
        own = self.rows[labels]
        return ((bottom - own - slop).unsqueeze(1), (top - own + slop).unsqueeze(1))

    def mixture(self, low: Tensor, high: Tensor) -> Rows:
        """Row of Σ_k u_k F_k for each sample, with coefficients u in [low, high], (batch, classes) each."""
        flat = self.rows.flatten(1)
        center, room = (low + high) / 2, (high - low) / 2
        room = room + slack(self.classes) * torch.maximum(low.abs(), high.abs())
        sizes = torch.maximum(low.abs(), high.abs()) @ self.rounding.flatten(1)
        middle, spread = center @ flat, (room @ flat.abs()) * (1 + slack(self.classes)) + sizes
        form = (len(low), 1, *self.rows.shape[1:])
        return _as_rows((middle - spread).reshape(form), (middle + spread).reshape(form))


def _as_rows(low: Tensor, high: Tensor) -> Rows:
    largest = torch.maximum(low.abs(), high.abs())
    return Rows(low, high, size(largest, 2) * (1 + slack(low[0, 0].numel())))


def read_outputs(head: Operator | None, shape: Shape, with_zero: bool) -> Outputs:
    """The outputs of a network that ends in the affine layer ``head``; ``with_zero`` prepends an output 0."""
    if head is None:
        count = int(torch.tensor(shape).prod())
        rows = torch.eye(count, dtype=torch.float64).reshape(count, *shape)
        rounding, norm = torch.zeros_like(rows), 1.0
    else:
        count = int(torch.tensor(head.out_shape).prod())
        basis = torch.eye(count, dtype=torch.float64).reshape(count, *head.out_shape)
        rows, norm = head.transpose(basis), head.norm
        rounding = head.rounding * head.absolute_transpose(basis)
    if with_zero:
        nothing = torch.zeros_like(rows[:1])
        rows, rounding = torch.cat([nothing, rows]), torch.cat([nothing, rounding])
    return Outputs(rows, rounding, norm)


@dataclass(frozen=True, eq=False)
class MarginBounds:
    """Bounds on margins F_k − F_y, on a ball around each sample or over the whole space (batch 1).

    Attributes:
        slopes, curvatures: (batch, …) Lipschitz constant and curvature of each margin; 0 for k = y.
        spread: (batch,) D, the Lipschitz constant of every F_i − F_j.
        parts: (batch,) contribution of each path to the largest curvature.
    """

    slopes: Tensor
    curvatures: Tensor
    spread: Tensor
    parts: dict[str, Tensor]

    @property
    def steepest(self) -> Tensor:
        """(batch,) the largest slope."""
        return self.slopes.flatten(1).amax(1)

    @property
    def sharpest(self) -> Tensor:
        """(batch,) the largest curvature."""
        return self.curvatures.flatten(1).amax(1)


@dataclass(frozen=True, eq=False)
class BackwardPass:
    """Backward passes through a network.

    Attributes:
        steps: from the inputs to the last hidden layer.
        geometry: of the cost.
        outputs: as functions of the last hidden layer.
    """

    steps: list[Step]
    geometry: Geometry
    outputs: Outputs

    def totals(self, trace: Trace, rows: Rows, count: int) -> Totals:
        """Pass the same rows back for every sample."""
        start = Rows(*(part.expand(count, *part.shape[1:]) for part in (rows.low, rows.high, rows.length)))
        totals = Totals(
            torch.full(start.length.shape, math.inf, dtype=torch.float64), torch.ones(count).double()
        )
        self._finish(trace, start, totals)
        return totals

    def _finish(self, trace: Trace, start: Rows, totals: Totals) -> Rows:
        # For one row of balls in L2 the cut at the inputs costs more than all the rest, and seldom wins.
        whole = len(start.length) == 1 or self.geometry.length != 1
        end = backward(self.steps, trace, start, totals, whole=whole)
        if whole:
            single = end.largest.flatten(2).sum(2) * self.geometry.unit
            cut = torch.minimum(single, end.length * self.geometry.length)
            totals.lipschitz = torch.minimum(totals.lipschitz, cut)
        return end

    def descend(self, reach: Reach, trace: Trace, start: Rows) -> tuple[Tensor, Tensor]:
        """(batch,) curvature by the max rule from the outputs to the inputs, and (batch,) slope of the
        row."""
        count = len(reach.length)
        totals = Totals(start.length * reach.length.unsqueeze(1), torch.ones(count, dtype=torch.float64))
        end = self._finish(trace, start, totals)
        assert end.curvature is not None
        curvature = end.curvature * self.geometry.length**2
        if totals.ending is not None:
            curvature = torch.minimum(curvature, totals.ending)
        return curvature[:, 0], totals.lipschitz[:, 0]

    def margins(self, reach: Reach, trace: Trace) -> MarginBounds:
        """Bounds for all pairs of classes: [k, y] of F_k − F_y, (batch, K, K)."""
        classes, count = self.outputs.classes, len(reach.length)
        cut = self.outputs.distances * reach.length.reshape(-1, 1, 1)
        if classes > MOST_CLASSES:
            low, high = self.outputs.hull(None)
            rows = Rows(low, high, self.outputs.distances.max().reshape(1, 1))
            totals = self.totals(trace, rows, count)
            total = sum_rule(totals.convex, (count, 1))
            curvatures = torch.where(torch.eye(classes, dtype=torch.bool), 0.0, total.unsqueeze(2))
            parts = {path: part[:, 0] for path, part in totals.convex.items()}
            return MarginBounds(cut, curvatures, cut.flatten(1).amax(1), parts)
        rows = self.outputs.differences()
        totals = self.totals(trace, rows, count)
        first, second = self.outputs.pairs()
        ends = (rows.largest * reach.unit.unsqueeze(1)).flatten(2).sum(2)
        single = torch.minimum(totals.lipschitz, ends)
        slopes = torch.minimum(cut, _matrix(single, single, first, second, classes))
        convex = sum_rule(totals.convex, (count, len(first)))
        concave = sum_rule(totals.concave, (count, len(first)))
        curvatures = _matrix(convex, concave, first, second, classes)
        both = torch.cat([convex, concave], 1).argmax(1, keepdim=True)
        parts = {
            path: torch.cat([totals.convex[path], totals.concave[path]], 1).gather(1, both)[:, 0]
            for path in totals.convex
        }
        return MarginBounds(slopes, curvatures, slopes.flatten(1).amax(1), parts)

    def label_margins(self, reach: Reach, trace: Trace, labels: Tensor) -> MarginBounds:
        """Bounds against each sample's label y: [k] of F_k − F_y, (batch, K)."""
        rows = self.outputs.against(labels)
        totals = self.totals(trace, rows, len(labels))
        ends = (rows.largest * reach.unit.unsqueeze(1)).flatten(2).sum(2)
        slopes = torch.minimum(totals.lipschitz, torch.minimum(ends, rows.length * reach.length.unsqueeze(1)))
        own = nn.functional.one_hot(labels, self.outputs.classes).to(torch.bool)
        slopes = torch.where(own, 0.0, slopes)
        curvatures = torch.where(own, 0.0, sum_rule(totals.convex, slopes.shape))
        # F_i − F_j = (F_i − F_y) − (F_j − F_y), or by a cut at the end, or before the last activation.
        top = slopes.topk(2, dim=1).values.sum(1)
        spread = torch.minimum(top, self.outputs.distances.max() * reach.length)
        last = trace[-1] if trace else None
        if isinstance(last, Site) and self.outputs.classes <= MOST_CLASSES:
            apart, steep = self.outputs.differences().largest[0].flatten(1), last.steepest.flatten(1)
            cut = (steep**2 @ (apart**2).T).sqrt() * last.length.unsqueeze(1)
            single = (steep * last.unit.flatten(1)) @ apart.T
            spread = torch.minimum(spread, up(torch.minimum(cut, single).amax(1)))
        chosen = curvatures.argmax(1, keepdim=True)
        parts = {path: part.gather(1, chosen)[:, 0] for path, part in totals.convex.items()}
        return MarginBounds(slopes, curvatures, spread, parts)


def sum_rule(parts: dict[str, Tensor], shape: tuple[int, ...]) -> Tensor:
    """κ by the sum rule: the sum over all activations."""
    return torch.stack([torch.zeros(shape, dtype=torch.float64), *parts.values()]).sum(0)


def _matrix(upper: Tensor, lower: Tensor, first: Tensor, second: Tensor, classes: int) -> Tensor:
    """(batch, K, K) with [i, j] from ``upper``, [j, i] from ``lower``, (batch, pairs) each, and diagonal
    0."""
    matrix = upper.new_zeros(len(upper), classes, classes)
    matrix[:, first, second], matrix[:, second, first] = upper, lower
    return matrix
