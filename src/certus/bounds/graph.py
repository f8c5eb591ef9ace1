"""Graphs of layers: sums of branches, other subgraphs, and the decomposition of a graph into steps.

A node is a *cut* if every path from the input to the output leads through it. In topological order those are
the nodes that no edge jumps over. Between two consecutive cuts there is nothing (a step), branches that share
no node and are added (a ``Sum``), or anything else (a ``Subgraph``).

``Sum``: behind the addition everything is a sum over the branches. Inside a branch the max rule starts at
M = 0, for a linear function of the branch.

``Subgraph``: a list of segments. Each joins earlier ones, by adding or concatenating them, and appends its
steps. Every pass goes from segment to segment:

    forward      a sum moves by at most the sum of the moves of its terms, a concatenation by the root of the
                 sum of squares, α = √Σαᵢ² and β = √Σβᵢ²; single units are placed side by side
    backward     the gradient at a segment is the sum of the gradients from all its uses, so the sum rule, in
                 which each activation counts once, holds as it does for a chain
    max rule     with ∇²m ⪯ M·I behind the subgraph, L its Lipschitz constant, and κ the curvature of a
                 linear function of it,    M·L² + κ    before it

κ is tracked with one M for each segment, all of them together: ∇²m ⪯ diag(M₁I, M₂I, …) as a function of the
segments not yet passed. A segment that is used twice gets the sum over its uses. A concatenation leaves M as
it is. A sum x₁ + … + x_k gives M/tᵢ to its terms, for any t > 0 with Σtᵢ = 1, since ‖Σxᵢ‖² ≤ Σ‖xᵢ‖²/tᵢ; t is
proportional to the lengths of the terms' reach.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from certus.bounds.operators import merge_affine_steps
from certus.bounds.passes import (
    Position,
    Reach,
    Rounded,
    Rows,
    Saved,
    Shape,
    Stage,
    Step,
    Totals,
    Trace,
    amplification,
    backward,
    backward_rounding,
    depth_of,
    forward,
    forward_rounding,
    paper_constants,
    run_steps,
    size,
    table_rows_of,
    times,
    widths,
)
from certus.bounds.smoothness import LayerBound
from certus.rounding import slack


@dataclass(frozen=True, eq=False)
class Sum(Stage):
    """Branches whose outputs are added, each a list of steps."""

    branches: list[list[Step]]

    def output_shape(self, shape: Shape) -> Shape:
        branch = self.branches[0]
        return branch[-1].out_shape if branch else shape

    def apply(self, points: Tensor) -> Tensor:
        return _total([run_steps(branch, points) for branch in self.branches])

    def forward(self, before: Reach, radius: Tensor | None, values: Stage) -> tuple[Reach, Saved]:
        ends, traces = zip(*(forward(branch, before, radius) for branch in self.branches), strict=True)
        unit = _total([end.unit for end in ends])
        length = torch.minimum(_total([end.length for end in ends]), size(unit))
        curvature = _total([end.curvature for end in ends])
        centers = [end.center for end in ends if end.center is not None]
        errors = [end.error for end in ends if end.error is not None]
        if not centers or not errors:
            return Reach(length, unit, curvature), traces
        rounding = slack(len(ends)) * _total([center.abs() for center in centers])
        return Reach(length, unit, curvature, _total(centers), _total(errors) + rounding), traces

    def backward(self, rows: Rows, saved: Saved, totals: Totals, position: Position) -> Rows:
        traces: tuple[Trace, ...] = saved
        parts, gains = [], []
        start = replace(rows, curvature=None if rows.curvature is None else torch.zeros_like(rows.curvature))
        for branch, trace in zip(self.branches, traces, strict=True):
            own = Totals(totals.lipschitz, torch.ones_like(totals.gain), totals.convex, totals.concave)
            parts.append(backward(branch, trace, start, own, inside=True))
            gains.append(own.gain)
        gain = _total(gains)
        totals.gain = totals.gain * gain
        low, high = _total([part.low for part in parts]), _total([part.high for part in parts])
        rounding = slack(len(parts)) * _total([part.largest for part in parts])
        length = _total([part.length for part in parts])
        curvature = None
        if rows.curvature is not None:
            curvatures = [part.curvature for part in parts if part.curvature is not None]
            curvature = times(rows.curvature, (gain**2).unsqueeze(1)) + _total(curvatures)
        return Rows(low - rounding, high + rounding, length, curvature).capped()

    def forward_rounding(self, value: Tensor, error: Tensor) -> Rounded:
        ends = [forward_rounding(branch, value, error) for branch in self.branches]
        sizes = _total([end.value.abs() for end in ends])
        value, error = _total([end.value for end in ends]), _total([end.error for end in ends])
        return Rounded(value, error + slack(len(ends)) * sizes, [end.saved for end in ends])

    def backward_rounding(self, size: Tensor, error: Tensor, saved: Saved) -> tuple[Tensor, Tensor]:
        ends = [
            backward_rounding(branch, trace, size, error)
            for branch, trace in zip(self.branches, saved, strict=True)
        ]
        total = _total([end[0] for end in ends])
        return total, _total([end[1] for end in ends]) + slack(len(ends)) * total

    def paper_constants(self, length: float, curvature: float) -> tuple[float, float]:
        ends = [paper_constants(branch, length) for branch in self.branches]
        gains = sum(end[0] for end in ends)
        curvature = (gains / length if length else 0.0) * curvature + sum(end[1] for end in ends)
        return gains, curvature

    def table_rows(
        self, path: str, kind: str, before: Reach, behind: float, added: dict[str, Tensor]
    ) -> list[LayerBound]:
        return [line for branch in self.branches for line in table_rows_of(branch, before, added)[0]]

    def amplify(self, size: float) -> float:
        return sum(amplification(branch, size) for branch in self.branches)

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


_LARGEST, _APART = 1e100, 1e3  # limits of the lengths that shares follow, and of their ratio


@dataclass(frozen=True, eq=False)
class Segment:
    """Steps behind a join.

    Attributes:
        inputs: the joined values: 0 is the input of the subgraph, i the output of segment i − 1.
        axis: of one sample, along which the inputs are concatenated; None if they are added.
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
        """Add or concatenate (batch, *shape) tensors."""
        if self.axis is None:
            return parts[0] if len(parts) == 1 else _total(list(parts))
        return torch.cat(list(parts), self.axis + 1)

    def combined(self, lengths: Sequence[Tensor]) -> Tensor:
        """Length of the join from the lengths of its inputs: their sum, or the root of their squares."""
        stacked = torch.stack(list(lengths))
        if self.axis is None:
            return stacked.sum(0)
        norm: Tensor = torch.linalg.vector_norm(stacked, dim=0)
        return norm

    def total(self, numbers: Sequence[float]) -> float:
        """The same for Python floats."""
        return sum(numbers) if self.axis is None else math.hypot(*numbers)

    def parted(self, rows: Tensor) -> list[Tensor]:
        """Split (batch, rows, *shape) into the part of each input."""
        if self.axis is None:
            return [rows] * len(self.inputs)
        return list(rows.split(list(self.sizes), self.axis + 2))


