"""NumPy arrays as files of data hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
