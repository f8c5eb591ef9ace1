"""Tables that are in memory, or in a Parquet file: pandas, polars and Arrow, through narwhals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from certus.data.base import DataSet
from certus.data.learning import make_data
from certus.data.raw_table import RawColumn, RawTable
from certus.data.reasons import why_not
from certus.errors import ArgumentError, UnsupportedError, require
from certus.storage.files import open_regular
from certus.table_options import TableOptions

_DAY = 86_400_000_000.0  # microseconds


def from_frame(
    frame: Any,
    *,
    target: str | None = None,
    seed: int = 0,
    standardize: bool = True,
    options: TableOptions | None = None,
    name: str = "frame",
) -> DataSet:
    """A data set from a pandas, polars or Arrow frame, as ``load`` makes one of a CSV file.

    Args:
        target: the column to predict; the last one by default.
        options: how gaps, categories and splits are treated.

    >>> import pandas
    >>> frame = pandas.DataFrame({"age": [20.0, None, 40.0] * 10, "town": list("abc") * 10, "y": [0, 1] * 15})
    >>> from_frame(frame, target="y").feature_names
    ('age', 'age?=known', 'age?=missing', 'town=a', 'town=b', 'town=c')
    """
    chosen = options or TableOptions()
    chosen = chosen if target is None else replace(chosen, target=target)
    return make_data(frame_table(frame, name), chosen, seed=seed, standardize=standardize)


def parquet_table(path: Path) -> RawTable:
    """The columns of a Parquet file."""
    source = f"parquet:{path}"
    try:
        from pyarrow import parquet
    except ImportError:
        raise UnsupportedError("Parquet files need pyarrow: pip install 'certus[frames]'.") from None
    try:
        with open_regular(path) as stream:
            frame = parquet.read_table(stream)
    except Exception as problem:  # whatever Arrow makes of damage
        raise ArgumentError(
            f"`{source}` must be a readable Parquet file; got {why_not(problem)}."
        ) from problem
    return frame_table(frame, source)


def frame_table(frame: Any, source: str) -> RawTable:
    """A frame's columns: numbers and days as they are, all else as words."""
    try:
        import narwhals
    except ImportError:
        raise UnsupportedError("Frames need narwhals: pip install 'certus[frames]'.") from None
    try:
        known = narwhals.from_native(frame, eager_only=True)
    except TypeError:
        rule = "be a pandas, polars or Arrow frame"
        raise ArgumentError(f"`frame` must {rule}; got {type(frame)}.") from None
    labels = [str(label) for label in known.columns]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    require(not twice, source, "have different column names", ", ".join(twice))
    return RawTable(source, {str(label): _column(narwhals, source, known[label]) for label in known.columns})


def _column(narwhals: Any, source: str, series: Any) -> RawColumn:
    kind = series.dtype
    if kind.is_integer() and _beyond_floats(series):
        gaps = series.is_null().to_list()
        return RawColumn(
            [None if gap else str(value) for value, gap in zip(series.to_list(), gaps, strict=True)]
        )
    if kind.is_numeric():
        values = series.cast(narwhals.Float64).to_numpy()
        return RawColumn(numbers=np.array(values, dtype=np.float64))
    if isinstance(kind, narwhals.Date | narwhals.Datetime):
        gaps = series.is_null().to_numpy().astype(bool)
        moments = series.cast(narwhals.Datetime("us")).dt.timestamp("us").to_numpy()
        days = np.where(gaps, np.nan, np.where(gaps, 0, moments).astype(np.float64) / _DAY)
        return RawColumn(numbers=days, days=True)
    if kind.is_nested():
        raise ArgumentError(f"`{source}` must hold numbers, words or dates; got {kind} in {series.name!r}.")
    cells = series.to_list()
    if any(isinstance(cell, complex) for cell in cells):
        raise ArgumentError(f"`{source}` must hold real numbers; got complex ones in {series.name!r}.")
    return RawColumn([_word(cell) for cell in cells])


def _beyond_floats(series: Any) -> bool:
    """Whether whole numbers, such as identifiers of 64 bits, exceed those that float64 tells apart."""
    return any(value is not None and abs(int(value)) > 2**53 for value in (series.min(), series.max()))


def _word(cell: Any) -> str | None:
    """A cell as a word; None, NaN and NaT are gaps."""
    missing = cell is None or cell != cell
    return None if missing or str(cell).strip() == "" else str(cell).strip()
