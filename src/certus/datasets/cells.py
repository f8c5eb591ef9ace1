"""Cells of a table as numbers, dates and booleans; what can be read in two ways is refused.

A column is read as a whole. Of the two conventions, 1,234.5 and 1.234,5, those count under which *every* cell
is a number: digits are grouped in threes, and no group begins with 0. If both count and differ, as for 1.234
beside 950, the column is ambiguous, and an option decides. Likewise for dates: 3/4/2024 is ambiguous unless
another cell of the column has a day above 12. Cells with a leading zero, such as 0801, are text.
"""

from __future__ import annotations

import calendar
import datetime
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from certus.datasets.base import Array

_EPOCH = datetime.date(1970, 1, 1).toordinal()
_SIGNS = "$€£¥₹", ("USD", "EUR", "GBP", "CHF", "JPY", "SEK", "NOK", "DKK", "PLN", "CZK")
_SPACES = " \u00a0\u2009\u202f"
_GROUPS = {".": f",'’{_SPACES}", ",": f".'’{_SPACES}"}
MARKS = {".": "1,234.5", ",": "1.234,5"}
"""Decimal mark → a number in its convention."""
_NUMBERS = {
    mark: re.compile(
        rf"(?:[0-9]+|[1-9][0-9]{{0,2}}([{others}])[0-9]{{3}}(?:\1[0-9]{{3}})*)?(?:{re.escape(mark)}[0-9]*)?"
        r"(?:[eE][+-]?[0-9]+)?"
    )
    for mark, others in _GROUPS.items()
}
_CODE = re.compile(r"[0-9]{2,}")
_INFINITE = frozenset({"inf", "infinity"})
_PAIRS = (("yes", "no"), ("y", "n"), ("true", "false"))


@dataclass(frozen=True)
class Style:
    """Notation of the cells of a column.

    Attributes:
        decimal: its decimal mark, empty if no cell shows one; thousands: the sign between groups of digits.
        before, after: a currency or % on that side; places: the most decimal places, None with exponents.
        day_first: of 3/4/2024; None if no cell depends on it. date_format: of all dates; ISO if empty.
    """

    decimal: str = ""
    thousands: str = ""
    before: str = ""
    after: str = ""
    places: int | None = None
    day_first: bool | None = None
    date_format: str = ""

    def number(self, value: float) -> str:
        """Write a number as the column does.

        >>> Style(decimal=",", thousands=".", before="€", places=2).number(-1234.5)
        '-€1.234,50'
        """
        if self.places is None or not math.isfinite(value):
            text = f"{abs(value):.6g}"
        else:
            text = f"{abs(value):,.{self.places}f}"
        text = text.replace(",", "\0").replace(".", self.decimal or ".").replace("\0", self.thousands)
        negative = value < 0 and any(sign in text for sign in "123456789")
        return f"{'-' if negative else ''}{self.before}{text}{self.after}"

    def date(self, days: float) -> str:
        """Write a date, given as days since 1970, as the column does.

        >>> Style(date_format="%d.%m.%Y").date(19783.0)
        '01.03.2024'
        """
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(days=days)
        if self.date_format:
            return moment.strftime(self.date_format)
        whole = moment.time() == datetime.time()
        return moment.date().isoformat() if whole else moment.isoformat(" ", "seconds")


@dataclass(frozen=True, eq=False)
class Reading:
    """A column of cells as numbers.

    Attributes:
        kind: "number", "money", "percent" or "date".
        values: cell → its number; of a date, days since 1970.
    """

    kind: str
    values: dict[str, float]
    style: Style = Style()

    def numbers(self, cells: Sequence[str | None]) -> Array:
        """(n,) float64, NaN where a cell is missing or of another type."""
        values = (math.nan if cell is None else self.values.get(cell, math.nan) for cell in cells)
        return np.fromiter(values, np.float64, len(cells))


@dataclass(frozen=True)
class Ambiguous:
    """A column that can be read in two ways: a cell, both readings, and the option that decides."""

    cell: str
    readings: tuple[str, str]
    option: str


@dataclass(frozen=True)
class _Number:
    negative: bool
    before: str
    body: str
    after: str


