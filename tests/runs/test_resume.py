"""Killed at any moment and resumed, a run ends with the same weights and metrics, bit for bit."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from certus.data import digits
from certus.perturbers import ERM
from certus.runs import Recorder, RunError
from certus.runs.checkpoint import restore_state, save_state
from certus.runs.recorder import CHECKPOINT, METRICS
from certus.surrogate import WRM
from certus.training import Fit, Observer, TrainingState, fit

DATA = digits().train[:300]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 10)
    )


def train(folder: Path, observers: list[Observer] | None = None, epochs: int = 3) -> Fit:
    return fit(
        network(),
        DATA,
        method=WRM(rho=0.1),
        epochs=epochs,
        batch_size=64,
        optimizer=lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True),
        schedule=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3),
        observers=[Recorder(folder, every=0.0), *(observers or [])],
    )


class Stop(Exception):
    """Stands for a crash between two steps."""


class StopAfter(Observer):
    def __init__(self, steps: int) -> None:
        self.left = steps

    def after_step(self, state: TrainingState) -> None:
        self.left -= 1
        if self.left == 0:
            raise Stop


@pytest.mark.parametrize("steps", [1, 4, 5, 7, 14])
def test_every_checkpoint_is_a_point_to_go_on_from(steps: int, tmp_path: Path) -> None:
    """Momentum, schedule, dropout, batch statistics, γ and the sums of half an epoch all come back."""
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = train(tmp_path / "whole")
    with pytest.raises(Stop):
        train(tmp_path / "parts", [StopAfter(steps)])
    parts = train(tmp_path / "parts")
    ours, theirs = parts.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert without_time(tmp_path / "parts") == without_time(tmp_path / "whole")
    assert parts.level == whole.level


def test_schedules_with_milestones_come_back(tmp_path: Path) -> None:
    """Their state has numbers for keys, which JSON has not."""

    def once(folder: Path, observers: list[Observer]) -> list[float]:
        rates: list[float] = []

        class Watch(Observer):
            def after_epoch(self, state: TrainingState) -> None:
                rates.append(state.optimizer.param_groups[0]["lr"])

        folder.mkdir(exist_ok=True)
        fit(
            network(),
            DATA,
            epochs=6,
            batch_size=100,
            optimizer=lambda groups: torch.optim.SGD(groups, lr=0.1),
            schedule=lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4]),
            observers=[Recorder(folder), Watch(), *observers],
        )
        return rates

    whole = once(tmp_path / "whole", [])
    with pytest.raises(Stop):
        once(tmp_path / "parts", [StopAfter(5)])
    assert once(tmp_path / "parts", []) == whole[1:]


def without_time(folder: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def test_metrics_are_cut_back_to_the_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(tmp_path, [StopAfter(7)])
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"epoch": 99}\n')
    train(tmp_path)
    assert [line["epoch"] for line in without_time(tmp_path)] == [1, 2, 3]


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Stop):
        train(tmp_path, [StopAfter(1)])
    other = nn.Linear(2, 2)
    state = TrainingState(other, torch.optim.Adam(other.parameters()), None, ERM())
    with pytest.raises(RunError, match="does not belong to this model and method"):
        restore_state(tmp_path / CHECKPOINT, state)
    before = (tmp_path / CHECKPOINT).read_bytes()
    (tmp_path / CHECKPOINT).write_bytes(before[:-3])
    with pytest.raises(RunError, match="is corrupt"):
        train(tmp_path)
    assert (tmp_path / CHECKPOINT).read_bytes() == before[:-3]


def test_adams_state_comes_back(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, betas=(0.8, 0.9))
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = TrainingState(model, optimizer, None, ERM())
    save_state(tmp_path / "x", state)
    fresh = torch.optim.Adam(nn.Linear(3, 2).parameters())
    again = TrainingState(nn.Linear(3, 2), fresh, None, ERM())
    restore_state(tmp_path / "x", again)
    expected, found = optimizer.state_dict(), fresh.state_dict()
    assert found["param_groups"] == expected["param_groups"]
    for index, entries in expected["state"].items():
        assert all(torch.equal(entries[name], found["state"][index][name]) for name in entries)


@pytest.mark.slow
def test_twenty_kills(tmp_path: Path) -> None:
    """SIGKILL at random moments, then resume, by the command: identical weights and metrics."""
    base = [sys.executable, "-m", "certus"]
    options = ["--epochs", "12", "--batch-size", "32", "--rho", "0.05", "--model", "mlp:64:elu"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(
        [*base, "train", "digits", *options, "-o", str(tmp_path / "whole")],
        check=True,
        capture_output=True,
        env=environment,
    )
    run = tmp_path / "killed"
    moments = random.Random(0)
    kills = 0
    while kills < 20:
        command = (
            ["resume", str(run)]
            if (run / "run.json").exists()
            else ["train", "digits", *options, "-o", str(run)]
        )
        if not (run / "run.json").exists() and run.exists():
            for file in run.iterdir():
                file.unlink()
        process = subprocess.Popen(
            [*base, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
        )
        # From before the first import is done to the middle of training and the final pass.
        deadline = time.monotonic() + moments.uniform(2.0, 8.0)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        else:
            assert process.stderr is not None
            assert process.returncode == 0, process.stderr.read()
            if (run / "result.json").exists():  # finished too soon: start over, and go on killing
                compare(tmp_path / "whole", run)
                for file in run.iterdir():
                    file.unlink()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()
    subprocess.run([*base, "resume", str(run)], check=True, capture_output=True, env=environment)
    compare(tmp_path / "whole", run)


def compare(whole: Path, run: Path) -> None:
    assert (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert without_time(run) == without_time(whole)
    results = [json.loads((folder / "result.json").read_text()) for folder in (whole, run)]
    assert results[0] == results[1]
