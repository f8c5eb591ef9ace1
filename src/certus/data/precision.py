"""From the source's numbers to single precision, the type that models are trained in: no overflow passes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from certus.data.arrays import Array
from certus.errors import require


def single(source: str, values: Array) -> Tensor:
    """The same shape in float32; raises ``ArgumentError`` if a number is too large for it."""
    with np.errstate(over="ignore"):  # refused below, with a better message
        narrow = torch.from_numpy(values.astype(np.float32))
    fits = bool(torch.isfinite(narrow).all())
    require(fits, source, "hold numbers that single precision can hold", "one beyond 3.4e38")
    return narrow