def _parts(cell: str) -> _Number | None:
    """Split a cell into sign, currency or %, and digits; None if it has no digits."""
    text = cell.replace("−", "-").strip(_SPACES)
    negative = text.startswith("(") and text.endswith(")")
    text = text[1:-1] if negative else text
    before = after = ""
    for _ in range(2):  # a sign may stand on either side of the currency
        text = text.strip(_SPACES)
        if text[:1] and text[0] in "+-" and not negative:
            negative, text = text[0] == "-", text[1:].strip(_SPACES)
        for sign in ("%", *_SIGNS[0], *_SIGNS[1]):
            if not before and not after and text.startswith(sign) and sign != "%":
                before, text = sign, text.removeprefix(sign)
            elif not before and not after and text.endswith(sign):
                after, text = sign, text.removesuffix(sign)
    text = text.strip(_SPACES)
    digits = text[-1:].isascii() and (text[:1].isdigit() or text[:1] in ".,") and any(map(str.isdigit, text))
    return _Number(negative, before, text, after) if digits or text.lower() in _INFINITE else None


def _value(number: _Number, mark: str) -> float | None:
    """The value under one decimal mark."""
    if number.body.lower() in _INFINITE:
        return -math.inf if number.negative else math.inf
    if not _NUMBERS[mark].fullmatch(number.body):
        return None
    value = float(re.sub(f"[{_GROUPS[mark]}]", "", number.body).replace(mark, "."))
    return -value if number.negative else value


def plain_number(cell: str) -> float | None:
    """Parse a number with a decimal point and no groups; None for other text, such as Python's 1_000."""
    number = _parts(cell)
    plain = number is not None and not number.before and not number.after and "," not in number.body
    return _value(number, ".") if plain and number is not None else None


def looks_numeric(cell: str) -> bool:
    """Whether a cell is a number under some convention."""
    number = _parts(cell)
    return number is not None and any(_value(number, mark) is not None for mark in MARKS)


def is_code(cell: str) -> bool:
    """Whether a cell is text although it has digits alone: with a leading zero, such as a postcode, or longer
    than numbers that float64 tells apart.

    >>> [is_code(cell) for cell in ("0801", "0", "0.5", "9007199254740993")]
    [True, False, False, True]
    """
    return _CODE.fullmatch(cell) is not None and (cell.startswith("0") or int(cell) > 2**53)


def read_numbers(
    cells: Sequence[str], decimal: str | None = None, thousands: str | None = None
) -> Reading | Ambiguous | None:
    """Read the different cells of a column as numbers; None if some are not.

    Args:
        decimal, thousands: the marks that decide where both readings are possible.

    >>> read_numbers(["€1.234,50", "€950,00"]).values
    {'€1.234,50': 1234.5, '€950,00': 950.0}
    >>> read_numbers(["1.234", "950"])
    Ambiguous(cell='1.234', readings=('1.234', '1234'), option='--decimal')
    """
    parts = [_parts(cell) for cell in cells]
    numbers = [part for part in parts if part is not None]
    if not cells or len(numbers) < len(cells) or any(is_code(number.body) for number in numbers):
        return None
    readings: dict[str, list[float]] = {}
    for mark in MARKS:
        values = [_value(number, mark) for number in numbers]
        if None not in values:
            readings[mark] = [value for value in values if value is not None]
    if not readings:
        return None
    units = {number.before or number.after for number in numbers}
    if len(units - {""}) > 1 or ("%" in units and len(units) > 1):
        first, second = sorted(units, reverse=True)[:2]
        shown = tuple(next(c for c, n in zip(cells, numbers, strict=True) if (n.before or n.after) == unit)
                      for unit in (first, second))  # fmt: skip
        return Ambiguous(shown[0], (f"{shown[0]!r} in {first}", f"{shown[1]!r} in {second or 'no unit'}"), "")
    mark = next(iter(readings))
    if len(readings) == 2 and readings["."] != readings[","]:
        if decimal in readings:
            mark = decimal or mark
        elif thousands in (",", "."):
            mark = "." if thousands == "," else ","
        else:
            at = next(i for i, pair in enumerate(zip(*readings.values(), strict=True)) if pair[0] != pair[1])
            both = f"{readings['.'][at]:.10g}", f"{readings[','][at]:.10g}"
            return Ambiguous(cells[at], both, "--decimal")
    kind = "percent" if units == {"%"} else "money" if units - {""} else "number"
    return Reading(kind, dict(zip(cells, readings[mark], strict=True)), _number_style(numbers, mark))


def _number_style(numbers: Sequence[_Number], mark: str) -> Style:
    bodies = [number.body for number in numbers]
    groups = {sign for body in bodies for sign in body if sign in _GROUPS[mark]}
    exponents = any("e" in body.lower() for body in bodies)
    places = None if exponents else max(len(body.partition(mark)[2]) for body in bodies)
    unit = next((number for number in numbers if number.before or number.after), numbers[0])
    shown = mark if any(mark in body for body in bodies) else ""
    thousands = groups.pop() if len(groups) == 1 else ""
    return Style(shown, thousands, unit.before, unit.after, places)


