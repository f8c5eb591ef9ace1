"""Arrays of the user's own: kept as they are, scaled only where that is documented, never unpickled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from certus.datasets import load
from certus.domains import Box, Unbounded
from certus.errors import ArgumentError


def save(path: Path, **arrays: Any) -> str:
    np.savez(path / "a.npz", **arrays)
    return f"npz:{path}/a.npz"


def noise(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(5, 3, shape)


LABELS = np.arange(30) % 3


@pytest.mark.parametrize("names", [("inputs", "targets"), ("x", "y")])
def test_a_table_of_numbers(tmp_path: Path, names: tuple[str, str]) -> None:
    values = noise(30, 4)
    data = load(save(tmp_path, **dict(zip(names, (values, LABELS), strict=True))))
    assert (data.classes, data.class_names) == (3, ("0", "1", "2"))
    assert (len(data.train), len(data.calibration), len(data.test)) == (18, 6, 6)
    fitted = values[data.rows["train"]]
    expected = (values[data.rows["test"]] - fitted.mean(0)) / fitted.std(0)
    np.testing.assert_allclose(data.test.inputs, expected, rtol=1e-5, atol=1e-6)
    assert data.test.targets.tolist() == (data.rows["test"] % 3).tolist()
    assert data.feature_names == ("x0", "x1", "x2", "x3")


def test_bytes_are_pixels(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (30, 5, 7)).astype(np.uint8)
    data = load(save(tmp_path, inputs=pixels, targets=LABELS))
    assert data.train.inputs.shape == (18, 1, 5, 7)
    np.testing.assert_allclose(data.train.inputs[:, 0], pixels[data.rows["train"]] / 255, rtol=1e-6)
    assert isinstance(data.domain, Box)
    assert (data.domain.lower, data.domain.upper) == (0, 1)
    assert data.units == "pixels in [0, 1]"
    coloured = load(save(tmp_path, inputs=pixels[:, None].repeat(3, 1), targets=LABELS))
    assert coloured.train.inputs.shape == (18, 3, 5, 7)


def test_other_shapes_are_taken_as_they_are(tmp_path: Path) -> None:
    values = noise(30, 2, 3, 4)
    data = load(save(tmp_path, inputs=values, targets=noise(30)))
    np.testing.assert_array_equal(data.train.inputs, values[data.rows["train"]].astype(np.float32))
    np.testing.assert_array_equal(data.train.targets, noise(30)[data.rows["train"]].astype(np.float32))
    assert data.classes is None
    assert data.target_scale is None
    assert isinstance(data.domain, Unbounded)
    assert data.train.inputs.dtype == data.train.targets.dtype == torch.float32


def test_a_test_set_of_its_own_is_kept(tmp_path: Path) -> None:
    values, test = noise(30, 4), noise(7, 4) + 100
    spec = save(tmp_path, x=values, y=LABELS, test_x=test, test_y=LABELS[:7])
    data = load(spec, standardize=False)
    assert (len(data.train), len(data.calibration)) == (24, 6)
    np.testing.assert_array_equal(data.test.inputs, test.astype(np.float32))
    assert data.rows["test"].tolist() == list(range(30, 37))
    others = torch.cat([data.rows["train"], data.rows["calibration"]])
    assert sorted(others.tolist()) == list(range(30))


@pytest.mark.parametrize(
    ("targets", "test_targets"),
    [
        (LABELS.astype(np.uint8), LABELS.astype(np.int64)[:5]),
        (np.array(["a", "b", "c"])[LABELS], np.array(["a", "longer"])),
    ],
)
def test_labels_of_another_width_are_the_same_labels(
    tmp_path: Path, targets: np.ndarray[Any, Any], test_targets: np.ndarray[Any, Any]
) -> None:
    test = noise(len(test_targets), 2).astype(np.float32)
    data = load(save(tmp_path, x=noise(30, 2), y=targets, test_x=test, test_y=test_targets))
    assert data.class_names is not None
    found = [data.class_names[label] for label in data.test.targets]
    assert found == [str(label) for label in test_targets]


@pytest.mark.parametrize("targets", [LABELS * 10 - 10, np.array(["b", "c", "a"])[LABELS], LABELS > 0])
def test_labels_are_numbered_in_sorted_order(tmp_path: Path, targets: np.ndarray[Any, Any]) -> None:
    data = load(save(tmp_path, x=noise(30, 2), y=targets))
    order = sorted(set(targets.tolist()))
    assert data.class_names == tuple(str(each) for each in order)
    expected = [order.index(value) for value in targets[data.rows["train"]].tolist()]
    assert data.train.targets.tolist() == expected


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"inputs": noise(30, 2)}, r"must hold the arrays `inputs` and `targets` .*; got \['inputs'\]"),
        (
            {"x": noise(30, 2), "y": LABELS, "test_x": noise(3, 2)},
            "`test_inputs` and `test_targets` together",
        ),
        ({"x": noise(30), "y": LABELS}, r"must have `inputs` of shape \(n, …\); got \(30,\)"),
        ({"x": noise(30, 0), "y": LABELS}, r"must have `inputs` of shape \(n, …\); got \(30, 0\)"),
        ({"x": noise(29, 2), "y": LABELS}, r"one target for each of its 29 `inputs`; got `targets` of shape"),
        ({"x": noise(30, 2) + 1j, "y": LABELS}, "must have numbers as `inputs`; got complex128"),
        ({"x": noise(30, 2), "y": LABELS + 1j}, "must have labels or numbers as `targets`; got complex128"),
        ({"x": noise(9, 2), "y": LABELS[:9]}, "must have at least 10 rows; got 9"),
        ({"x": noise(30, 2), "y": LABELS * 0}, "must have at least 2 different targets; got 1"),
        (
            {"x": np.where(np.arange(60).reshape(30, 2) == 9, np.nan, 1), "y": LABELS},
            "must hold finite numbers; got NaN or infinity in `inputs`, row 4",
        ),
        (
            {"x": noise(30, 2), "y": np.where(np.arange(30) == 7, np.inf, 1)},
            "must hold finite numbers; got NaN or infinity in `targets`, row 7",
        ),
        (
            {"x": np.zeros((30, 8, 9, 3), np.uint8), "y": LABELS},
            r"\(n, channels, height, width\); got shape \(30, 8, 9, 3\), which looks like channels last",
        ),
        (
            {"x": noise(30, 2), "y": LABELS, "test_x": noise(3, 3), "test_y": LABELS[:3]},
            "must have `inputs` and `test_inputs` of the same dtype and shape",
        ),
        (
            {"x": noise(30, 2), "y": LABELS, "test_x": noise(3, 2), "test_y": noise(3)},
            "must have `targets` and `test_targets` of the same dtype and shape",
        ),
        (
            {"x": noise(30, 2), "y": LABELS, "test_x": np.zeros((3, 2), np.uint8), "test_y": LABELS[:3]},
            "must have `inputs` and `test_inputs` of the same dtype and shape",
        ),
        (
            {"x": noise(30, 2), "y": np.where(LABELS, 1.7e308, -1.7e308)},
            "numbers in the range of float32",
        ),
        ({"x": noise(30, 2, 2) * 1e300, "y": LABELS}, "numbers in the range of float32"),
    ],
)
def test_refusals(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        load(save(tmp_path, **arrays))


def test_a_pickle_is_never_read(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return Path.touch, (tmp_path / "sprung",)  # type: ignore[return-value]

    objects = np.empty(30, dtype=object)
    objects[:] = [Trap() for _ in range(30)]
    with pytest.raises(ArgumentError, match=r"it holds Python objects .* can run code"):
        load(save(tmp_path, inputs=objects, targets=LABELS))
    assert not (tmp_path / "sprung").exists()
    np.load(tmp_path / "a.npz", allow_pickle=True)["inputs"]
    assert (tmp_path / "sprung").exists()  # the trap was a real one


def test_files_that_are_not_whole(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"must be a complete .npz file; got no file at that path"):
        load(f"npz:{tmp_path}/none.npz")
    spec = save(tmp_path, x=noise(30, 4), y=LABELS)
    content = (tmp_path / "a.npz").read_bytes()
    for kept in (0, 100, len(content) // 2, len(content) - 1):
        (tmp_path / "a.npz").write_bytes(content[:kept])
        with pytest.raises(ArgumentError, match=r"must be a complete .npz file"):
            load(spec)
    flipped = bytearray(content)
    flipped[300] ^= 1
    (tmp_path / "a.npz").write_bytes(flipped)
    with pytest.raises(ArgumentError, match=r"must be a complete .npz file; got .*CRC"):
        load(spec)
    with (tmp_path / "a.npz").open("wb") as stream:
        np.save(stream, noise(30, 4))
    with pytest.raises(ArgumentError, match=r"must be a complete .npz file"):
        load(spec)
