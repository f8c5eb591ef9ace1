"""The two kinds of columns that a network can see: numbers, and categories."""

from __future__ import annotations

from dataclasses import dataclass

from certus.data.arrays import Array


@dataclass(frozen=True, eq=False)
class Numeric:
    """A column of (n,) finite numbers."""

    name: str
    values: Array


@dataclass(frozen=True, eq=False)
class Categorical:
    """A column of (n,) integer codes into ``categories``; −1 is a category that is not among them."""

    name: str
    codes: Array
    categories: tuple[str, ...]


Column = Numeric | Categorical
