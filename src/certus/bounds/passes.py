"""The interface of a layer, and the quantities that passes carry.

What the passes over a network carry from stage to stage.

Forwards a ``Reach`` (how far each unit moves), backwards ``Rows`` (gradients, from the outputs to the inputs)
and a ``Totals`` (what was found on the way). Axis 0 counts samples; it is 1 for all of space.

What a kind of layer must answer, so that every pass over a network can go through it.

A new kind of layer is a new ``Stage`` in a file of its own; nothing else changes. The kinds that exist:
affine (``affine``, ``operators``), activations (``activation``), maxima over windows (``windows``), sums of
branches (``sums``), and whatever else a graph may be (``web``).

Affine layers, chains of layers, and the table of their contributions.

How an affine layer x ↦ Ax + b takes part in each pass; ``operators`` has its kinds.

A network as a list of steps, and the passes over it.

The table of a network, layer by layer.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from certus._tensor import per_sample
from certus.bounds.smoothness import LayerBound
from certus.rounding import slack, up


@dataclass(frozen=True, eq=False)
class Reach:
    """How a layer moves: with A its Jacobian at any point of the set, and δ any move of length 1 in the
    cost's norm,

        length ≥ ‖Aδ‖₂,    unit_n ≥ |(Aδ)_n|,    curvature ≥ ‖second derivative of the layer along δ‖₂

    (α and β of proposition:deep-net-smooth). The set is all of space, or a ball around each sample.

    Attributes:
        center, error: the values at the samples and their rounding; None for all of space.
        identity: whether A is the identity in L2, as it is at the inputs.
        matrix: A itself, where it is one written-out matrix.
    """

    length: Tensor
    unit: Tensor
    curvature: Tensor
    center: Tensor | None = None
    error: Tensor | None = None
    identity: bool = False
    matrix: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Rows:
    """Gradients of (batch, rows) functions with respect to a layer.

    Attributes:
        low, high: (batch, rows, *shape) their range.
        length: (batch, rows) bound on their Euclidean norm.
        curvature: (batch, rows) M, or None where it is not followed.
    """

    low: Tensor
    high: Tensor
    length: Tensor
    curvature: Tensor | None = None

    @property
    def largest(self) -> Tensor:
        return torch.maximum(self.low.abs(), self.high.abs())


@dataclass(eq=False)
class Totals:
    """What a pass backwards finds on its way.

    Attributes:
        lipschitz: (batch, rows) Lipschitz constants, the best over all cuts of the network.
        convex, concave: (batch, rows) curvature of m and of −m by the sum rule, for each path.
        gain: (batch,) Lipschitz constant of the stages passed, as a product of norms.
        ending: (batch, rows) M at the inputs, exactly for the first layer; ∞ if not computed.
    """

    lipschitz: Tensor
    gain: Tensor
    convex: dict[str, Tensor] = field(default_factory=dict)
    concave: dict[str, Tensor] = field(default_factory=dict)
    ending: Tensor | None = None

    def add(self, path: str, convex: Tensor, concave: Tensor) -> None:
        """Count the curvature of a stage, once more if its path was met before."""
        for found, more in ((self.convex, convex), (self.concave, concave)):
            found[path] = found[path] + more if path in found else more


@dataclass(frozen=True)
class Position:
    """Where a stage stands in a pass backwards.

    Attributes:
        path: in the model.
        inside: in a branch, which is no cut of the network.
        ends: at the inputs, where only M is still asked for.
    """

    path: str
    inside: bool = False
    ends: bool = False


def times(left: Tensor, right: Tensor) -> Tensor:
    """left·right with 0·∞ = 0: what does not move is not bent by a kink."""
    product = left * right
    # Only an infinite factor can make NaN of finite or infinite ones; checking the smaller is cheap.
    smaller = left if left.numel() < right.numel() else right
    larger = right if smaller is left else left
    if bool(torch.isfinite(smaller).all()) and bool(torch.isfinite(larger.sum())):
        return product
    return torch.where((left == 0) | (right == 0), 0.0, product)


def size(values: Tensor, axes: int = 1) -> Tensor:
    """Euclidean norm over all but the first axes."""
    norm: Tensor = torch.linalg.vector_norm(values.flatten(axes), dim=-1)
    return norm


Shape = tuple[int, ...]

Saved = Any
"""What a stage remembers of the way forwards for the way back; nobody else looks into it."""


class Rounded(NamedTuple):
    """Outputs in float64, (batch, …), how far each may be from the truth, and what the way back needs."""

    value: Tensor
    error: Tensor
    saved: Saved


class Stage(ABC):
    """One layer, or several affine ones merged, as the bounds see it."""

    @abstractmethod
    def output_shape(self, shape: Shape) -> Shape:
        """The shape of one output, for inputs of a shape."""

    @property
    def smooth(self) -> bool:
        """Whether its derivative is continuous."""
        return True

    @abstractmethod
    def apply(self, points: Tensor) -> Tensor:
        """The layer at (batch, …) points, in their precision."""

    @abstractmethod
    def forward(self, before: Reach, radius: Tensor | None, values: Stage) -> tuple[Reach, Saved]:
        """Forwards: how far its outputs move.

        Args:
            radius: (batch,) of the balls; None for all of space.
            values: the stage that acts on the values at the samples: another one than this, which acts on
                moves in the units of the cost, where a whitening was merged into it.
        """

    @abstractmethod
    def backward(self, rows: Rows, saved: Saved, totals: Totals, position: Position) -> Rows:
        """Backwards: gradients in its inputs from those in its outputs; adds to the totals."""

    @abstractmethod
    def forward_rounding(self, value: Tensor, error: Tensor) -> Rounded:
        """Its outputs in float64 and their error, entry by entry, from those of its inputs."""

    @abstractmethod
    def backward_rounding(self, size: Tensor, error: Tensor, saved: Saved) -> tuple[Tensor, Tensor]:
        """(batch,) lengths and errors of a row in its inputs from those in its outputs."""

    @abstractmethod
    def paper_constants(self, length: float, curvature: float) -> tuple[float, float]:
        """α and β of eq:lipschitzconsts behind it, with the constants that the paper prints."""

    @abstractmethod
    def table_rows(
        self, path: str, kind: str, before: Reach, behind: float, added: dict[str, Tensor]
    ) -> list[LayerBound]:
        """Its lines in the table of layers.

        Args:
            before: the reach of its inputs, over all of space.
            behind: the Lipschitz constant of the network up to and including it.
            added: what each path adds to the curvature by the sum rule, (1,).
        """

    def amplify(self, size: float) -> float:
        """How large numbers of this size, at most, become on any way that ends in it, none of which shrinks
        them."""
        return size * max(1.0, self.paper_constants(1.0, 0.0)[0])

    @property
    def depth(self) -> int:
        """How many activations, and maxima over windows, one meets in it at most."""
        return 0

    @property
    def inner_steps(self) -> list[Step]:
        """The steps inside of it."""
        return []

    @property
    def inner_widths(self) -> list[int]:
        """How many units the layers inside of it have."""
        return []


class Affine(Stage):
    """The passes, from what an operator knows of A.

    Attributes:
        norm: ‖A‖; absolute_norm: ‖|A|‖; paper_norm: ‖A‖ as the paper would have it.
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
    def paper_norm(self) -> float: ...

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

    def output_shape(self, shape: Shape) -> Shape:
        return self.out_shape

    def forward(self, before: Reach, radius: Tensor | None, values: Stage) -> tuple[Reach, Saved]:
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
        return Reach(length, unit, self.norm * before.curvature, center, error, matrix=matrix), None

    def backward(self, rows: Rows, saved: Saved, totals: Totals, position: Position) -> Rows:
        bent = (
            None
            if rows.curvature is None
            else times(rows.curvature, rows.length.new_tensor(self.norm * self.norm))
        )
        totals.gain = totals.gain * self.norm
        if position.ends:
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

    def forward_rounding(self, value: Tensor, error: Tensor) -> Rounded:
        error = self.absolute(error + self.rounding * value.abs())
        if self.bias_size is not None:
            error = error + self.rounding * self.bias_size
        return Rounded(self.apply(value), error, None)

    def backward_rounding(self, size: Tensor, error: Tensor, saved: Saved) -> tuple[Tensor, Tensor]:
        error = self.norm * error + self.rounding * self.absolute_norm * (size + error)
        return self.norm * size, error

    def paper_constants(self, length: float, curvature: float) -> tuple[float, float]:
        return self.paper_norm * length, self.paper_norm * curvature

    def table_rows(
        self, path: str, kind: str, before: Reach, behind: float, added: dict[str, Tensor]
    ) -> list[LayerBound]:
        return [LayerBound(path, kind, self.norm, 0.0, behind, 0.0)]


