"""Stanford Dogs in its published layout: small folders made here, with lists that MATLAB could read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from certus.errors import ArgumentError
from studies.dogs.stanford import stanford_dogs

BREEDS = ("n02085620-Chihuahua", "n02085782-Japanese_spaniel", "n02099601-golden_retriever")
COLOURS = ((200, 10, 30), (20, 150, 60), (40, 50, 250))


def published(folder: Path, each: int = 5, place: str = "lists") -> Path:
    """``each`` photographs of every breed: all of one colour, in sizes of their own; the last one tests."""
    listed: dict[str, list[tuple[str, int]]] = {"train": [], "test": []}
    for label, breed in enumerate(BREEDS):
        (folder / "Images" / breed).mkdir(parents=True)
        for number in range(each):
            name = f"{breed}/{breed[:9]}_{number}.jpg"
            picture = Image.new("RGB", (30 + number, 20 + 3 * label), COLOURS[label])
            picture.save(folder / "Images" / name, "JPEG", quality=95)
            listed["test" if number == each - 1 else "train"].append((name, label + 1))
    for part, rows in listed.items():
        write_list(folder, part, rows, place)
    return folder


def write_list(folder: Path, part: str, rows: list[tuple[str, int]], place: str = "lists") -> None:
    """As MATLAB has them: a column of cells, and a column of numbers."""
    cells = np.empty((len(rows), 1), dtype=object)
    cells[:, 0] = [name for name, _ in rows]
    labels = np.array([[label] for _, label in rows], dtype=np.uint8)
    (folder / place).mkdir(exist_ok=True)
    savemat(
        folder / place / f"{part}_list.mat", {"file_list": cells, "annotation_list": cells, "labels": labels}
    )


@pytest.mark.parametrize("place", ["lists", "."])
def test_photographs_follow_the_lists(tmp_path: Path, place: str) -> None:
    data = stanford_dogs(published(tmp_path, place=place), seed=1)
    assert data.class_names == ("Chihuahua", "Japanese_spaniel", "golden_retriever")
    assert (len(data.train), len(data.calibration), len(data.test)) == (11, 1, 3)
    assert data.test.targets.tolist() == [0, 1, 2]
    assert data.train.inputs.shape[1:] == (3, 64, 64)
    for split in (data.train, data.calibration, data.test):
        for image, label in zip(split.inputs, split.targets.tolist(), strict=True):
            found = (image.mean((1, 2)) * 255).tolist()
            assert found == pytest.approx(COLOURS[label], abs=4)  # what JPEG leaves of one colour


def test_a_photograph_is_resized_whole(tmp_path: Path) -> None:
    published(tmp_path)
    pixels = np.zeros((40, 80, 3), dtype=np.uint8)
    pixels[:, 40:] = 255  # dark on the left, bright on the right, and a PNG whatever its name says
    Image.fromarray(pixels).save(tmp_path / "Images" / BREEDS[0] / "n02085620_4.jpg", "PNG")
    image = stanford_dogs(tmp_path, side=20).test.inputs[0]
    assert image.shape == (3, 20, 20)
    assert float(image[:, :, :9].max()) < 0.02
    assert float(image[:, :, 11:].min()) > 0.98


def _nothing(folder: Path) -> None:
    (folder / "lists" / "test_list.mat").unlink()


def _twice(folder: Path) -> None:
    write_list(folder, "test", [(f"{BREEDS[0]}/n02085620_0.jpg", 1)])


def _outside(folder: Path) -> None:
    write_list(folder, "test", [("../secret.jpg", 1)])


def _two_folders(folder: Path) -> None:
    write_list(folder, "test", [(f"{BREEDS[1]}/n02085782_4.jpg", 1)])


def _a_gap(folder: Path) -> None:
    write_list(folder, "test", [(f"{BREEDS[1]}/n02085782_4.jpg", 2), ("n1-other/a.jpg", 5)])


def _no_label(folder: Path) -> None:
    write_list(folder, "test", [(f"{BREEDS[1]}/n02085782_4.jpg", 0)])


def _no_list(folder: Path) -> None:
    (folder / "lists" / "train_list.mat").write_bytes(b"nothing of MATLAB")


def _torn(folder: Path) -> None:
    path = folder / "Images" / BREEDS[2] / "n02099601_1.jpg"
    path.write_bytes(path.read_bytes()[:200])


def _absent(folder: Path) -> None:
    (folder / "Images" / BREEDS[2] / "n02099601_1.jpg").unlink()


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (_nothing, r"must hold lists/test_list\.mat; got none there"),
        (_twice, "must list no photograph twice; got 1 that are"),
        (_outside, r"must list photographs as FOLDER/FILE; got '\.\./secret\.jpg'"),
        (_two_folders, "must have one folder for the label 1; got n02085620-Chihuahua, n02085782"),
        (_a_gap, r"must have photographs of every label; got none of \[4\]"),
        (_no_label, "must have a label from 1 for each photograph"),
        (_no_list, r"train_list\.mat` must be a list of Stanford Dogs; got"),
        (_torn, r"n02099601_1\.jpg` must be a complete photograph; got"),
        (_absent, r"n02099601_1\.jpg` must be a complete photograph; got FileNotFoundError"),
    ],
)
def test_changed_packages_are_refused(tmp_path: Path, spoil: object, match: str) -> None:
    published(tmp_path)
    assert callable(spoil)
    spoil(tmp_path)
    with pytest.raises(ArgumentError, match=match):
        stanford_dogs(tmp_path)


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="must be a folder that holds Images/"):
        stanford_dogs(tmp_path)
