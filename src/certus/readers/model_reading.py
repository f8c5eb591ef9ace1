"""What a reader makes of a fitted model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from certus.errors import ArgumentError, UnsupportedError
from certus.losses import Criterion
from certus.split import require_real


class Unread(UnsupportedError):
    """A model, or a step of a pipeline, that no reader knows; smoothing needs none."""


@dataclass(frozen=True, eq=False)
class Reading:
    """A fitted model as a network in float64 of the rows that it takes.

    Attributes:
        network: (n, features) → (n, outputs); linear models are one ``nn.Linear``, whatever scaled the rows.
        criterion: the loss that the model is fitted by, without its regularisation.
        classes: the labels that codes 0, 1, … stand for; None for a regression.
    """

    network: nn.Sequential
    criterion: Criterion
    classes: np.ndarray[Any, Any] | None

    def samples(self, data: Any) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Rows, targets as the criterion takes them, and weights of a ``Split`` or of (X, y)."""
        weights = getattr(data, "weights", None)
        pair = (data.inputs, data.targets) if hasattr(data, "inputs") else data
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ArgumentError(f"`data` must be (X, y) for a model of scikit-learn; got {type(data)}.")
        given, told = (one.cpu().numpy() if isinstance(one, Tensor) else one for one in pair)
        require_real(inputs=given, targets=told)
        rows = torch.from_numpy(np.array(given, dtype=np.float64))
        if rows.dim() != 2:
            raise ArgumentError(f"`data` must hold rows, (n, features); got shape {tuple(rows.shape)}.")
        return rows, None if told is None else self.encoded(told), weights

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