Trace = list[Saved]
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
        reach, saved = step.action.forward(reach, radius, step.stage)
        trace.append(saved)
    return reach, trace


def backward(
    steps: list[Step], trace: Trace, rows: Rows, totals: Totals, *, whole: bool = True, inside: bool = False
) -> Rows:
    """From the outputs to the inputs: pull rows back through the steps, adding to the totals.

    Args:
        whole: go through the very first operator as well; without it only M does.
        inside: the steps are a branch, which is no cut of the network.
    """
    for index in range(len(steps) - 1, -1, -1):
        place = Position(steps[index].path, inside, ends=not (whole or index > 0 or inside))
        rows = steps[index].action.backward(rows, trace[index], totals, place)
    return rows


def forward_rounding(steps: list[Step], value: Tensor, error: Tensor) -> Rounded:
    """Values in float64 behind the steps, their errors, and what each step met."""
    trace: Trace = []
    for step in steps:
        value, error, saved = step.stage.forward_rounding(value, error)
        trace.append(saved)
    return Rounded(value, error, trace)


def backward_rounding(steps: list[Step], trace: Trace, size: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """(batch,) lengths and errors of gradients before the steps."""
    for step, saved in zip(reversed(steps), reversed(trace), strict=True):
        size, error = step.stage.backward_rounding(size, error, saved)
    return size, error


def paper_constants(steps: list[Step], length: float, curvature: float = 0.0) -> tuple[float, float]:
    """α and β of eq:lipschitzconsts: α ← L⁰‖θ‖α and β ← L⁰‖θ‖β + L¹(‖θ‖α)², β starting at 0."""
    for step in steps:
        length, curvature = step.action.paper_constants(length, curvature)
    return length, curvature


def amplification(steps: list[Step], size: float = 1.0) -> float:
    """∏ max(1, gain): by how much numbers may grow between any two places of the network."""
    for step in steps:
        size = step.action.amplify(size)
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


def table_rows_of(
    steps: list[Step], reach: Reach, added: dict[str, Tensor]
) -> tuple[list[LayerBound], Reach]:
    """The lines of some steps, from the reach of their inputs over all of space; and the reach behind them.

    Args:
        added: what each path adds to the curvature by the sum rule, (1,).
    """
    lines: list[LayerBound] = []
    for step in steps:
        before = reach
        reach, _ = forward([step], reach, None)
        behind = up(float(reach.length[0]))
        lines += step.action.table_rows(step.path, step.kind, before, behind, added)
    return lines, reach
