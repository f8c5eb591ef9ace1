"""The interface of a primitive: what every pass over a network needs of one node.

A primitive knows nothing of the graph around it; ``graph`` walks, primitives bound.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from torch import Tensor

from certus.kernel.passes import ForwardBound, GradientBound, Place, Totals

Shape = tuple[int, ...]

Memory = Any
"""What a primitive keeps of a forward pass for the backward pass."""


class Rounded(NamedTuple):
    """Computed outputs (batch, …), a bound on the error of each entry, and what the way back needs."""

    value: Tensor
    error: Tensor
    memory: Memory


class Primitive(ABC):
    """A function of one node, (batch, *in_shape) → (batch, *out_shape)."""

    in_shape: Shape
    out_shape: Shape

    @abstractmethod
    def apply(self, points: Tensor) -> Tensor:
        """The function at (batch, *in_shape) points, in their precision."""

    @abstractmethod
    def forward(
        self, before: ForwardBound, radius: Tensor | None, values: Primitive
    ) -> tuple[ForwardBound, Memory]:
        """Bound the derivatives of its output from those of its input.

        Args:
            radius: (batch,) of the balls; None for all of space.
            values: the primitive that acts on values at the samples. It differs from this one, which acts on
                moves, where the whitening of a cost was merged into the first layer.
        """

    @abstractmethod
    def backward(self, rows: GradientBound, memory: Memory, totals: Totals, place: Place) -> GradientBound:
        """Bound gradients in its input from those in its output; add to the totals."""

    @abstractmethod
    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        """Outputs in float64 and their error, entry by entry, from those of its inputs."""

    @abstractmethod
    def backward_error(self, size: Tensor, error: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """(batch,) norm and error of a computed gradient in its input, from those in its output."""

    @abstractmethod
    def amplify(self, size: float) -> float:
        """The largest size, not below ``size``, of a number on its way from the input to the output."""

    @property
    def smooth(self) -> bool:
        """Whether the derivative is continuous."""
        return True
