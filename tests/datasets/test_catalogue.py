"""Names and prefixes: what is listed can be loaded, and what is not listed is refused with the list."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from certus.datasets import SplitDataset, digits, load, names, rings
from certus.errors import ArgumentError

BUNDLED = [entry.name for entry in names() if entry.bundled]
FETCHED = [entry.name for entry in names() if not entry.bundled]


def test_the_list() -> None:
    assert BUNDLED == ["digits", "rings", "breast-cancer", "wine", "diabetes"]
    assert FETCHED == ["mnist", "fashion-mnist", "cifar10", "employment"]
    assert all(entry.summary for entry in names())


def test_available_data_sets(tmp_path: Path) -> None:
    assert [entry.name for entry in names(cache=tmp_path) if entry.available] == BUNDLED
    (tmp_path / "mnist.safetensors").touch()
    assert [entry.name for entry in names(cache=tmp_path) if entry.available] == [*BUNDLED, "mnist"]


@pytest.mark.parametrize("name", BUNDLED)
def test_every_bundled_set_keeps_the_contract(name: str) -> None:
    data = load(name, seed=7)
    assert data.name == name
    count = sum(len(rows) for rows in data.rows.values())
    assert set(data.rows) == {"train", "calibration", "test"}
    assert sorted(torch.cat(list(data.rows.values())).tolist()) == list(range(count))
    for part, split in (("train", data.train), ("calibration", data.calibration), ("test", data.test)):
        assert len(split) == len(data.rows[part]) == len(split.targets)
        assert data.rows[part].dtype == torch.int64
        assert split.inputs.dtype == torch.float32
        assert split.targets.dtype == (torch.float32 if data.classes is None else torch.int64)
        assert data.domain.contains(split.inputs).all()
    assert data.units
    assert data.later == {}
    assert len(data.sha256) == 64
    again, other = load(name, seed=7), load(name, seed=8)
    assert again.sha256 == data.sha256
    assert torch.equal(again.train.inputs, data.train.inputs)
    # Another seed splits the same source; for rings it draws another one.
    assert (other.sha256 == data.sha256) == (name != "rings")
    assert not torch.equal(other.train.inputs, data.train.inputs)
    if data.classes is not None:
        assert set(data.train.targets.tolist()) == set(range(data.classes))


def same(one: SplitDataset, other: SplitDataset) -> bool:
    return one.sha256 == other.sha256 and torch.equal(one.train.inputs, other.train.inputs)


def test_names_and_functions_agree() -> None:
    assert same(load("digits", seed=2), digits(2))
    assert same(load("rings", seed=2), rings(seed=2))
    raw = load("wine", standardize=False)
    assert raw.input_scale is None


@pytest.mark.parametrize("name", FETCHED)
def test_data_to_be_fetched_are_marked(name: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=f"`{name}` must be fetched first: run `certus data get {name}`"):
        load(name, cache=tmp_path)


@pytest.mark.parametrize("spec", ["", "minst", "csv", "csv:", ":x", "tsv:a.tsv", "wine:1", "a.csv"])
def test_unknown_names_list_the_known_ones(spec: str) -> None:
    with pytest.raises(ArgumentError, match="`spec` must be one of") as caught:
        load(spec)
    for legal in (*BUNDLED, *FETCHED, "npz:PATH", "csv:PATH", "folder:PATH", "idx:PATH"):
        assert legal in str(caught.value)
    assert f"got {spec!r}." in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("clean.csv", "csv:clean.csv"),
        ("A.NPZ", "npz:A.NPZ"),
        ("minst", "mnist"),
        (".", "folder:."),
        ("xyzzy", None),
    ],
)
def test_the_likely_fix_is_offered(spec: str, meant: str | None) -> None:
    with pytest.raises(ArgumentError) as caught:
        load(spec)
    said = str(caught.value)
    assert said.endswith(f"Did you mean {meant}?" if meant else f"got {spec!r}.")


def test_a_target_is_for_csv_files_only() -> None:
    with pytest.raises(ArgumentError, match="`target` must be left out except for csv:PATH"):
        load("wine", target="alcohol")


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(10)))
    assert load("csv:~/a.csv").classes == 2