_CLOCK = r"(?:[ T](?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.[0-9]+)?)?)?"
_ORDERED = re.compile(rf"(?P<day>[0-9]{{1,2}})([./-])(?P<month>[0-9]{{1,2}})\2(?P<year>[0-9]{{4}}){_CLOCK}")
_FIXED = tuple(
    re.compile(shape.replace("D", "(?P<day>[0-9]{1,2})").replace("Y", "(?P<year>[0-9]{4})") + _CLOCK)
    for shape in (
        r"Y([./])(?P<month>[0-9]{1,2})\2D",
        r"D[ -](?P<name>[A-Za-z]{3,9})\.?[ ,-]? ?Y",
        r"(?P<name>[A-Za-z]{3,9})\.? D,? Y",
    )
)
_SHORT_YEAR = re.compile(r"[0-9]{1,2}([./-])[0-9]{1,2}\1[0-9]{2}")
_MONTHS = {name.lower(): n for n in range(1, 13) for name in (calendar.month_abbr[n], calendar.month_name[n])}


def _days(parts: Mapping[str, str | None], swapped: bool = False) -> float | None:
    """Days since 1970 of the named parts of a date; None if there is no such day."""
    numbers = {part: int(text or 0) for part, text in parts.items() if part != "name"}
    day, month = numbers["day"], numbers.get("month", _MONTHS.get((parts.get("name") or "").lower(), 0))
    day, month = (month, day) if swapped else (day, month)
    hour, minute, second = (numbers[part] for part in ("hour", "minute", "second"))
    try:
        moment = datetime.datetime(numbers["year"], month, day, hour, minute, second)
    except ValueError:
        return None
    return _since_1970(moment)


def _since_1970(moment: datetime.datetime) -> float:
    seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
    return moment.toordinal() - _EPOCH + seconds / 86400


def iso_date(cell: str) -> float | None:
    """Parse a date as days since 1970, with fractions for the time of day.

    >>> iso_date("1970-01-02"), iso_date("1970-01-02 12:00"), iso_date("2024")
    (1.0, 1.5, None)
    """
    if len(cell) < 10 or cell[4] != "-":
        return None
    try:
        moment = datetime.datetime.fromisoformat(cell)
    except ValueError:
        return None
    if moment.tzinfo is not None:
        moment = moment.astimezone(datetime.UTC)
    return _since_1970(moment)


def parse_date(cell: str, day_first: bool = True, date_format: str | None = None) -> float | None:
    """Parse a date with a year of four digits, or in the given format."""
    if date_format is not None:
        try:
            return _since_1970(datetime.datetime.strptime(cell, date_format))
        except ValueError:
            pass
    if (iso := iso_date(cell)) is not None:
        return iso
    if match := _ORDERED.fullmatch(cell):
        # With dots the day comes first.
        return _days(match.groupdict(), swapped=not day_first and match[2] != ".")
    match = next((match for shape in _FIXED if (match := shape.fullmatch(cell))), None)
    return None if match is None else _days(match.groupdict())


def read_dates(
    cells: Sequence[str], date_format: str | None = None, day_first: bool | None = None
) -> Reading | Ambiguous | None:
    """Read the different cells of a column as dates; None if some are not.

    Args:
        day_first: decides where both orders are possible.

    >>> read_dates(["31/12/2024", "2024-03-01"]).values
    {'31/12/2024': 20088.0, '2024-03-01': 19783.0}
    >>> read_dates(["3/4/2024"])
    Ambiguous(cell='3/4/2024', readings=('2024-04-03', '2024-03-04'), option='--date-format')
    """
    if not cells:
        return None
    short = [cell for cell in cells if _SHORT_YEAR.fullmatch(cell)]
    if len(short) == len(cells) and date_format is None:
        pair = short[0][-2:]
        return Ambiguous(short[0], (f"the year 19{pair}", f"the year 20{pair}"), "--date-format")
    values: dict[str, float] = {}
    order, depends = True, False
    signs = [_order_sign(cell) for cell in cells]  # each may have an order of its own
    families = [
        _ordered_dates(
            [cell for cell, own in zip(cells, signs, strict=True) if own == sign], date_format, day_first
        )
        for sign in dict.fromkeys(signs)
    ]
    if None in families:
        return None
    for family in families:
        if family is None or isinstance(family, Ambiguous):
            return family
        values |= family[0]
        if family[1] is not None:
            order, depends = family[1], True
    shape = date_format if date_format is not None else _date_style(cells, values, order)
    return Reading("date", values, Style(day_first=order if depends else None, date_format=shape))


