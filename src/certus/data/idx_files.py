"""The format of MNIST and its relatives: four IDX files in a folder, compressed or not."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from certus.data.arrays import Arrays, Bytes
from certus.data.base import DataSet
from certus.data.images import image_set
from certus.data.splits import beside_test, digest_arrays
from certus.data.targets import Targets
from certus.errors import ArgumentError, require
from certus.storage.files import open_regular, read_up_to

MOST_AXES = 8
_MOST_BYTES = 2**34
FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


def idx_folder(path: Path, *, seed: int = 0) -> DataSet:
    """The four files of a folder: their test set as the test, a twelfth of the rest for calibration."""
    arrays = read_idx_folder(path)
    return train_and_test(f"idx:{path}", arrays, digest_arrays(arrays), seed=seed)


def train_and_test(name: str, arrays: Arrays, sha256: str, *, seed: int = 0) -> DataSet:
    """A data set from the four arrays of ``FILES``: images (n, height, width) and labels (n,), all uint8."""
    images = np.concatenate([arrays["train_images"], arrays["test_images"]])
    labels = np.concatenate([arrays["train_labels"], arrays["test_labels"]]).astype(np.int64)
    count, test_count = len(arrays["train_labels"]), len(arrays["test_labels"])
    # 5,000 of MNIST's 60,000.
    rows = beside_test(name, count, test_count, seed, held_out=max(count // 12, 1))
    classes = int(labels.max()) + 1
    require(classes >= 2, name, "have at least 2 different labels", classes)
    return image_set(name, images, Targets(labels, classes), rows, sha256)


def read_idx_folder(path: Path) -> Arrays:
    """The four arrays, by the names of ``FILES``; a file may end in .gz."""
    source = f"idx:{path}"
    require(path.is_dir(), source, "be a folder", "none" if not path.exists() else "a file")
    arrays = {key: read_idx(_find(source, path, name)) for key, name in FILES.items()}
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        require(images.ndim == 3, source, "hold images as (n, height, width)", f"{part} shape {images.shape}")
        rule = f"have a label for each of its {len(images)} {part} images"
        require(labels.shape == images.shape[:1], source, rule, f"shape {labels.shape}")
    sizes = [arrays[f"{part}_images"].shape[1:] for part in ("train", "test")]
    require(sizes[0] == sizes[1], source, "hold images of one size", f"{sizes[0]} and {sizes[1]}")
    return arrays


def read_idx(path: Path) -> Bytes:
    """One array of bytes: 0, 0, the type 8, the number of axes, each size as a big-endian int32, the data."""
    name = str(path)
    try:
        with (
            open_regular(path) as file,
            gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file as stream,
        ):
            start = read_up_to(stream, 4)
            known = start[:3] == b"\x00\x00\x08" and len(start) == 4
            require(known, name, "be an IDX file of bytes (00 00 08 …)", start.hex(" ") or "an empty file")
            axes = start[3]
            require(1 <= axes <= MOST_AXES, name, f"have 1 to {MOST_AXES} axes", axes)
            sizes = read_up_to(stream, 4 * axes)
            whole = len(sizes) == 4 * axes
            require(whole, name, f"have a header of {4 + 4 * axes} bytes", 4 + len(sizes))
            shape = struct.unpack(f">{axes}I", sizes)
            size = math.prod(shape)
            require(size <= _MOST_BYTES, name, f"hold at most {_MOST_BYTES} bytes of data", f"shape {shape}")
            # No more than the header says, however much a compressed file would give.
            content = read_up_to(stream, size + 1)
    except ArgumentError:
        raise
    except (OSError, EOFError, zlib.error) as problem:
        raise ArgumentError(f"`{path}` must be a complete IDX file; got {problem}.") from problem
    header, more = 4 + 4 * axes, " or more" if len(content) > size else ""
    rule = f"have {header + size} bytes, as its header says"
    require(len(content) == size, name, rule, f"{header + len(content)}{more}")
    # A copy, because bytes are read-only and a tensor must not be.
    return np.frombuffer(content, dtype=np.uint8).reshape(shape).copy()


def _find(source: str, folder: Path, name: str) -> Path:
    for candidate in (name, f"{name}.gz"):
        if (folder / candidate).is_file():
            return folder / candidate
    raise ArgumentError(f"`{source}` must hold the file {name} or {name}.gz; it holds neither.")