@dataclass(frozen=True, eq=False)
class SubgraphTrace:
    """Data saved by a forward pass: the trace of each segment, and the lengths of all reaches."""

    traces: list[Trace]
    lengths: list[Tensor]


@dataclass(frozen=True, eq=False)
class Subgraph(Stage):
    """Segments in topological order; the last one is the output."""

    segments: list[Segment]

    def output_shape(self, shape: Shape) -> Shape:
        return self.segments[-1].out_shape

    def apply(self, points: Tensor) -> Tensor:
        values = [points]
        for part in self.segments:
            values.append(run_steps(part.steps, part.join([values[index] for index in part.inputs])))
        return values[-1]

    def forward(self, before: Reach, radius: Tensor | None, values: Stage) -> tuple[Reach, Saved]:
        ends, traces = [before], []
        for part in self.segments:
            end, trace = forward(part.steps, _joined_reach(part, [ends[i] for i in part.inputs]), radius)
            ends.append(end)
            traces.append(trace)
        return ends[-1], SubgraphTrace(traces, [end.length for end in ends])

    def backward(self, rows: Rows, saved: Saved, totals: Totals, position: Position) -> Rows:
        crossed: SubgraphTrace = saved
        blank = None if rows.curvature is None else torch.zeros_like(rows.curvature)
        uses: list[list[Rows]] = [[] for _ in range(len(self.segments) + 1)]
        uses[-1].append(replace(rows, curvature=blank))
        gains: list[Tensor] = [torch.ones_like(totals.gain)] * len(self.segments)
        for index in range(len(self.segments) - 1, -1, -1):
            part, own = self.segments[index], Totals(totals.lipschitz, torch.ones_like(totals.gain))
            own.convex, own.concave = totals.convex, totals.concave
            back = backward(part.steps, crossed.traces[index], _added(uses[index + 1]), own, inside=True)
            gains[index] = own.gain
            shares = _shares(part, [crossed.lengths[i] for i in part.inputs])
            for i, share in zip(part.inputs, _parted_rows(part, back, shares), strict=True):
                uses[i].append(share)
        gain = self._gain(gains)
        totals.gain = totals.gain * gain
        result = _added(uses[0])
        curvature = result.curvature
        if rows.curvature is not None and curvature is not None:
            curvature = curvature + times(rows.curvature, (gain**2).unsqueeze(1))
        length = torch.minimum(result.length, rows.length * gain.unsqueeze(1))
        return replace(result, curvature=curvature, length=length)

    def _gain(self, gains: Sequence[Tensor]) -> Tensor:
        """(batch,) Lipschitz constant of the subgraph, from those of the segments' steps."""
        lengths = [torch.ones_like(gains[0])]
        for part, own in zip(self.segments, gains, strict=True):
            lengths.append(part.combined([lengths[index] for index in part.inputs]) * own)
        return lengths[-1]

    def forward_rounding(self, value: Tensor, error: Tensor) -> Rounded:
        values, errors, traces = [value], [error], []
        for part in self.segments:
            given = [values[index] for index in part.inputs]
            off = part.join([errors[index] for index in part.inputs])
            if part.axis is None and len(given) > 1:
                off = off + slack(len(given)) * part.join([each.abs() for each in given])
            value, error, trace = forward_rounding(part.steps, part.join(given), off)
            values.append(value)
            errors.append(error)
            traces.append(trace)
        return Rounded(values[-1], errors[-1], traces)

    def backward_rounding(self, size: Tensor, error: Tensor, saved: Saved) -> tuple[Tensor, Tensor]:
        uses: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(len(self.segments) + 1)]
        uses[-1].append((size, error))
        for index in range(len(self.segments) - 1, -1, -1):
            part = self.segments[index]
            pulled = backward_rounding(part.steps, saved[index], *_summed(uses[index + 1]))
            for each in part.inputs:  # the part of a row is no longer than the row
                uses[each].append(pulled)
        return _summed(uses[0])

    def paper_constants(self, length: float, curvature: float) -> tuple[float, float]:
        ends = [(length, curvature)]
        for part in self.segments:
            lengths, curvatures = zip(*(ends[index] for index in part.inputs), strict=True)
            ends.append(paper_constants(part.steps, part.total(lengths), part.total(curvatures)))
        return ends[-1]

    def table_rows(
        self, path: str, kind: str, before: Reach, behind: float, added: dict[str, Tensor]
    ) -> list[LayerBound]:
        ends, lines = [before], list[LayerBound]()
        for part in self.segments:
            more, end = table_rows_of(part.steps, _joined_reach(part, [ends[i] for i in part.inputs]), added)
            lines += more
            ends.append(end)
        return lines

    def amplify(self, size: float) -> float:
        sizes = [size]
        for part in self.segments:
            sizes.append(amplification(part.steps, sum(sizes[index] for index in part.inputs)))
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
    curvature = part.combined([end.curvature for end in ends])
    centers = [end.center for end in ends if end.center is not None]
    errors = [end.error for end in ends if end.error is not None]
    if not centers or not errors:
        return Reach(length, unit, curvature)
    error = part.join(errors)
    if part.axis is None:
        error = error + slack(len(ends)) * part.join([center.abs() for center in centers])
    return Reach(length, unit, curvature, part.join(centers), error)


