"""The two kinds of columns that a network can see: numbers, and categories."""

from __future__ import annotations

from dataclasses import dataclass

from certus.data.arrays import Array


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
