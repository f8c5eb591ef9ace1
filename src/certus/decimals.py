"""Bounds with few digits, rounded outwards: what is printed is as true as the number behind it."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal


def at_most(value: float, places: int = 4) -> str:
    """An upper bound with so many decimals, rounded up.

    >>> at_most(0.06541), at_most(2.9964050, 3), at_most(0.25)
    ('0.0655', '2.997', '0.2500')
    """
    return _rounded(value, places, ROUND_CEILING)


def at_most_in(value: float, digits: int = 3) -> str:
    """An upper bound with so many digits that count, rounded up.

    >>> at_most_in(84105.8), at_most_in(2.9961, 4), at_most_in(389.0)
    ('8.42e+04', '2.997', '389')
    """
    if not math.isfinite(value):
        return str(value)
    short = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(value))
    return f"{float(short):.{digits}g}"


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
