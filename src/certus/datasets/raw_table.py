"""Raw tables: the cells of CSV files, Parquet files and data frames, read by pandas.

Encoding and separator are guessed where no option says them: a byte-order mark, UTF-8, UTF-16, and then
Windows-1252 before Latin-1; the separator is the one under which most lines have the most cells. Cells stay
text here; ``cells`` reads the numbers and dates of a whole column.
"""

from __future__ import annotations

import codecs
import csv
import datetime
import io
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from certus.datasets.base import Array, describe_error
from certus.datasets.cells import Ambiguous, Reading, Style, plain_number, read_cells
from certus.errors import ArgumentError, require, truncate
from certus.storage.files import open_regular
from certus.table_options import TableOptions

Cells = Sequence[str | None]
"""The words of a column, None where one is missing."""
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null"})
"""Cells that count as missing values, in any case; "none" may well be a category."""


@dataclass(frozen=True, eq=False)
class RawColumn:
    """One column before encoding: cells or numbers."""

    cells: Cells | None = None
    numbers: Array | None = None  # (n,) float64, NaN where missing
    days: bool = False  # the numbers are days since 1970

    @cached_property
    def words(self) -> Cells:
        """Cells as words; whole numbers without a fraction."""
        if self.numbers is None:
            return self.cells or ()
        write = Style().date if self.days else "{:.17g}".format
        return [None if value != value else write(value) for value in self.numbers.tolist()]

    @property
    def missing(self) -> Array:
        """Mask (n,) of missing values."""
        if self.numbers is not None:
            return np.isnan(self.numbers)
        return np.array([cell is None for cell in self.words], dtype=bool)

    @cached_property
    def counts(self) -> Counter[str]:
        """Number of occurrences of each cell that is not missing."""
        return Counter(cell for cell in self.words if cell is not None)

    @property
    def distinct(self) -> int:
        """Number of different values, without missing ones."""
        return len(self.counts)

    def read(self, options: TableOptions, like: Style | None = None) -> Reading | Ambiguous | None:
        """Read all present cells as numbers or dates; None for words. A column with a ``like`` style is read
        as that where it can be read in two ways."""
        if self.numbers is not None:
            values = dict(
                zip((word for word in self.words if word), self.numbers[~self.missing], strict=True)
            )
            whole = all(float(value).is_integer() for value in values.values())
            style = Style(".", places=0 if whole else None)
            return Reading("date" if self.days else "number", values, style)
        return read_cells(list(self.counts), options.decimal, options.thousands, options.date_format, like)

    @property
    def plain_numbers(self) -> Array:
        """(n,) float64 numbers with a decimal point and no groups of digits, NaN where a cell is another."""
        values = {cell: plain_number(cell) for cell in self.counts} if self.numbers is None else {}
        numbers = {cell: math.nan if value is None else value for cell, value in values.items()}
        return self.parse(Reading("number", numbers))

    def parse(self, reading: Reading) -> Array:
        """Return (n,) float64 numbers, NaN where a cell is missing or of another type."""
        return self.numbers if self.numbers is not None else reading.numbers(self.words)


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
    """Problems of a table, collected for one message, and ordered by how many cells each concerns."""

    def __init__(self, table: RawTable) -> None:
        self.table = table
        self._texts: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._texts)

    @property
    def texts(self) -> list[str]:
        """The worst first: those of the whole table, then by cells."""
        return [text for _, text in sorted(self._texts, key=lambda problem: -problem[0])]

    def add(self, rule: str, content: str, cells: int | None = None) -> None:
        weight = len(self.table) + 1 if cells is None else cells
        self._texts.append((weight, f"must {truncate(rule, 400)}; got {truncate(content, 600)}."))

    def add_cells(self, rule: str, label: str, rows: Array, remedy: str = "") -> None:
        """Add a problem of the cells of a column in some rows, if there are any."""
        if len(rows):
            first = int(rows[0])
            cell = self.table.columns[label].words[first]
            more = f", and {len(rows) - 1} more like it" if len(rows) > 1 else ""
            place = f"column {label!r}, {self.table.place(first)}"
            self.add(rule, f"{'none' if cell is None else repr(cell)} in {place}{more}{remedy}", len(rows))

    def add_ambiguous(self, label: str, reading: Ambiguous) -> None:
        """Add a column that can be read in two ways."""
        words = self.table.columns[label].words
        row, (first, second) = list(words).index(reading.cell), reading.readings
        both = f"{first} or {second}" if reading.option else f"{first}, and {second}"
        remedy = {
            "--decimal": "Give --decimal . or --decimal , (--thousands also decides)",
            "--date-format": "Give --date-format, such as %d/%m/%Y",
        }.get(reading.option, "Correct the cells, or --drop the column")
        rule = "have numbers and dates that can be read one way only"
        place = f"{reading.cell!r} in column {label!r}, {self.table.place(row)}"
        count = sum(cell is not None for cell in words)
        self.add(rule, f"{place}, which reads as {both}. {remedy}", count)

    def refuse(self) -> None:
        """Raise ``ArgumentError`` with all problems, one per line, if there are any."""
        texts = self.texts
        if len(texts) == 1:
            raise ArgumentError(f"`{self.table.source}` {texts[0]}")
        if texts:
            lines = "".join(f"\n({number}) It {text}" for number, text in enumerate(texts, 1))
            raise ArgumentError(f"`{self.table.source}` has {len(texts)} problems, the worst first:{lines}")


