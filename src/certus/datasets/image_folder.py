"""The user's own images in folders: one subfolder for each class, all images of one size."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from certus.datasets._arrays import Bytes, labelled, why_not
from certus.datasets.base import SplitDataset, image_set
from certus.datasets.splits import digest_arrays, in_fifths
from certus.errors import ArgumentError, require
from certus.storage.files import open_regular

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
    """Images under PATH/CLASS/…, 60% / 20% / 20% by seed, as (n, channels, height, width) in [0, 1].

    Grey images have one channel; as soon as one is coloured, all have three. Transparency is dropped.
    Labels follow the sorted names of the subfolders. Everything is held in memory.
    """
    source = f"folder:{path}"
    require(path.is_dir(), source, "be a folder", "none" if not path.exists() else "a file")
    files = _files(source, path)
    images = _read(source, path, [file for _, file in files])
    names = np.array([label for label, _ in files])
    rows = in_fifths(source, len(images), seed)
    sha256 = digest_arrays({"inputs": images, "targets": names})
    return image_set(source, images, labelled(source, names), rows, sha256)


def _files(source: str, path: Path) -> list[tuple[str, Path]]:
    """(class, file) of every image, sorted; what is hidden or no image is passed over."""
    found: list[tuple[str, Path]] = []
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
        found.extend((folder.name, file) for file in files)
    return found


def _read(source: str, root: Path, files: list[Path]) -> Bytes:
    """(n, 1 or 3, height, width) uint8."""
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
                kept = image.mode in GREY or image.mode in COLOURED
                rule = "hold grey or coloured images of 8 bits"
                require(kept, source, rule, f"mode {image.mode} in {place}")
                pixels = np.asarray(image.convert("L" if image.mode in GREY else "RGB"))
        except ArgumentError:
            raise
        except UnidentifiedImageError:
            rule = f"be an image, as its name says, of the formats {', '.join(FORMATS)}"
            raise ArgumentError(
                f"`{file}` must {rule}; got another kind of file, or a damaged one."
            ) from None
        except Exception as problem:  # whatever a decoder makes of damage: pillow raises a dozen kinds
            found = (
                why_not(problem) if isinstance(problem, OSError) else f"{type(problem).__name__}: {problem}"
            )
            raise ArgumentError(f"`{file}` must be a complete image; got {found}.") from problem
        pictures.append(pixels)
    if all(picture.ndim == 2 for picture in pictures):
        return np.stack(pictures)[:, None]
    channels = [np.repeat(each[..., None], 3, 2) if each.ndim == 2 else each for each in pictures]
    return np.ascontiguousarray(np.stack(channels).transpose(0, 3, 1, 2))


def _formats(image: Any) -> list[str]:
    """Those of ``FORMATS`` that this pillow was built with."""
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
    """Before anything is decoded: not too many pixels, and as many as the others have."""
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
