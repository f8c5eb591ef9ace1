"""Graphs that are not chains: sums, concatenations and shared layers.

Branches whose outputs are added: residual blocks and the like.

Behind the addition everything is a sum over the branches. Inside of one the max rule starts at M = 0, for a
linear function of the branch.

A part of a network that is no chain: branches that are joined by concatenation, or that share layers.

Such a part is a list of segments. Each joins earlier ones, by adding or by concatenating them, and puts its
steps behind that. Every pass goes from segment to segment:

    forwards     a sum moves by at most the sum of what its terms do, a concatenation by the root of the sum
                 of squares, α = √Σαᵢ² and β = √Σβᵢ²; single units are simply put side by side
    backwards    the gradient in a segment is the sum of those that come back from all that use it, so the sum
                 rule, in which each activation counts once, holds as it does for a chain
    max rule     with ∇²m ⪯ M·I behind the part, of which L is the Lipschitz constant, and κ the curvature
                 of a linear function of it,    M·L² + κ    before it

κ is followed with one M for each segment, all of them together: ∇²m ⪯ diag(M₁I, M₂I, …) as a function of
the segments not yet passed. A segment that is used twice gets the sum of what comes back. A concatenation
leaves M as it is. A sum x₁ + … + x_k gives M/tᵢ to its terms, for any t > 0 with Σtᵢ = 1, since
‖Σxᵢ‖² ≤ Σ‖xᵢ‖²/tᵢ; t follows the lengths of the terms' reach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from certus.bounds.composition import (
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
    table_of,
    widths,
)
from certus.bounds.passes import Met, Place, Reach, Rounded, Rows, Shape, Stage, Tally, size, times
from certus.bounds.smoothness import LayerBound
from certus.rounding import slack


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


_LARGEST, _APART = 1e100, 1e3  # of lengths that shares follow, and their ratio


@dataclass(frozen=True, eq=False)
class Segment:
    """Steps behind a join.

    Attributes:
        inputs: what is joined: 0 is the input of the web, i the output of segment i − 1.
        axis: of one sample, along which the inputs are concatenated; None to add them.
        shape: behind the join.
    """

    steps: list[Step]
    inputs: tuple[int, ...]
    axis: int | None
    shape: Shape
    sizes: tuple[int, ...] = ()  # of the inputs along the axis

    @property
    def out_shape(self) -> Shape:
        return self.steps[-1].out_shape if self.steps else self.shape

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """Tensors (batch, *shape), added or concatenated."""
        if self.axis is None:
            return parts[0] if len(parts) == 1 else torch.stack(list(parts)).sum(0)
        return torch.cat(list(parts), self.axis + 1)

    def combined(self, lengths: Sequence[Tensor]) -> Tensor:
        """What lengths of the inputs make of the join: their sum, or the root of their squares."""
        stacked = torch.stack(list(lengths))
        if self.axis is None:
            return stacked.sum(0)
        norm: Tensor = torch.linalg.vector_norm(stacked, dim=0)
        return norm

    def total(self, numbers: Sequence[float]) -> float:
        """The same of plain numbers."""
        return sum(numbers) if self.axis is None else math.hypot(*numbers)

    def parted(self, rows: Tensor) -> list[Tensor]:
        """What of (batch, rows, *shape) belongs to each input."""
        if self.axis is None:
            return [rows] * len(self.inputs)
        return list(rows.split(list(self.sizes), self.axis + 2))


@dataclass(frozen=True, eq=False)
class Crossed:
    """What a web remembers of the way forwards: the trace of each segment, and how far its inputs reach."""

    traces: list[Trace]
    lengths: list[Tensor]


@dataclass(frozen=True, eq=False)
class Web(Stage):
    """Segments, the last of which is the output."""

    segments: list[Segment]

    def shape_behind(self, shape: Shape) -> Shape:
        return self.segments[-1].out_shape

    def apply(self, points: Tensor) -> Tensor:
        values = [points]
        for part in self.segments:
            values.append(run_steps(part.steps, part.join([values[index] for index in part.inputs])))
        return values[-1]

    def reach(self, before: Reach, radius: Tensor | None, values: Stage) -> tuple[Reach, Met]:
        ends, traces = [before], []
        for part in self.segments:
            end, trace = forward(part.steps, _joined_reach(part, [ends[i] for i in part.inputs]), radius)
            ends.append(end)
            traces.append(trace)
        return ends[-1], Crossed(traces, [end.length for end in ends])

    def pull(self, rows: Rows, met: Met, tally: Tally, place: Place) -> Rows:
        crossed: Crossed = met
        blank = None if rows.curvature is None else torch.zeros_like(rows.curvature)
        found: list[list[Rows]] = [[] for _ in range(len(self.segments) + 1)]
        found[-1].append(replace(rows, curvature=blank))
        gains: list[Tensor] = [torch.ones_like(tally.gain)] * len(self.segments)
        for index in range(len(self.segments) - 1, -1, -1):
            part, own = self.segments[index], Tally(tally.lipschitz, torch.ones_like(tally.gain))
            own.convex, own.concave = tally.convex, tally.concave
            back = backward(part.steps, crossed.traces[index], _added(found[index + 1]), own, inside=True)
            gains[index] = own.gain
            shares = _shares(part, [crossed.lengths[i] for i in part.inputs])
            for i, share in zip(part.inputs, _parted_rows(part, back, shares), strict=True):
                found[i].append(share)
        gain = self._gain(gains)
        tally.gain = tally.gain * gain
        made = _added(found[0])
        bent = made.curvature
        if rows.curvature is not None and bent is not None:
            bent = bent + times(rows.curvature, (gain**2).unsqueeze(1))
        return replace(
            made, curvature=bent, length=torch.minimum(made.length, rows.length * gain.unsqueeze(1))
        )

    def _gain(self, gains: Sequence[Tensor]) -> Tensor:
        """(batch,) the Lipschitz constant of all of it from those of the segments' steps."""
        lengths = [torch.ones_like(gains[0])]
        for part, own in zip(self.segments, gains, strict=True):
            lengths.append(part.combined([lengths[index] for index in part.inputs]) * own)
        return lengths[-1]

    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        values, errors, traces = [value], [error], []
        for part in self.segments:
            given = [values[index] for index in part.inputs]
            off = part.join([errors[index] for index in part.inputs])
            if part.axis is None and len(given) > 1:
                off = off + slack(len(given)) * part.join([each.abs() for each in given])
            value, error, trace = rounded(part.steps, part.join(given), off)
            values.append(value)
            errors.append(error)
            traces.append(trace)
        return Rounded(values[-1], errors[-1], traces)

    def pull_rounding(self, size: Tensor, error: Tensor, met: Met) -> tuple[Tensor, Tensor]:
        found: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(len(self.segments) + 1)]
        found[-1].append((size, error))
        for index in range(len(self.segments) - 1, -1, -1):
            part = self.segments[index]
            pulled = pull_rounding(part.steps, met[index], *_summed(found[index + 1]))
            for each in part.inputs:  # the part of a row is no longer than the row
                found[each].append(pulled)
        return _summed(found[0])

    def printed(self, length: float, bend: float) -> tuple[float, float]:
        ends = [(length, bend)]
        for part in self.segments:
            lengths, bends = zip(*(ends[index] for index in part.inputs), strict=True)
            ends.append(printed(part.steps, part.total(lengths), part.total(bends)))
        return ends[-1]

    def table(
        self, path: str, kind: str, before: Reach, behind: float, added: dict[str, Tensor]
    ) -> list[LayerBound]:
        ends, lines = [before], list[LayerBound]()
        for part in self.segments:
            more, end = table_of(part.steps, _joined_reach(part, [ends[i] for i in part.inputs]), added)
            lines += more
            ends.append(end)
        return lines

    def swell(self, size: float) -> float:
        sizes = [size]
        for part in self.segments:
            sizes.append(swelling(part.steps, sum(sizes[index] for index in part.inputs)))
        return max(sizes)

    @property
    def depth(self) -> int:
        depths = [0]
        for part in self.segments:
            depths.append(max(depths[index] for index in part.inputs) + depth_of(part.steps))
        return depths[-1]

    @property
    def inner_widths(self) -> list[int]:
        return [width for part in self.segments for width in (math.prod(part.shape), *widths(part.steps))]

    @property
    def inner_steps(self) -> list[Step]:
        return [step for part in self.segments for step in part.steps]


