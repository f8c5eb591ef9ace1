"""Data sets that come with the library."""

from certus.data.base import DataSet, Split
from certus.data.digits import digits
from certus.data.rings import rings

__all__ = ["DataSet", "Split", "digits", "rings"]
