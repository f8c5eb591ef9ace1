"""Raw tables: the cells of CSV files, Parquet files and data frames, and the types of their columns.

A column has a type if *all* of its present cells have it: numbers, money, percentages or dates; else it
holds words. Money may have a currency sign, and thousands in groups of three; 1,5 is not a number here,
since its comma is ambiguous. Dates are 2024-03-01 (with or without a time), 1.3.2024, or 3/1/2024 if days
above 12 determine the order. Data frames of pandas, polars and Arrow are read through narwhals.
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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from certus.datasets.base import Array, describe_error
from certus.errors import ArgumentError, optional_import, require, truncate
from certus.storage.files import open_regular

Cells = Sequence[str | None]
"""The words of a column, None where one is missing."""


@dataclass(frozen=True, eq=False)
class RawColumn:
    """One column before encoding: cells or numbers."""

    cells: Cells | None = None
    numbers: Array | None = None  # (n,) float64, NaN where missing
    days: bool = False  # the numbers are days since 1970

    @property
    def words(self) -> Cells:
        """Cells as words; whole numbers without a fraction."""
        if self.numbers is None:
            return self.cells or ()
        return [None if value != value else f"{value:.17g}" for value in self.numbers.tolist()]

    @property
    def missing(self) -> Array:
        """Mask (n,) of missing values."""
        if self.numbers is not None:
            return np.isnan(self.numbers)
        return np.array([cell is None for cell in self.words])

    @property
    def distinct(self) -> int:
        """Number of different values, without missing ones."""
        return len({cell for cell in self.words if cell is not None})

    @property
    def kind(self) -> str | None:
        """Type that all cells have; None for words."""
        if self.numbers is not None:
            return "date" if self.days else "number"
        return kind_of(self.cells or ())

    def parse(self, kind: str) -> Array:
        """Return (n,) float64 numbers, NaN where a cell is missing or of another type."""
        if self.numbers is not None:
            return self.numbers
        read = READERS[kind]
        values = (None if cell is None else read(cell) for cell in self.words)
        return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class RawTable:
    """Columns by name, all of one length."""

    source: str  # its name in errors
    columns: Mapping[str, RawColumn]
    lines: Sequence[int] = ()  # on which the rows of a text file end
    remark: str = ""  # on how it was read

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())).missing) if self.columns else 0

    def place(self, row: int) -> str:
        """Describe the position of a row."""
        return f"row {row + 1} (line {self.lines[row]})" if len(self.lines) else f"row {row + 1}"


class TableProblems:
    """Problems of a table, collected for one message."""

    def __init__(self, table: RawTable) -> None:
        self.table = table
        self._texts: list[str] = []

    def __len__(self) -> int:
        return len(self._texts)

    def add(self, rule: str, content: str) -> None:
        self._texts.append(f"must {truncate(rule, 400)}; got {truncate(content, 600)}.")

    def add_cells(self, rule: str, label: str, rows: Array, remedy: str = "") -> None:
        """Add a problem of the cells of a column in some rows, if there are any."""
        if len(rows):
            first = int(rows[0])
            cell = self.table.columns[label].words[first]
            more = f", and {len(rows) - 1} more like it" if len(rows) > 1 else ""
            place = f"column {label!r}, {self.table.place(first)}"
            self.add(rule, f"{'none' if cell is None else repr(cell)} in {place}{more}{remedy}")

    def refuse(self) -> None:
        """Raise ``ArgumentError`` with all problems in one message, if there are any."""
        if len(self) == 1:
            raise ArgumentError(f"`{self.table.source}` {self._texts[0]}")
        if self._texts:
            text = " ".join(f"({number}) It {text}" for number, text in enumerate(self._texts, 1))
            raise ArgumentError(f"`{self.table.source}` has {len(self)} problems. {text}")


_GROUPED = re.compile(r"\d{1,3}(?:([,' ])\d{3})(?:\1\d{3})*(?:\.\d+)?")
_EUROPEAN = re.compile(r"\d{1,3}(?:\.\d{3})+,\d+")
_SIGNS = ("$", "€", "£", "¥", "USD", "EUR", "GBP", "CHF", "JPY")
_EPOCH = datetime.date(1970, 1, 1).toordinal()
_DATE = re.compile(r"(\d{1,2})([./])(\d{1,2})\2(\d{4})")


def plain_number(cell: str) -> float | None:
    """Parse a number in common notation, which may be infinite; None for other text, such as Python's
    1_000."""
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
    return moment.toordinal() - _EPOCH + seconds / 86400


def _numeric_date(cell: str, day_first: bool) -> float | None:
    match = _DATE.fullmatch(cell)
    if match is None or (match[2] == "." and not day_first):  # with dots the day comes first
        return None
    day, month = (match[1], match[3]) if day_first else (match[3], match[1])
    try:
        return float(datetime.date(int(match[4]), int(month), int(day)).toordinal() - _EPOCH)
    except ValueError:
        return None


READERS: dict[str, Callable[[str], float | None]] = {
    "number": plain_number,
    "money": money,
    "percent": money,
    "date": iso_date,
    "date, day first": partial(_numeric_date, day_first=True),
    "date, month first": partial(_numeric_date, day_first=False),
}
"""Type → parser of a cell, which returns None for a cell of another type."""


def kind_of(cells: Cells) -> str | None:
    """Return the type that all present cells have; None for words."""
    present = [cell for cell in cells if cell is not None]
    for kind, read in READERS.items():
        if present and all(read(cell) is not None for cell in present):
            return "percent" if kind == "money" and all("%" in cell for cell in present) else kind
    return None


MISSING = frozenset({"", "?", "na", "n/a", "nan", "null"})
"""Cells that count as missing values, in any case; "none" may well be a category."""


def csv_table(path: Path, *, encoding: str = "utf-8", separator: str = ",") -> RawTable:
    """Read a file with a header line; cells listed in ``MISSING`` are missing values."""
    source = f"csv:{path}"
    plain = codecs.lookup(encoding).name == "utf-8"
    rows: list[list[str]] = []
    lines: list[int] = []  # on which each row ends
    try:
        # utf-8-sig: spreadsheet programs begin the file with a mark that is no part of the first name.
        decoding = "utf-8-sig" if plain else encoding
        with io.TextIOWrapper(open_regular(path), encoding=decoding, newline="") as stream:
            reader = csv.reader(_without_nul(stream), strict=True, delimiter=separator)
            for row in reader:
                if row:  # an empty line is no row
                    rows.append([cell.strip() for cell in row])
                    lines.append(reader.line_num)
    except (OSError, ValueError, csv.Error) as problem:
        hint = "; `encoding` may be latin-1" if isinstance(problem, UnicodeDecodeError) and plain else ""
        name, reason = "UTF-8" if plain else encoding, f"{describe_error(problem)}{hint}"
        raise ArgumentError(f"`{source}` must be a readable {name} file; got {reason}.") from problem
    header = rows.pop(0) if rows else []
    complete = all(header) and not all(plain_number(cell) is not None for cell in header)
    content = ",".join(header) if header else "an empty file"
    require(complete, source, "begin with a header line of column names", content)
    for label, count in Counter(header).items():
        times = "twice" if count == 2 else f"{count} times"
        require(count == 1, source, "have different column names", f"{label!r} {times}")
    wrong = [(line, len(row)) for row, line in zip(rows, lines[1:], strict=True) if len(row) != len(header)]
    if wrong:
        more = f", and {len(wrong) - 1} more lines of another length" if len(wrong) > 1 else ""
        rule = f"have {len(header)} cells in line {wrong[0][0]}"
        raise ArgumentError(f"`{source}` must {rule}; got {wrong[0][1]}{more}{separator_hint(header)}.")
    cells = [[None if cell.lower() in MISSING else cell for cell in row] for row in rows]
    columns = {label: RawColumn([row[at] for row in cells]) for at, label in enumerate(header)}
    return RawTable(source, columns, lines[1:])


def _without_nul(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines, and refuse NUL characters, which NumPy would drop silently at the end of a word."""
    for line in lines:
        if "\0" in line:
            raise ValueError("a NUL byte, which text must not contain")
        yield line


