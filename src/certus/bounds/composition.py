"""Affine layers, chains of layers, and the table of their contributions.

How an affine layer x ↦ Ax + b takes part in each pass; ``operators`` has its kinds.

A network as a list of steps, and the passes over it.

The table of a network, layer by layer.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from certus._tensor import per_sample
from certus.bounds.passes import Met, Place, Reach, Rounded, Rows, Shape, Stage, Tally, size, times
from certus.bounds.smoothness import LayerBound
from certus.rounding import slack, up


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


Trace = list[Met]
"""What each step met on the way forwards."""


@dataclass(frozen=True, eq=False)
class Step:
    """One layer, or several affine ones merged: where it is in the model, what it is, and how it acts."""

    path: str
    kind: str
    stage: Stage
    in_shape: Shape
    out_shape: Shape
    whitened: Affine | None = None  # the same behind the whitening of a cost, for the first step
    assumptions: tuple[str, ...] = ()  # rules of the user's, by name
    line: str = ""  # of the user, where a function was called

    @property
    def action(self) -> Stage:
        """How moves of the input, in the units of the cost, act."""
        return self.stage if self.whitened is None else self.whitened


def run_steps(steps: list[Step], points: Tensor) -> Tensor:
    """The network at (batch, *shape) points, in their precision."""
    for step in steps:
        points = step.stage.apply(points)
    return points


def forward(steps: list[Step], reach: Reach, radius: Tensor | None) -> tuple[Reach, Trace]:
    """From the inputs to the outputs: the reach of the last step, and what each step met."""
    trace: Trace = []
    for step in steps:
        reach, met = step.action.reach(reach, radius, step.stage)
        trace.append(met)
    return reach, trace


def backward(
    steps: list[Step], trace: Trace, rows: Rows, tally: Tally, *, whole: bool = True, inside: bool = False
) -> Rows:
    """From the outputs to the inputs: pull rows back through the steps, adding to the tally.

    Args:
        whole: go through the very first operator as well; without it only M does.
        inside: the steps are a branch, which is no cut of the network.
    """
    for index in range(len(steps) - 1, -1, -1):
        place = Place(steps[index].path, inside, ends=not (whole or index > 0 or inside))
        rows = steps[index].action.pull(rows, trace[index], tally, place)
    return rows


def rounded(steps: list[Step], value: Tensor, error: Tensor) -> Rounded:
    """Values in float64 behind the steps, their errors, and what each step met."""
    trace: Trace = []
    for step in steps:
        value, error, met = step.stage.rounded(value, error)
        trace.append(met)
    return Rounded(value, error, trace)


def pull_rounding(steps: list[Step], trace: Trace, size: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """(batch,) lengths and errors of gradients before the steps."""
    for step, met in zip(reversed(steps), reversed(trace), strict=True):
        size, error = step.stage.pull_rounding(size, error, met)
    return size, error


def printed(steps: list[Step], length: float, bend: float = 0.0) -> tuple[float, float]:
    """α and β of eq:lipschitzconsts: α ← L⁰‖θ‖α and β ← L⁰‖θ‖β + L¹(‖θ‖α)², β starting at 0."""
    for step in steps:
        length, bend = step.action.printed(length, bend)
    return length, bend


def swelling(steps: list[Step], size: float = 1.0) -> float:
    """∏ max(1, gain): by how much numbers may grow between any two places of the network."""
    for step in steps:
        size = step.action.swell(size)
    return size


def depth_of(steps: list[Step]) -> int:
    """How many activations, and maxima over windows, one meets at most."""
    return sum(step.stage.depth for step in steps)


def widths(steps: list[Step]) -> list[int]:
    """How many units each layer has, those of branches included."""
    own = [math.prod(step.out_shape) for step in steps]
    return own + [width for step in steps for width in step.stage.inner_widths]


def assumptions_of(steps: list[Step]) -> tuple[str, ...]:
    """All rules of the user's in some steps, by name."""
    found: list[str] = []
    for step in steps:
        found += step.assumptions
        found += assumptions_of(step.stage.inner_steps)
    return tuple(dict.fromkeys(found))


def table_of(steps: list[Step], reach: Reach, added: dict[str, Tensor]) -> tuple[list[LayerBound], Reach]:
    """The lines of some steps, from the reach of their inputs over all of space; and the reach behind them.

    Args:
        added: what each path adds to the curvature by the sum rule, (1,).
    """
    lines: list[LayerBound] = []
    for step in steps:
        before = reach
        reach, _ = forward([step], reach, None)
        behind = up(float(reach.length[0]))
        lines += step.action.table(step.path, step.kind, before, behind, added)
    return lines, reach
