"""The largest entry of each window: not smooth."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from certus.bounds.passes import Met, Place, Reach, Rounded, Rows, Shape, Stage, Tally, size
from certus.bounds.smoothness import LayerBound
from certus.rounding import FEW, slack, up


@dataclass(frozen=True, eq=False)
class Windows(Stage):
    """``maximum`` and ``spread`` act on (batch, *shape) tensors.

    Attributes:
        spread: the transpose of summing each window: (batch, *out) → (batch, *in).
        overlap: how many windows share an entry, at most; its root is the Lipschitz constant.
    """

    in_shape: Shape
    out_shape: Shape
    maximum: Callable[[Tensor], Tensor]
    spread: Callable[[Tensor], Tensor]
    overlap: int

    @property
    def gain(self) -> float:
        return up(math.sqrt(self.overlap), FEW)

    def shape_behind(self, shape: Shape) -> Shape:
        return self.out_shape

    @property
    def smooth(self) -> bool:
        return False

    def apply(self, points: Tensor) -> Tensor:
        return self.maximum(points)

    def reach(self, before: Reach, radius: Tensor | None, values: Stage) -> tuple[Reach, Met]:
        unit = self.maximum(before.unit)
        length = torch.minimum(before.length * self.gain, size(unit))
        center = None if before.center is None else self.maximum(before.center)
        error = None if before.error is None else self.maximum(before.error)
        return Reach(length, unit, torch.full_like(before.bend, math.inf), center, error), None

    def pull(self, rows: Rows, met: Met, tally: Tally, place: Place) -> Rows:
        form = (*rows.low.shape[:2], *self.in_shape)
        low, high = (
            self.spread(part.flatten(0, 1)).reshape(form) * (1 + slack(self.overlap))
            for part in (rows.low.clamp_max(0), rows.high.clamp_min(0))
        )
        kinked = torch.where(rows.length > 0, math.inf, torch.zeros_like(rows.length))
        tally.add(place.path, kinked, kinked)
        tally.gain = tally.gain * self.gain
        bent = None if rows.curvature is None else rows.curvature + kinked
        made = Rows(low, high, rows.length * self.gain, bent)
        return replace(made, length=torch.minimum(made.length, size(made.largest, 2)))

    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        return Rounded(self.maximum(value), self.maximum(error), None)

    @property
    def depth(self) -> int:
        return 1

    def pull_rounding(self, size: Tensor, error: Tensor, met: Met) -> tuple[Tensor, Tensor]:
        """Nothing is known of a gradient behind a maximum: another entry may have been the largest."""
        return self.gain * size, self.gain * (error + 2 * size)

    def printed(self, length: float, bend: float) -> tuple[float, float]:
        return math.sqrt(self.overlap) * length, math.inf

    def table(
        self, path: str, kind: str, before: Reach, behind: float, added: dict[str, Tensor]
    ) -> list[LayerBound]:
        own = float(added[path][0]) if path in added else 0.0
        return [LayerBound(path, kind, math.sqrt(self.overlap), math.inf, behind, own)]