def separator_hint(header: list[str]) -> str:
    """Suggest another separator if the header looks like it."""
    for sign, word in ((";", ";"), ("\t", "a tab"), ("|", "|")):
        if len(header) == 1 and sign in header[0]:
            return f" (its header contains {word}, which may be the `separator`)"
    return ""


_MICROSECONDS = 86_400_000_000.0  # of a day


def parquet_table(path: Path) -> RawTable:
    """Read the columns of a Parquet file."""
    source = f"parquet:{path}"
    parquet = optional_import("pyarrow.parquet", "Parquet files need pyarrow: pip install 'certus[frames]'.")
    try:
        with open_regular(path) as stream:
            frame = parquet.read_table(stream)
    except Exception as problem:  # whatever Arrow makes of damage
        reason = describe_error(problem)
        raise ArgumentError(f"`{source}` must be a readable Parquet file; got {reason}.") from problem
    return frame_table(frame, source)


def frame_table(frame: Any, source: str) -> RawTable:
    """Return the columns of a frame: numbers and days unchanged, all others as words."""
    narwhals = optional_import("narwhals", "Frames need narwhals: pip install 'certus[frames]'.")
    try:
        table = narwhals.from_native(frame, eager_only=True)
    except TypeError:
        rule = "be a pandas, polars or Arrow frame"
        raise ArgumentError(f"`frame` must {rule}; got {type(frame)}.") from None
    repeated = sorted(name for name, count in Counter(map(str, table.columns)).items() if count > 1)
    require(not repeated, source, "have different column names", ", ".join(repeated))
    return RawTable(source, {str(label): _column(narwhals, source, table[label]) for label in table.columns})


def _column(narwhals: Any, source: str, series: Any) -> RawColumn:
    kind = series.dtype
    if kind.is_numeric():
        # Integers beyond those that float64 distinguishes stay words.
        ends = (series.min(), series.max()) if kind.is_integer() else ()
        if all(value is None or abs(int(value)) <= 2**53 for value in ends):
            return RawColumn(numbers=np.array(series.cast(narwhals.Float64).to_numpy(), dtype=np.float64))
    missing = series.is_null().to_numpy().astype(bool)
    if isinstance(kind, narwhals.Date | narwhals.Datetime):
        moments = series.cast(narwhals.Datetime("us")).dt.timestamp("us").to_numpy()
        days = np.where(missing, np.nan, np.where(missing, 0, moments).astype(np.float64) / _MICROSECONDS)
        return RawColumn(numbers=days, days=True)
    if kind.is_nested():
        raise ArgumentError(f"`{source}` must hold numbers, words or dates; got {kind} in {series.name!r}.")
    cells = series.to_list()
    if any(isinstance(cell, complex) for cell in cells):
        raise ArgumentError(f"`{source}` must hold real numbers; got complex ones in {series.name!r}.")
    # NaN and NaT differ from themselves.
    words = [
        None if empty or cell != cell else str(cell).strip()
        for cell, empty in zip(cells, missing, strict=True)
    ]
    return RawColumn([word or None for word in words])
