"""Data sets: bundled with the library, fetched by a package client, or read from the user's files."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from certus.datasets.base import SplitDataset
    from certus.datasets.bundled import breast_cancer, diabetes, digits, rings, wine
    from certus.datasets.catalogue import fetch, load
    from certus.datasets.fetched import cifar10, employment, fashion_mnist, mnist
    from certus.datasets.fetching import FetchReport
    from certus.datasets.listing import DataEntry, default_cache, names
    from certus.datasets.tables import from_frame
    from certus.table_options import TableOptions

__all__ = [
    "DataEntry",
    "FetchReport",
    "SplitDataset",
    "TableOptions",
    "breast_cancer",
    "cifar10",
    "default_cache",
    "diabetes",
    "digits",
    "employment",
    "fashion_mnist",
    "fetch",
    "from_frame",
    "load",
    "mnist",
    "names",
    "rings",
    "wine",
]

_HOMES = {
    "datasets.base": ("SplitDataset",),
    "datasets.bundled": ("breast_cancer", "diabetes", "digits", "rings", "wine"),
    "datasets.catalogue": ("fetch", "load"),
    "datasets.fetched": ("cifar10", "employment", "fashion_mnist", "mnist"),
    "datasets.fetching": ("FetchReport",),
    "datasets.listing": ("DataEntry", "default_cache", "names"),
    "datasets.tables": ("from_frame",),
    "table_options": ("TableOptions",),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: torch takes seconds to load."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"certus.{home}"), name)
    raise AttributeError(f"module 'certus.datasets' has no attribute {name!r}")
