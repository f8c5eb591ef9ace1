"""Raw tables: the cells of CSV files, and the types of their columns.

A column has a type if *all* of its present cells have it: numbers, money, percentages or dates; else it
holds words. Money may have a currency sign, and thousands in groups of three; 1,5 is not a number here,
since its comma is ambiguous. Dates are 2024-03-01 (with or without a time), 1.3.2024, or 3/1/2024 if days
above 12 determine the order.
"""

from __future__ import annotations

import codecs
import csv
import datetime
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from certus.datasets.arrays import Array, why_not
from certus.errors import ArgumentError, require, truncate
from certus.storage.files import open_regular


@dataclass(frozen=True, eq=False)
class Numeric:
    """A column of (n,) finite numbers.

    Attributes:
        part_of: the column of the table that it was derived from; empty if it is that column itself.
    """

    name: str
    values: Array
    part_of: str = ""


@dataclass(frozen=True, eq=False)
class Categorical:
    """A column of (n,) integer codes into ``categories``; −1 is a category that is not among them.

    Attributes:
        part_of: the column of the table whose gaps it marks; empty if it is a column itself.
    """

    name: str
    codes: Array
    categories: tuple[str, ...]
    part_of: str = ""


Column = Numeric | Categorical


@dataclass(frozen=True, eq=False)
class RawColumn:
    """One column of n rows, before encoding.

    Attributes:
        cells: words, None where missing; None for a column of numbers.
        numbers: (n,) float64, NaN where missing; None for words.
        days: the numbers are days since 1970.
    """

    cells: Cells | None = None
    numbers: Array | None = None
    days: bool = False

    def __len__(self) -> int:
        return len(self.cells if self.cells is not None else self.numbers)  # type: ignore[arg-type]

    @property
    def gaps(self) -> Array:
        """Mask (n,) of missing values."""
        if self.cells is not None:
            return np.array([cell is None for cell in self.cells])
        assert self.numbers is not None
        return np.isnan(self.numbers)

    @property
    def words(self) -> Cells:
        """Cells as words; whole numbers without a fraction."""
        if self.cells is not None:
            return self.cells
        assert self.numbers is not None
        return [None if value != value else f"{value:.17g}" for value in self.numbers.tolist()]

    @property
    def distinct(self) -> int:
        """Number of different values, without gaps."""
        return len({cell for cell in self.words if cell is not None})


@dataclass(frozen=True, eq=False)
class RawTable:
    """Columns by name, all of one length.

    Attributes:
        source: what errors call it.
        lines: where each row ends in a file of text; empty for others.
        remark: how it was read, where that is worth a word.
    """

    source: str
    columns: Mapping[str, RawColumn]
    lines: Sequence[int] = ()
    remark: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def place(self, label: str, row: int) -> str:
        """Describe the position of a cell."""
        line = f" (line {self.lines[row]})" if len(self.lines) else ""
        return f"column {label!r}, row {row + 1}{line}"


@dataclass(frozen=True)
class TableProblem:
    """A violated rule of a table, and the offending content."""

    rule: str
    found: str


def refuse(source: str, problems: Sequence[TableProblem]) -> None:
    """Raise ``ArgumentError`` with all problems of a source in one message, if there are any."""
    lines = [f"must {truncate(one.rule, 400)}; got {truncate(one.found, 600)}." for one in problems]
    if len(problems) == 1:
        raise ArgumentError(f"`{source}` {lines[0]}")
    if problems:
        text = " ".join(f"({at}) It {line}" for at, line in enumerate(lines, 1))
        raise ArgumentError(f"`{source}` has {len(problems)} problems. {text}")


Cells = Sequence[str | None]

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null"})
"""What counts as a missing value, in any case; "none" may well be a category."""

_GROUPED = re.compile(r"\d{1,3}(?:([,' ])\d{3})(?:\1\d{3})*(?:\.\d+)?")
_EUROPEAN = re.compile(r"\d{1,3}(?:\.\d{3})+,\d+")
_SIGNS = ("$", "€", "£", "¥", "USD", "EUR", "GBP", "CHF", "JPY")
_DAY = datetime.date(1970, 1, 1).toordinal()
_SLASHED, _DOTTED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})"), re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")


def is_number(cell: str) -> bool:
    """Whether text is a number in common notation; 1_000, which Python accepts, is not."""
    return plain_number(cell) is not None


def plain_number(cell: str) -> float | None:
    """Parse a number, which may be infinite; None for other text."""
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
    seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
    return moment.toordinal() - _DAY + seconds / 86400