_SEPARATORS = (",", ";", "\t", "|")
_SAMPLE = 200  # lines from which a separator is guessed


def csv_table(path: Path, options: TableOptions) -> RawTable:
    """Read a file with a header line; cells listed in ``MISSING`` are missing values."""
    import pandas

    source = f"csv:{path}"
    try:
        with open_regular(path) as stream:
            text, encoding = _decoded(source, stream.read(), options.encoding)
    except OSError as problem:
        raise ArgumentError(
            f"`{source}` must be a readable file; got {describe_error(problem)}."
        ) from problem
    if "\0" in text:
        raise ArgumentError(f"`{source}` must be a text file in {encoding}; got a NUL byte (try --encoding).")
    separator = _guess_separator(text) if options.separator is None else options.separator
    lengths, lines = _shape(source, text, separator)
    header = next(csv.reader(io.StringIO(text), delimiter=separator), []) if lengths else []
    names = [name.strip() for name in header]
    complete = any(names) and not all(plain_number(name) is not None for name in names)
    content = ",".join(names) if names else "an empty file"
    require(complete, source, "begin with a header line of column names", content)
    wrong = [at for at, length in enumerate(lengths) if length != len(names)]
    if wrong:
        more = f", and {len(wrong) - 1} more lines of another length" if len(wrong) > 1 else ""
        content = (
            f"{lengths[wrong[0]]}{more}. If {separator!r} is not what separates its cells, give --separator"
        )
        require(False, source, f"have {len(names)} cells in line {lines[wrong[0]]}", content)
    frame = pandas.read_csv(
        io.StringIO(text),
        sep=separator,
        header=None,
        skiprows=0,
        dtype=str,
        keep_default_na=False,
        na_filter=False,
        low_memory=False,
    )
    gaps = MISSING | {gap.lower() for gap in options.gaps}
    columns = {}
    for at, name in enumerate(_unique_names(names)):
        cells = [cell.strip() for cell in frame[at].tolist()[1:]]
        columns[name] = RawColumn([None if cell.lower() in gaps else cell for cell in cells])
    guessed = [f"encoding {encoding}"] * (options.encoding is None and encoding != "utf-8")
    guessed += [f"separator {separator!r}"] * (options.separator is None and separator != ",")
    remark = f"{source} is read with {' and '.join(guessed)}, as guessed." if guessed else ""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        remark += f" Columns with the same name are numbered: {', '.join(map(repr, repeated[:4]))}."
    return RawTable(source, columns, lines[1:], remark.strip())


def _decoded(source: str, content: bytes, encoding: str | None) -> tuple[str, str]:
    """Return the text of a file, and its encoding."""
    marks = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
    if encoding is not None:
        plain = codecs.lookup(encoding).name == "utf-8"
        # Spreadsheet programs begin a file with a mark that is no part of the first name.
        guesses = ["utf-8-sig" if plain else encoding]
    elif marked := [name for mark, name in marks if content.startswith(mark)]:
        guesses = marked
    else:
        zeros = [content[start : 2**16 : 2].count(0) for start in (0, 1)]
        wide = len(content) % 2 == 0 and 4 * max(zeros) > min(len(content), 2**16) // 2
        guesses = (
            ["utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"] if wide else ["utf-8", "cp1252", "latin-1"]
        )
    for guess in guesses:
        try:
            text = content.decode(guess)
            return text, "utf-8" if guess == "utf-8-sig" else guess
        except UnicodeDecodeError as problem:
            reason = problem
    hint = "; leave --encoding out to have it guessed, or give another" if encoding is not None else ""
    raise ArgumentError(f"`{source}` must be a readable {guesses[0]} file; got {reason}{hint}.")