def _order_sign(cell: str) -> str:
    """The sign of a date whose day and month may change places."""
    match = _ORDERED.fullmatch(cell)
    return match[2] if match is not None and match[2] != "." else ""


def _ordered_dates(
    cells: Sequence[str], date_format: str | None, day_first: bool | None
) -> tuple[dict[str, float], bool | None] | Ambiguous | None:
    """Dates of one notation, and whether their day comes first, None if no cell depends on it."""
    orders = {order: [parse_date(cell, order, date_format) for cell in cells] for order in (True, False)}
    whole = {order: values for order, values in orders.items() if None not in values}
    if not whole:
        either = [one if one is not None else other for one, other in zip(*orders.values(), strict=True)]
        if None in either:
            return None
        at = next(i for i, value in enumerate(orders[True]) if value is None)
        return Ambiguous(cells[at], ("the month first", "the day first in other cells"), "")
    order = next(iter(whole))
    depends = len(whole) == 1
    if len(whole) == 2 and whole[True] != whole[False]:
        if day_first is None:
            at = next(i for i, pair in enumerate(zip(*whole.values(), strict=True)) if pair[0] != pair[1])
            days, months = (whole[first][at] for first in (True, False))
            return Ambiguous(cells[at], (Style().date(days or 0), Style().date(months or 0)), "--date-format")
        order, depends = day_first, True
    values = dict(zip(cells, [value for value in whole[order] if value is not None], strict=True))
    return values, order if depends else None


def _date_style(cells: Sequence[str], values: dict[str, float], day_first: bool) -> str:
    """The format that writes all cells as they are; empty if none of the usual ones does."""
    order = ("%d", "%m") if day_first else ("%m", "%d")
    for sign in "./-":
        shape = f"{order[0]}{sign}{order[1]}{sign}%Y"
        if all(_same_date(Style(date_format=shape).date(values[cell]), cell) for cell in cells[:50]):
            return shape
    return ""


def _same_date(written: str, cell: str) -> bool:
    return [part.lstrip("0") for part in re.split("[./-]", written)] == [
        part.lstrip("0") for part in re.split("[./-]", cell)
    ] and any(sign in cell and sign in written for sign in "./-")


def read_booleans(counts: Mapping[str, int]) -> dict[str, str] | None:
    """Map every spelling of yes and no to one, of the most frequent pair; None if there are other cells.

    >>> read_booleans({"yes": 3, "Y": 1, "no": 2, "N": 5})
    {'yes': 'Y', 'Y': 'Y', 'no': 'N', 'N': 'N'}
    """
    sides = [[cell for cell in counts if cell.lower() in words] for words in zip(*_PAIRS, strict=True)]
    if not all(sides) or sum(map(len, sides)) < len(counts):
        return None

    def total(words: Sequence[str]) -> int:
        return sum(count for cell, count in counts.items() if cell.lower() in words)

    pair = max(_PAIRS, key=total)
    spellings: dict[str, str] = {}
    for side, word in zip(sides, pair, strict=True):
        name = max([cell for cell in side if cell.lower() == word] or side, key=lambda cell: counts[cell])
        spellings |= dict.fromkeys(side, name)
    return spellings


def read_cells(
    cells: Sequence[str],
    decimal: str | None,
    thousands: str | None,
    date_format: str | None,
    like: Style | None,
) -> Reading | Ambiguous | None:
    """Read the different cells of a column as numbers or dates.

    Args:
        like: the style of the column in the table that a run was trained on. It decides where both readings
            are possible and the cells have no signs but those of this style.
    """
    if like is not None:
        signs = {sign for cell in cells for sign in cell if sign in ".,"}
        if like.decimal and signs <= {like.decimal, like.thousands}:
            decimal = like.decimal if decimal is None else decimal
        if like.decimal == "" and like.thousands in (",", ".") and signs <= {like.thousands}:
            thousands = like.thousands if thousands is None else thousands
    readers: tuple[Callable[[], Reading | Ambiguous | None], ...] = (
        lambda: read_numbers(cells, decimal, thousands),
        lambda: read_dates(cells, date_format, None if like is None else like.day_first),
    )
    return next((reading for read in readers if (reading := read()) is not None), None)
