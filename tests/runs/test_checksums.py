"""A run that was damaged or edited is refused in one line, by every command, before anything is computed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from certus.datasets import load
from certus.runs import RunDirectory, RunError
from certus.runs.factory import read_settings
from certus.runs.settings import Settings
from certus.runs.train_run import start_run, train_run
from certus.storage.tensors import load_tensors, save_tensors
from certus.storage.write import add_checksum
from tests.cli.test_cli import certus, refused

COMMANDS = {
    "resume": ["resume", "run"],
    "attack": ["attack", "run", "--epsilon", "0.1"],
    "certify": ["certify", "run", "--rho", "0.1"],
    "bound": ["smoothness", "run"],
    "compare": ["compare", "run", "other", "--epsilon", "0.1"],
    "train": ["train", "csv:a.csv", "--method", "pgd", "--epsilon", "from:run"],
    "shift": ["distance", "csv:a.csv@train", "csv:a.csv@test", "--run", "run"],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    rows = [f"{(i * 37) % 41},{(i * 17) % 23},{i % 2}" for i in range(60)]
    (folder / "a.csv").write_text("\n".join(["x,z,y", *rows]))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        settings = Settings(data="csv:a.csv", model="mlp:3:elu", gamma=2.0, epochs=2)
        train_run(start_run(Path("run"), settings, load("csv:a.csv")))
    shutil.copytree(folder / "run", folder / "other")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "user")
    return tmp_path / "user"


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS.keys())
def test_every_command_refuses_an_edited_run(folder: Path, arguments: list[str]) -> None:
    file = folder / "run/run.json"
    text = file.read_text()
    file.write_text(text.replace('"standardize": true', '"standardize": false'))
    assert file.read_text() != text
    refused(certus(*arguments, folder=folder), "does not have the sha256 it was written with")


KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "switch": ({"standardize": "false"}, "`standardize` is wrong: Expected `bool`, got `str`"),
    "number": ({"gamma": "2"}, "`gamma` is wrong: Expected `float | null`, got `str`"),
    "truth": ({"epochs": True}, "`epochs` is wrong: Expected `int`, got `bool`"),
    "list": ({"data": ["csv:a.csv"]}, "`data` is wrong: Expected `str`, got `array`"),
    "range": ({"epochs": 0}, "`epochs` must be at least 1"),
    "unknown": ({"colour": "red"}, "unknown field `colour`"),
}


@pytest.mark.parametrize(("changes", "message"), KINDS.values(), ids=KINDS.keys())
def test_settings_have_kinds_and_ranges(folder: Path, changes: dict[str, Any], message: str) -> None:
    """Even under a digest of their own."""
    about = json.loads((folder / "run/run.json").read_text())
    about["settings"] |= changes
    (folder / "run/run.json").write_text(json.dumps(add_checksum(about)))
    with pytest.raises(RunError, match="run is corrupt: its settings do not fit") as caught:
        read_settings(RunDirectory.open(folder / "run"))
    assert message in str(caught.value)


ENTRIES: dict[str, Any] = {
    "origin": "found",
    "settings": [],
    "data_sha256": "x" * 64,
    "model_sha256": 3,
    "model_imports": {"a.py": 1},
    "model_uncovered": [1],
    "cost": "SquaredL2",
    "domain": None,
    "criterion": [],
    "split_sha256": "",
    "torch_version": 2.0,
}


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_has_its_kind(folder: Path, name: str) -> None:
    about = json.loads((folder / "run/run.json").read_text())
    (folder / "run/run.json").write_text(json.dumps(add_checksum(about | {name: ENTRIES[name]})))
    with pytest.raises(RunError, match=rf"run.json is corrupt: `{name}.*` is wrong"):
        RunDirectory.open(folder / "run")
    (folder / "run/run.json").write_text(
        json.dumps(add_checksum({k: v for k, v in about.items() if k != name}))
    )
    with pytest.raises(RunError, match=rf"run.json is corrupt: .* missing required field `{name}`"):
        RunDirectory.open(folder / "run")


def test_text_with_a_nul_is_refused(folder: Path) -> None:
    about = json.loads((folder / "run/run.json").read_text())
    about["settings"]["data"] = "csv:a\0b"
    (folder / "run/run.json").write_text(json.dumps(add_checksum(about)))
    with pytest.raises(RunError, match=r"run\.json is corrupt: it has text with a NUL character"):
        RunDirectory.open(folder / "run")


@pytest.mark.parametrize("version", [1, 2, 3, 4, True, "5", None, 5.0, [5], 6, 10**18], ids=repr)
def test_other_versions_are_refused_with_a_remedy(folder: Path, version: object) -> None:
    about = json.loads((folder / "run/run.json").read_text())
    (folder / "run/run.json").write_text(json.dumps(about | {"schema_version": version}))
    with pytest.raises(RunError, match=r"has schema version .* reads 5 only: train again"):
        RunDirectory.open(folder / "run")


def test_split_weights_and_result_belong_together(folder: Path) -> None:
    run = RunDirectory.open(folder / "run")
    rows = run.rows
    save_tensors(folder / "run/split.safetensors", rows | {"test": rows["test"].flip(0)})
    with pytest.raises(RunError, match=r"split.safetensors is corrupt: it is not the split of the run"):
        _ = run.rows
    weights = run.weights()
    save_tensors(folder / "run/model.safetensors", {name: 2 * value for name, value in weights.items()})
    assert load_tensors(folder / "run/model.safetensors")
    with pytest.raises(RunError, match=r"model.safetensors is corrupt: its result belongs to other weights"):
        run.weights()
    save_tensors(folder / "run/model.safetensors", {n: v.to(torch.int32) for n, v in weights.items()})
    with pytest.raises(RunError, match="its result belongs to other weights"):
        run.weights()


def changed(content: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with one entry changed, under a digest that fits."""
    copy = json.loads(json.dumps(content))
    inside, *names = copy, *path.split(".")
    for name in names[:-1]:
        inside = inside[name]
    inside[names[-1]] = value
    return add_checksum(copy)


