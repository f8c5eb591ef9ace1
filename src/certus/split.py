"""Some samples: inputs and targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from certus.errors import require
from certus.row_encoding import RowEncoding


def require_real(**named: Any) -> None:
    """Raise ``ArgumentError`` for complex tensors and arrays, whose imaginary part would be lost."""
    for name, values in named.items():
        imaginary = values.is_complex() if isinstance(values, Tensor) else np.iscomplexobj(values)
        kind = getattr(values, "dtype", type(values))
        require(not imaginary, name, "be real numbers; give both parts as two features", kind)


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

    def __post_init__(self) -> None:
        require_real(inputs=self.inputs, targets=self.targets, weights=self.weights)

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: slice | Tensor) -> Split:
        weights = None if self.weights is None else self.weights[index]
        return Split(self.inputs[index], self.targets[index], weights, self.encoding)
