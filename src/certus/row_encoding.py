"""How a table's rows are encoded as inputs, and which inputs are encodings of rows.

A number is one input, a date three (the day, and cosine and sine of its season), a category one 0/1 input for
each value; a number or a date with gaps has two more, *known* and *missing*. Most points of the input space
encode no row: half of a category, a season without its day. An attained side of a certificate rests on rows
that can be written to a file and read again, so the searches behind it end with ``RowEncoding.settle``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

YEAR = 365.2425  # days
_FIRST_DAY, _LAST_DAY = -719162.0, 2932896.0  # 0001-01-01 and 9999-12-31, from 1970-01-01 on


@dataclass(frozen=True)
class EncodedColumn:
    """The inputs that one column of a table becomes.

    Attributes:
        kind: "number", "date" or "category".
        inputs: their places. Of a number one; of a date those of day, cosine and sine; of a category one for
            each value.
        mark: the places of "known" and "missing" of a number or date that has gaps; else empty.
    """

    name: str
    kind: str
    inputs: tuple[int, ...]
    mark: tuple[int, ...] = ()


def season(days: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of the place in the year: neighbours are near each other, also over New Year.

    >>> [round(abs(float(part)), 6) for part in season(torch.tensor(YEAR / 4))]
    [0.0, 1.0]
    """
    angle = 2 * math.pi * (days / YEAR).remainder(1.0)
    return angle.cos(), angle.sin()


@dataclass(frozen=True, eq=False)
class RowEncoding:
    """The columns of a table as inputs (n, features) = (raw − means) / scales in single precision.

    Attributes:
        means, scales: (features,) float64; 0 and 1 for categories, and where nothing is standardised.
    """

    columns: tuple[EncodedColumn, ...]
    means: Tensor
    scales: Tensor

    def agrees(self, other: RowEncoding) -> bool:
        """Whether another encodes every row in the same way."""
        numbers = ((self.means, other.means), (self.scales, other.scales))
        return self.columns == other.columns and all(torch.equal(mine, yours) for mine, yours in numbers)

    @property
    def plain(self) -> bool:
        """Whether every input is a number of its own: no categories, gaps or dates."""
        return all(column.kind == "number" and not column.mark for column in self.columns)

    @property
    def categories(self) -> tuple[EncodedColumn, ...]:
        return tuple(column for column in self.columns if column.kind == "category")

    def movable(self, *, everywhere: bool = False) -> Tensor:
        """(features,) bool: the inputs of numbers, and the days of dates, which ``settle`` keeps.

        Args:
            everywhere: only numbers that are free in every row, whatever the other inputs: neither dates,
                whose season follows the day, nor numbers with gaps.
        """
        mask = torch.zeros(len(self.means), dtype=torch.bool)
        for column in self.columns:
            if column.kind != "category" and not (everywhere and (column.kind == "date" or column.mark)):
                mask[column.inputs[0]] = True
        return mask

    @property
    def attackable(self) -> Tensor | None:
        """(features,) bool: the inputs that attacks move; None for all, where each is a number of its own."""
        return None if self.plain else self.movable(everywhere=True)

    def settle(self, points: Tensor, base: Tensor) -> Tensor:
        """Rows near some points, with the categories and gaps of other rows.

        A number is what a file gives back when it is written there; a date moves by whole days, and its
        season with it; a missing value stays missing.

        Args:
            points: (n, features) anywhere; base: (n, features) encodings of rows.
        """
        wanted, origin, rows = points.detach().double(), base.double(), base.detach().clone()
        for column in self.columns:
            if column.kind == "category":
                continue
            first = column.inputs[0]
            raw, before = (
                part[:, first] * self.scales[first] + self.means[first] for part in (wanted, origin)
            )
            moves = wanted[:, first] != origin[:, first]
            if column.mark:
                moves &= base[:, column.mark[1]] == 0
            values: tuple[Tensor, ...] = (raw,)
            if column.kind == "date":
                day = raw.round().clamp(_FIRST_DAY, _LAST_DAY)
                moves &= day != before.round()
                values = (day, *season(day))
            for place, value in zip(column.inputs, values, strict=True):
                written = self._written(value, place)
                moves = moves & torch.isfinite(written)
                rows[:, place] = torch.where(moves, written.to(rows.dtype), rows[:, place])
        return rows

    def with_numbers(self, points: Tensor, base: Tensor) -> Tensor:
        """Rows near some points that differ from ``base`` in numbers without gaps alone."""
        return self.settle(torch.where(self.movable(everywhere=True), points, base), base)

    def _written(self, value: Tensor, place: int) -> Tensor:
        return ((value - self.means[place]) / self.scales[place]).float()

    def returned(self, points: Tensor, origin: Tensor) -> Tensor:
        """Rows with the categories of some rows, and all else from others."""
        kept = torch.zeros(len(self.means), dtype=torch.bool)
        for column in self.categories:
            kept[list(column.inputs)] = True
        return torch.where(kept, points, origin)

    def swaps(self, rows: Tensor) -> Iterator[Tensor]:
        """(n, features) the rows with one category replaced by another value, for every column and value. A
        row stays as it is where it has that value already, or one that the encoding does not know."""
        for column in self.categories:
            places = list(column.inputs)
            known = rows[:, places].sum(1, keepdim=True) == 1
            for value in range(len(places)):
                other = rows.clone()
                other[:, places] = torch.where(known, torch.eye(len(places))[value].to(rows), rows[:, places])
                yield other

    def unknown(self, rows: Tensor) -> Tensor:
        """(n, columns of categories) 1 where the value is none that the encoding knows."""
        sums = [rows[:, list(column.inputs)].sum(1) for column in self.categories]
        return 1 - torch.stack(sums, 1) if sums else rows[:, :0]
