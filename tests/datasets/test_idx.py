"""IDX files, written here byte by byte after their specification."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pytest
import torch

from certus.datasets import load
from certus.errors import ArgumentError


def idx(sizes: list[int], content: bytes) -> bytes:
    header = bytes([0, 0, 8, len(sizes)])
    return header + b"".join(size.to_bytes(4, "big") for size in sizes) + content


def pixel(image: int, row: int, column: int) -> int:
    return (image * 31 + row * 7 + column) % 256


def image_bytes(first: int, count: int) -> bytes:
    return bytes(pixel(i, r, c) for i in range(first, first + count) for r in range(4) for c in range(3))


def write(folder: Path, *, compressed: bool = False) -> str:
    contents = {
        "train-images-idx3-ubyte": idx([36, 4, 3], image_bytes(0, 36)),
        "train-labels-idx1-ubyte": idx([36], bytes(i % 5 for i in range(36))),
        "t10k-images-idx3-ubyte": idx([8, 4, 3], image_bytes(36, 8)),
        "t10k-labels-idx1-ubyte": idx([8], bytes((36 + i) % 5 for i in range(8))),
    }
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        if compressed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))
        else:
            (folder / name).write_bytes(content)
    return f"idx:{folder}"


@pytest.mark.parametrize("compressed", [False, True])
def test_images_and_labels_are_read(tmp_path: Path, compressed: bool) -> None:
    data = load(write(tmp_path, compressed=compressed), seed=2)
    assert (len(data.train), len(data.calibration), len(data.test)) == (33, 3, 8)
    for name, split in (("train", data.train), ("calibration", data.calibration), ("test", data.test)):
        assert split.inputs.shape[1:] == (1, 4, 3)
        for row, image, label in zip(data.rows[name].tolist(), split.inputs, split.targets, strict=True):
            expected = torch.tensor([[pixel(row, r, c) / 255 for c in range(3)] for r in range(4)])
            torch.testing.assert_close(image[0], expected)
            assert label == row % 5
    assert data.rows["test"].tolist() == list(range(36, 44))
    assert data.classes == 5
    assert data.units == "pixels in [0, 1]"
    assert data.domain.contains(data.train.inputs).all()


def test_the_digest_is_of_the_content_alone(tmp_path: Path) -> None:
    plain = load(write(tmp_path / "a"), seed=1)
    packed = load(write(tmp_path / "b", compressed=True), seed=2)
    assert plain.sha256 == packed.sha256
    # The digest by hand: name, type, shape and bytes of every array, by name.
    labels = bytes((36 + i) % 5 for i in range(8)), bytes(i % 5 for i in range(36))
    sha = hashlib.sha256(b"test_images |u1 (8, 4, 3)\n" + image_bytes(36, 8))
    sha.update(b"test_labels |u1 (8,)\n" + labels[0])
    sha.update(b"train_images |u1 (36, 4, 3)\n" + image_bytes(0, 36))
    sha.update(b"train_labels |u1 (36,)\n" + labels[1])
    assert plain.sha256 == sha.hexdigest()


def test_folders_that_are_incomplete_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="must be a folder; got none"):
        load(f"idx:{tmp_path}/none")
    spec = write(tmp_path)
    with pytest.raises(ArgumentError, match="must be a folder; got a file"):
        load(f"{spec}/t10k-labels-idx1-ubyte")
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(ArgumentError, match=r"must hold the file t10k-labels-idx1-ubyte or .*\.gz; it holds"):
        load(spec)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3-ubyte", b"", "must be an IDX file of bytes .*; got an empty file"),
        ("train-images-idx3-ubyte", b"\x89PNG", "must be an IDX file of bytes .*; got 89 50 4e 47"),
        ("train-images-idx3-ubyte", b"\0\0\x08\x03\0\0", "must have a header of 16 bytes; got 6"),
        ("train-images-idx3-ubyte", idx([36, 4, 3], b"\0" * 431), "must have 448 bytes, as .*; got 447"),
        ("train-images-idx3-ubyte", idx([36, 4, 3], b"\0" * 433), "must have 448 bytes, as .*; got 449"),
        (
            "train-images-idx3-ubyte",
            idx([36], b"\0" * 36),
            r"images as \(n, height, width\); got train shape",
        ),
        ("train-labels-idx1-ubyte", idx([35], b"\0" * 35), r"a label for each of its 36 train images; got"),
        (
            "t10k-images-idx3-ubyte",
            idx([8, 4, 4], b"\0" * 128),
            r"images of one size; got \(4, 3\) and \(4, 4\)",
        ),
        (
            "train-labels-idx1-ubyte.gz",
            gzip.compress(idx([36], b"\0" * 36), mtime=0)[:-9],
            "must be a complete IDX file",
        ),
        ("train-labels-idx1-ubyte.gz", b"no gzip at all", "must be a complete IDX file; got Not a gzipped"),
    ],
)
def test_broken_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    spec = write(tmp_path)
    (tmp_path / name.removesuffix(".gz")).unlink()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ArgumentError, match=message):
        load(spec)


def test_images_without_classes_or_tests_are_refused(tmp_path: Path) -> None:
    spec = write(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx([0, 4, 3], b""))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx([0], b""))
    with pytest.raises(ArgumentError, match="must have at least 1 row to test on; got 0"):
        load(spec)
    write(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx([36], b"\0" * 36))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx([8], b"\0" * 8))
    with pytest.raises(ArgumentError, match="must have at least 2 different labels; got 1"):
        load(spec)


@pytest.mark.parametrize("shape", [[36, 1], [1, 36], [36, 1, 1], [6, 6]])
def test_labels_are_one_for_each_image(tmp_path: Path, shape: list[int]) -> None:
    """Targets of shape (n, 1) would broadcast against the predictions: n² comparisons instead of n."""
    spec = write(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(shape, bytes(i % 5 for i in range(36))))
    with pytest.raises(ArgumentError, match="a label for each of its 36 train images; got shape"):
        load(spec)
    write(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx([8, 1], bytes(i % 5 for i in range(8))))
    with pytest.raises(ArgumentError, match="a label for each of its 8 test images; got shape"):
        load(spec)
