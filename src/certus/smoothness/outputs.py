"""The outputs as functions of the last hidden layer: the rows that a backward pass starts from.

The affine layers behind the last activation are linear, so they are pulled through at once: F_k has the
gradient w_k, exact up to rounding, and F_i − F_j has w_i − w_j. With many classes all pairs are too many
rows; then a box around all differences stands for them, and only distances ‖w_i − w_j‖ are kept for each
pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from certus.outward import slack
from certus.smoothness.operators import Operator
from certus.smoothness.passes import Rows, size
from certus.smoothness.stage import Shape

MOST_CLASSES = 32


@dataclass(frozen=True, eq=False)
class Outputs:
    """Gradients of the outputs, (classes, *shape), with their rounding, and the norm of all of them
    together."""

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
        """Each F_k, as one batch entry."""
        return _as_rows((self.rows - self.rounding).unsqueeze(0), (self.rows + self.rounding).unsqueeze(0))

    def differences(self) -> Rows:
        """F_i − F_j for all pairs, as one batch entry."""
        first, second = self.pairs()
        low, high = self._range(self.rows[first], self.rows[second], first, second)
        return _as_rows(low, high)

    def against(self, labels: Tensor) -> Rows:
        """F_k − F_y for all k, y the label of each sample: (batch, classes, *shape)."""
        apart = self.rows.unsqueeze(0) - self.rows[labels].unsqueeze(1)
        slop = self.rounding.unsqueeze(0) + self.rounding[labels].unsqueeze(1) + slack(1) * apart.abs()
        return _as_rows(apart - slop, apart + slop)

    @cached_property
    def _distances(self) -> Tensor:
        flat, own = self.rows.flatten(1), size(self.rounding)
        apart = [size(flat - row) for row in flat]
        return torch.stack(apart) * (1 + slack(flat.shape[1])) + own[:, None] + own[None, :]

    def distances(self) -> Tensor:
        """(classes, classes) bounds on ‖w_i − w_j‖."""
        return self._distances

    def hull(self, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """(batch, 1, *shape) box around 0 and all F_k − F_y, y the label of each sample, or any."""
        slop = self.rounding.amax(0) * 2 + 2 * slack(1) * self.rows.abs().amax(0)
        top, bottom = self.rows.amax(0), self.rows.amin(0)
        if labels is None:
            spread = (top - bottom + slop)[None, None]
            return -spread, spread
        own = self.rows[labels]
        return ((bottom - own - slop).unsqueeze(1), (top - own + slop).unsqueeze(1))

    def mixture(self, low: Tensor, high: Tensor) -> Rows:
        """Σ_k u_k F_k with coefficients u between ``low`` and ``high``, (batch, classes), as one row each."""
        flat = self.rows.flatten(1)
        center, room = (low + high) / 2, (high - low) / 2
        room = room + slack(self.classes) * torch.maximum(low.abs(), high.abs())
        sizes = torch.maximum(low.abs(), high.abs()) @ self.rounding.flatten(1)
        middle, spread = center @ flat, (room @ flat.abs()) * (1 + slack(self.classes)) + sizes
        form = (len(low), 1, *self.rows.shape[1:])
        return _as_rows((middle - spread).reshape(form), (middle + spread).reshape(form))

    def _range(self, left: Tensor, right: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        apart = left - right
        slop = self.rounding[first] + self.rounding[second] + slack(1) * apart.abs()
        return (apart - slop).unsqueeze(0), (apart + slop).unsqueeze(0)


def _as_rows(low: Tensor, high: Tensor) -> Rows:
    made = Rows(low, high, low.new_zeros(low.shape[:2]))
    return Rows(low, high, size(made.largest, 2) * (1 + slack(low[0, 0].numel())))


def read_outputs(head: Operator | None, shape: Shape, with_zero: bool) -> Outputs:
    """The outputs of a network whose last affine part is ``head``; ``with_zero`` puts an output 0 before
    them."""
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
