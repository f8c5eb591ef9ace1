"""Log-softmax as the last layer, as many tutorials have it: F ↦ F − log Σ exp F.

It subtracts one number from all outputs, and the losses of classes see differences of outputs only. So the
loss behind it is the loss without it, and it is left out. Anywhere else it has no rule.
"""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor, nn

from certus.bounds.layer_rules import rule
from certus.bounds.passes import Met, Place, Reach, Rounded, Rows, Shape, Stage, Tally
from certus.bounds.smoothness import LayerBound
from certus.errors import UnsupportedError


class LogSoftmax(Stage):
    """Log-softmax over the only axis of a sample."""

    def shape_behind(self, shape: Shape) -> Shape:
        return shape

    def apply(self, points: Tensor) -> Tensor:
        return torch.log_softmax(points, 1)

    def reach(self, before: Reach, radius: Tensor | None, values: Stage) -> tuple[Reach, Met]:
        refuse_log_softmax()

    def pull(self, rows: Rows, met: Met, tally: Tally, place: Place) -> Rows:
        refuse_log_softmax()

    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        refuse_log_softmax()

    def pull_rounding(self, size: Tensor, error: Tensor, met: Met) -> tuple[Tensor, Tensor]:
        refuse_log_softmax()

    def printed(self, length: float, bend: float) -> tuple[float, float]:
        refuse_log_softmax()

    def table(
        self, path: str, kind: str, before: Reach, behind: float, added: dict[str, Tensor]
    ) -> list[LayerBound]:
        refuse_log_softmax()


@rule(nn.LogSoftmax)
def log_softmax(module: nn.LogSoftmax, shape: Shape) -> Stage:
    return log_softmax_over(module.dim, shape)


def log_softmax_over(axis: int | None, shape: Shape) -> Stage:
    """The stage for one axis, the batch counted in."""
    if len(shape) != 1 or axis not in (1, -1):
        raise UnsupportedError(f"the axis {axis} of inputs of shape {shape}; it must be the classes")
    return LogSoftmax()


def refuse_log_softmax() -> NoReturn:
    """Raise: it stands where a bound would have to go through it."""
    raise UnsupportedError(
        "log_softmax has a rule as the very last layer only, before CrossEntropy or SmoothMargin."
    )
