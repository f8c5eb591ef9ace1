"""Stanford Dogs (Khosla et al., 2011), as it is published: 20,580 photographs of 120 breeds, in folders.

    FOLDER/Images/n02085620-Chihuahua/n02085620_10074.jpg   a folder for each breed
    FOLDER/lists/train_list.mat, test_list.mat              or in FOLDER itself: which photographs train, and
                                                            which test; ``file_list`` and ``labels`` from 1

``Annotation/``, which says where the dog is, is not read: the paper resizes photographs whole.
They come in all sizes and shapes, and are brought to one by bilinear resizing, whatever their proportions.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from certus.datasets.base import (
    Array,
    Bytes,
    SplitDataset,
    Targets,
    beside_test,
    digest_arrays,
    image_set,
)
from certus.datasets.files import MOST_IN_ALL, MOST_PIXELS
from certus.errors import ArgumentError, require, require_count
from certus.storage.files import open_regular

SMALL_SIDE = 64
"""The default size: all photographs are then 1 GB in memory; with the paper's 224, 12 GB."""


def stanford_dogs(path: Path, *, seed: int = 0, side: int = SMALL_SIDE) -> SplitDataset:
    """Read the photographs as (n, 3, side, side) in [0, 1]; a tenth of the training list calibrates.

    Args:
        path: the folder that holds ``Images``.
        side: 224 in the paper.
    """
    source = str(path)
    require((path / "Images").is_dir(), source, "be a folder that holds Images/", path)
    require_count("side", side)
    lists = {part: _list(source, path, part) for part in ("train", "test")}
    files = [name for names, _ in lists.values() for name in names]
    labels = np.concatenate([numbers for _, numbers in lists.values()])
    twice = len(files) - len(set(files))
    require(twice == 0, source, "list no photograph twice", f"{twice} that are")
    rule = f"have at most {MOST_IN_ALL} pixels in all"
    require(len(files) * side**2 <= MOST_IN_ALL, source, rule, f"{len(files)} of {side} × {side}")
    targets = _breeds(source, files, labels)
    pictures = np.stack([_photograph(source, path / "Images" / name, side) for name in files])
    count, test_count = (len(names) for names, _ in lists.values())
    rows = beside_test(source, count, test_count, seed, held_out=max(count // 10, 1))
    sha256 = digest_arrays({"inputs": pictures, "targets": labels})
    return image_set(source, pictures, targets, rows, sha256)


def _list(source: str, path: Path, part: str) -> tuple[list[str], Array]:
    """Return the names of photographs under ``Images``, and their (n,) labels from 0."""
    from scipy.io import loadmat  # here, because it takes a moment to import

    name = f"{part}_list.mat"
    file = next((place for place in (path / "lists" / name, path / name) if place.exists()), None)
    if file is None:
        raise ArgumentError(f"`{source}` must hold lists/{name}; got none there, nor in {path}.")
    try:
        with open_regular(file) as stream:
            arrays = loadmat(stream, variable_names=["file_list", "labels"])
        names = [str(cell.item()) for cell in arrays["file_list"].reshape(-1)]
        labels = np.asarray(arrays["labels"]).reshape(-1).astype(np.int64) - 1
    except Exception as problem:  # a reader of an old format, which raises a dozen kinds
        raise ArgumentError(
            f"`{file}` must be a list of Stanford Dogs; got {_first_line(problem)}."
        ) from None
    rule = "have a label from 1 for each photograph"
    whole = len(names) == len(labels) > 0 and bool((labels >= 0).all())
    require(whole, str(file), rule, f"{len(names)} photographs and {len(labels)} labels")
    return names, labels


def _first_line(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}".splitlines()[0]


def _breeds(source: str, files: list[str], labels: Array) -> Targets:
    """Return the name of each label: the folder of its photographs, without ImageNet's number."""
    names: dict[int, str] = {}
    for file, label in zip(files, labels.tolist(), strict=True):
        folder = Path(file).parts
        plain = len(folder) == 2 and ".." not in folder and not Path(file).is_absolute()
        require(plain, source, "list photographs as FOLDER/FILE", repr(file))
        first_name = names.setdefault(label, folder[0])
        require(
            first_name == folder[0],
            source,
            f"have one folder for the label {label + 1}",
            f"{first_name}, {folder[0]}",
        )
    classes = max(names) + 1
    missing = sorted(set(range(classes)) - set(names))
    require(
        not missing,
        source,
        "have photographs of every label",
        f"none of {[entry + 1 for entry in missing[:5]]}",
    )
    require(classes >= 2, source, "have at least 2 breeds", classes)
    words = tuple(names[label].partition("-")[2] or names[label] for label in range(classes))
    return Targets(labels, classes, words)


def _photograph(source: str, file: Path, side: int) -> Bytes:
    """(3, side, side) uint8."""
    try:
        from PIL import Image
    except ImportError as missing:
        raise ArgumentError(f"`{source}` needs the package pillow: pip install pillow.") from missing
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            open_regular(file) as stream,
            Image.open(stream, formats=["JPEG", "PNG"]) as image,  # some are PNGs, whatever they are called
        ):
            width, height = image.size
            rule = f"hold photographs of at most {MOST_PIXELS} pixels"
            require(width * height <= MOST_PIXELS, source, rule, f"{width} × {height} in {file.name}")
            resized = image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR)
    except ArgumentError:
        raise
    except Exception as problem:  # whatever a decoder makes of damage: pillow raises a dozen kinds
        raise ArgumentError(f"`{file}` must be a complete photograph; got {_first_line(problem)}.") from None
    return np.asarray(resized).transpose(2, 0, 1)
