"""A network as a flat graph of primitives, and the passes over it.

Node 0 is the input; every other node applies a primitive to one earlier node, or joins several by adding or
concatenating them. The last node is the output, and every node lies on a path to it.

A node is a *cut* if every path from the input to the output leads through it: no edge jumps over it. Between
two neighbouring cuts there is one primitive, or a *block*. Every pass goes from node to node:

    forwards     a sum moves by at most the sum of what its terms do, a concatenation by the root of the sum
                 of squares, α = √Σαᵢ² and β = √Σβᵢ²; single units are put side by side
    backwards    the gradient in a node is the sum of those that come back from all that use it, so that the
                 sum rule, in which each activation counts once, holds as it does for a chain
    max rule     with ∇²m ⪯ M·I behind a block, of which L is the Lipschitz constant, and κ the curvature
                 of a linear function of it,    M·L² + κ    before it

κ is followed with one M for each node, all of them together: ∇²m ⪯ diag(M₁I, M₂I, …) as a function of the
nodes not yet passed. A node that is used twice gets the sum of what comes back. A concatenation leaves M as
it is. A sum x₁ + … + x_k gives M/tᵢ to its terms, for any t > 0 with Σtᵢ = 1, since ‖Σxᵢ‖² ≤ Σ‖xᵢ‖²/tᵢ; t
follows the Lipschitz constants of the terms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from certus.kernel.operators import Affine
from certus.kernel.passes import (
    ForwardBound,
    GradientBound,
    Memory,
    Place,
    Precision,
    Primitive,
    Range,
    Refused,
    Rounded,
    Shape,
    Totals,
    norm,
    per_sample,
    times,
)
from certus.kernel.rounding import SOME, slack, up

DOUBLE = Precision(slack)
_LARGEST, _APART = 1e100, 1e3  # of Lipschitz constants that the shares of a sum follow, and their ratio
_Value = TypeVar("_Value")


@dataclass(frozen=True, eq=False)
class Node:
    """A primitive behind one node, or a join of several.

    Attributes:
        inputs: numbers of earlier nodes; none for the input of the network.
        shape: of one sample behind it.
        primitive: None for a join, and for the input.
        axis: of one sample, along which a join concatenates; None if it adds.
        moves: the primitive that acts on moves in the units of a cost, where its whitening was merged into
            the first layer; None for the primitive itself.
        name, kind, line: of the layer in the model that was read, for messages.
        assumptions: what its constants rest on without proof, by name.
    """

    inputs: tuple[int, ...]
    shape: Shape
    primitive: Primitive | None = None
    axis: int | None = None
    moves: Affine | None = None
    name: str = ""
    kind: str = ""
    line: str = ""
    assumptions: tuple[str, ...] = ()

    @property
    def action(self) -> Primitive:
        """The primitive that acts on moves."""
        assert self.primitive is not None
        return self.primitive if self.moves is None else self.moves

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Tensors (batch, *shape), added or concatenated."""
        if len(parts) == 1:
            return parts[0]
        return torch.stack(list(parts)).sum(0) if self.axis is None else torch.cat(list(parts), self.axis + 1)

    def combined(self, lengths: Sequence[Tensor]) -> Tensor:
        """Lengths of the inputs as that of the join: their sum, or the root of their squares."""
        stacked = torch.stack(list(lengths))
        return stacked.sum(0) if self.axis is None else torch.linalg.vector_norm(stacked, dim=0)


class Trace(NamedTuple):
    """Record of a forward pass: for each node, Lipschitz constants and what its primitive keeps."""

    lipschitz: list[Tensor]
    memory: list[Memory]


