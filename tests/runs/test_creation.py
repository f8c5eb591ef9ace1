"""A run directory appears whole or not at all, is made by one process of several, and is never in the way."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from certus.cli.app import main
from certus.datasets import load
from certus.models import build_model
from certus.runs import RunDirectory
from tests.forks import exit_code, start
from tests.runs.kills import (
    AfterStep,
    BeforeCalling,
    BeforeReplacing,
    Held,
    InsideWriting,
    Moment,
    is_killed,
    run,
)

TRAIN = [
    *("train", "wine", "--model", "mlp:4:elu", "--method", "erm"),
    *("--epochs", "1", "--batch-size", "64"),
]
MADE = {"run.json", "split.safetensors", "checkpoint.safetensors", "metrics.jsonl", "model.safetensors"}
WHOLE = MADE | {"result.json", ".lock"}


def train(run: Path, seed: int) -> list[str]:
    return [*TRAIN, "--seed", str(seed), "-o", str(run)]


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


@pytest.mark.parametrize("others", [1, 2], ids=["pair", "triple"])
@pytest.mark.parametrize("exists", [False, True], ids=["new", "empty"])
def test_the_first_to_finish_making_it_has_it(others: int, exists: bool, tmp_path: Path) -> None:
    """The others have built theirs already when it appears; they say so, and leave no trace."""
    place = tmp_path / "run"
    if exists:
        place.mkdir()
    moment = BeforeReplacing("split.safetensors", time=2) if exists else BeforeReplacing("run")
    held = []
    if not exists:
        held = [Held(train(place, seed), tmp_path / f"{seed}.log", moment) for seed in range(others)]
    else:
        # In an existing folder the lock is held while the files move in: all others are refused meanwhile.
        held = [Held(train(place, 0), tmp_path / "0.log", moment)]
        assert run(train(place, 7), tmp_path / "7.log") == 2
        assert "is in use by another process" in (tmp_path / "7.log").read_text()
        assert held.pop().go_on() == 0
    if not exists:
        assert run(train(place, 7), tmp_path / "7.log") == 0
    for one in held:
        assert one.go_on() == 2
        *before, said = one.log.read_text().splitlines()
        assert len(before) == 1  # which certificates the model can have
        taken = f"{place} exists already: it holds a complete run; choose another `--output`."
        assert said == f"certus: error: {taken}"
    assert RunDirectory.open(place).record.settings["seed"] == (0 if exists else 7)
    assert names(place) == WHOLE
    assert not [name for name in names(tmp_path) if name.endswith(".tmp")]


def test_an_empty_folder_that_was_filled_meanwhile(tmp_path: Path) -> None:
    """It was empty when it was looked at first; then another run was made there, and is complete."""
    place = tmp_path / "run"
    place.mkdir()
    held = Held(train(place, 0), tmp_path / "held.log", BeforeCalling("certus.runs.directory:RunLock"))
    assert run(train(place, 7), tmp_path / "log") == 0
    before = {path.name: path.read_bytes() for path in place.iterdir() if path.name[0] != "."}
    assert held.go_on() == 2
    taken = f"certus: error: {place} exists already: it holds a complete run; choose another `--output`."
    assert held.log.read_text().splitlines()[-1] == taken
    assert {path.name: path.read_bytes() for path in place.iterdir() if path.name != ".lock"} == before


def command(arguments: list[str], log: str) -> None:
    import sys

    shown = os.open(log, os.O_WRONLY | os.O_CREAT, 0o644)
    os.dup2(shown, 1)
    os.dup2(shown, 2)
    sys.argv = ["certus", *arguments]
    main()


def test_processes_that_start_together(tmp_path: Path) -> None:
    """Nobody holds anybody: whoever wins, the run is the winner's."""
    for attempt in range(3):
        place = tmp_path / f"run-{attempt}"
        logs = [tmp_path / f"{attempt}-{seed}.log" for seed in range(3)]
        started = [start(command, train(place, seed), str(log)) for seed, log in enumerate(logs)]
        codes = [exit_code(one) for one in started]
        assert sorted(codes) == [0, 2, 2], [log.read_text() for log in logs]
        assert RunDirectory.open(place).record.settings["seed"] == codes.index(0)
        assert names(place) == WHOLE


def test_runs_without_a_name_get_one_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    held = Held(TRAIN, tmp_path / "held.log", BeforeReplacing("wine-erm"))
    assert run(TRAIN, tmp_path / "log") == 0
    assert held.go_on() == 0
    assert names(tmp_path / "runs") == {"wine-erm", "wine-erm-2"}


