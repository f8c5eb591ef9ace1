"""What a kind of layer must answer, so that every pass over a network can go through it.

A new kind of layer is a new ``Stage`` in a file of its own; nothing else changes. The kinds that exist:
affine (``affine``, ``operators``), activations (``activation``), maxima over windows (``windows``), sums of
branches (``sums``), and whatever else a graph may be (``web``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from certus.smoothness.passes import Place, Reach, Rows, Tally
from certus.smoothness.results import LayerBound

if TYPE_CHECKING:
    from certus.smoothness.steps import Step

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
