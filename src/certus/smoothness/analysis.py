"""Bounds on λ_max(∇²_x ℓ) and on Lipschitz constants (section:examples, corrected and tightened).

    "paper"      √2·β_L + α_L², as printed                                          [corollary:softmax-smooth]
    "corrected"  max_{0 ≤ u ≤ ½} √(2 − u)·β_L + u·α_L², with exact constants and β₀ = 0
    "sum"        κ + D²/4: κ the curvature of the margins by the sum rule, D the slope of their differences
    "max"        the max rule from the loss down to the inputs

All four hold for every input and label, so the smallest is *the* bound. On a ball around a sample the same
rules run with the ranges that σ' and σ'' have there, and with a bound on q, the probability of all other
classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from certus.costs import Cost, SquaredL2
from certus.costs.claims import cost_assumptions
from certus.errors import require
from certus.losses import Criterion, CrossEntropy
from certus.modes import at_rest
from certus.outward import FEW, up
from certus.smoothness.bending import Site
from certus.smoothness.criteria import Softmax, Squares, check_targets, check_values, read_criterion
from certus.smoothness.geometry import geometry_of
from certus.smoothness.network import (
    assumptions_of,
    check_agreement,
    infer_shape,
    merge_steps,
    read_layers,
    whiten_steps,
)
from certus.smoothness.operators import Operator
from certus.smoothness.outputs import MOST_CLASSES, Outputs, read_outputs
from certus.smoothness.passes import Reach, Rows, Tally, size, times
from certus.smoothness.stage import Shape
from certus.smoothness.steps import Step, Trace, backward, forward

_L2 = SquaredL2()
_CROSS_ENTROPY = CrossEntropy()


@dataclass(frozen=True, eq=False)
class Found:
    """One analysis, for a batch of balls or for all of space (batch 1); see ``LocalBound`` for the names."""

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
    """A model, a criterion and a cost, read once; ``everywhere`` and ``run`` then bound.

    Args:
        model: a sequential model; its weights are read now, in eval mode, and never again.
        input_shape: the shape of one input; not needed if the model begins with a linear layer.

    Attributes:
        assumptions: what all of it rests on that certus did not derive itself, by name.
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
        self.criterion, self.cost = read_criterion(criterion), cost
        self.shape = infer_shape(model) if input_shape is None else tuple(input_shape)
        with at_rest(model):
            steps = merge_steps(read_layers(model, self.shape))
            check_agreement(model, steps, self.shape)
        self.assumptions = (*assumptions_of(steps), *cost_assumptions(cost))
        self.geometry = geometry_of(cost, self.shape)
        if self.geometry.whitening is not None:
            steps = whiten_steps(steps, self.geometry.whitening, self.shape)
        # The affine layers at the end belong to the outputs.
        self.head = steps[-1] if steps and isinstance(steps[-1].stage, Operator) else None
        self.steps: list[Step] = steps if self.head is None else steps[:-1]

    @cached_property
    def outputs(self) -> Outputs:
        logistic = isinstance(self.criterion, Softmax) and self.criterion.logistic
        shape = self.steps[-1].out_shape if self.steps else self.shape
        head = None if self.head is None else self.head.action
        assert head is None or isinstance(head, Operator)
        outputs = read_outputs(head, shape, logistic)
        if logistic:
            require(outputs.classes == 2, "model", "have one output for Logistic", outputs.classes - 1)
        if isinstance(self.criterion, Softmax):
            require(outputs.classes >= 2, "model", "have at least 2 outputs", outputs.classes)
        return outputs

    @cached_property
    def everywhere(self) -> Found:
        """The analysis of all of space."""
        return self.run(None, None, None)

    def run(self, points: Tensor | None, targets: Tensor | None, radius: Tensor | None) -> Found:
        """Analyse balls around (batch, *shape) float64 points, or all of space."""
        reach, trace = forward(self.steps, self.geometry.start(self.shape, points), radius)
        if isinstance(self.criterion, Squares):
            return self._squares(reach, trace, targets, radius)
        return self._softmax(self.criterion, reach, trace, targets, radius)

    def _softmax(
        self, criterion: Softmax, reach: Reach, trace: Trace, targets: Tensor | None, radius: Tensor | None
    ) -> Found:
        count, classes = len(reach.length), self.outputs.classes
        labels = None if targets is None else check_targets(targets, count, classes)
        error, margins = torch.ones(count, dtype=torch.float64), None
        if labels is None:
            slopes, bends, parts = self._margins(reach, trace)
            spread, bent = slopes.flatten(1).amax(1), bends.flatten(1).amax(1)
            steep = spread
        else:
            slopes, bends, spread, parts = self._own_margins(reach, trace, labels)
            steep, bent = slopes.amax(1), bends.amax(1)
            if criterion.smoothing:  # mass also moves between two other classes
                every, curved, parts = self._margins(reach, trace)
                spread, bent = every.flatten(1).amax(1), curved.flatten(1).amax(1)
                steep = spread
        if labels is not None and radius is not None:
            margins, own = self._values(reach, labels)
            error = criterion.error(margins + slopes * radius.unsqueeze(1), own)
        weight = criterion.weight(error, classes)
        hull = self.outputs.hull(None if criterion.smoothing else labels)
        box = [part * weight.reshape(-1, *([1] * (part.dim() - 1))) for part in hull]
        apart = self.outputs.distances().max()
        start = Rows(
            box[0],
            box[1],
            (weight * apart).unsqueeze(1),
            (criterion.variance(error) * apart**2).unsqueeze(1),
        )
        largest, steepest = self._descend(reach, trace, start)
        length, bend = self.outputs.norm * reach.length, self.outputs.norm * reach.bend
        bounds = {
            "corrected": up(criterion.corrected(bend, length)),
            "sum": up(criterion.combine(bent, spread, error, classes)),
            "max": up(largest),
        }
        return Found(
            reach=reach,
            bounds=bounds,
            lipschitz=up(torch.minimum(weight * steep, steepest)),
            output_lipschitz=up(length),
            margin_lipschitz=up(slopes),
            margin_curvature=up(bends),
            error=error,
            margins=margins,
            parts={path: weight * part for path, part in parts.items()},
            trace=trace,
        )

    def _margins(self, reach: Reach, trace: Trace) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Lipschitz constants and curvatures [k, y] of F_k − F_y, (batch, K, K), and the parts of the largest
        curvature, path by path, (batch,)."""
        classes, count = self.outputs.classes, len(reach.length)
        cut = self.outputs.distances() * reach.length.reshape(-1, 1, 1)
        if classes > MOST_CLASSES:
            low, high = self.outputs.hull(None)
            rows = Rows(low, high, self.outputs.distances().max().reshape(1, 1))
            tally = self._pass(trace, rows, count)
            total = _total(tally.convex, (count, 1))
            bends = torch.where(torch.eye(classes, dtype=torch.bool), 0.0, total.unsqueeze(2))
            return cut, bends, {path: part[:, 0] for path, part in tally.convex.items()}
        rows = self.outputs.differences()
        tally = self._pass(trace, rows, count)
        first, second = self.outputs.pairs()
        ends = (rows.largest * reach.unit.unsqueeze(1)).flatten(2).sum(2)
        found = torch.minimum(tally.lipschitz, ends)
        slopes = torch.minimum(cut, _matrix(found, found, first, second, classes))
        convex = _total(tally.convex, (count, len(first)))
        concave = _total(tally.concave, (count, len(first)))
        bends = _matrix(convex, concave, first, second, classes)
        both = torch.cat([convex, concave], 1).argmax(1, keepdim=True)
        parts = {
            path: torch.cat([tally.convex[path], tally.concave[path]], 1).gather(1, both)[:, 0]
            for path in tally.convex
        }
        return slopes, bends, parts

    def _own_margins(
        self, reach: Reach, trace: Trace, labels: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        """The same against each sample's own label y, (batch, K) each, and D, the slope of every F_i − F_j,
        (batch,)."""
        rows = self.outputs.against(labels)
        tally = self._pass(trace, rows, len(labels))
        ends = (rows.largest * reach.unit.unsqueeze(1)).flatten(2).sum(2)
        slopes = torch.minimum(tally.lipschitz, torch.minimum(ends, rows.length * reach.length.unsqueeze(1)))
        own = nn.functional.one_hot(labels, self.outputs.classes).to(torch.bool)
        slopes = torch.where(own, 0.0, slopes)
        bends = torch.where(own, 0.0, _total(tally.convex, slopes.shape))
        # F_i − F_j = (F_i − F_y) − (F_j − F_y), or by a cut at the end, or before the last activation.
        top = slopes.topk(2, dim=1).values.sum(1)
        spread = torch.minimum(top, self.outputs.distances().max() * reach.length)
        last = trace[-1] if trace else None
        if isinstance(last, Site) and self.outputs.classes <= MOST_CLASSES:
            apart, steep = self.outputs.differences().largest[0].flatten(1), last.steepest.flatten(1)
            cut = (steep**2 @ (apart**2).T).sqrt() * last.length.unsqueeze(1)
            single = (steep * last.unit.flatten(1)) @ apart.T
            spread = torch.minimum(spread, up(torch.minimum(cut, single).amax(1)))
        chosen = bends.argmax(1, keepdim=True)
        return (
            slopes,
            bends,
            spread,
            {path: part.gather(1, chosen)[:, 0] for path, part in tally.convex.items()},
        )

    def _pass(self, trace: Trace, rows: Rows, count: int) -> Tally:
        """A backward pass of the same rows for every sample."""
        start = Rows(*(part.expand(count, *part.shape[1:]) for part in (rows.low, rows.high, rows.length)))
        tally = Tally(
            torch.full(start.length.shape, math.inf, dtype=torch.float64), torch.ones(count).double()
        )
        self._finish(trace, start, tally)
        return tally

    def _finish(self, trace: Trace, start: Rows, tally: Tally) -> Rows:
        # For one row of balls in L2 the cut at the inputs costs more than all the rest, and seldom wins.
        whole = len(start.length) == 1 or self.geometry.length != 1
        end = backward(self.steps, trace, start, tally, whole=whole)
        if whole:
            single = end.largest.flatten(2).sum(2) * self.geometry.unit
            cut = torch.minimum(single, end.length * self.geometry.length)
            tally.lipschitz = torch.minimum(tally.lipschitz, cut)
        return end

    def _descend(self, reach: Reach, trace: Trace, start: Rows) -> tuple[Tensor, Tensor]:
        """The max rule from the outputs to the inputs, and the slope of the row, both (batch,)."""
        count = len(reach.length)
        tally = Tally(start.length * reach.length.unsqueeze(1), torch.ones(count, dtype=torch.float64))
        end = self._finish(trace, start, tally)
        assert end.curvature is not None
        found = end.curvature * self.geometry.length**2
        if tally.ending is not None:
            found = torch.minimum(found, tally.ending)
        return found[:, 0], tally.lipschitz[:, 0]

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
        if isinstance(self.criterion, Softmax) and self.criterion.logistic:
            nothing = torch.zeros_like(logits)
            logits, error = torch.cat([nothing, logits], 1), torch.cat([nothing, error], 1)
        return logits, error

    def _squares(self, reach: Reach, trace: Trace, targets: Tensor | None, radius: Tensor | None) -> Found:
        """2JᵀJ ≤ 2α², and the residuals' part as one row; without a ball the residuals have no bound."""
        count, outputs = len(reach.length), self.outputs
        length, bend = outputs.norm * reach.length, outputs.norm * reach.bend
        low = torch.full((count, outputs.classes), -math.inf, dtype=torch.float64)
        high = -low
        if targets is not None and radius is not None:
            logits, error = self._logits(reach)
            away = logits - check_values(targets, logits)
            each = outputs.singles()
            slopes = torch.minimum(
                self._pass(trace, each, count).lipschitz, each.length * reach.length.unsqueeze(1)
            )
            room = up(error + slopes * radius.unsqueeze(1)) + FEW * away.abs()
            low, high = away - room, away + room
        steep = 2 * size(torch.maximum(low.abs(), high.abs()))
        corrected = times(steep, bend) + 2 * length**2
        lipschitz, parts = times(steep, length), {}
        bounds = dict.fromkeys(("corrected", "sum", "max"), up(corrected))
        if bool(torch.isfinite(high).all()):
            rows = outputs.mixture(2 * low, 2 * high)
            tally = self._pass(trace, rows, count)
            parts = {path: part[:, 0] for path, part in tally.convex.items()}
            own = torch.full((count, 1), 2 * outputs.norm * outputs.norm, dtype=torch.float64)
            largest, steepest = self._descend(reach, trace, replace(rows, curvature=own))
            bounds["sum"] = up(_total(tally.convex, (count, 1))[:, 0] + 2 * length**2)
            bounds["max"], lipschitz = up(largest), torch.minimum(lipschitz, steepest)
        return Found(
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


def _total(parts: dict[str, Tensor], shape: tuple[int, ...]) -> Tensor:
    """κ by the sum rule: all activations together."""
    return torch.stack([torch.zeros(shape, dtype=torch.float64), *parts.values()]).sum(0)


def _matrix(upper: Tensor, lower: Tensor, first: Tensor, second: Tensor, classes: int) -> Tensor:
    """(batch, K, K) with [i, j] from ``upper`` and [j, i] from ``lower``, (batch, pairs) each; 0 on the
    diagonal."""
    made = upper.new_zeros(len(upper), classes, classes)
    made[:, first, second], made[:, second, first] = upper, lower
    return made
