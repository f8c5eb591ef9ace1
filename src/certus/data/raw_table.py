"""A table as its source has it, before anything is decided: words, numbers or days, and gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from certus.data.arrays import Array
from certus.data.cell_kinds import Cells
from certus.errors import ArgumentError, shortened


@dataclass(frozen=True, eq=False)
class RawColumn:
    """One column of n rows.

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
        """(n,) whether a value is missing."""
        if self.cells is not None:
            return np.array([cell is None for cell in self.cells])
        assert self.numbers is not None
        return np.isnan(self.numbers)

    @property
    def words(self) -> Cells:
        """The cells as words: whole numbers without a fraction."""
        if self.cells is not None:
            return self.cells
        assert self.numbers is not None
        return [None if value != value else f"{value:.17g}" for value in self.numbers.tolist()]

    @property
    def distinct(self) -> int:
        """How many different values there are, gaps aside."""
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
        """Where a cell is, in words."""
        line = f" (line {self.lines[row]})" if len(self.lines) else ""
        return f"column {label!r}, row {row + 1}{line}"


@dataclass(frozen=True)
class TableProblem:
    """What a table must be, and what was found instead."""

    rule: str
    found: str


def refuse(source: str, problems: Sequence[TableProblem]) -> None:
    """Raise ``ArgumentError`` with all problems of a source in one message, if there are any."""
    lines = [f"must {shortened(one.rule, 400)}; got {shortened(one.found, 600)}." for one in problems]
    if len(problems) == 1:
        raise ArgumentError(f"`{source}` {lines[0]}")
    if problems:
        told = " ".join(f"({at}) It {line}" for at, line in enumerate(lines, 1))
        raise ArgumentError(f"`{source}` has {len(problems)} problems. {told}")
