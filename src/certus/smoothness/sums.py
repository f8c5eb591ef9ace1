"""Branches whose outputs are added: residual blocks and the like.

Behind the addition everything is a sum over the branches. Inside of one the max rule starts at M = 0, for a
linear function of the branch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from certus.outward import slack
from certus.smoothness.passes import Place, Reach, Rows, Tally, size, times
from certus.smoothness.results import LayerBound
from certus.smoothness.stage import Met, Rounded, Shape, Stage
from certus.smoothness.steps import (
    Step,
    Trace,
    backward,
    depth_of,
    forward,
    printed,
    pull_rounding,
    rounded,
    run_steps,
    swelling,
    widths,
)
from certus.smoothness.table import table_of


@dataclass(frozen=True, eq=False)
class Sum(Stage):
    """Steps of several branches whose outputs are added."""

    branches: list[list[Step]]

    def shape_behind(self, shape: Shape) -> Shape:
        branch = self.branches[0]
        return branch[-1].out_shape if branch else shape

    def apply(self, points: Tensor) -> Tensor:
        return _total([run_steps(branch, points) for branch in self.branches])

    def reach(self, before: Reach, radius: Tensor | None, values: Stage) -> tuple[Reach, Met]:
        ends, traces = zip(*(forward(branch, before, radius) for branch in self.branches), strict=True)
        unit = _total([end.unit for end in ends])
        length = torch.minimum(_total([end.length for end in ends]), size(unit))
        bend = _total([end.bend for end in ends])
        centers = [end.center for end in ends if end.center is not None]
        errors = [end.error for end in ends if end.error is not None]
        if not centers or not errors:
            return Reach(length, unit, bend), traces
        rounding = slack(len(ends)) * _total([center.abs() for center in centers])
        return Reach(length, unit, bend, _total(centers), _total(errors) + rounding), traces

    def pull(self, rows: Rows, met: Met, tally: Tally, place: Place) -> Rows:
        traces: tuple[Trace, ...] = met
        parts, gains = [], []
        start = replace(rows, curvature=None if rows.curvature is None else torch.zeros_like(rows.curvature))
        for branch, trace in zip(self.branches, traces, strict=True):
            own = Tally(tally.lipschitz, torch.ones_like(tally.gain), tally.convex, tally.concave)
            parts.append(backward(branch, trace, start, own, inside=True))
            gains.append(own.gain)
        gain = _total(gains)
        tally.gain = tally.gain * gain
        low, high = _total([part.low for part in parts]), _total([part.high for part in parts])
        rounding = slack(len(parts)) * _total([part.largest for part in parts])
        length = _total([part.length for part in parts])
        bent = None
        if rows.curvature is not None:
            bends = [part.curvature for part in parts if part.curvature is not None]
            bent = times(rows.curvature, (gain**2).unsqueeze(1)) + _total(bends)
        made = Rows(low - rounding, high + rounding, length, bent)
        return replace(made, length=torch.minimum(length, size(made.largest, 2)))

    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        ends = [rounded(branch, value, error) for branch in self.branches]
        sizes = _total([end.value.abs() for end in ends])
        value, error = _total([end.value for end in ends]), _total([end.error for end in ends])
        return Rounded(value, error + slack(len(ends)) * sizes, [end.met for end in ends])

    def pull_rounding(self, size: Tensor, error: Tensor, met: Met) -> tuple[Tensor, Tensor]:
        ends = [
            pull_rounding(branch, trace, size, error)
            for branch, trace in zip(self.branches, met, strict=True)
        ]
        total = _total([end[0] for end in ends])
        return total, _total([end[1] for end in ends]) + slack(len(ends)) * total

    def printed(self, length: float, bend: float) -> tuple[float, float]:
        ends = [printed(branch, length) for branch in self.branches]
        gains = sum(end[0] for end in ends)
        bend = (gains / length if length else 0.0) * bend + sum(end[1] for end in ends)
        return gains, bend

    def table(
        self, path: str, kind: str, before: Reach, behind: float, added: dict[str, Tensor]
    ) -> list[LayerBound]:
        return [line for branch in self.branches for line in table_of(branch, before, added)[0]]

    def swell(self, size: float) -> float:
        return sum(swelling(branch, size) for branch in self.branches)

    @property
    def depth(self) -> int:
        return max(depth_of(branch) for branch in self.branches)

    @property
    def inner_widths(self) -> list[int]:
        return [width for branch in self.branches for width in widths(branch)]

    @property
    def inner_steps(self) -> list[Step]:
        return [step for branch in self.branches for step in branch]


def _total(parts: list[Tensor]) -> Tensor:
    return torch.stack(parts).sum(0)
