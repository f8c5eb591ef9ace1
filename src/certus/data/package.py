"""What is known of a data set that a package delivers: how to get it, read it, and tell that it is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from certus.data.arrays import Arrays
from certus.errors import ArgumentError


@dataclass(frozen=True)
class Package:
    """A data set that must be fetched.

    Attributes:
        origin: the package and its client, in words.
        download: fetches into a folder and returns what ``convert`` reads.
        convert: the arrays that are stored.
        verify: check name → the value found; raises ``ArgumentError`` at the first that is not as expected.
        offline: what to do without a network, in words.
    """

    name: str
    origin: str
    download: Callable[[Path], Path]
    convert: Callable[[Path], Arrays]
    verify: Callable[[Arrays], dict[str, str]]
    offline: str


def check_expected(name: str, found: dict[str, str], expected: dict[str, str]) -> dict[str, str]:
    """``found``, unless a value differs from the expected one.

    >>> check_expected("mnist", {"rows": "59999"}, {"rows": "60000"})
    Traceback (most recent call last):
    certus.errors.ArgumentError: `mnist` must have rows 60000; the package has 59999.
    """
    for check, value in expected.items():
        if found[check] != value:
            raise ArgumentError(f"`{name}` must have {check} {value}; the package has {found[check]}.")
    return found
