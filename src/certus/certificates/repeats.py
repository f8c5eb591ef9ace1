"""Rows that repeat an earlier one exactly: what independent draws seldom do, unless few values are possible.

A confidence assumes independent draws. Rows that were copied, as by oversampling or by joining tables, are
not, and would count as evidence more than once. Nothing can tell copies from draws that happen to be equal:
they are counted, and named beside the assumption.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MANY = 0.01  # the share of all rows from which repeats are named


def row_keys(inputs: Tensor, targets: Tensor) -> set[int]:
    """A 64-bit key of each (input, target) of (n, …) and (n, …) rows, the same for equal ones.

    >>> inputs, targets = torch.tensor([[0.0], [-0.0], [0.0], [1.0]]), torch.tensor([3, 3, 4, 3])
    >>> len(row_keys(inputs, targets))
    3
    """
    columns = [part.detach().cpu().reshape(len(part), -1).double() for part in (inputs, targets)]
    rows = (torch.cat(columns, 1) + 0.0).numpy()  # −0 becomes 0
    return {hash(row.tobytes()) for row in rows}


def repeat_words(repeats: int, samples: int) -> str:
    """A sentence that names the repeats, if they are many; else nothing."""
    if repeats <= _MANY * samples:
        return ""
    return (
        f" Of the {samples:,} rows, {repeats:,} repeat an earlier row and its target exactly. If they are "
        "copies, not draws of their own, the confidence does not hold."
    )
