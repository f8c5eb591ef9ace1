"""What a data set is here: inputs and targets, split by a seed, with the domain they live in."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from certus.domains import Domain


@dataclass(frozen=True, eq=False)
class Split:
    """Some samples: inputs (n, …) and targets (n,)."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: slice | Tensor) -> Split:
        return Split(self.inputs[index], self.targets[index])


@dataclass(frozen=True, eq=False)
class DataSet:
    """A named data set: disjoint samples for training, for calibration, and for the final test.

    Attributes:
        domain: the set Z that its inputs live in.
        classes: number of labels, or None for regression.
    """

    name: str
    train: Split
    calibration: Split
    test: Split
    domain: Domain
    classes: int | None
