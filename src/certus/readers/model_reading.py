"""What a reader makes of a fitted model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from certus.errors import ArgumentError, UnsupportedError
from certus.losses import Criterion


class Unread(UnsupportedError):
    """A model, or a step of a pipeline, that no reader knows; smoothing needs none."""


@dataclass(frozen=True, eq=False)
class AffineMap:
    """x ↦ matrix·x + offset, with a matrix (outputs, inputs)."""

    matrix: np.ndarray[Any, Any]
    offset: np.ndarray[Any, Any]

    def after(self, first: AffineMap) -> AffineMap:
        """The map that takes the one given first."""
        return AffineMap(self.matrix @ first.matrix, self.matrix @ first.offset + self.offset)


@dataclass(frozen=True, eq=False)
class Reading:
    """A fitted model as a network in float64 of the rows that it takes.

    Attributes:
        network: (n, features) → (n, outputs); linear models are one ``nn.Linear``, whatever scaled the rows.
        criterion: the loss that the model is fitted by, without its regularisation.
        classes: the labels that codes 0, 1, … stand for; None for a regression.
        model: the fitted model itself; before: the linear steps before its last one, together.
    """

    network: nn.Sequential
    criterion: Criterion
    classes: np.ndarray[Any, Any] | None
    model: Any
    before: AffineMap

    def encoded(self, y: Any) -> Tensor:
        """(n,) codes of labels, or the numbers of a regression."""
        values = np.asarray(y)
        if self.classes is None:
            return torch.from_numpy(np.array(values, dtype=np.float64))
        place = np.searchsorted(self.classes, values).clip(0, len(self.classes) - 1)
        unknown = self.classes[place] != values
        if unknown.any():
            known = ", ".join(map(str, self.classes))
            raise ArgumentError(
                f"`data` must have labels that the model knows, {known}; got {values[unknown][0]}."
            )
        return torch.from_numpy(place.astype(np.int64))
