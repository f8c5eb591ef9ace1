"""Formatting of bounds, rounded outwards so that the printed number still holds, and of untrusted text."""

from __future__ import annotations

import math
import unicodedata
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


def at_most(value: float, places: int = 4) -> str:
    """Format an upper bound with this many decimals, rounded up.

    >>> at_most(0.06541), at_most(2.9964050, 3), at_most(0.25)
    ('0.0655', '2.997', '0.2500')
    """
    return _rounded(value, places, ROUND_CEILING)


def at_least(value: float, places: int = 4) -> str:
    """Format a lower bound with this many decimals, rounded down.

    >>> at_least(0.08676), at_least(float("-inf"))
    ('0.0867', '-inf')
    """
    return _rounded(value, places, ROUND_FLOOR)


def _rounded(value: float, places: int, way: str) -> str:
    if not math.isfinite(value):
        return str(value)
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-places), rounding=way):f}"


_HARMLESS = {"\n", "\t"}


def escape_controls(text: str) -> str:
    """Return the text with control characters, marks of direction and lone surrogates written out: a terminal
    obeys escape sequences in the name of a class, and cannot show half of a surrogate pair.

    >>> escape_controls("dog\\x1b[2J\\u202egod")
    'dog\\\\x1b[2J\\\\u202egod'
    """
    # One check for the common case: text of letters, digits and signs is returned as it is.
    return text if text.isprintable() else "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    kind = unicodedata.category(character)
    if character in _HARMLESS or kind not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    return character.encode("unicode_escape").decode("ascii")


def plain(value: float, digits: int = 3) -> str:
    """Write a number with some digits, without an exponent where it is large.

    >>> plain(2400.4), plain(0.12345), plain(34013.7, 4), plain(-1234.5, 4)
    ('2,400', '0.123', '34,014', '-1,234')
    """
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.{digits}g}"
