"""Options for reading a table, as JSON types with validation."""

from __future__ import annotations

import csv
from dataclasses import dataclass

from certus.errors import require

MISSING_WAYS = ("median", "refuse")
SPLIT_WAYS = ("random", "stratified", "group", "time")


@dataclass(frozen=True)
class TableOptions:
    """Options for reading a table, beyond what is inferred from its cells.

    Attributes:
        target: the column to predict; the last one by default.
        drop, categorical: columns to leave out, and numeric columns that are categories; names separated by
            commas, quoted where they contain one.
        missing: "median" fills in the training median of a number and adds an indicator column; "refuse"
            refuses the table.
        encoding, separator: of a CSV file.
        split: "random"; "stratified" by label; "group": equal values of ``split_by`` stay together; "time":
            its later values form the calibration split, the last ones the test split. By default "time" if
            ``split_by`` is a date, "group" if it is another column, "random" without it.
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
        for name, legal in (("missing", MISSING_WAYS), ("split", (None, *SPLIT_WAYS))):
            value = getattr(self, name)
            require(value in legal, name, f"be one of {', '.join(filter(None, legal))}", repr(value))
        if self.split in ("group", "time"):
            require(self.split_by is not None, "split_by", f"be given to split by {self.split}", None)
        elif self.split is not None:
            rule = f"be left out where the split is {self.split}"
            require(self.split_by is None, "split_by", rule, repr(self.split_by))
        single = len(self.separator) == 1 and self.separator not in '"\r\n'
        require(single, "separator", r"be one character, such as ; or a tab", repr(self.separator))
        try:
            "a".encode(self.encoding)  # a lookup would also find codecs that are not for text, such as rot13
        except (LookupError, ValueError):
            rule = "be a text encoding that Python knows, such as latin-1"
            require(False, "encoding", rule, repr(self.encoding))

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
