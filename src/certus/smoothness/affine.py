"""How an affine layer x ↦ Ax + b takes part in each pass; ``operators`` has its kinds."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

import torch
from torch import Tensor

from certus.batches import per_sample
from certus.outward import slack
from certus.smoothness.passes import Place, Reach, Rows, Tally, size, times
from certus.smoothness.results import LayerBound
from certus.smoothness.stage import Met, Rounded, Shape, Stage


class Affine(Stage):
    """The passes, from what an operator knows of A.

    Attributes:
        norm: ‖A‖; absolute_norm: ‖|A|‖; printed_norm: ‖A‖ as the paper would have it.
        row_norms, column_norms: (*out_shape) and (*in_shape) Euclidean norms.
        rounding: relative error of ``apply`` and ``transpose``; bias_size: sizes that b was summed from.
    """

    in_shape: Shape
    out_shape: Shape
    bias_size: Tensor | None

    @property
    @abstractmethod
    def norm(self) -> float: ...

    @property
    @abstractmethod
    def absolute_norm(self) -> float: ...

    @property
    @abstractmethod
    def printed_norm(self) -> float: ...

    @property
    @abstractmethod
    def row_norms(self) -> Tensor: ...

    @property
    @abstractmethod
    def column_norms(self) -> Tensor: ...

    @property
    @abstractmethod
    def rounding(self) -> float: ...

    @abstractmethod
    def transpose(self, rows: Tensor) -> Tensor:
        """Aᵀ·rows."""

    @abstractmethod
    def absolute(self, points: Tensor) -> Tensor:
        """|A|·points, for points ≥ 0, rounded up."""

    @abstractmethod
    def absolute_transpose(self, rows: Tensor) -> Tensor:
        """|A|ᵀ·rows, for rows ≥ 0, rounded up."""

    @abstractmethod
    def sizes(self, points: Tensor) -> Tensor:
        """|A|·points + |b|, for points ≥ 0."""

    @property
    def written(self) -> Tensor | None:
        """A, where it is a matrix already."""
        return None

    def shape_behind(self, shape: Shape) -> Shape:
        return self.out_shape

    def reach(self, before: Reach, radius: Tensor | None, values: Stage) -> tuple[Reach, Met]:
        unit = torch.minimum(
            self.row_norms * per_sample(before.length, before.unit.new_empty(1, *self.out_shape)),
            self.absolute(before.unit),
        )
        center = error = None
        if before.center is not None and before.error is not None:
            assert isinstance(values, Affine)
            center = values.apply(before.center)
            error = values.absolute(before.error) + values.rounding * values.sizes(before.center.abs())
        length = torch.minimum(self.norm * before.length, size(unit))
        matrix = self.written if before.identity else None
        return Reach(length, unit, self.norm * before.bend, center, error, matrix=matrix), None

    def pull(self, rows: Rows, met: Met, tally: Tally, place: Place) -> Rows:
        bent = (
            None
            if rows.curvature is None
            else times(rows.curvature, rows.length.new_tensor(self.norm * self.norm))
        )
        tally.gain = tally.gain * self.norm
        if place.ends:
            return replace(rows, curvature=bent)
        center, room = (rows.low + rows.high) / 2, (rows.high - rows.low) / 2
        room = room + (self.rounding + slack(1)) * rows.largest
        form = (*rows.low.shape[:2], *self.in_shape)
        pulled = self.transpose(center.flatten(0, 1)).reshape(form)
        spread = self.absolute_transpose(room.flatten(0, 1)).reshape(form)
        cap = self.column_norms * rows.length.reshape(*form[:2], *([1] * len(self.in_shape)))
        low, high = torch.maximum(pulled - spread, -cap), torch.minimum(pulled + spread, cap)
        made = Rows(low, high, self.norm * rows.length, bent)
        return replace(made, length=torch.minimum(made.length, size(made.largest, 2)))

    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        error = self.absolute(error + self.rounding * value.abs())
        if self.bias_size is not None:
            error = error + self.rounding * self.bias_size
        return Rounded(self.apply(value), error, None)

    def pull_rounding(self, size: Tensor, error: Tensor, met: Met) -> tuple[Tensor, Tensor]:
        error = self.norm * error + self.rounding * self.absolute_norm * (size + error)
        return self.norm * size, error

    def printed(self, length: float, bend: float) -> tuple[float, float]:
        return self.printed_norm * length, self.printed_norm * bend

    def table(
        self, path: str, kind: str, before: Reach, behind: float, added: dict[str, Tensor]
    ) -> list[LayerBound]:
        return [LayerBound(path, kind, self.norm, 0.0, behind, 0.0)]
