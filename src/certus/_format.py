"""Formatting of numbers (bounds round outwards) and of untrusted text.

Bounds with few digits, rounded outwards: what is printed is as true as the number behind it.

Text that came from a file or a name, made fit for a terminal.

A terminal obeys what it is sent: an escape sequence in the name of a class can rewrite what was printed, and
a mark of writing direction can turn a line around. Half of a surrogate pair cannot be sent at all.
"""

from __future__ import annotations

import math
import unicodedata
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


def at_most_digits(value: float, digits: int = 2) -> str:
    """An upper bound with so many significant digits, rounded up; for bounds that differ in size.

    >>> at_most_digits(0.1113), at_most_digits(0.0009801), at_most_digits(4239.1, 3), at_most_digits(1.34e-10)
    ('0.12', '0.00099', '4240', '1.4e-10')
    >>> at_most_digits(84105.8, 3), at_most_digits(1296420.5, 3)
    ('84200', '1.30e+6')
    """
    if value == 0 or not math.isfinite(value):
        return at_most(value, 0)
    shown = at_most(value, digits - 1 - Decimal(value).adjusted())
    return shown if 1e-4 <= abs(value) < 1e5 else f"{Decimal(shown):.{digits - 1}e}"


def _rounded(value: float, places: int, way: str) -> str:
    if not math.isfinite(value):
        return str(value)
    return f"{Decimal(value).quantize(Decimal(1).scaleb(-places), rounding=way):f}"


_HARMLESS = {"\n", "\t"}


def printable(text: str) -> str:
    """The text with control characters, marks of direction and lone surrogates written out.

    >>> printable("dog\\x1b[2J\\u202egod")
    'dog\\\\x1b[2J\\\\u202egod'
    """
    # One check for the common case: text of letters, digits and signs is returned as it is.
    return text if text.isprintable() else "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    kind = unicodedata.category(character)
    if character in _HARMLESS or kind not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    return character.encode("unicode_escape").decode("ascii")
