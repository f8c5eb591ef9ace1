"""A discretised covering of the state space: a box cut into equal cells, with one row of Q for each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from certus.errors import require, require_count
from certus.mdp.compiled import compiled
from certus.mdp.lambert import Real

Points = NDArray[np.float64]


def axis_cell(value: Real, lower: float, upper: float, bins: int) -> Real:
    """Which of ``bins`` equal intervals of [lower, upper] holds the value; the outer ones are endless."""
    place = np.floor((value - lower) / (upper - lower) * bins)
    return np.minimum(np.maximum(place, 0.0), bins - 1.0)


axis_cell_fast = compiled(axis_cell)


@dataclass(frozen=True)
class Covering:
    """∏ [lowerᵢ, upperᵢ], cut into binsᵢ intervals along each axis. States outside round to its edge.

    >>> grid = Covering((-1.0, 0.0), (1.0, 1.0), (4, 2))
    >>> grid.cells(np.array([[-0.9, 0.2], [0.1, 0.7], [99.0, 99.0]]))
    array([0, 5, 7])
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    bins: tuple[int, ...]

    def __post_init__(self) -> None:
        for number in self.bins:
            require_count("bins", number)
        same = len(self.lower) == len(self.upper) == len(self.bins) > 0
        sizes = f"{len(self.lower)}, {len(self.upper)} and {len(self.bins)} entries"
        require(same, "lower", "have one entry per axis, as `upper` and `bins`", sizes)
        for low, high in zip(self.lower, self.upper, strict=True):
            ordered = -math.inf < low < high < math.inf
            require(ordered, "lower", "be below `upper`, both finite", f"{low} and {high}")

    def __len__(self) -> int:
        """The number of cells."""
        return math.prod(self.bins)

    @property
    def widths(self) -> tuple[float, ...]:
        """The length of a cell along each axis."""
        ends = zip(self.lower, self.upper, self.bins, strict=True)
        return tuple((high - low) / number for low, high, number in ends)

    @cached_property
    def centres(self) -> Points:
        """(cells, axes), in the order of ``cells``."""
        axes = [
            low + width * (np.arange(number) + 0.5)
            for low, width, number in zip(self.lower, self.widths, self.bins, strict=True)
        ]
        return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(len(self), -1)

    def cells(self, points: Points) -> NDArray[np.int64]:
        """The cell of each point. Shapes (n, axes) → (n,)."""
        cell = np.zeros(len(points))
        for axis, (low, high, number) in enumerate(zip(self.lower, self.upper, self.bins, strict=True)):
            cell = cell * number + axis_cell(np.asarray(points[:, axis], np.float64), low, high, number)
        return cell.astype(np.int64)
