"""The interface of a primitive: what every pass over a network needs of one node.

A primitive is not aware of the graph around it: ``graph`` walks, primitives bound.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from torch import Tensor

from certus.kernel.passes import ForwardBound, GradientBound, Range, Totals

Shape = tuple[int, ...]
Memory = Any
"""What a primitive keeps of the forward pass for the backward pass."""


class Rounded(NamedTuple):
    """Computed values, (batch, *shape), and a bound on the error of each entry."""

    value: Tensor
    error: Tensor


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