def _shares(part: Segment, lengths: Sequence[Tensor]) -> list[Tensor]:
    """(batch,) 1/tᵢ for each input of a join; 1 where M is unchanged."""
    if part.axis is not None or len(lengths) == 1:
        return [torch.ones_like(length) for length in lengths]
    # Any t > 0 is valid, as long as 1/t is finite.
    each = torch.stack(list(lengths)).clamp(1 / _LARGEST, _LARGEST)
    each = torch.maximum(each, each.amax(0) / _APART)
    return list((each.sum(0) / each) * (1 + slack(len(lengths))))


def _parted_rows(part: Segment, rows: Rows, shares: Sequence[Tensor]) -> list[Rows]:
    """Rows for each input of a join."""
    if len(part.inputs) == 1:
        return [rows]
    result = []
    for low, high, share in zip(part.parted(rows.low), part.parted(rows.high), shares, strict=True):
        curvature = None if rows.curvature is None else times(rows.curvature, share.unsqueeze(1))
        result.append(Rows(low, high, rows.length, curvature).capped())
    return result


def _added(parts: Sequence[Rows]) -> Rows:
    """The sum of gradients from several uses."""
    if len(parts) == 1:
        return parts[0]
    rounding = slack(len(parts)) * _total([part.largest for part in parts])
    low = _total([part.low for part in parts]) - rounding
    high = _total([part.high for part in parts]) + rounding
    curvatures = [part.curvature for part in parts if part.curvature is not None]
    curvature = _total(curvatures) if curvatures else None
    return Rows(low, high, _total([part.length for part in parts]), curvature).capped()