def _guess_separator(text: str) -> str:
    """The separator under which most of the first lines have as many cells as the header, which are many."""
    sample = "".join(text.splitlines(keepends=True)[:_SAMPLE])
    best, chosen = (0.0, 0), ","
    for separator in _SEPARATORS:
        try:
            lengths = [len(row) for row in csv.reader(io.StringIO(sample), delimiter=separator) if row]
        except csv.Error:
            continue
        if lengths and lengths[0] > 1:
            share = sum(length == lengths[0] for length in lengths) / len(lengths)
            if (share, lengths[0]) > best:
                best, chosen = (share, lengths[0]), separator
    return chosen


def _shape(source: str, text: str, separator: str) -> tuple[list[int], list[int]]:
    """The number of cells of each row, and the line on which it ends: pandas pads rows that are too short."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    lengths, lines = [], []
    try:
        for row in reader:
            if row:  # an empty line is no row
                lengths.append(len(row))
                lines.append(reader.line_num)
    except csv.Error as problem:
        place = f"{problem} in line {reader.line_num}"
        raise ArgumentError(
            f"`{source}` must be a readable file of separated cells; got {place}."
        ) from problem
    return lengths, lines


def _unique_names(names: Sequence[str]) -> list[str]:
    """Names with a number behind every repetition, and for columns without one.

    >>> _unique_names(["a", "b", "a", ""])
    ['a', 'b', 'a (2)', 'column 4']
    """
    unique: list[str] = []
    for place, name in enumerate(names, 1):
        own, number = name or f"column {place}", 1
        while own in unique or (number == 1 and not name and own in names):
            number += 1
            own = f"{name or f'column {place}'} ({number})"
        unique.append(own)
    return unique


def parquet_table(path: Path, options: TableOptions) -> RawTable:
    """Read the columns of a Parquet file."""
    import pandas

    source = f"parquet:{path}"
    try:
        with open_regular(path) as stream:
            frame = pandas.read_parquet(stream, dtype_backend="numpy_nullable")
    except ImportError:
        raise ArgumentError("Parquet files need pyarrow: pip install 'certus[frames]'.") from None
    except Exception as problem:  # whatever Arrow makes of damage
        reason = describe_error(problem)
        raise ArgumentError(f"`{source}` must be a readable Parquet file; got {reason}.") from problem
    return frame_table(frame, source, options)


def frame_table(frame: Any, source: str, options: TableOptions) -> RawTable:
    """Return the columns of a pandas, polars or Arrow frame: numbers and days unchanged, others as words."""
    import pandas

    if not isinstance(frame, pandas.DataFrame):
        convert = getattr(frame, "to_pandas", None)
        rule = "be a pandas, polars or Arrow frame"
        require(callable(convert), "frame", rule, type(frame))
        assert convert is not None
        frame = convert()
    names = _unique_names([str(label) for label in frame.columns])
    gaps = {gap.lower() for gap in options.gaps}
    columns = {name: _column(source, name, frame.iloc[:, at], gaps) for at, name in enumerate(names)}
    return RawTable(source, columns)


def _column(source: str, name: str, series: Any, gaps: set[str]) -> RawColumn:
    import pandas
    from pandas.api import types

    missing = series.isna().to_numpy(dtype=bool)
    if types.is_complex_dtype(series):
        raise ArgumentError(f"`{source}` must hold real numbers; got complex ones in {name!r}.")
    if types.is_numeric_dtype(series) and not types.is_bool_dtype(series):
        # Integers beyond those that float64 distinguishes stay words.
        present = series[~missing]
        exact = not types.is_integer_dtype(series) or all(
            abs(int(v)) <= 2**53 for v in (present.min(), present.max())
        )
        if exact or not len(present):
            return RawColumn(numbers=series.to_numpy(dtype=np.float64, na_value=np.nan))
    if types.is_datetime64_any_dtype(series):
        moments = series.dt.tz_convert(None) if series.dt.tz is not None else series
        days = (moments - pandas.Timestamp(0)) / pandas.Timedelta(days=1)
        return RawColumn(numbers=days.to_numpy(dtype=np.float64), days=True)
    cells = series.astype(object).tolist()
    for cell, empty in zip(cells, missing, strict=True):
        if not empty and isinstance(cell, Mapping | list | tuple | set | np.ndarray):
            raise ArgumentError(
                f"`{source}` must hold numbers, words or dates; got {type(cell)} in {name!r}."
            )
        if isinstance(cell, complex):
            raise ArgumentError(f"`{source}` must hold real numbers; got complex ones in {name!r}.")
    words = [None if empty else _word(cell) for cell, empty in zip(cells, missing, strict=True)]
    return RawColumn([None if word is None or word == "" or word.lower() in gaps else word for word in words])


def _word(cell: Any) -> str:
    if isinstance(cell, datetime.date) and not isinstance(cell, datetime.datetime):
        return cell.isoformat()
    return str(cell).strip()
