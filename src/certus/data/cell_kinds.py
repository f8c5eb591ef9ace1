"""What the cells of a column are: numbers, money, percentages, dates, or words.

A column is of a kind if *all* of its cells are, missing ones aside. Money may have a sign of its currency,
and thousands in groups of three; 1,5 is no number here, for nobody knows whose comma it is. Dates are
2024-03-01 (with a time or without), 1.3.2024, or 3/1/2024, where days above 12 must tell the order.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from certus.data.arrays import Array

Cells = Sequence[str | None]

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null"})
"""What counts as a missing value, in any case; "none" may well be a category."""

_GROUPED = re.compile(r"\d{1,3}(?:([,' ])\d{3})(?:\1\d{3})*(?:\.\d+)?")
_EUROPEAN = re.compile(r"\d{1,3}(?:\.\d{3})+,\d+")
_SIGNS = ("$", "€", "£", "¥", "USD", "EUR", "GBP", "CHF", "JPY")
_DAY = datetime.date(1970, 1, 1).toordinal()
_SLASHED, _DOTTED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})"), re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")


def is_number(cell: str) -> bool:
    """Whether Python and everybody else read a number: Python alone reads 1_000."""
    return plain_number(cell) is not None


def plain_number(cell: str) -> float | None:
    """A number, which may be infinite; None for what is none."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def money(cell: str) -> float | None:
    """
    >>> [money(cell) for cell in ("$1,234.50", "(12)", "CHF 1'200", "1.234,50 €", "7%", "1,5")]
    [1234.5, -12.0, 1200.0, 1234.5, 7.0, None]
    """
    text, negative = cell, False
    if text.startswith("(") and text.endswith(")"):
        text, negative = text[1:-1], True
    for sign in ("%", *_SIGNS):
        if text.startswith(sign) or text.endswith(sign):
            text = text.removeprefix(sign).removesuffix(sign).strip()
            break
    if text[:1] in "+-" and text:
        negative, text = negative ^ (text[0] == "-"), text[1:].strip()
        for sign in _SIGNS:
            text = text.removeprefix(sign).strip()
    if _GROUPED.fullmatch(text):
        text = re.sub(r"[,' ]", "", text)
    elif _EUROPEAN.fullmatch(text):
        text = text.replace(".", "").replace(",", ".")
    value = plain_number(text) if text[:1].isdigit() or text[:1] == "." else None
    return None if value is None else -value if negative else value


def iso_date(cell: str) -> float | None:
    """Days since 1970, with fractions for the time of day.

    >>> iso_date("1970-01-02"), iso_date("1970-01-02 12:00"), iso_date("2024")
    (1.0, 1.5, None)
    """
    if len(cell) < 10 or cell[4] != "-":
        return None
    try:
        moment = datetime.datetime.fromisoformat(cell)
    except ValueError:
        return None
    seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
    return moment.toordinal() - _DAY + seconds / 86400


def day_first(cell: str) -> float | None:
    return _numbered_date(cell, (0, 1))


def month_first(cell: str) -> float | None:
    return _numbered_date(cell, (1, 0))


def _numbered_date(cell: str, places: tuple[int, int]) -> float | None:
    dotted = _DOTTED.fullmatch(cell)
    found = dotted or _SLASHED.fullmatch(cell)
    if found is None or (dotted and places == (1, 0)):  # with dots the day comes first
        return None
    day, month = int(found[1 + places[0]]), int(found[1 + places[1]])
    try:
        return float(datetime.date(int(found[3]), month, day).toordinal() - _DAY)
    except ValueError:
        return None


READERS: dict[str, Callable[[str], float | None]] = {
    "number": plain_number,
    "money": money,
    "percent": money,
    "date": iso_date,
    "date, day first": day_first,
    "date, month first": month_first,
}
"""Kind → a cell's number; None for a cell of another kind."""


def kind_of(cells: Cells) -> str | None:
    """The kind that all cells are of; None for words."""
    present = [cell for cell in cells if cell is not None]
    for kind in READERS:
        read = READERS[kind]
        if present and all(read(cell) is not None for cell in present):
            if kind == "money" and all("%" in cell for cell in present):
                return "percent"
            return kind
    return None


def two_ways(cells: Cells) -> bool:
    """Whether dates with slashes could be read with the day or with the month first."""
    present = [cell for cell in cells if cell is not None]
    if not present or _SLASHED.fullmatch(present[0]) is None:
        return False
    ways = [[read(cell) for cell in present] for read in (day_first, month_first)]
    return all(None not in way for way in ways) and ways[0] != ways[1]


def numbers_in(cells: Cells, kind: str) -> Array:
    """(n,) float64, NaN for what is missing or of another kind."""
    read = READERS[kind]
    found = (None if cell is None else read(cell) for cell in cells)
    return np.array([math.nan if value is None else value for value in found], dtype=np.float64)
