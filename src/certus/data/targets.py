"""Targets of a source, of whatever kind: labels numbered in sorted order, or the numbers of a regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from certus.data.arrays import Array
from certus.data.precision import single
from certus.errors import require


@dataclass(frozen=True, eq=False)
class Targets:
    """(n,) int64 labels from 0 to classes − 1, or (n,) float64 numbers when ``classes`` is None."""

    values: Array
    classes: int | None = None
    class_names: tuple[str, ...] | None = None

    def tensor(self, source: str) -> Tensor:
        """Labels as int64, numbers as float32."""
        return single(source, self.values) if self.classes is None else torch.from_numpy(self.values).long()


def labelled(source: str, values: Array) -> Targets:
    """Labels from (n,) integers, booleans or strings: the distinct values, in sorted order, become 0, 1, …

    >>> found = labelled("example", np.array(["dog", "cat", "dog"]))
    >>> found.values, found.class_names
    (array([1, 0, 1]), ('cat', 'dog'))
    """
    distinct, labels = np.unique(values, return_inverse=True)
    require(len(distinct) >= 2, source, "have at least 2 different targets", len(distinct))
    return Targets(labels.astype(np.int64), len(distinct), tuple(str(value) for value in distinct))
