"""Bounds with few digits, rounded outwards: what is printed is as true as the number behind it."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


def at_most(value: float, places: int = 4) -> str:
    """An upper bound with so many decimals, rounded up.

    >>> at_most(0.06541), at_most(2.9964050, 3), at_most(0.25)
    ('0.0655', '2.997', '0.2500')
    """
    return _rounded(value, places, ROUND_CEILING)


def at_least(value: float, places: int = 4) -> str:
    """A lower bound with so many decimals, rounded down.

    >>> at_least(0.08676), at_least(float("-inf"))
    ('0.0867', '-inf')
    """
    return _rounded(value, places, ROUND_FLOOR)


def _rounded(value: float, places: int, way: str) -> str:
    if not math.isfinite(value):
        return str(value)
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-places), rounding=way):f}"
