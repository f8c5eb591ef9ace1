"""Quantities that the passes over a network carry from node to node.

Forwards a ``ForwardBound``, how fast each unit can move; backwards a ``GradientBound``, the gradients of some
functions of a node, called rows; and ``Totals``, what a backward pass accumulates. Axis 0 counts samples; it
has one entry for bounds that hold everywhere.

A ``Primitive`` is what every pass needs of one node; it is not aware of the graph around it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

Range = tuple[Tensor, Tensor]
"""Lower and upper ends, entry by entry."""


class Refused(Exception):
    """A proposal that does not prove what it claims, or data that no rule covers."""


@dataclass(frozen=True, eq=False)
class ForwardBound:
    """Derivatives of a node in the input. With A its Jacobian at any point of the set, and δ any move of
    length 1 in the norm of the cost,

        lipschitz ≥ ‖Aδ‖₂,   unit_n ≥ |(Aδ)_n|,   curvature ≥ ‖second derivative of the node along δ‖₂

    (α and β of proposition:deep-net-smooth). The set is all of space, or a ball around each sample.

    Attributes:
        lipschitz, curvature: (batch,); unit: (batch, *shape).
        identity: whether A is the identity in L2, as it is at the input.
        matrix: A itself, where it is one explicit matrix.
    """

    lipschitz: Tensor
    unit: Tensor
    curvature: Tensor
    identity: bool = False
    matrix: Tensor | None = None


@dataclass(frozen=True, eq=False)
class GradientBound:
    """Gradients of (batch, rows) functions with respect to a node.

    Attributes:
        low, high: (batch, rows, *shape) their range, entry by entry.
        norm: (batch, rows) bound on their Euclidean norm.
        curvature: (batch, rows) M, with ∇² of the function ⪯ M·I as a function of the node; None where it is
            not followed.
    """

    low: Tensor
    high: Tensor
    norm: Tensor
    curvature: Tensor | None = None

    @property
    def largest(self) -> Tensor:
        """(batch, rows, *shape) largest absolute value of each entry."""
        return torch.maximum(-self.low, self.high)

    def tightened(self) -> GradientBound:
        """Return the bound with a norm of at most that of the largest entries."""
        return replace(self, norm=torch.minimum(self.norm, norm(self.largest, 2)))


@dataclass(eq=False)
class Totals:
    """Sums that a backward pass accumulates.

    Attributes:
        lipschitz: (batch, rows) Lipschitz constants, the smallest over all cuts of the network.
        gain: (batch,) Lipschitz constant of the nodes passed, as a product of norms.
        convex, concave: node → (batch, rows) curvature of m and of −m by the sum rule.
        sides: how many of both are wanted: none, convex alone, or both.
        input_curvature: (batch, rows) M at the input, exactly for the first layer; None if not computed.
    """

    lipschitz: Tensor
    gain: Tensor
    convex: dict[int, Tensor] = field(default_factory=dict)
    concave: dict[int, Tensor] = field(default_factory=dict)
    sides: int = 2
    input_curvature: Tensor | None = None

    def add(self, node: int, curvature: Callable[[int], Tensor]) -> None:
        """Count the curvature of a node, once more if the node is met again; of m for 0, of −m for 1."""
        for side, total in enumerate((self.convex, self.concave)[: self.sides]):
            total[node] = total[node] + curvature(side) if node in total else curvature(side)

    def sums(self) -> tuple[Tensor, Tensor]:
        """(batch, rows) curvature of m and of −m: all nodes together."""
        nothing = torch.zeros_like(self.lipschitz)
        return sum(self.convex.values(), nothing), sum(self.concave.values(), nothing)

    def inside(self) -> Totals:
        """The totals of a branch, with a gain of its own; its curvatures count here."""
        return Totals(self.lipschitz, torch.ones_like(self.gain), self.convex, self.concave, self.sides)


def times(left: Tensor | float, right: Tensor) -> Tensor:
    """left·right with 0·∞ = 0: a unit that does not move is not curved by a kink."""
    left = torch.as_tensor(left, dtype=right.dtype)
    product = left * right
    smaller, larger = (left, right) if left.numel() < right.numel() else (right, left)
    # NaN needs an infinite factor; finite sums exclude one cheaply.
    if bool(torch.isfinite(smaller).all()) and bool(torch.isfinite(larger.sum())):
        return product
    return torch.where((left == 0) | (right == 0), 0.0, product)


def norm(values: Tensor, axes: int = 1) -> Tensor:
    """Euclidean norm over all but the first axes."""
    length: Tensor = torch.linalg.vector_norm(values.flatten(axes), dim=-1)
    return length


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """(batch,) as (batch, 1, …, 1), with as many axes as ``like``."""
    return values.reshape(-1, *([1] * (like.dim() - 1)))


Shape = tuple[int, ...]
Memory = Any
"""What a primitive keeps of the forward pass for the backward pass."""


class Rounded(NamedTuple):
    """Computed values, (batch, *shape), and a bound on the error of each entry."""

    value: Tensor
    error: Tensor


class Precision(NamedTuple):
    """Arithmetic: the relative error of a sum of k products, in any order, and the smallest normal number, or
    0 where ``Smoothness.check_scales`` excludes that anything vanishes."""

    relative: Callable[[int], float]
    least: float = 0.0


class Place(NamedTuple):
    """Where a primitive stands in a backward pass: the number of its node; whether it is in a branch, which
    is no cut of the network; and whether only M is still needed, at the input of the network."""

    node: int
    branch: bool = False
    last: bool = False


class Primitive(ABC):
    """A function of one node, (batch, *in_shape) → (batch, *out_shape)."""

    in_shape: Shape
    out_shape: Shape

    @abstractmethod
    def apply(self, points: Tensor) -> Tensor:
        """The function at (batch, *in_shape) points, in their precision."""

    @abstractmethod
    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        """Outputs in float64 and their error, from those of its inputs."""

    def length_error(
        self, size: Tensor, error: Tensor, precision: Precision, spread: Tensor | None = None
    ) -> Tensor:
        """(batch,) L2 error of computed outputs from the L2 size and error of computed inputs; ∞ if unknown.
        ``spread`` is ‖|A||x| + |b|‖ for exact inputs x of an affine map, if it is known.

        Entry by entry an error grows with |A|; its length grows with ‖A‖ only.
        """
        return torch.full_like(error, torch.inf)

    @abstractmethod
    def forward(self, before: ForwardBound, within: Range | None) -> tuple[ForwardBound, Memory]:
        """Bound the derivatives of its output from those of its input, which lies ``within`` a range."""

    @abstractmethod
    def backward(self, rows: GradientBound, memory: Memory, totals: Totals, place: Place) -> GradientBound:
        """Bound gradients in its input from those in its output; add to the totals."""

    @abstractmethod
    def backward_error(self, size: Tensor, error: Tensor, at: Rounded) -> tuple[Tensor, Tensor]:
        """(batch,) norm and error of a computed gradient in its input, from those in its output; ``at`` are
        its inputs."""

    @abstractmethod
    def amplify(self, size: float) -> float:
        """The largest size, not below ``size``, of a number on its way from the input to the output."""
