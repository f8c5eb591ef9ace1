"""The user's own table in a CSV file: columns of numbers stay numbers, all others become one-hot groups."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from certus.data.arrays import Array
from certus.data.base import DataSet
from certus.data.splits import FEWEST_ROWS, digest_arrays, in_fifths
from certus.data.tables import Categorical, Column, Numeric, contents, table
from certus.data.targets import Targets, labelled
from certus.errors import ArgumentError, require
from certus.storage.reading import open_regular

MOST_LABELS = 50
MOST_CATEGORIES = 100
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null"})
"""What counts as a missing value, in any case; "none" may well be a category."""


def csv_file(path: Path, *, seed: int = 0, standardize: bool = True, target: str | None = None) -> DataSet:
    """The rows of a comma-separated UTF-8 file with a header line, 60% / 20% / 20% by seed.

    Args:
        target: name of the target column; the last one by default. Whole numbers or words with at most 50
            distinct values are labels, in sorted order; other numbers are the targets of a regression.
    """
    source = f"csv:{path}"
    header, rows, lines = _read(source, path)
    name = header[-1] if target is None else target
    if name not in header:
        raise ArgumentError(f"`target` must be a column of {source}: {', '.join(header)}; got {name!r}.")
    require(len(header) >= 2, source, "have a feature beside its target", f"only the column {name!r}")
    require(len(rows) >= FEWEST_ROWS, source, f"have at least {FEWEST_ROWS} rows", len(rows))
    cells = dict(zip(header, zip(*rows, strict=True), strict=True))
    for label, column in cells.items():
        _require_present(source, label, column, lines)
    targets = _targets(source, name, cells.pop(name), lines)
    columns = [_column(source, label, column, lines) for label, column in cells.items()]
    return table(
        source,
        columns,
        targets,
        in_fifths(source, len(rows), seed),
        sha256=digest_arrays(contents(columns, targets)),
        standardize=standardize,
    )


def _read(source: str, path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """Header, stripped cells of each row, and the line on which each row ends."""
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        # utf-8-sig: spreadsheet programs begin the file with a mark that is no part of the first name.
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(_text(stream), strict=True)
            for row in reader:
                if row:  # an empty line is no row
                    rows.append([cell.strip() for cell in row])
                    lines.append(reader.line_num)
    except (OSError, ValueError, csv.Error) as problem:
        raise ArgumentError(f"`{source}` must be a readable UTF-8 file; got {problem}.") from problem
    require(bool(rows), source, "begin with a header line of column names", "an empty file")
    header = rows[0]
    named = all(header) and not all(_is_number(cell) for cell in header)
    require(named, source, "begin with a header line of column names", ",".join(header))
    for label, count in Counter(header).items():
        require(count == 1, source, "have different column names", f"{label!r} {_times(count)}")
    for row, line in zip(rows[1:], lines[1:], strict=True):
        require(len(row) == len(header), source, f"have {len(header)} cells in line {line}", len(row))
    return header, rows[1:], lines[1:]


def _text(lines: Iterable[str]) -> Iterator[str]:
    """The lines, as long as they are text: NumPy drops a NUL at the end of a word without a word."""
    for line in lines:
        if "\0" in line:
            raise ValueError("a NUL byte, which is no text")
        yield line


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # Python reads 1_000; nobody else does


def _place(label: str, row: int, lines: Sequence[int]) -> str:
    return f"column {label!r}, row {row + 1} (line {lines[row]})"


def _require_present(source: str, label: str, cells: Sequence[str], lines: Sequence[int]) -> None:
    for row, cell in enumerate(cells):
        if cell.lower() in MISSING:
            place = _place(label, row, lines)
            raise ArgumentError(f"`{source}` must have no missing values; got {cell!r} in {place}.")


def _numbers(source: str, label: str, cells: Sequence[str], lines: Sequence[int]) -> Array:
    numbers = np.array([float(cell) for cell in cells])
    for row in np.flatnonzero(~np.isfinite(numbers))[:1]:
        place = _place(label, row, lines)
        raise ArgumentError(f"`{source}` must hold finite numbers; got {cells[row]} in {place}.")
    return numbers


def _is_numeric(source: str, label: str, cells: Sequence[str], lines: Sequence[int]) -> bool:
    """Whether a column holds numbers. One that mostly does, and somewhere does not, is refused: a slip of
    the pen must not turn it into categories."""
    words = [row for row, cell in enumerate(cells) if not _is_number(cell)]
    if words and 2 * len(words) < len(cells):
        count = len(cells) - len(words)
        raise ArgumentError(
            f"`{source}` must hold numbers in a column most of whose cells are numbers; got "
            f"{cells[words[0]]!r} in {_place(label, words[0], lines)}, where {count} of {len(cells)} are. "
            "Repair the cell; if they are categories, write the numbers as words, such as 'c7' for 7."
        )
    return not words


def _column(source: str, label: str, cells: Sequence[str], lines: Sequence[int]) -> Column:
    if _is_numeric(source, label, cells, lines):
        return Numeric(label, _numbers(source, label, cells, lines))
    categories, codes = np.unique(np.array(cells), return_inverse=True)
    if len(categories) > MOST_CATEGORIES:
        word = next(row for row, cell in enumerate(cells) if not _is_number(cell))
        raise ArgumentError(
            f"`{source}` must have at most {MOST_CATEGORIES} categories in a column that is not numeric; got "
            f"{len(categories)} in column {label!r}, such as {cells[word]!r} in row {word + 1} (line "
            f"{lines[word]}). Remove names and identifiers, or repair the numbers."
        )
    return Categorical(label, codes, tuple(str(category) for category in categories))


def _targets(source: str, label: str, cells: Sequence[str], lines: Sequence[int]) -> Targets:
    few = len(set(cells)) <= MOST_LABELS
    if not _is_numeric(source, label, cells, lines):
        rule = f"have numbers, or at most {MOST_LABELS} different labels, in the target column {label!r}"
        require(few, source, rule, f"{len(set(cells))} labels")
        return labelled(source, np.array(cells))
    numbers = _numbers(source, label, cells, lines)
    distinct = np.unique(numbers)
    require(len(distinct) >= 2, source, "have at least 2 different targets", len(distinct))
    if len(distinct) <= MOST_LABELS and (distinct == np.round(distinct)).all():
        # Named as whole numbers whether the file says 3 or 3.0.
        return replace(labelled(source, numbers), class_names=tuple(f"{value:.0f}" for value in distinct))
    return Targets(numbers)
