"""The passes back from the outputs to the inputs: slopes and curvatures of rows and of margins."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from certus.outward import up
from certus.smoothness.bending import Site
from certus.smoothness.geometry import Geometry
from certus.smoothness.outputs import MOST_CLASSES, Outputs
from certus.smoothness.passes import Reach, Rows, Tally
from certus.smoothness.steps import Step, Trace, backward


@dataclass(frozen=True, eq=False)
class MarginBounds:
    """Bounds on margins F_k − F_y, on a ball around each sample or over all of space (batch 1).

    Attributes:
        slopes, bends: (batch, …) Lipschitz constant and curvature of each margin; 0 for k = y.
        spread: (batch,) D, the Lipschitz constant of every F_i − F_j.
        parts: what each path adds to the largest curvature, (batch,).
    """

    slopes: Tensor
    bends: Tensor
    spread: Tensor
    parts: dict[str, Tensor]

    @property
    def steepest(self) -> Tensor:
        """(batch,) the largest slope."""
        return self.slopes.flatten(1).amax(1)

    @property
    def sharpest(self) -> Tensor:
        """(batch,) the largest curvature."""
        return self.bends.flatten(1).amax(1)


@dataclass(frozen=True, eq=False)
class Pullback:
    """The way back through a network.

    Attributes:
        steps: from the inputs to the last hidden layer.
        geometry: of the cost, in which moves of the inputs are measured.
        outputs: as functions of the last hidden layer.
    """

    steps: list[Step]
    geometry: Geometry
    outputs: Outputs

    def tally(self, trace: Trace, rows: Rows, count: int) -> Tally:
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

    def descend(self, reach: Reach, trace: Trace, start: Rows) -> tuple[Tensor, Tensor]:
        """The max rule from the outputs to the inputs, and the slope of the row, both (batch,)."""
        count = len(reach.length)
        tally = Tally(start.length * reach.length.unsqueeze(1), torch.ones(count, dtype=torch.float64))
        end = self._finish(trace, start, tally)
        assert end.curvature is not None
        found = end.curvature * self.geometry.length**2
        if tally.ending is not None:
            found = torch.minimum(found, tally.ending)
        return found[:, 0], tally.lipschitz[:, 0]

    def margins(self, reach: Reach, trace: Trace) -> MarginBounds:
        """Of all pairs of classes: [k, y] of F_k − F_y, (batch, K, K)."""
        classes, count = self.outputs.classes, len(reach.length)
        cut = self.outputs.distances() * reach.length.reshape(-1, 1, 1)
        if classes > MOST_CLASSES:
            low, high = self.outputs.hull(None)
            rows = Rows(low, high, self.outputs.distances().max().reshape(1, 1))
            tally = self.tally(trace, rows, count)
            total = sum_rule(tally.convex, (count, 1))
            bends = torch.where(torch.eye(classes, dtype=torch.bool), 0.0, total.unsqueeze(2))
            parts = {path: part[:, 0] for path, part in tally.convex.items()}
            return MarginBounds(cut, bends, cut.flatten(1).amax(1), parts)
        rows = self.outputs.differences()
        tally = self.tally(trace, rows, count)
        first, second = self.outputs.pairs()
        ends = (rows.largest * reach.unit.unsqueeze(1)).flatten(2).sum(2)
        found = torch.minimum(tally.lipschitz, ends)
        slopes = torch.minimum(cut, _matrix(found, found, first, second, classes))
        convex = sum_rule(tally.convex, (count, len(first)))
        concave = sum_rule(tally.concave, (count, len(first)))
        bends = _matrix(convex, concave, first, second, classes)
        both = torch.cat([convex, concave], 1).argmax(1, keepdim=True)
        parts = {
            path: torch.cat([tally.convex[path], tally.concave[path]], 1).gather(1, both)[:, 0]
            for path in tally.convex
        }
        return MarginBounds(slopes, bends, slopes.flatten(1).amax(1), parts)

    def own_margins(self, reach: Reach, trace: Trace, labels: Tensor) -> MarginBounds:
        """Against each sample's own label y: [k] of F_k − F_y, (batch, K)."""
        rows = self.outputs.against(labels)
        tally = self.tally(trace, rows, len(labels))
        ends = (rows.largest * reach.unit.unsqueeze(1)).flatten(2).sum(2)
        slopes = torch.minimum(tally.lipschitz, torch.minimum(ends, rows.length * reach.length.unsqueeze(1)))
        own = nn.functional.one_hot(labels, self.outputs.classes).to(torch.bool)
        slopes = torch.where(own, 0.0, slopes)
        bends = torch.where(own, 0.0, sum_rule(tally.convex, slopes.shape))
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
        parts = {path: part.gather(1, chosen)[:, 0] for path, part in tally.convex.items()}
        return MarginBounds(slopes, bends, spread, parts)


def sum_rule(parts: dict[str, Tensor], shape: tuple[int, ...]) -> Tensor:
    """κ by the sum rule: all activations together."""
    return torch.stack([torch.zeros(shape, dtype=torch.float64), *parts.values()]).sum(0)


def _matrix(upper: Tensor, lower: Tensor, first: Tensor, second: Tensor, classes: int) -> Tensor:
    """(batch, K, K) with [i, j] from ``upper`` and [j, i] from ``lower``, (batch, pairs) each; 0 on the
    diagonal."""
    made = upper.new_zeros(len(upper), classes, classes)
    made[:, first, second], made[:, second, first] = upper, lower
    return made
