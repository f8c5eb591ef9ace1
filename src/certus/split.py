"""Some samples: inputs and targets."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Split:
    """Inputs (n, …) and targets (n,)."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: slice | Tensor) -> Split:
        return Split(self.inputs[index], self.targets[index])
