"""The user's own table in a CSV file: cells of words, with the lines that they stand on."""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from certus.data.cell_kinds import MISSING, is_number
from certus.data.raw_table import RawColumn, RawTable
from certus.data.reasons import why_not
from certus.errors import ArgumentError, require
from certus.storage.files import open_regular


def csv_table(path: Path, *, encoding: str = "utf-8", separator: str = ",") -> RawTable:
    """The cells of a file with a header line; what ``MISSING`` lists is a gap."""
    source = f"csv:{path}"
    header, rows, lines = _read(source, path, encoding, separator)
    columns: dict[str, RawColumn] = {}
    for at, label in enumerate(header):
        columns[label] = RawColumn([None if row[at].lower() in MISSING else row[at] for row in rows])
    return RawTable(source, columns, lines)


def _read(
    source: str, path: Path, encoding: str, separator: str
) -> tuple[list[str], list[list[str]], list[int]]:
    """Header, stripped cells of each row, and the line on which each row ends."""
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
    """The lines, as long as they are text: NumPy drops a NUL at the end of a word without a word."""
    for line in lines:
        if "\0" in line:
            raise ValueError("a NUL byte, which is no text")
        yield line


def separator_hint(header: list[str]) -> str:
    """A word where the header looks as if another sign separated its cells."""
    for sign, word in ((";", ";"), ("\t", "a tab"), ("|", "|")):
        if len(header) == 1 and sign in header[0]:
            return f" (its header holds {word}: `separator` may be that)"
    return ""


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
