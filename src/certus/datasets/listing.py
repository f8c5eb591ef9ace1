"""Names of data sets, and the folder of fetched ones; read without torch, for ``certus data list``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from certus.errors import ArgumentError

SUMMARIES = {
    "digits": "1,797 handwritten digits, 8 × 8 pixels; 10 classes",
    "rings": "the paper's synthetic disc inside a ring, 2 features; 2 classes",
    "breast-cancer": "569 tumours, 30 features; 2 classes",
    "wine": "178 wines, 13 features; 3 classes",
    "diabetes": "442 patients, 10 features; regression",
    "mnist": "70,000 handwritten digits, 28 × 28 pixels; 10 classes",
    "fashion-mnist": "70,000 pictures of clothes, 28 × 28 pixels; 10 classes",
    "cifar10": "60,000 photographs, 32 × 32 pixels in colour; 10 classes",
    "employment": "68,785 people in 2015 and 208,892 in 2016-2018; 2 classes under a real shift",
}
BUNDLED = ("digits", "rings", "breast-cancer", "wine", "diabetes")


@dataclass(frozen=True)
class DataEntry:
    """An entry of the list of data sets.

    Attributes:
        bundled: comes with the library.
        available: can be loaded now, because it is bundled or has been fetched.
    """

    name: str
    summary: str
    bundled: bool
    available: bool


def names(*, cache: Path | None = None) -> list[DataEntry]:
    """List all named data sets.

    >>> [entry.name for entry in names() if entry.bundled]
    ['digits', 'rings', 'breast-cancer', 'wine', 'diabetes']
    """
    entries = []
    for name, summary in SUMMARIES.items():
        available = name in BUNDLED or cache_file(name, cache).exists()
        entries.append(DataEntry(name, summary, name in BUNDLED, available))
    return entries


def default_cache() -> Path:
    """Return $CERTUS_CACHE, else $XDG_CACHE_HOME/certus, else ~/.cache/certus."""
    try:
        if named := os.environ.get("CERTUS_CACHE"):
            return Path(named).expanduser()
        if shared := os.environ.get("XDG_CACHE_HOME"):
            return Path(shared) / "certus"
        return Path.home() / ".cache" / "certus"
    except RuntimeError as problem:  # of ~user, or without a home directory
        raise ArgumentError(f"`CERTUS_CACHE` must name a folder: {problem}") from None


def cache_file(name: str, cache: Path | None = None) -> Path:
    """Path of a fetched data set."""
    return (cache or default_cache()) / f"{name}.safetensors"
