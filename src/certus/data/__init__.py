"""Data sets: bundled with the library, fetched by a package client, or the user's own files."""

from certus.data.base import DataSet
from certus.data.bundled import breast_cancer, diabetes, wine
from certus.data.cache import default_cache
from certus.data.catalogue import DataEntry, load, names
from certus.data.cifar10 import cifar10
from certus.data.digits import digits
from certus.data.employment import employment
from certus.data.fashion_mnist import fashion_mnist
from certus.data.fetching import FetchReport, fetch
from certus.data.frames import from_frame
from certus.data.mnist import mnist
from certus.data.rings import rings
from certus.split import Split
from certus.table_options import TableOptions

__all__ = [
    "DataEntry",
    "DataSet",
    "FetchReport",
    "Split",
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