def day_first(cell: str) -> float | None:
    return _numbered_date(cell, (0, 1))


def month_first(cell: str) -> float | None:
    return _numbered_date(cell, (1, 0))


def _numbered_date(cell: str, places: tuple[int, int]) -> float | None:
    dotted = _DOTTED.fullmatch(cell)
    match = dotted or _SLASHED.fullmatch(cell)
    if match is None or (dotted and places == (1, 0)):  # with dots the day comes first
        return None
    day, month = int(match[1 + places[0]]), int(match[1 + places[1]])
    try:
        return float(datetime.date(int(match[3]), month, day).toordinal() - _DAY)
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
    """Return the type that all cells have; None for words."""
    present = [cell for cell in cells if cell is not None]
    for kind in READERS:
        read = READERS[kind]
        if present and all(read(cell) is not None for cell in present):
            if kind == "money" and all("%" in cell for cell in present):
                return "percent"
            return kind
    return None


def two_ways(cells: Cells) -> bool:
    """Whether dates with slashes are ambiguous between day first and month first."""
    present = [cell for cell in cells if cell is not None]
    if not present or _SLASHED.fullmatch(present[0]) is None:
        return False
    ways = [[read(cell) for cell in present] for read in (day_first, month_first)]
    return all(None not in way for way in ways) and ways[0] != ways[1]


def numbers_in(cells: Cells, kind: str) -> Array:
    """Parse cells as (n,) float64, NaN where missing or of another type."""
    read = READERS[kind]
    values = (None if cell is None else read(cell) for cell in cells)
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def csv_table(path: Path, *, encoding: str = "utf-8", separator: str = ",") -> RawTable:
    """Read a file with a header line; cells listed in ``MISSING`` are gaps."""
    source = f"csv:{path}"
    header, rows, lines = _read(source, path, encoding, separator)
    columns: dict[str, RawColumn] = {}
    for at, label in enumerate(header):
        columns[label] = RawColumn([None if row[at].lower() in MISSING else row[at] for row in rows])
    return RawTable(source, columns, lines)


def _read(
    source: str, path: Path, encoding: str, separator: str
) -> tuple[list[str], list[list[str]], list[int]]:
    """Return the header, the stripped cells of each row, and the line on which each row ends."""
    rows: list[list[str]] = []
    lines: list[int] = []
    plain = codecs.lookup(encoding).name == "utf-8"
    named = "UTF-8" if plain else encoding
    try:
        # utf-8-sig: spreadsheet programs begin the file with a mark that is no part of the first name.
        decoding = "utf-8-sig" if plain else encoding
        with io.TextIOWrapper(open_regular(path), encoding=decoding, newline="") as stream:
            reader = csv.reader(_text(stream), strict=True, delimiter=separator)
            for row in reader:
                if row:  # an empty line is no row
                    rows.append([cell.strip() for cell in row])
                    lines.append(reader.line_num)
    except (OSError, ValueError, csv.Error) as problem:
        hint = "; `encoding` may be latin-1" if isinstance(problem, UnicodeDecodeError) and plain else ""
        raise ArgumentError(
            f"`{source}` must be a readable {named} file; got {why_not(problem)}{hint}."
        ) from problem
    require(bool(rows), source, "begin with a header line of column names", "an empty file")
    header = rows[0]
    complete = all(header) and not all(is_number(cell) for cell in header)
    require(complete, source, "begin with a header line of column names", ",".join(header))
    for label, count in Counter(header).items():
        require(count == 1, source, "have different column names", f"{label!r} {_times(count)}")
    wrong = [
        (line, len(row)) for row, line in zip(rows[1:], lines[1:], strict=True) if len(row) != len(header)
    ]
    for line, count in wrong[:1]:
        more = f", and {len(wrong) - 1} more lines of another length" if len(wrong) > 1 else ""
        require(
            False,
            source,
            f"have {len(header)} cells in line {line}",
            f"{count}{more}{separator_hint(header)}",
        )
    return header, rows[1:], lines[1:]


def _text(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines, and refuse NUL characters, which NumPy would drop silently at the end of a word."""
    for line in lines:
        if "\0" in line:
            raise ValueError("a NUL byte, which is no text")
        yield line


def separator_hint(header: list[str]) -> str:
    """Suggest another separator if the header looks like it."""
    for sign, word in ((";", ";"), ("\t", "a tab"), ("|", "|")):
        if len(header) == 1 and sign in header[0]:
            return f" (its header holds {word}: `separator` may be that)"
    return ""


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