BEFORE: list[Moment] = [
    InsideWriting(1000),
    BeforeReplacing("split.safetensors"),
    BeforeReplacing("run.json"),
    BeforeReplacing("run"),
]
INSIDE: list[Moment] = [
    BeforeReplacing("split.safetensors", time=2),  # the first time is inside the temporary folder
    BeforeReplacing("run.json", time=2),
]


@pytest.mark.parametrize("exists", [False, True], ids=["new", "empty"])
def test_killed_before_there_is_a_run(exists: bool, tmp_path: Path) -> None:
    place, log = tmp_path / "run", tmp_path / "log"
    if exists:
        place.mkdir()
    moments = [*BEFORE[:3], *(INSIDE if exists else BEFORE[3:])]
    for moment in moments:
        assert is_killed(train(place, 0), log, moment), f"{moment}: {log.read_text()}"
        assert not (place / "run.json").exists()
    assert run(train(place, 0), log) == 0, log.read_text()
    assert names(place) == WHOLE
    assert names(tmp_path) == {"run", "log"}


def test_killed_while_importing(tmp_path: Path) -> None:
    place, log = tmp_path / "run", tmp_path / "log"
    torch.manual_seed(0)
    network = build_model("mlp:4:elu", load("wine"), 0)
    save_file(network.state_dict(), tmp_path / "weights")
    command = [
        *("import", "--model", "mlp:4:elu", "--data", "wine"),
        *("--weights", str(tmp_path / "weights"), "-o", str(place)),
    ]
    for file in ("split.safetensors", "model.safetensors", "result.json", "run.json", "run"):
        assert is_killed(command, log, BeforeReplacing(file)), log.read_text()
        assert not place.exists()
    assert run(command, log) == 0, log.read_text()
    assert names(place) == {"run.json", "split.safetensors", "model.safetensors", "result.json"}
    assert names(tmp_path) == {"run", "log", "weights"}


MODEL = """
from torch import nn

class Net(nn.Sequential):
    def forward(self, inputs):
        if {when}:
            raise ValueError("not yet written")
        return super().forward(inputs)

def make():
    return Net(nn.Linear(13, {width}), nn.ELU(), nn.Linear(8, 3))
"""
SLIPS = {
    "when it is built": {"width": 7, "when": "False"},
    "at the first step": {"width": 8, "when": "self.training"},
}


@pytest.mark.parametrize("exists", [False, True], ids=["new", "empty"])
@pytest.mark.parametrize("slip", SLIPS)
def test_refused_until_the_model_is_mended(slip: str, exists: bool, tmp_path: Path) -> None:
    """Layers that do not fit show before the run is made, other mistakes at the first step of it."""
    place, log, file = tmp_path / "run", tmp_path / "log", tmp_path / "net.py"
    if exists:
        place.mkdir()
    wanted = [*("train", "wine", "--model", f"{file}:make", "--method", "erm", "--epochs", "1")]
    file.write_text(MODEL.format(**SLIPS[slip]))
    assert run([*wanted, "-o", str(place)], log) == 2
    made, mistake = "; run directory" in log.read_text(), log.read_text().splitlines()[-1]
    if slip == "at the first step":
        assert made
        assert (
            f"`--model` must run without errors; it fails in {file}, line 7, with ValueError: not" in mistake
        )
    else:
        assert not made
        assert "`--model` must accept inputs of shape (13,); it fails with RuntimeError" in mistake
    assert place.exists() == exists
    assert not exists or names(place) == set()
    file.write_text(MODEL.format(width=8, when="False"))
    assert run([*wanted, "-o", str(place)], log) == 0, log.read_text()


def test_a_trained_run_is_not_removed(tmp_path: Path) -> None:
    """A run that has something to go on from stays, whatever ends it."""
    place, log = tmp_path / "run", tmp_path / "log"
    several = [*train(place, 0), "--epochs", "3"]
    moment = BeforeCalling("certus.runs.directory:Recorder.on_step_end", time=3)  # in the second epoch
    assert run(several, log, moment, signal.SIGINT) == 130
    said = f"{place} has a checkpoint after 1 of 3 epochs; `certus resume {place}` continues."
    assert log.read_text().splitlines()[-1] == f"certus: interrupted: {said}"
    assert run(several, log) == 2
    assert f"{place} exists already: it holds a run; `certus resume {place}` continues it" in log.read_text()
    assert run(["resume", str(place)], log, AfterStep(1), signal.SIGINT) == 130
    assert log.read_text() == f"certus: interrupted: {said}\n"
    assert run(["resume", str(place)], log) == 0
    assert len((place / "metrics.jsonl").read_text().splitlines()) == 3
    assert json.loads((place / "result.json").read_text())["test"]