def _joined_reach(part: Segment, ends: Sequence[Reach]) -> Reach:
    if len(ends) == 1:
        return ends[0]
    unit = part.join([end.unit for end in ends])
    length = torch.minimum(part.combined([end.length for end in ends]), size(unit))
    bend = part.combined([end.bend for end in ends])
    centers = [end.center for end in ends if end.center is not None]
    errors = [end.error for end in ends if end.error is not None]
    if not centers or not errors:
        return Reach(length, unit, bend)
    error = part.join(errors)
    if part.axis is None:
        error = error + slack(len(ends)) * part.join([center.abs() for center in centers])
    return Reach(length, unit, bend, part.join(centers), error)


def _shares(part: Segment, lengths: Sequence[Tensor]) -> list[Tensor]:
    """(batch,) 1/tᵢ for each input of a join; 1 where M is left as it is."""
    if part.axis is not None or len(lengths) == 1:
        return [torch.ones_like(length) for length in lengths]
    # No t may be 0, and none so small that 1/t is not finite; any will do.
    each = torch.stack(list(lengths))
    each = each.clamp(1 / _LARGEST, _LARGEST)
    each = torch.maximum(each, each.amax(0) / _APART)
    return list((each.sum(0) / each) * (1 + slack(len(lengths))))


def _parted_rows(part: Segment, rows: Rows, shares: Sequence[Tensor]) -> list[Rows]:
    """What comes back to each input of a join."""
    if len(part.inputs) == 1:
        return [rows]
    made = []
    for low, high, share in zip(part.parted(rows.low), part.parted(rows.high), shares, strict=True):
        bent = None if rows.curvature is None else times(rows.curvature, share.unsqueeze(1))
        own = Rows(low, high, rows.length, bent)
        made.append(replace(own, length=torch.minimum(rows.length, size(own.largest, 2))))
    return made


def _added(parts: Sequence[Rows]) -> Rows:
    """The sum of gradients that come back from several uses."""
    if len(parts) == 1:
        return parts[0]
    rounding = slack(len(parts)) * torch.stack([part.largest for part in parts]).sum(0)
    low = torch.stack([part.low for part in parts]).sum(0) - rounding
    high = torch.stack([part.high for part in parts]).sum(0) + rounding
    bends = [part.curvature for part in parts if part.curvature is not None]
    made = Rows(low, high, torch.stack([part.length for part in parts]).sum(0))
    return replace(
        made,
        length=torch.minimum(made.length, size(made.largest, 2)),
        curvature=torch.stack(bends).sum(0) if bends else None,
    )


def _summed(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """(batch,) lengths and errors of a sum of rows."""
    total = torch.stack([part[0] for part in parts]).sum(0)
    error = torch.stack([part[1] for part in parts]).sum(0)
    return total, error if len(parts) == 1 else error + slack(len(parts)) * total