def _summed(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """(batch,) lengths and errors of a sum of rows."""
    total, error = _total([part[0] for part in parts]), _total([part[1] for part in parts])
    return total, error if len(parts) == 1 else error + slack(len(parts)) * total


@dataclass(frozen=True, eq=False)
class Node:
    """A step behind another node, or a join of several nodes.

    Attributes:
        inputs: numbers of the nodes that it uses; 0 is the input of the graph.
        step: None for a join, and for the input itself.
        axis: of one sample, along which a join concatenates; None if it adds.
    """

    inputs: tuple[int, ...]
    shape: Shape
    path: str = ""
    step: Step | None = None
    axis: int | None = None


def graph_steps(nodes: list[Node], output: int) -> list[Step]:
    """The steps from node 0 to ``output``; adjacent affine steps are merged inside branches only."""
    return _series(nodes, 0, output)


def _series(nodes: list[Node], start: int, end: int) -> list[Step]:
    """The steps from ``start`` to ``end``, if all paths begin at ``start``."""
    steps: list[Step] = []
    inside = _between(nodes, start, end)
    for first, last in _neighbours(nodes, start, inside):
        node = nodes[last]
        if node.step is not None:
            assert node.inputs == (first,)
            steps.append(node.step)
        else:
            steps.append(_block(nodes, first, last))
    return steps


def _between(nodes: list[Node], start: int, end: int) -> list[int]:
    """Nodes on a path from ``start`` to ``end``, in order, without ``start``."""
    wanted, waiting = {start}, [end]
    while waiting:
        index = waiting.pop()
        if index not in wanted:
            wanted.add(index)
            waiting += nodes[index].inputs
    return sorted(wanted - {start})


def _neighbours(nodes: list[Node], start: int, inside: list[int]) -> Iterator[tuple[int, int]]:
    """Pairs of consecutive cuts: no edge leads from before the second to behind it."""
    first_use = {index: min(nodes[index].inputs) for index in inside}
    last = start
    for place, index in enumerate(inside):
        if all(first_use[later] >= index for later in inside[place + 1 :]):
            yield last, index
            last = index


def _block(nodes: list[Node], start: int, end: int) -> Step:
    """The join ``end`` with everything between it and ``start``."""
    join = nodes[end]
    parts = [_between(nodes, start, index) for index in join.inputs]
    apart = max(Counter(index for part in parts for index in part).values(), default=1) == 1
    in_shape = nodes[start].shape
    if apart and join.axis is None:
        stage: Sum | Subgraph = Sum(
            [merge_affine_steps(_series(nodes, start, index)) for index in join.inputs]
        )
    elif apart:
        stage = Subgraph(_side_by_side(nodes, start, end))
    else:
        stage = Subgraph(_segments(nodes, start, end))
    return Step(join.path, type(stage).__name__, stage, in_shape, join.shape)


def _side_by_side(nodes: list[Node], start: int, end: int) -> list[Segment]:
    """Branches of a concatenation that share nothing: one segment each."""
    segments: list[Segment] = []
    places = []
    for index in nodes[end].inputs:
        if index != start:
            steps = merge_affine_steps(_series(nodes, start, index))
            segments.append(Segment(steps, (0,), None, nodes[start].shape))
        places.append(0 if index == start else len(segments))
    return [*segments, _joint(nodes, end, tuple(places))]


def _segments(nodes: list[Node], start: int, end: int) -> list[Segment]:
    """All nodes between: a step extends the segment of its input, if nothing else uses that input."""
    inside = _between(nodes, start, end)
    uses = Counter(used for index in inside for used in nodes[index].inputs)
    segments: list[Segment] = []
    places = {start: 0}
    for index in inside:
        node = nodes[index]
        if node.step is None:
            segments.append(_joint(nodes, index, tuple(places[used] for used in node.inputs)))
        else:
            (used,) = node.inputs
            if used != start and uses[used] == 1:
                last = segments[places[used] - 1]
                segments[places[used] - 1] = replace(last, steps=[*last.steps, node.step])
                places[index] = places[used]
                continue
            segments.append(Segment([node.step], (places[used],), None, nodes[used].shape))
        places[index] = len(segments)
    return [replace(part, steps=merge_affine_steps(part.steps)) for part in segments]


def _joint(nodes: list[Node], index: int, places: tuple[int, ...]) -> Segment:
    node = nodes[index]
    sizes = () if node.axis is None else tuple(nodes[used].shape[node.axis] for used in node.inputs)
    return Segment([], places, node.axis, node.shape, sizes)
