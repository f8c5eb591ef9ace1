"""The interface of a layer, and the quantities that passes carry.

What the passes over a network carry from stage to stage.

Forwards a ``Reach`` (how far each unit moves), backwards ``Rows`` (gradients, from the outputs to the inputs)
and a ``Tally`` (what was found on the way). Axis 0 counts samples; it is 1 for all of space.

What a kind of layer must answer, so that every pass over a network can go through it.

A new kind of layer is a new ``Stage`` in a file of its own; nothing else changes. The kinds that exist:
affine (``affine``, ``operators``), activations (``activation``), maxima over windows (``windows``), sums of
branches (``sums``), and whatever else a graph may be (``web``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from certus.bounds.smoothness import LayerBound

if TYPE_CHECKING:
    from certus.bounds.composition import Step


@dataclass(frozen=True, eq=False)
class Reach:
    """How a layer moves: with A its Jacobian at any point of the set, and δ any move of length 1 in the
    cost's norm,

        length ≥ ‖Aδ‖₂,    unit_n ≥ |(Aδ)_n|,    bend ≥ ‖second derivative of the layer along δ‖₂

    (α and β of proposition:deep-net-smooth). The set is all of space, or a ball around each sample.

    Attributes:
        center, error: the values at the samples and their rounding; None for all of space.
        identity: whether A is the identity in L2, as it is at the inputs.
        matrix: A itself, where it is one written-out matrix.
    """

    length: Tensor
    unit: Tensor
    bend: Tensor
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
class Tally:
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
class Place:
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

Met = Any
"""What a stage remembers of the way forwards for the way back; nobody else looks into it."""


class Rounded(NamedTuple):
    """Outputs in float64, (batch, …), how far each may be from the truth, and what the way back needs."""

    value: Tensor
    error: Tensor
    met: Met


class Stage(ABC):
    """One layer, or several affine ones merged, as the bounds see it."""

    @abstractmethod
    def shape_behind(self, shape: Shape) -> Shape:
        """The shape of one output, for inputs of a shape."""

    @property
    def smooth(self) -> bool:
        """Whether its derivative is continuous."""
        return True

    @abstractmethod
    def apply(self, points: Tensor) -> Tensor:
        """The layer at (batch, …) points, in their precision."""

    @abstractmethod
    def reach(self, before: Reach, radius: Tensor | None, values: Stage) -> tuple[Reach, Met]:
        """Forwards: how far its outputs move.

        Args:
            radius: (batch,) of the balls; None for all of space.
            values: the stage that acts on the values at the samples: another one than this, which acts on
                moves in the units of the cost, where a whitening was merged into it.
        """

    @abstractmethod
    def pull(self, rows: Rows, met: Met, tally: Tally, place: Place) -> Rows:
        """Backwards: gradients in its inputs from those in its outputs; adds to the tally."""

    @abstractmethod
    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        """Its outputs in float64 and their error, entry by entry, from those of its inputs."""

    @abstractmethod
    def pull_rounding(self, size: Tensor, error: Tensor, met: Met) -> tuple[Tensor, Tensor]:
        """(batch,) lengths and errors of a row in its inputs from those in its outputs."""

    @abstractmethod
    def printed(self, length: float, bend: float) -> tuple[float, float]:
        """α and β of eq:lipschitzconsts behind it, with the constants that the paper prints."""

    @abstractmethod
    def table(
        self, path: str, kind: str, before: Reach, behind: float, added: dict[str, Tensor]
    ) -> list[LayerBound]:
        """Its lines in the table of layers.

        Args:
            before: the reach of its inputs, over all of space.
            behind: the Lipschitz constant of the network up to and including it.
            added: what each path adds to the curvature by the sum rule, (1,).
        """

    def swell(self, size: float) -> float:
        """How large numbers of this size, at most, become on any way that ends in it, none of which shrinks
        them."""
        return size * max(1.0, self.printed(1.0, 0.0)[0])

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