@pytest.mark.parametrize("value", [None, True, "x", [], {}, -1, [0.5]], ids=str)
@pytest.mark.parametrize(
    "path", ["test", "test.loss", "robustness.gamma", "robustness.rho_hat", "robustness.units"]
)
def test_results_of_other_kinds_are_refused(folder: Path, path: str, value: object) -> None:
    file = folder / "run/result.json"
    content = json.loads(file.read_text())
    kept = (path == "robustness.units" and value == "x") or (path == "test.loss" and value == -1)
    file.write_text(json.dumps(changed(content, path, value)))
    if kept:
        assert RunDirectory(folder / "run").result is not None
        return
    with pytest.raises(RunError, match=r"result.json is corrupt: `(test|robustness).*` is wrong"):
        _ = RunDirectory(folder / "run").result
    if value == "x":
        assert certus("runs", ".", folder=folder).returncode == 0
        refused(certus("resume", "run", folder=folder), "result.json is corrupt")


@pytest.mark.parametrize(
    "change",
    [
        lambda line: "[]",
        lambda line: line.replace('"loss":', '"loss": "x", "was":'),
        lambda line: line.replace('"epoch": 2', '"epoch": true'),
        lambda line: line.replace('"seconds":', '"minutes":'),
        lambda line: "[" * 100_000,
        lambda line: line.replace('"epoch": 2', '"epoch": 2' + "0" * 400),
        lambda line: "null",
        lambda line: "\udcff",
    ],
    ids=["list", "text", "truth", "name", "depth", "huge", "null", "bytes"],
)
def test_metrics_of_other_kinds_are_refused(folder: Path, change: Callable[[str], str]) -> None:
    file = folder / "run/metrics.jsonl"
    lines = file.read_text().splitlines()
    file.write_bytes("\n".join([*lines[:-1], change(lines[-1])]).encode(errors="surrogateescape"))
    refused(certus("resume", "run", folder=folder), "metrics.jsonl is corrupt: it does not hold the metrics")
    done = certus("runs", ".", folder=folder)
    assert done.returncode == 0, done.stderr


HOSTILE = "dog\x1b[2J\x1b]0;owned\x07\u202e"


def test_control_characters_are_written_out(folder: Path) -> None:
    """In the names of files, columns and classes, and in settings that a run says it has."""
    rows = [f"{i},{'cat' if i % 2 else HOSTILE}" for i in range(30)]
    (folder / f"{HOSTILE}.csv").write_text("\n".join([f"x{HOSTILE},y", *rows]))
    data = f"csv:{HOSTILE}.csv"
    for arguments in (
        ["train", data, "--method", "erm", "--epochs", "1", "--model", "mlp:2:elu", "-o", f"run{HOSTILE}"],
        ["runs", "."],
        ["train", data, "--target", "price"],
        ["attack", f"none{HOSTILE}", "--epsilon", "1"],
        ["train", f"csv:{HOSTILE}"],
        ["train", HOSTILE],
        [HOSTILE],
    ):
        done = certus(*arguments, folder=folder)
        for text in (done.stdout, done.stderr):
            assert not set(text) & set("\x1b\x07\u202e"), arguments
        assert "\\x1b[2J" in done.stdout + done.stderr


def test_names_that_are_no_text_can_be_printed(folder: Path) -> None:
    """A byte that is no UTF-8 in the name of a folder."""
    shutil.move(folder / "run", folder / "run\udcff")
    done = certus("runs", ".", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "run\\udcff" in done.stdout
    done.stdout.encode()
