"""Data sets: bundled with the library, fetched by a package client, or read from the user's files."""

from certus.datasets.base import SplitDataset
from certus.datasets.bundled import breast_cancer, diabetes, digits, rings, wine
from certus.datasets.catalogue import DataEntry, fetch, load, names
from certus.datasets.fetched import cifar10, employment, fashion_mnist, mnist
from certus.datasets.fetching import FetchReport, default_cache
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
