"""Fashion-MNIST, 28 × 28 pixels: 70,000 pictures of clothes, from the Debian package of the IDX files."""

from __future__ import annotations

from pathlib import Path

from certus.datasets._arrays import Arrays
from certus.datasets.array_files import read_idx_folder, train_and_test
from certus.datasets.base import SplitDataset
from certus.datasets.mnist import counts_of, shape_of
from certus.datasets.package import Package, check_expected, download_debian, read
from certus.datasets.splits import digest_arrays

DEBIAN_PACKAGE = "dataset-fashion-mnist"
FOLDER = "usr/share/datasets/fashion-mnist"
EXPECTED = {
    "train shape": "60000 28 28",
    "test shape": "10000 28 28",
    "train label counts": " ".join(["6000"] * 10),
    "test label counts": " ".join(["1000"] * 10),
    # Measured on Debian's 0.0~git20200523.55506a9-1.
    "sha256": "2eec74045003bb5cc54c46331f8c48f77611acac295f1d863e16fbd263546563",
}


def fashion_mnist(seed: int = 0, *, cache: Path | None = None) -> SplitDataset:
    """The pictures as (n, 1, 28, 28) images in [0, 1]: 55,000 / 5,000 by seed, and the official 10,000."""
    arrays, sha256 = read("fashion-mnist", EXPECTED["sha256"], cache)
    return train_and_test("fashion-mnist", arrays, sha256, seed=seed)


def convert(unpacked: Path) -> Arrays:
    """Images (n, 28, 28) and labels (n,), uint8, from the unpacked package."""
    return read_idx_folder(unpacked / FOLDER)


def verify(arrays: Arrays) -> dict[str, str]:
    """Shapes, label counts, and the digest of all bytes."""
    found = {
        "train shape": shape_of(arrays["train_images"]),
        "test shape": shape_of(arrays["test_images"]),
        "train label counts": counts_of(arrays["train_labels"]),
        "test label counts": counts_of(arrays["test_labels"]),
        "sha256": digest_arrays(arrays),
    }
    return check_expected("fashion-mnist", found, EXPECTED)


PACKAGE = Package(
    name="fashion-mnist",
    origin=f"{DEBIAN_PACKAGE} from Debian, by apt-get",
    download=lambda folder: download_debian(DEBIAN_PACKAGE, folder),
    convert=convert,
    verify=verify,
    offline="put its four IDX files into a folder and load 'idx:FOLDER'",
)
