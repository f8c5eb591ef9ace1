"""Options for reading a table, as JSON types with validation."""

from __future__ import annotations

import csv
from dataclasses import dataclass

from certus.errors import ArgumentError, require

MISSING_WAYS = ("median", "refuse")
SPLIT_WAYS = ("random", "stratified", "group", "time")


@dataclass(frozen=True)
class TableOptions:
    """Options for reading a table, beyond what is inferred from its cells.

    Attributes:
        target: the column to predict; the last one by default.
        drop, categorical: columns to leave out, and columns of numbers that are categories; names separated
            by commas, quoted where they hold one.
        missing: "median" puts the training median for a missing number, and says so in a column of its own;
            "refuse" refuses the table.
        encoding, separator: of a CSV file.
        split: "random"; "stratified" by label; "group": equal values of ``split_by`` stay together; "time":
            later values of it calibrate, the last ones test. By default what ``split_by`` asks for: time for
            a date, group for others.
    """

    target: str | None = None
    drop: str = ""
    categorical: str = ""
    missing: str = "median"
    encoding: str = "utf-8"
    separator: str = ","
    split: str | None = None
    split_by: str | None = None

    def __post_init__(self) -> None:
        require(
            self.missing in MISSING_WAYS,
            "missing",
            f"be one of {', '.join(MISSING_WAYS)}",
            repr(self.missing),
        )
        legal = self.split is None or self.split in SPLIT_WAYS
        require(legal, "split", f"be one of {', '.join(SPLIT_WAYS)}", repr(self.split))
        needs = self.split in ("group", "time")
        require(
            not needs or self.split_by is not None, "split_by", f"be given to split by {self.split}", None
        )
        idle = self.split in ("random", "stratified") and self.split_by is not None
        require(not idle, "split_by", f"be left out where the split is {self.split}", repr(self.split_by))
        single = len(self.separator) == 1 and self.separator not in '"\r\n'
        require(single, "separator", r"be one character, such as ; or a tab", repr(self.separator))
        try:
            "a".encode(self.encoding)  # a lookup would also find codecs that are not for text, such as rot13
        except (LookupError, ValueError):
            raise ArgumentError(
                "`encoding` must be a text encoding that Python knows, such as latin-1; "
                f"got {self.encoding!r}."
            ) from None

    @property
    def dropped(self) -> tuple[str, ...]:
        return listed_names(self.drop)

    @property
    def categories(self) -> tuple[str, ...]:
        return listed_names(self.categorical)


def listed_names(text: str) -> tuple[str, ...]:
    """Split names at commas, except inside quotes.

    >>> listed_names('age, "height, in cm"')
    ('age', 'height, in cm')
    """
    rows = csv.reader([text], skipinitialspace=True)
    return tuple(name.strip() for row in rows for name in row if name.strip())
