"""Folders of images: read pixel by pixel, refused by the name of the file that does not fit."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from certus.datasets import load
from certus.errors import ArgumentError


def picture(number: int, *shape: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, shape).astype(np.uint8))


def write(root: Path, *, coloured: bool = False) -> str:
    for number in range(12):
        folder = root / ("cat", "dog", "eel")[number % 3]
        folder.mkdir(exist_ok=True)
        picture(number, 5, 4, *((3,) if coloured else ())).save(folder / f"{number:02}.png")
    (root / "cat" / "notes.txt").write_text("no image")
    (root / "cat" / "._00.png").write_text("what a Mac leaves behind")
    (root / ".hidden").mkdir()
    (root / "README").write_text("no class")
    return f"folder:{root}"


@pytest.mark.parametrize("coloured", [False, True])
def test_images_are_read(tmp_path: Path, coloured: bool) -> None:
    data = load(write(tmp_path, coloured=coloured), seed=1)
    assert (data.classes, data.class_names) == (3, ("cat", "dog", "eel"))
    assert (len(data.train), len(data.calibration), len(data.test)) == (8, 2, 2)
    assert data.train.inputs.shape == (8, 3 if coloured else 1, 5, 4)
    for name, split in (("train", data.train), ("calibration", data.calibration), ("test", data.test)):
        for row, image, label in zip(data.rows[name].tolist(), split.inputs, split.targets, strict=True):
            # Rows are counted class by class, in the order of the file names.
            number = row % 4 * 3 + row // 4
            pixels = np.asarray(picture(number, 5, 4, *((3,) if coloured else ()))).reshape(5, 4, -1)
            expected = torch.as_tensor(pixels.transpose(2, 0, 1) / 255, dtype=torch.float32)
            torch.testing.assert_close(image, expected)
            assert label == number % 3
    assert data.domain.contains(data.train.inputs).all()


def test_one_coloured_image_makes_all_coloured(tmp_path: Path) -> None:
    spec = write(tmp_path)
    grey = load(spec)
    picture(99, 5, 4, 4).save(tmp_path / "eel" / "99.png")  # with transparency, which is dropped
    data = load(spec)
    assert data.train.inputs.shape[1] == 3
    everything = torch.cat([data.train.inputs, data.calibration.inputs, data.test.inputs])
    rows = torch.cat([data.rows["train"], data.rows["calibration"], data.rows["test"]])
    last = everything[rows.argsort()][12]
    expected = np.asarray(picture(99, 5, 4, 4))[..., :3].transpose(2, 0, 1) / 255
    np.testing.assert_allclose(last, expected, rtol=1e-6)
    first = everything[rows.argsort()][0]
    assert torch.equal(first[0], first[1])
    assert torch.equal(first[0], first[2])
    assert data.sha256 != grey.sha256


def test_the_size_must_be_one(tmp_path: Path) -> None:
    spec = write(tmp_path)
    picture(0, 6, 4).save(tmp_path / "dog" / "03.png")
    match = r"images of one size, 4 × 5 as in cat.00.png; got 4 × 6 in dog.03.png"
    with pytest.raises(ArgumentError, match=match):
        load(spec)


def test_broken_and_strange_images_are_refused(tmp_path: Path) -> None:
    spec = write(tmp_path)
    file = tmp_path / "dog" / "04.png"
    content = file.read_bytes()
    for kept in (0, 30, 50):
        file.write_bytes(content[:kept])
        with pytest.raises(
            ArgumentError, match=r"04.png` must be (a complete image|an image, as its name says, .*); got"
        ):
            load(spec)
    Image.fromarray(np.zeros((5, 4), dtype=np.uint16)).save(file)
    with pytest.raises(ArgumentError, match=r"grey or coloured images of 8 bits; got mode I.* in dog.04.png"):
        load(spec)


def test_folders_without_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="must be a folder; got none"):
        load(f"folder:{tmp_path}/none")
    with pytest.raises(ArgumentError, match="a subfolder for each of at least 2 classes; got 0"):
        load(f"folder:{tmp_path}")
    spec = write(tmp_path)
    with pytest.raises(ArgumentError, match="must be a folder; got a file"):
        load(f"folder:{tmp_path}/README")
    (tmp_path / "fox").mkdir()
    with pytest.raises(ArgumentError, match=r"must hold images \(.*\.png.*\) of every class; got fox"):
        load(spec)


def test_without_pillow_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ArgumentError, match="needs the package pillow: pip install pillow"):
        load(spec)
