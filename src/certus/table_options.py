"""Options for reading a table, as JSON types with validation."""

from __future__ import annotations

import csv
from dataclasses import dataclass

from certus.errors import require

TABLES = ("csv:", "parquet:")
"""Prefixes of tables with named columns."""
MISSING_WAYS = ("median", "refuse")
SPLIT_WAYS = ("random", "stratified", "group", "time")
DATE_FEATURES = ("trend", "season")
MOST_CATEGORIES = 50


@dataclass(frozen=True)
class TableOptions:
    """Options for reading a table, beyond what is inferred from its cells. Lists are separated by commas, and
    names that contain one are quoted.

    Attributes:
        target: the column to predict; the last one by default.
        drop, keep: columns to leave out, and columns to keep although they look like identifiers.
        categorical: numeric columns that are categories.
        missing: "median" fills in the training median of a number and adds an indicator column; "refuse"
            refuses the table.
        encoding, separator: of a CSV file; guessed by default.
        decimal, thousands: marks of numbers that can be read in two ways, such as 1.234.
        na: further cells that are missing values, such as "-,none".
        date_format: of dates that can be read in two ways, such as %d/%m/%Y.
        max_categories: categories of a column; the rarest ones beyond it become "(other)".
        date_features: what a date is to the model: "trend" for the day, "season" for the time of the year;
            nothing by default.
        split: "random"; "stratified" by label; "group": equal values of ``split_by`` stay together; "time":
            its later values form the calibration split, the last ones the test split. By default "time" if
            ``split_by`` is a date, "group" if it is another column, "random" without it.
    """

    target: str | None = None
    drop: str = ""
    keep: str = ""
    categorical: str = ""
    missing: str = "median"
    encoding: str | None = None
    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    na: str = ""
    date_format: str | None = None
    max_categories: int = MOST_CATEGORIES
    date_features: str = ""
    split: str | None = None
    split_by: str | None = None

    def __post_init__(self) -> None:
        marks = (None, ".", ",")
        for name, legal in (
            ("missing", MISSING_WAYS),
            ("split", (None, *SPLIT_WAYS)),
            ("decimal", marks),
            ("thousands", (*marks, " ", "'")),
        ):
            value = getattr(self, name)
            words = ", ".join(
                repr(each) if name in ("decimal", "thousands") else each for each in legal if each
            )
            require(value in legal, name, f"be one of {words}", repr(value))
        rule = "differ from the decimal mark"
        require(
            self.decimal is None or self.decimal != self.thousands, "thousands", rule, repr(self.thousands)
        )
        if self.split in ("group", "time"):
            require(self.split_by is not None, "split_by", f"be given to split by {self.split}", None)
        elif self.split is not None:
            rule = f"be left out where the split is {self.split}"
            require(self.split_by is None, "split_by", rule, repr(self.split_by))
        single = self.separator is None or (len(self.separator) == 1 and self.separator not in '"\r\n')
        require(single, "separator", r"be one character, such as ; or a tab", repr(self.separator))
        rule = "be a format of a whole date, such as %d.%m.%Y"
        whole = self.date_format is None or all(
            any(sign in self.date_format for sign in signs) for signs in (("%d", "%j"), ("%Y", "%y"))
        )
        require(whole, "date_format", rule, repr(self.date_format))
        require(self.max_categories >= 2, "max_categories", "be at least 2", self.max_categories)
        unknown = sorted(set(self.dates) - set(DATE_FEATURES))
        require(
            not unknown,
            "date_features",
            f"be {', '.join(DATE_FEATURES)}, or one of them",
            repr(self.date_features),
        )
        try:
            "a".encode(self.encoding or "utf-8")  # a lookup would also find codecs that are not for text
        except (LookupError, ValueError):
            rule = "be a text encoding that Python knows, such as latin-1"
            require(False, "encoding", rule, repr(self.encoding))

    @property
    def dropped(self) -> tuple[str, ...]:
        return listed_names(self.drop)

    @property
    def kept(self) -> tuple[str, ...]:
        return listed_names(self.keep)

    @property
    def categories(self) -> tuple[str, ...]:
        return listed_names(self.categorical)

    @property
    def gaps(self) -> tuple[str, ...]:
        return listed_names(self.na)

    @property
    def dates(self) -> tuple[str, ...]:
        return listed_names(self.date_features)


def listed_names(text: str) -> tuple[str, ...]:
    """Split names at commas, except inside quotes.

    >>> listed_names('age, "height, in cm"')
    ('age', 'height, in cm')
    """
    rows = csv.reader([text], skipinitialspace=True)
    return tuple(name.strip() for row in rows for name in row if name.strip())
