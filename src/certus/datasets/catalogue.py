"""Data sets by name, and the user's own data by prefix and path."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from certus.datasets.arrays import why_not
from certus.datasets.base import SplitDataset
from certus.datasets.bundled import breast_cancer, diabetes, digits, rings, wine
from certus.datasets.employment import EMPLOYMENT, employment
from certus.datasets.fetching import FetchReport, cache_file, default_cache, fetch_package
from certus.datasets.files import idx_folder, image_folder, npz_file
from certus.datasets.images import CIFAR10, FASHION_MNIST, MNIST, cifar10, fashion_mnist, mnist
from certus.datasets.raw_table import RawTable, csv_table
from certus.datasets.tables import make_data, parquet_table
from certus.errors import ArgumentError, require
from certus.table_options import TableOptions

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
PACKAGES = {package.name: package for package in (MNIST, FASHION_MNIST, CIFAR10, EMPLOYMENT)}
PREFIXES = ("npz", "csv", "parquet", "folder", "idx")
TABLES = ("csv:", "parquet:")
"""Prefixes of tables with named columns."""


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
    return [
        DataEntry(
            name, summary, name not in PACKAGES, name not in PACKAGES or cache_file(name, cache).exists()
        )
        for name, summary in SUMMARIES.items()
    ]


def load(
    spec: str,
    *,
    seed: int = 0,
    cache: Path | None = None,
    standardize: bool = True,
    target: str | None = None,
    options: TableOptions | None = None,
) -> SplitDataset:
    """Load a data set by name, or your own as "npz:FILE", "csv:FILE", "parquet:FILE", "folder:FOLDER" or
    "idx:FOLDER".

    Args:
        seed: decides which rows train, calibrate and test (and what ``rings`` draws).
        cache: the folder of fetched data sets; ``default_cache()`` if None.
        standardize: False leaves the numbers of a table, and the targets of a regression, as they are.
            Images are scaled to [0, 1] either way.
        target: the target column of a CSV or Parquet file; the last by default.
        options: how such a table is read beyond that.

    >>> load("wine").train.inputs.shape
    torch.Size([108, 13])
    """
    prefix, colon, path = spec.partition(":")
    legal = f"one of {', '.join(SUMMARIES)}, or {', '.join(f'{each}:PATH' for each in PREFIXES)}"
    valid = spec in SUMMARIES or (prefix in PREFIXES and path != "")
    if not valid:
        raise ArgumentError(f"`spec` must be {legal}; got {spec!r}.{_likely(spec)}")
    if not spec.startswith(TABLES):
        rule = "be left out except for csv:PATH and parquet:PATH, where it names a column"
        require(target is None, "target", rule, repr(target))
        rule = "be left out except for csv:PATH and parquet:PATH, which have columns"
        require(options in (None, TableOptions()), "options", rule, options)
    if colon:
        file, chosen = _file(spec, path), options or TableOptions()
        chosen = chosen if target is None else replace(chosen, target=target)
        if spec.startswith(TABLES):
            return make_data(raw_table(spec, chosen), chosen, seed=seed, standardize=standardize)
        own: dict[str, Callable[[], SplitDataset]] = {
            "npz": lambda: npz_file(file, seed=seed, standardize=standardize),
            "folder": lambda: image_folder(file, seed=seed),
            "idx": lambda: idx_folder(file, seed=seed),
        }
        try:
            return own[prefix]()
        except OSError as problem:
            raise ArgumentError(f"`{spec}` must be readable; got {why_not(problem)}.") from problem
    named: dict[str, Callable[[], SplitDataset]] = {
        "digits": lambda: digits(seed),
        "rings": lambda: rings(seed=seed),
        "breast-cancer": lambda: breast_cancer(seed, standardize=standardize),
        "wine": lambda: wine(seed, standardize=standardize),
        "diabetes": lambda: diabetes(seed, standardize=standardize),
        "mnist": lambda: mnist(seed, cache=cache),
        "fashion-mnist": lambda: fashion_mnist(seed, cache=cache),
        "cifar10": lambda: cifar10(seed, cache=cache),
        "employment": lambda: employment(seed, standardize=standardize, cache=cache),
    }
    return named[spec]()


def raw_table(spec: str, options: TableOptions) -> RawTable:
    """Read the cells of csv:PATH or parquet:PATH."""
    prefix, _, path = spec.partition(":")
    file = _file(spec, path)
    if prefix == "csv":
        return csv_table(file, encoding=options.encoding, separator=options.separator)
    return parquet_table(file)


def _likely(spec: str) -> str:
    """Suggest the intended data set, as a question; an empty string if there is no guess."""
    kind = {".csv": "csv", ".npz": "npz", ".parquet": "parquet"}.get(Path(spec).suffix.lower())
    near = [f"{kind}:{spec}"] if kind else get_close_matches(spec, SUMMARIES, 1)
    if not near and os.path.isdir(spec):
        near = [f"folder:{spec}"]
    return f" Did you mean {near[0]}?" if near else ""


def _file(spec: str, path: str) -> Path:
    require("\0" not in path, "spec", "name a file, without NUL bytes", repr(spec))
    try:
        return Path(path).expanduser()
    except RuntimeError:  # ~nobody
        named = spec.replace(":~", ":./~", 1)
        rule = f"be a path of a user that there is, or {named} where a name begins with ~"
        raise ArgumentError(f"`spec` must {rule}; got {spec!r}.") from None


def fetch(
    name: str,
    *,
    cache: Path | None = None,
    report: Callable[[str], None] | None = None,
    locking: bool = True,
) -> FetchReport:
    """Fetch a data set into the cache. If a step fails, the cache stays unchanged.

    Args:
        cache: a folder; ``default_cache()`` if None.
        report: called with a line of text as each step begins.
        locking: False where the file system has no locks.
    """
    require(
        name in PACKAGES, "name", f"be one of {', '.join(PACKAGES)} (others need no fetching)", repr(name)
    )
    return fetch_package(
        PACKAGES[name], cache or default_cache(), report or (lambda line: None), locking=locking
    )
