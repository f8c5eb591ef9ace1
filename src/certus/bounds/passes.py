"""Passes over a network: the layer interface, and forward and backward composition.

A network is a list of ``Step``s, each a ``Stage`` with its place in the model. A forward pass carries a
``Reach`` (how far units move), a backward pass carries ``Rows`` (gradients of functions of a layer) and fills
``Totals``. Axis 0 counts samples; it has length 1 for bounds that hold everywhere.

A new kind of layer is a new ``Stage``. Those that exist: affine layers (``operators``),
activations, max pooling and a final log-softmax (``activations``), sums of branches and other subgraphs
(``graph``).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from certus.bounds.smoothness import LayerBound
from certus.rounding import up


@dataclass(frozen=True, eq=False)
class Reach:
    """Bounds on the response of a layer to a move δ of length 1 in the cost's norm: with A its Jacobian,

        length ≥ ‖Aδ‖₂,    unit_n ≥ |(Aδ)_n|,    curvature ≥ ‖second derivative of the layer along δ‖₂

    at every point of the set (α and β of proposition:deep-net-smooth), which is the whole space or a ball
    around each sample.

    Attributes:
        center, error: values at the samples and their rounding errors; None for the whole space.
        identity: whether A is the identity in L2, as it is at the inputs.
        matrix: A itself, if it is a single explicit matrix.
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
        low, high: (batch, rows, *shape) elementwise range.
        length: (batch, rows) bound on the Euclidean norm.
        curvature: (batch, rows) M with ∇² ⪯ M·I, or None if it is not tracked.
    """

    low: Tensor
    high: Tensor
    length: Tensor
    curvature: Tensor | None = None

    @property
    def largest(self) -> Tensor:
        return torch.maximum(self.low.abs(), self.high.abs())

    def capped(self) -> Rows:
        """The same rows, with no larger length than that of the box."""
        return replace(self, length=torch.minimum(self.length, size(self.largest, 2)))


@dataclass(eq=False)
class Totals:
    """Quantities accumulated by a backward pass.

    Attributes:
        lipschitz: (batch, rows) Lipschitz constants, the smallest over all cuts of the network.
        convex, concave: (batch, rows) curvature of m and of −m by the sum rule, for each path.
        gain: (batch,) Lipschitz constant of the stages passed, as a product of norms.
        ending: (batch, rows) exact M at the inputs, from the first layer; None if not computed.
    """

    lipschitz: Tensor
    gain: Tensor
    convex: dict[str, Tensor] = field(default_factory=dict)
    concave: dict[str, Tensor] = field(default_factory=dict)
    ending: Tensor | None = None

    def add(self, path: str, convex: Tensor, concave: Tensor) -> None:
        """Add the curvature of a stage; a path that occurs twice accumulates."""
        for curvatures, more in ((self.convex, convex), (self.concave, concave)):
            curvatures[path] = curvatures[path] + more if path in curvatures else more


@dataclass(frozen=True)
class Position:
    """Position of a stage in a backward pass.

    Attributes:
        path: in the model.
        inside: whether the stage lies in a branch, and so is not a cut of the network.
        ends: whether it is the first affine layer, where only M is needed.
    """

    path: str
    inside: bool = False
    ends: bool = False


def times(left: Tensor, right: Tensor) -> Tensor:
    """left·right with 0·∞ = 0: a direction that does not move is not curved by a kink."""
    product = left * right
    # Only an infinite factor can make NaN of finite or infinite ones; checking the smaller is cheap.
    smaller = left if left.numel() < right.numel() else right
    larger = right if smaller is left else left
    if bool(torch.isfinite(smaller).all()) and bool(torch.isfinite(larger.sum())):
        return product
    return torch.where((left == 0) | (right == 0), 0.0, product)


def size(values: Tensor, axes: int = 1) -> Tensor:
    """Euclidean norms over all axes but the first ``axes``."""
    norm: Tensor = torch.linalg.vector_norm(values.flatten(axes), dim=-1)
    return norm


Shape = tuple[int, ...]

Saved = Any
"""Data that a stage saves for its own backward pass."""


class Rounded(NamedTuple):
    """Float64 outputs (batch, …), bounds on their errors, and data for the backward pass."""

    value: Tensor
    error: Tensor
    saved: Saved


class Stage(ABC):
    """One layer, or several merged affine layers."""

    @abstractmethod
    def output_shape(self, shape: Shape) -> Shape:
        """The shape of one output for an input of the given shape."""

    @property
    def smooth(self) -> bool:
        """Whether the derivative is continuous."""
        return True

    @abstractmethod
    def apply(self, points: Tensor) -> Tensor:
        """Evaluate the layer at (batch, …) points, in their precision."""

    @abstractmethod
    def forward(self, before: Reach, radius: Tensor | None, values: Stage) -> tuple[Reach, Saved]:
        """Bound the movement of the outputs.

        Args:
            radius: (batch,) radii of the balls; None for the whole space.
            values: the stage that maps values at the samples. It differs from ``self``, which maps moves in
                the units of the cost, if a whitening was merged into ``self``.
        """

    @abstractmethod
    def backward(self, rows: Rows, saved: Saved, totals: Totals, position: Position) -> Rows:
        """Map gradients at the outputs to gradients at the inputs, and add to the totals."""

    @abstractmethod
    def forward_rounding(self, value: Tensor, error: Tensor) -> Rounded:
        """Propagate values in float64 and elementwise error bounds."""

    @abstractmethod
    def backward_rounding(self, size: Tensor, error: Tensor, saved: Saved) -> tuple[Tensor, Tensor]:
        """(batch,) length and error of a row at the inputs, from those at the outputs."""

    @abstractmethod
    def paper_constants(self, length: float, curvature: float) -> tuple[float, float]:
        """α and β of eq:lipschitzconsts behind this stage, with the constants printed in the paper."""

    @abstractmethod
    def table_rows(
        self, path: str, kind: str, before: Reach, behind: float, added: dict[str, Tensor]
    ) -> list[LayerBound]:
        """Rows of the layer table.

        Args:
            before: reach of the inputs over the whole space.
            behind: Lipschitz constant of the network up to and including this stage.
            added: (1,) contribution of each path to the curvature by the sum rule.
        """

    def amplify(self, size: float) -> float:
        """Bound the size of numbers behind this stage, over all paths and without counting contractions."""
        return size * max(1.0, self.paper_constants(1.0, 0.0)[0])

    @property
    def depth(self) -> int:
        """Largest number of activations and max-pooling layers on a path through the stage."""
        return 0

    @property
    def inner_steps(self) -> list[Step]:
        """Steps nested in this stage."""
        return []

    @property
    def inner_widths(self) -> list[int]:
        """Numbers of units of nested layers."""
        return []


Trace = list[Saved]
"""Data saved by each step for the backward pass."""


@dataclass(frozen=True, eq=False)
class Step:
    """A stage with its place in the model."""

    path: str
    kind: str
    stage: Stage
    in_shape: Shape
    out_shape: Shape
    whitened: Stage | None = None  # the same behind the whitening of a cost, for the first step
    assumptions: tuple[str, ...] = ()  # rules of the user's, by name
    line: str = ""  # of the user, where a function was called

    @property
    def action(self) -> Stage:
        """The stage as it acts on moves in the units of the cost."""
        return self.stage if self.whitened is None else self.whitened


def run_steps(steps: list[Step], points: Tensor) -> Tensor:
    """Evaluate the network at (batch, *shape) points, in their precision."""
    for step in steps:
        points = step.stage.apply(points)
    return points


def forward(steps: list[Step], reach: Reach, radius: Tensor | None) -> tuple[Reach, Trace]:
    """Run a forward pass; return the reach of the last step and the data saved by each step."""
    trace: Trace = []
    for step in steps:
        reach, saved = step.action.forward(reach, radius, step.stage)
        trace.append(saved)
    return reach, trace


def backward(
    steps: list[Step], trace: Trace, rows: Rows, totals: Totals, *, whole: bool = True, inside: bool = False
) -> Rows:
    """Run a backward pass from the outputs to the inputs, adding to the totals.

    Args:
        whole: whether to pass rows through the first operator too; otherwise only M.
        inside: whether the steps form a branch, which is not a cut of the network.
    """
    for index in range(len(steps) - 1, -1, -1):
        place = Position(steps[index].path, inside, ends=not (whole or index > 0 or inside))
        rows = steps[index].action.backward(rows, trace[index], totals, place)
    return rows


def forward_rounding(steps: list[Step], value: Tensor, error: Tensor) -> Rounded:
    """Propagate float64 values and their error bounds through the steps."""
    trace: Trace = []
    for step in steps:
        value, error, saved = step.stage.forward_rounding(value, error)
        trace.append(saved)
    return Rounded(value, error, trace)


def backward_rounding(steps: list[Step], trace: Trace, size: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """Propagate (batch,) lengths and errors of gradients back through the steps."""
    for step, saved in zip(reversed(steps), reversed(trace), strict=True):
        size, error = step.stage.backward_rounding(size, error, saved)
    return size, error


def paper_constants(steps: list[Step], length: float, curvature: float = 0.0) -> tuple[float, float]:
    """α and β of eq:lipschitzconsts: α ← L⁰‖θ‖α and β ← L⁰‖θ‖β + L¹(‖θ‖α)², β starting at 0."""
    for step in steps:
        length, curvature = step.action.paper_constants(length, curvature)
    return length, curvature


def amplification(steps: list[Step], size: float = 1.0) -> float:
    """∏ max(1, gain): the factor by which numbers may grow between any two places of the network."""
    for step in steps:
        size = step.action.amplify(size)
    return size


def depth_of(steps: list[Step]) -> int:
    """Largest number of activations and max-pooling layers on a path."""
    return sum(step.stage.depth for step in steps)


def widths(steps: list[Step]) -> list[int]:
    """Numbers of units of all layers, branches included."""
    own = [math.prod(step.out_shape) for step in steps]
    return own + [width for step in steps for width in step.stage.inner_widths]


def assumptions_of(steps: list[Step]) -> tuple[str, ...]:
    """Names of the user-defined rules in the steps, without repetition."""
    names: list[str] = []
    for step in steps:
        names += [*step.assumptions, *assumptions_of(step.stage.inner_steps)]
    return tuple(dict.fromkeys(names))


def table_rows_of(
    steps: list[Step], reach: Reach, added: dict[str, Tensor]
) -> tuple[list[LayerBound], Reach]:
    """The layer table of some steps, and the reach behind them.

    Args:
        reach: of the inputs, over the whole space.
        added: (1,) contribution of each path to the curvature by the sum rule.
    """
    lines: list[LayerBound] = []
    for step in steps:
        before = reach
        reach, _ = forward([step], reach, None)
        behind = up(float(reach.length[0]))
        lines += step.action.table_rows(step.path, step.kind, before, behind, added)
    return lines, reach
