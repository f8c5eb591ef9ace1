"""Arrays of inputs and targets: precision, labels, images, and errors in files.

From the source's numbers to single precision, the type that models are trained in: no overflow passes.

NumPy arrays as files of data hold them.

Targets of a source, of whatever kind: labels numbered in sorted order, or the numbers of a regression.

Why a file cannot be read, in words for somebody who knows which file is meant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.errors import require


def single(source: str, values: Array) -> Tensor:
    """The same shape in float32; raises ``ArgumentError`` if a number is too large for it."""
    with np.errstate(over="ignore"):  # refused below, with a better message
        narrow = torch.from_numpy(values.astype(np.float32))
    fits = bool(torch.isfinite(narrow).all())
    require(fits, source, "hold numbers that single precision can hold", "one beyond 3.4e38")
    return narrow


Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


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


def why_not(problem: Exception) -> str:
    """What an error says, without its number and path.

    >>> why_not(PermissionError(13, "Permission denied", "data.csv"))
    'Permission denied'
    >>> why_not(FileNotFoundError(2, "No such file or directory", "data.csv"))
    'no file at that path'
    """
    if isinstance(problem, FileNotFoundError):
        return "no file at that path"
    if isinstance(problem, IsADirectoryError):
        return "a folder"
    return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
