"""Some samples: inputs and targets."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from certus.row_encoding import RowEncoding


@dataclass(frozen=True, eq=False)
class Split:
    """Inputs (n, …) and targets (n,); where some count more than others, (n,) weights with a mean of 1.

    Attributes:
        encoding: how inputs encode the rows of a table; None for others.
    """

    inputs: Tensor
    targets: Tensor
    weights: Tensor | None = None
    encoding: RowEncoding | None = None

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: slice | Tensor) -> Split:
        weights = None if self.weights is None else self.weights[index]
        return Split(self.inputs[index], self.targets[index], weights, self.encoding)
