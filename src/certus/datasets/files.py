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
from typing import Any

import numpy as np
from torch import Tensor

from certus.data import Samples
from certus.datasets.arrays import (
    Array,
    Arrays,
    Bytes,
    Targets,
    beside_test,
    digest_arrays,
    in_fifths,
    labelled,
    single,
    why_not,
)
from certus.datasets.base import SplitDataset, image_set, split_samples
from certus.datasets.raw_table import Numeric
from certus.datasets.tables import table
from certus.domains import Unbounded
from certus.errors import ArgumentError, require
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
    return train_and_test(f"idx:{path}", arrays, digest_arrays(arrays), seed=seed)


def train_and_test(name: str, arrays: Arrays, sha256: str, *, seed: int = 0) -> SplitDataset:
    """Make a data set of the four arrays of ``FILES``: images (n, height, width) and labels (n,), all
    uint8."""
    images = np.concatenate([arrays["train_images"], arrays["test_images"]])
    labels = np.concatenate([arrays["train_labels"], arrays["test_labels"]]).astype(np.int64)
    count, test_count = len(arrays["train_labels"]), len(arrays["test_labels"])
    # 5,000 of MNIST's 60,000.
    rows = beside_test(name, count, test_count, seed, held_out=max(count // 12, 1))
    classes = int(labels.max()) + 1
    require(classes >= 2, name, "have at least 2 different labels", classes)
    return image_set(name, images, Targets(labels, classes), rows, sha256)


def read_idx_folder(path: Path) -> Arrays:
    """Read the four arrays named in ``FILES``; a file may end in .gz."""
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
            sizes = read_up_to(stream, 4 * axes)
            whole = len(sizes) == 4 * axes
            require(whole, name, f"have a header of {4 + 4 * axes} bytes", 4 + len(sizes))
            shape = struct.unpack(f">{axes}I", sizes)
            size = math.prod(shape)
            require(
                size <= _MOST_BYTES_IDX,
                name,
                f"hold at most {_MOST_BYTES_IDX} bytes of data",
                f"shape {shape}",
            )
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
    inputs, targets, test_count = _arrays(source, path)
    own = len(inputs) - test_count
    if test_count:
        rows = beside_test(source, own, test_count, seed, held_out=own // 5)
    else:
        rows = in_fifths(source, own, seed)
    sha256 = digest_arrays({"inputs": inputs, "targets": targets})
    labels = _targets(source, targets)
    if inputs.dtype == np.uint8:
        shape = inputs.shape
        last = inputs.ndim == 4 and shape[1] not in CHANNELS and shape[3] in CHANNELS
        rule = "hold images as (n, channels, height, width)"
        require(not last, source, rule, f"shape {shape}, which looks like channels last")
        return image_set(source, inputs, labels, rows, sha256)
    if inputs.ndim == 2:
        columns = [Numeric(f"x{index}", values) for index, values in enumerate(inputs.astype(np.float64).T)]
        return table(source, columns, labels, rows, sha256=sha256, standardize=standardize)
    return _as_they_are(source, inputs, labels, rows, sha256)


def _arrays(source: str, path: Path) -> tuple[Array, Array, int]:
    """Return inputs and targets, test rows last, and the number of test rows."""
    arrays = {LONG_NAMES.get(name, name): array for name, array in _read(source, path).items()}
    complete = "inputs" in arrays and "targets" in arrays
    require(complete, source, "hold the arrays `inputs` and `targets` (or `x` and `y`)", sorted(arrays))
    tested = [name for name in ("test_inputs", "test_targets") if name in arrays]
    require(len(tested) != 1, source, "hold `test_inputs` and `test_targets` together", tested)
    for prefix in ("test_", "") if tested else ("",):
        inputs, targets = arrays[prefix + "inputs"], arrays[prefix + "targets"]
        _check(source, prefix, inputs, targets)
    if not tested:
        return arrays["inputs"], arrays["targets"], 0
    for name in ("inputs", "targets"):
        own, test = arrays[name], arrays[f"test_{name}"]
        rule = f"have `{name}` and `test_{name}` of one kind and shape"
        alike = _kind(own) == _kind(test) and own.shape[1:] == test.shape[1:]
        require(alike, source, rule, f"{own.dtype} {own.shape} and {test.dtype} {test.shape}")
    inputs = np.concatenate([arrays["inputs"], arrays["test_inputs"]])
    targets = np.concatenate([arrays["targets"], arrays["test_targets"]])
    return inputs, targets, len(arrays["test_inputs"])


def _kind(array: Array) -> str:
    """Return how an array is used: pixels, numbers, words or whole numbers."""
    if array.dtype == np.uint8 and array.ndim > 1:
        return "pixels"
    return {"f": "numbers", "U": "words"}.get(array.dtype.kind, "whole numbers")


def _read(source: str, path: Path) -> dict[str, Array]:
    """Read all arrays of an archive."""
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            return {
                info.filename.removesuffix(".npy"): _member(source, archive, info)
                for info in _members(source, archive)
            }
    except ArgumentError:
        raise
    except Exception as problem:  # whatever zipfile, its decoders and NumPy make of damage
        raise ArgumentError(f"`{source}` must be a complete .npz file; got {why_not(problem)}.") from problem


def _members(source: str, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """List the members of an archive, after checking names, encryption and total size."""
    members = archive.infolist()
    for name, count in Counter(info.filename for info in members).items():
        require(count == 1, source, "hold every array once", f"{name} {count} times")
    for info in members:
        whole = info.filename.endswith(".npy") and not info.flag_bits & 1
        require(whole, source, "hold arrays only, as np.savez writes them", _described(info))
    total = sum(info.file_size for info in members)
    require(total <= _MOST_BYTES, source, f"hold at most {_MOST_BYTES} bytes of numbers", total)
    return members


def _described(info: zipfile.ZipInfo) -> str:
    return f"{info.filename}, which is encrypted" if info.flag_bits & 1 else f"{info.filename}, which is none"


def _member(source: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    """Read one array. Memory is allocated only if the archive holds as many bytes as its shape needs."""
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        rule = "hold arrays of the .npy format 1.0 or 2.0"
        if read_header is None:
            raise ArgumentError(f"`{source}` must {rule}; got {version} in {info.filename}.")
        shape, _, kind = read_header(stream)
        # A pickle can run any code while it is read, so none is ever read.
        if kind.hasobject:
            raise ArgumentError(
                f"`{source}` must hold plain arrays of numbers; it holds Python objects (a pickle), "
                "which can run code when they are read."
            )
        promised, held = math.prod(shape) * kind.itemsize, info.file_size - stream.tell()
        rule = f"hold the {promised} bytes that {info.filename} promises"
        require(promised == held and min(shape, default=0) >= 0, source, rule, held)
    with archive.open(info) as stream:
        array: Array = np.lib.format.read_array(stream, allow_pickle=False)
        return array


def _check(source: str, prefix: str, inputs: Array, targets: Array) -> None:
    shape = f"`{prefix}inputs` of shape (n, …)"
    require(inputs.ndim >= 2 and inputs.size > 0, source, f"have {shape}", inputs.shape)
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


def _targets(source: str, values: Array) -> Targets:
    return Targets(values.astype(np.float64)) if values.dtype.kind == "f" else labelled(source, values)


def _as_they_are(
    source: str, inputs: Array, targets: Targets, rows: dict[str, Tensor], sha256: str
) -> SplitDataset:
    everything = Samples(single(source, inputs), targets.tensor(source))
    return SplitDataset(
        name=source,
        **split_samples(everything, rows),
        domain=Unbounded(),
        classes=targets.classes,
        class_names=targets.class_names,
        rows=rows,
        sha256=sha256,
    )


SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""What is decoded, whatever a file is called: pillow knows others, for some of which it starts a program."""
MOST_PIXELS = 2**24
"""Of one image, 4096 × 4096: a small file may well decode to gigabytes."""
MOST_IN_ALL = 2**32
"""Of all images of a folder, which are held in memory."""
GREY = frozenset({"1", "L", "LA"})
COLOURED = frozenset({"CMYK", "P", "PA", "RGB", "RGBA", "YCbCr"})


def image_folder(path: Path, *, seed: int = 0) -> SplitDataset:
    """Load images under PATH/CLASS/…, split 60% / 20% / 20%, as (n, channels, height, width) in [0, 1].

    Grey images have one channel; as soon as one is coloured, all have three. Transparency is dropped.
    Labels follow the sorted names of the subfolders. Everything is held in memory.
    """
    source = f"folder:{path}"
    require(path.is_dir(), source, "be a folder", "none" if not path.exists() else "a file")
    files = _image_files(source, path)
    images = _read_images(source, path, [file for _, file in files])
    names = np.array([label for label, _ in files])
    rows = in_fifths(source, len(images), seed)
    sha256 = digest_arrays({"inputs": images, "targets": names})
    return image_set(source, images, labelled(source, names), rows, sha256)


def _image_files(source: str, path: Path) -> list[tuple[str, Path]]:
    """List (class, file) of every image, sorted, without hidden files."""
    images: list[tuple[str, Path]] = []
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    require(len(folders) >= 2, source, "hold a subfolder for each of at least 2 classes", len(folders))
    for folder in folders:
        files = [
            file
            for file in sorted(folder.rglob("*"))
            if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
        ]
        require(
            bool(files), source, f"hold images ({', '.join(sorted(SUFFIXES))}) of every class", folder.name
        )
        images.extend((folder.name, file) for file in files)
    return images


def _read_images(source: str, root: Path, files: list[Path]) -> Bytes:
    """Decode images as (n, 1 or 3, height, width) uint8."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as missing:
        raise ArgumentError(f"`{source}` needs the package pillow: pip install pillow.") from missing
    pictures: list[Bytes] = []
    for file in files:
        place = file.relative_to(root)
        try:
            with (
                warnings.catch_warnings(action="ignore"),
                open_regular(file) as stream,
                Image.open(stream, formats=_formats(Image)) as image,
            ):
                _check_size(source, place, image.size, files, pictures, root)
                supported = image.mode in GREY or image.mode in COLOURED
                rule = "hold grey or coloured images of 8 bits"
                require(supported, source, rule, f"mode {image.mode} in {place}")
                pixels = np.asarray(image.convert("L" if image.mode in GREY else "RGB"))
        except ArgumentError:
            raise
        except UnidentifiedImageError:
            rule = f"be an image, as its name says, of the formats {', '.join(FORMATS)}"
            raise ArgumentError(
                f"`{file}` must {rule}; got another kind of file, or a damaged one."
            ) from None
        except Exception as problem:  # whatever a decoder makes of damage: pillow raises a dozen kinds
            reason = (
                why_not(problem) if isinstance(problem, OSError) else f"{type(problem).__name__}: {problem}"
            )
            raise ArgumentError(f"`{file}` must be a complete image; got {reason}.") from problem
        pictures.append(pixels)
    if all(picture.ndim == 2 for picture in pictures):
        return np.stack(pictures)[:, None]
    channels = [np.repeat(each[..., None], 3, 2) if each.ndim == 2 else each for each in pictures]
    return np.ascontiguousarray(np.stack(channels).transpose(0, 3, 1, 2))


def _formats(image: Any) -> list[str]:
    """List the ``FORMATS`` that the installed pillow supports."""
    image.init()
    return [name for name in FORMATS if name in image.OPEN]


def _check_size(
    source: str,
    place: Path,
    size: tuple[int, int],
    files: list[Path],
    pictures: list[Bytes],
    root: Path,
) -> None:
    """Check the number of pixels, and that all images have one size, before decoding."""
    width, height = size
    rule = f"hold images of at most {MOST_PIXELS} pixels, {MOST_IN_ALL} in all"
    count = width * height
    require(count <= MOST_PIXELS, source, rule, f"{width} × {height} in {place}")
    require(count * len(files) <= MOST_IN_ALL, source, rule, f"{len(files)} of {width} × {height}")
    if pictures and (height, width) != pictures[0].shape[:2]:
        first = f"{pictures[0].shape[1]} × {pictures[0].shape[0]} as in {files[0].relative_to(root)}"
        raise ArgumentError(
            f"`{source}` must hold images of one size, {first}; got {width} × {height} in {place}."
        )
