"""Data in files: ``.npz`` archives, folders of IDX files, and folders of images."""

from __future__ import annotations

import gzip
import math
import struct
import warnings
import zipfile
import zlib
from collections import Counter
from pathlib import Path

import numpy as np

from certus.data import Samples
from certus.datasets.base import (
    Array,
    Arrays,
    Bytes,
    SplitDataset,
    Targets,
    as_float32,
    beside_test,
    describe_error,
    digest_arrays,
    image_set,
    in_fifths,
    labelled,
    split_samples,
)
from certus.datasets.encoding import Column, table
from certus.domains import Unbounded
from certus.errors import ArgumentError, optional_import, require
from certus.storage.files import open_regular, read_up_to

MOST_AXES = 8
_MOST_BYTES_IDX = 2**34
FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


def idx_folder(path: Path, *, seed: int = 0) -> SplitDataset:
    """Load a folder of four IDX files with their test set; a twelfth of the training images calibrate."""
    arrays = read_idx_folder(path)
    return train_and_test(f"idx:{path}", arrays, digest_arrays(arrays), seed)


def train_and_test(
    name: str,
    arrays: Arrays,
    sha256: str,
    seed: int,
    *,
    calibration: int = 12,
    class_names: tuple[str, ...] | None = None,
) -> SplitDataset:
    """Make a data set of the four uint8 arrays of ``FILES``; 1/calibration of the training images calibrate,
    by default 5,000 of MNIST's 60,000."""
    images = np.concatenate([arrays["train_images"], arrays["test_images"]])
    labels = np.concatenate([arrays["train_labels"], arrays["test_labels"]]).astype(np.int64)
    count, test_count = len(arrays["train_labels"]), len(arrays["test_labels"])
    rows = beside_test(name, count, test_count, seed, held_out=max(count // calibration, 1))
    classes = len(class_names) if class_names else int(labels.max()) + 1
    require(classes >= 2, name, "have at least 2 different labels", classes)
    return image_set(name, images, Targets(labels, classes, class_names), rows, sha256)


def read_idx_folder(path: Path) -> Arrays:
    """Read the four arrays named in ``FILES``; a file may end in .gz."""
    source = f"idx:{path}"
    require(path.is_dir(), source, "be a folder", "none" if not path.exists() else "a file")
    arrays = {}
    for key, name in FILES.items():
        files = [file for file in (path / name, path / f"{name}.gz") if file.is_file()]
        if not files:
            raise ArgumentError(f"`{source}` must hold the file {name} or {name}.gz; it holds neither.")
        arrays[key] = read_idx(files[0])
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        require(images.ndim == 3, source, "hold images as (n, height, width)", f"{part} shape {images.shape}")
        rule = f"have a label for each of its {len(images)} {part} images"
        require(labels.shape == images.shape[:1], source, rule, f"shape {labels.shape}")
    sizes = [arrays[f"{part}_images"].shape[1:] for part in ("train", "test")]
    require(sizes[0] == sizes[1], source, "hold images of one size", f"{sizes[0]} and {sizes[1]}")
    return arrays


def read_idx(path: Path) -> Bytes:
    """Read an IDX file: 0, 0, the type 8, the number of axes, the sizes as big-endian int32, the bytes."""
    name = str(path)
    try:
        with (
            open_regular(path) as file,
            gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file as stream,
        ):
            start = read_up_to(stream, 4)
            valid = start[:3] == b"\x00\x00\x08" and len(start) == 4
            require(valid, name, "be an IDX file of bytes (00 00 08 …)", start.hex(" ") or "an empty file")
            axes = start[3]
            require(1 <= axes <= MOST_AXES, name, f"have 1 to {MOST_AXES} axes", axes)
            sizes, header = read_up_to(stream, 4 * axes), 4 + 4 * axes
            require(4 + len(sizes) == header, name, f"have a header of {header} bytes", 4 + len(sizes))
            shape = struct.unpack(f">{axes}I", sizes)
            size = math.prod(shape)
            rule = f"hold at most {_MOST_BYTES_IDX} bytes of data"
            require(size <= _MOST_BYTES_IDX, name, rule, f"shape {shape}")
            # No more than the header says, however much a compressed file would give.
            content = read_up_to(stream, size + 1)
    except ArgumentError:
        raise
    except (OSError, EOFError, zlib.error) as problem:
        raise ArgumentError(f"`{path}` must be a complete IDX file; got {problem}.") from problem
    more, rule = " or more" if len(content) > size else "", f"have {header + size} bytes, as its header says"
    require(len(content) == size, name, rule, f"{header + len(content)}{more}")
    # A copy, because bytes are read-only and a tensor must not be.
    return np.frombuffer(content, dtype=np.uint8).reshape(shape).copy()


CHANNELS = (1, 3, 4)
_MOST_BYTES = 2**35
LONG_NAMES = {"x": "inputs", "y": "targets", "test_x": "test_inputs", "test_y": "test_targets"}


def npz_file(path: Path, *, seed: int = 0, standardize: bool = True) -> SplitDataset:
    """Load the arrays ``inputs`` (n, …) and ``targets`` (n,), or ``x`` and ``y``, of an ``np.savez`` file.

    Integer, boolean or string targets are labels, in sorted order; floating-point ones are a regression.
    Inputs of uint8 are pixels: scaled by 1/255, in the box [0, 1], (n, height, width) with a channel added.
    Other inputs of shape (n, features) are a table of numbers; more axes are taken as they are, unbounded.
    With ``test_inputs`` and ``test_targets`` the test is theirs, and the rest is split 80% / 20%.
    """
    source = f"npz:{path}"
    inputs, values, test_count = _inputs_and_targets(source, path)
    count = len(inputs) - test_count
    if test_count:
        rows = beside_test(source, count, test_count, seed, held_out=count // 5)
    else:
        rows = in_fifths(source, count, seed)
    sha256 = digest_arrays({"inputs": inputs, "targets": values})
    targets = Targets(values.astype(np.float64)) if values.dtype.kind == "f" else labelled(source, values)
    if inputs.dtype == np.uint8:
        shape = inputs.shape
        last = inputs.ndim == 4 and shape[1] not in CHANNELS and shape[3] in CHANNELS
        rule = "hold images as (n, channels, height, width)"
        require(not last, source, rule, f"shape {shape}, which looks like channels last")
        return image_set(source, inputs, targets, rows, sha256)
    if inputs.ndim == 2:
        columns = [Column(f"x{index}", column) for index, column in enumerate(inputs.astype(np.float64).T)]
        return table(source, columns, targets, rows, sha256=sha256, standardize=standardize)
    return SplitDataset(
        name=source,
        **split_samples(Samples(as_float32(source, inputs), targets.tensor(source)), rows),
        domain=Unbounded(),
        classes=targets.classes,
        class_names=targets.class_names,
        sha256=sha256,
    )


def _inputs_and_targets(source: str, path: Path) -> tuple[Array, Array, int]:
    """Return inputs and targets, test rows last, and the number of test rows."""
    arrays = {LONG_NAMES.get(name, name): array for name, array in _read_npz(source, path).items()}
    complete = "inputs" in arrays and "targets" in arrays
    require(complete, source, "hold the arrays `inputs` and `targets` (or `x` and `y`)", sorted(arrays))
    tested = [name for name in ("test_inputs", "test_targets") if name in arrays]
    require(len(tested) != 1, source, "hold `test_inputs` and `test_targets` together", tested)
    for prefix in ("test_", "") if tested else ("",):
        _check_arrays(source, prefix, arrays[f"{prefix}inputs"], arrays[f"{prefix}targets"])
    if not tested:
        return arrays["inputs"], arrays["targets"], 0
    for name in ("inputs", "targets"):
        own, test = arrays[name], arrays[f"test_{name}"]
        rule = f"have `{name}` and `test_{name}` of the same dtype and shape"
        alike = _kind(own) == _kind(test) and own.shape[1:] == test.shape[1:]
        require(alike, source, rule, f"{own.dtype} {own.shape} and {test.dtype} {test.shape}")
        arrays[name] = np.concatenate([own, test])
    return arrays["inputs"], arrays["targets"], len(arrays["test_inputs"])


def _kind(array: Array) -> str:
    """Return how an array is used: pixels, numbers, words or whole numbers."""
    if array.dtype == np.uint8 and array.ndim > 1:
        return "pixels"
    return {"f": "numbers", "U": "words"}.get(array.dtype.kind, "whole numbers")


def _check_arrays(source: str, prefix: str, inputs: Array, targets: Array) -> None:
    rule = f"have `{prefix}inputs` of shape (n, …)"
    require(inputs.ndim >= 2 and inputs.size > 0, source, rule, inputs.shape)
    require(inputs.dtype.kind in "fiub", source, f"have numbers as `{prefix}inputs`", inputs.dtype)
    rule = f"have one target for each of its {len(inputs)} `{prefix}inputs`"
    require(targets.shape == inputs.shape[:1], source, rule, f"`{prefix}targets` of shape {targets.shape}")
    rule = f"have labels or numbers as `{prefix}targets`"
    require(targets.dtype.kind in "fiubU", source, rule, targets.dtype)
    for name, array in (("inputs", inputs), ("targets", targets)):
        if array.dtype.kind == "f":
            bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))
            place = f"NaN or infinity in `{prefix}{name}`, row {bad[0] if len(bad) else None}"
            require(len(bad) == 0, source, "hold finite numbers", place)


def _read_npz(source: str, path: Path) -> Arrays:
    """Read all arrays of an archive, after checking names, encryption and total size."""
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            for name, count in Counter(info.filename for info in members).items():
                require(count == 1, source, "hold every array once", f"{name} {count} times")
            for info in members:
                encrypted = bool(info.flag_bits & 1)
                content = f"{info.filename}, which is {'encrypted' if encrypted else 'not an array'}"
                whole = info.filename.endswith(".npy") and not encrypted
                require(whole, source, "hold arrays only, as np.savez writes them", content)
            total = sum(info.file_size for info in members)
            require(total <= _MOST_BYTES, source, f"hold at most {_MOST_BYTES} bytes of numbers", total)
            return {info.filename.removesuffix(".npy"): _member(source, archive, info) for info in members}
    except ArgumentError:
        raise
    except Exception as problem:  # whatever zipfile, its decoders and NumPy make of damage
        reason = describe_error(problem)
        raise ArgumentError(f"`{source}` must be a complete .npz file; got {reason}.") from problem


def _member(source: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    """Read one array. Memory is allocated only if the archive holds as many bytes as its shape needs."""
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        rule = "hold arrays of the .npy format 1.0 or 2.0"
        require(version in ((1, 0), (2, 0)), source, rule, f"{version} in {info.filename}")
        older = version == (1, 0)
        read_header = np.lib.format.read_array_header_1_0 if older else np.lib.format.read_array_header_2_0
        shape, _, kind = read_header(stream)
        # A pickle can run any code while it is read, so none is ever read.
        if kind.hasobject:
            raise ArgumentError(
                f"`{source}` must hold plain arrays of numbers; it holds Python objects (a pickle), "
                "which can run code when they are read."
            )
        promised, held = math.prod(shape) * kind.itemsize, info.file_size - stream.tell()
        rule = f"hold the {promised} bytes that the header of {info.filename} states"
        require(promised == held and min(shape, default=0) >= 0, source, rule, held)
    with archive.open(info) as stream:
        array: Array = np.lib.format.read_array(stream, allow_pickle=False)
        return array


SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that are decoded, whatever the name of a file: pillow starts a program for some of the others."""
MOST_PIXELS = 2**24
"""Largest number of pixels of an image, 4096 × 4096: a small file can decode to gigabytes."""
MOST_IN_ALL = 2**32
"""Largest number of pixels of all images of a folder, which are held in memory."""
GREY = ("1", "L", "LA")
COLOURED = ("CMYK", "P", "PA", "RGB", "RGBA", "YCbCr")


def image_folder(path: Path, *, seed: int = 0) -> SplitDataset:
    """Load images under PATH/CLASS/…, split 60% / 20% / 20%, as (n, channels, height, width) in [0, 1].

    Grey images have one channel; as soon as one is coloured, all have three. Transparency is dropped.
    Labels follow the sorted names of the subfolders. Everything is held in memory.
    """
    source = f"folder:{path}"
    require(path.is_dir(), source, "be a folder", "none" if not path.exists() else "a file")
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    require(len(folders) >= 2, source, "hold a subfolder for each of at least 2 classes", len(folders))
    files: list[Path] = []
    labels: list[str] = []
    for folder in folders:
        visible = [file for file in sorted(folder.rglob("*")) if not file.name.startswith(".")]
        images = [file for file in visible if file.suffix.lower() in SUFFIXES]
        rule = f"hold images ({', '.join(sorted(SUFFIXES))}) of every class"
        require(bool(images), source, rule, folder.name)
        files += images
        labels += [folder.name] * len(images)
    pixels, names = _read_images(source, path, files), np.array(labels)
    rows = in_fifths(source, len(pixels), seed)
    sha256 = digest_arrays({"inputs": pixels, "targets": names})
    return image_set(source, pixels, labelled(source, names), rows, sha256)


def _read_images(source: str, root: Path, files: list[Path]) -> Bytes:
    """Decode images as (n, 1 or 3, height, width) uint8."""
    remedy = f"`{source}` needs the package pillow: pip install pillow."
    Image = optional_import("PIL.Image", remedy, ArgumentError)
    Image.init()
    formats = [name for name in FORMATS if name in Image.OPEN]
    pictures: list[Bytes] = []
    for file in files:
        try:
            with (
                warnings.catch_warnings(action="ignore"),
                open_regular(file) as stream,
                Image.open(stream, formats=formats) as image,
            ):
                # Checked before decoding.
                (width, height), place = image.size, file.relative_to(root)
                rule, size = f"at most {MOST_PIXELS} pixels, {MOST_IN_ALL} in all", f"{width} × {height}"
                small = width * height <= MOST_PIXELS
                require(small, source, f"hold images of {rule}", f"{size} in {place}")
                small = width * height * len(files) <= MOST_IN_ALL
                require(small, source, f"hold images of {rule}", f"{len(files)} of {size}")
                expected = pictures[0].shape[:2] if pictures else (height, width)
                first = f"{expected[1]} × {expected[0]} as in {files[0].relative_to(root)}"
                rule = f"hold images of one size, {first}"
                require((height, width) == expected, source, rule, f"{size} in {place}")
                supported = image.mode in GREY + COLOURED
                rule = "hold grey or coloured images of 8 bits"
                require(supported, source, rule, f"mode {image.mode} in {place}")
                pictures.append(np.asarray(image.convert("L" if image.mode in GREY else "RGB")))
        except ArgumentError:
            raise
        except Image.UnidentifiedImageError:
            rule = f"be an image, as its name says, of the formats {', '.join(FORMATS)}"
            content = "another kind of file, or a corrupt one"
            raise ArgumentError(f"`{file}` must {rule}; got {content}.") from None
        except Exception as problem:  # whatever a decoder makes of damage: pillow raises a dozen kinds
            system = isinstance(problem, OSError)
            reason = describe_error(problem) if system else f"{type(problem).__name__}: {problem}"
            raise ArgumentError(f"`{file}` must be a complete image; got {reason}.") from problem
    if all(picture.ndim == 2 for picture in pictures):
        return np.stack(pictures)[:, None]
    channels = [np.repeat(each[..., None], 3, 2) if each.ndim == 2 else each for each in pictures]
    return np.ascontiguousarray(np.stack(channels).transpose(0, 3, 1, 2))