@dataclass(frozen=True, eq=False)
class Graph:
    """A network; the input has the shape of node 0.

    >>> from certus.kernel.operators import Dense
    >>> double = Dense(torch.tensor([[2.0]], dtype=torch.float64), None)
    >>> graph = Graph((Node((), (1,)), Node((0,), (1,), double), Node((0, 1), (1,))))
    >>> graph.apply(torch.tensor([[5.0]], dtype=torch.float64))
    tensor([[15.]], dtype=torch.float64)
    """

    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        used = {index for node in self.nodes for index in node.inputs} | {len(self.nodes) - 1}
        if used != set(range(len(self.nodes))):
            raise Refused("a node of the graph leads nowhere")
        for number, node in enumerate(self.nodes):
            if any(index >= number for index in node.inputs) or (number > 0) != bool(node.inputs):
                raise Refused(f"node {number} uses a node that does not come before it")
            if not self._fits(node):
                raise Refused(f"the shapes of node {number} do not fit")

    def _fits(self, node: Node) -> bool:
        """Whether the shape of a node follows from those of its inputs."""
        shapes = [self.nodes[index].shape for index in node.inputs]
        primitive, axis = node.primitive, node.axis
        if primitive is not None:
            return axis is None and shapes == [primitive.in_shape] and node.shape == primitive.out_shape
        if axis is None:  # a sum, or the input
            return all(shape == node.shape for shape in shapes)
        beside = {(len(shape), shape[:axis], shape[axis + 1 :]) for shape in (*shapes, node.shape)}
        fits = len(shapes) > 0 and len(beside) == 1 and 0 <= axis < len(node.shape)
        return fits and sum(shape[axis] for shape in shapes) == node.shape[axis]

    @property
    def shape(self) -> Shape:
        """Shape of one input."""
        return self.nodes[0].shape

    @property
    def out_shape(self) -> Shape:
        return self.nodes[-1].shape

    @cached_property
    def cuts(self) -> list[int]:
        """The cuts of the graph, from the input to the output."""
        least = [min(node.inputs) for node in self.nodes[1:]]  # the earliest input of nodes 1, 2, …
        return [at for at in range(len(self.nodes)) if min(least[at:], default=at) >= at]

    def _walk(
        self,
        start: _Value,
        act: Callable[[Node, Primitive, _Value], _Value],
        join: Callable[[Node, list[_Value]], _Value],
    ) -> list[_Value]:
        """Something of every node, from the input to the output."""
        values = [start]
        for node in self.nodes[1:]:
            parts = [values[index] for index in node.inputs]
            values.append(
                join(node, parts) if node.primitive is None else act(node, node.primitive, parts[0])
            )
        return values

    def apply(self, points: Tensor) -> Tensor:
        """The network at (batch, *shape) points, in their precision."""
        return self._walk(points, lambda _, primitive, value: primitive.apply(value), Node.joined)[-1]

    def amplification(self) -> float:
        """The most by which a number may grow between any two nodes."""
        return max(
            self._walk(1.0, lambda node, _, size: node.action.amplify(size), lambda _, sizes: sum(sizes))
        )

    def rounded(self, points: Tensor) -> tuple[Tensor, Tensor, list[Rounded]]:
        """Outputs in float64 at exact points, (n, …), the error of each entry, and both of every node."""
        start = Rounded(points, torch.zeros_like(points)), points.new_zeros(len(points))
        each = [at for at, _ in self._walk(start, _computed, _computed_join)]
        return *each[-1], each

    def forward(
        self, start: ForwardBound, at: list[Rounded] | None = None, radius: Tensor | None = None
    ) -> tuple[ForwardBound, Trace]:
        """Bound the derivatives of the output from those of the input, ``start``.

        Args:
            at: every node at the samples, and radius: (batch,) of balls around them; None for all of space.
        """
        bounds, memory = [start], list[Memory]([None])
        for node in self.nodes[1:]:
            parts = [bounds[index] for index in node.inputs]
            bound, kept, within = parts[0], None, None
            if node.primitive is None:
                bound = _joined_bound(node, parts)
            else:
                if at is not None and radius is not None:
                    within = _reached(bound, at[node.inputs[0]], radius)
                bound, kept = node.action.forward(bound, within)
            bounds.append(bound)
            memory.append(kept)
        return bounds[-1], Trace([bound.lipschitz for bound in bounds], memory)

    def backward(
        self, trace: Trace, rows: GradientBound, totals: Totals, *, whole: bool = True
    ) -> GradientBound:
        """Bound gradients in the input from those in the output, adding to the totals.

        Args:
            whole: go through the very first primitive as well; without it only M does.
        """
        for first, last in reversed([*pairwise(self.cuts)]):
            if self.nodes[last].primitive is None:
                rows = self._backward_block(first, last, trace, rows, totals)
            else:
                place = Place(last, last=not whole and first == 0)
                rows = self.nodes[last].action.backward(rows, trace.memory[last], totals, place)
        return rows

    def _backward_block(
        self, first: int, last: int, trace: Trace, rows: GradientBound, totals: Totals
    ) -> GradientBound:
        """Node by node from one cut to the one before: M·L² + κ, κ that of a linear function of the block."""
        blank = None if rows.curvature is None else torch.zeros_like(rows.curvature)
        waiting = {last: [replace(rows, curvature=blank)]}
        gains: dict[int, Tensor] = {}
        for number in range(last, first, -1):
            node, bound = self.nodes[number], _added(waiting.pop(number))
            if node.primitive is None:
                parts = self._parted(node, bound, [trace.lipschitz[index] for index in node.inputs])
            else:
                own = totals.inside()
                parts = [node.action.backward(bound, trace.memory[number], own, Place(number, branch=True))]
                gains[number] = own.gain
            for index, part in zip(node.inputs, parts, strict=True):
                waiting.setdefault(index, []).append(part)
        lengths = {first: torch.ones_like(totals.gain)}
        for number in range(first + 1, last + 1):
            length = self.nodes[number].combined([lengths[index] for index in self.nodes[number].inputs])
            lengths[number] = length * gains[number] if number in gains else length
        bound, gain = _added(waiting[first]), lengths[last]
        totals.gain = totals.gain * gain
        curvature = bound.curvature
        if rows.curvature is not None and curvature is not None:
            curvature = curvature + times(rows.curvature, (gain**2).unsqueeze(1))
        return replace(
            bound, curvature=curvature, norm=torch.minimum(bound.norm, rows.norm * gain.unsqueeze(1))
        )

    def _parted(self, node: Node, rows: GradientBound, lengths: list[Tensor]) -> list[GradientBound]:
        """Return the gradients at each input of a join."""
        if node.axis is None:
            lows, highs = [rows.low] * len(lengths), [rows.high] * len(lengths)
            # Any t > 0 will do; none may be so small that 1/t is not finite.
            each = torch.stack(lengths).clamp(1 / _LARGEST, _LARGEST)
            each = torch.maximum(each, each.amax(0) / _APART)
            shares = (each.sum(0) / each) * (1 + slack(len(lengths)))
        else:
            sizes = [self.nodes[index].shape[node.axis] for index in node.inputs]
            lows, highs = (list(part.split(sizes, node.axis + 2)) for part in (rows.low, rows.high))
            shares = torch.ones_like(torch.stack(lengths))
        parts = []
        for low, high, share in zip(lows, highs, shares, strict=True):
            curvature = None if rows.curvature is None else times(rows.curvature, share.unsqueeze(1))
            parts.append(GradientBound(low, high, rows.norm, curvature).tightened())
        return parts

    def backward_error(self, at: list[Rounded], size: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        """(batch,) norm and error of a computed gradient in the input, from those in the output."""
        waiting = {len(self.nodes) - 1: [(size, error)]}
        for number in range(len(self.nodes) - 1, 0, -1):
            node, pulled = self.nodes[number], _summed(waiting.pop(number))
            if node.primitive is not None:
                pulled = node.primitive.backward_error(*pulled, at[node.inputs[0]])
            for index in node.inputs:  # the part of a row is no longer than the row
                waiting.setdefault(index, []).append(pulled)
        return _summed(waiting[0])


_Computed = tuple[Rounded, Tensor]
"""Values with the error of each entry, and (batch,) the Euclidean norm of the error."""


def _computed(node: Node, primitive: Primitive, before: _Computed) -> _Computed:
    """Follow errors entry by entry, and their norm; the smaller of both counts."""
    at, length = before
    length = up(primitive.length_error(norm(at.value), length, DOUBLE), SOME)
    return _smaller(primitive.rounded(*at), length)


def _smaller(at: Rounded, length: Tensor) -> _Computed:
    error = torch.minimum(at.error, per_sample(length, at.error))
    return Rounded(at.value, error), torch.minimum(length, up(norm(error), SOME))


def _computed_join(node: Node, parts: list[_Computed]) -> _Computed:
    joined = _joined_values(node, [at for at, _ in parts])
    length = node.combined([length for _, length in parts])
    if node.axis is None:
        length = length + slack(len(parts)) * node.combined([norm(at.value) for at, _ in parts])
    return _smaller(joined, up(length, SOME))


def _joined_values(node: Node, parts: list[Rounded]) -> Rounded:
    """A sum of k values rounds relative to their sizes."""
    value, error = (node.joined(each) for each in zip(*parts, strict=True))
    if node.axis is None and len(parts) > 1:
        error = error + slack(len(parts)) * node.joined([part.value.abs() for part in parts])
    return Rounded(value, error)


def _joined_bound(node: Node, parts: list[ForwardBound]) -> ForwardBound:
    unit = node.joined([part.unit for part in parts])
    lipschitz = torch.minimum(node.combined([part.lipschitz for part in parts]), norm(unit))
    return ForwardBound(lipschitz, unit, node.combined([part.curvature for part in parts]))


def _reached(bound: ForwardBound, at: Rounded, radius: Tensor) -> Range:
    """On a ball units stay within unit·radius of their value at the sample, which is off by its error."""
    room = up(bound.unit * per_sample(radius, bound.unit), SOME) + at.error
    return at.value - room, at.value + room


def _added(parts: Sequence[GradientBound]) -> GradientBound:
    """The sum of gradients that come back from several uses."""
    if len(parts) == 1:
        return parts[0]
    low, high, length, largest = (
        torch.stack([getattr(part, name) for part in parts]).sum(0)
        for name in ("low", "high", "norm", "largest")
    )
    rounding = slack(len(parts)) * largest
    curvatures = [part.curvature for part in parts if part.curvature is not None]
    curvature = torch.stack(curvatures).sum(0) if curvatures else None
    return GradientBound(low - rounding, high + rounding, length, curvature).tightened()


def _summed(parts: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """(batch,) norms and errors of a sum of rows."""
    if len(parts) == 1:
        return parts[0]
    size, error = (torch.stack(each).sum(0) for each in zip(*parts, strict=True))
    return size, error + slack(len(parts)) * size
