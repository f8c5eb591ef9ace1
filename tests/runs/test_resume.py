"""Stopped between any two steps and started again, a run ends with the same weights, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from certus.datasets import digits
from certus.inner import WRM
from certus.inner.methods import ERM
from certus.runs import Recorder, RunError
from certus.runs.directory import CHECKPOINT, restore_state, save_state
from certus.runs.records import METRICS
from certus.training import Callback, Fit, TrainingState, fit
from tests.runs.metrics import without_time

DATA = digits().train[:300]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.Linear(16, 10)
    )


def train(folder: Path, callbacks: list[Callback] | None = None, epochs: int = 3) -> Fit:
    return fit(
        network(),
        DATA,
        method=WRM(rho=0.1),
        epochs=epochs,
        batch_size=64,
        optimizer=lambda groups: torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=True),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3),
        callbacks=[Recorder(folder, every=0.0), *(callbacks or [])],
    )


class Stop(Exception):
    """Stands for a crash between two steps."""


class StopAfter(Callback):
    def __init__(self, steps: int) -> None:
        self.left = steps

    def on_step_end(self, state: TrainingState) -> None:
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
    assert parts.robustness == whole.robustness


def test_schedules_with_milestones_come_back(tmp_path: Path) -> None:
    """Their state has numbers for keys, which JSON has not."""

    def once(folder: Path, callbacks: list[Callback]) -> list[float]:
        rates: list[float] = []

        class Watch(Callback):
            def on_epoch_end(self, state: TrainingState) -> None:
                rates.append(state.optimizer.param_groups[0]["lr"])

        folder.mkdir(exist_ok=True)
        fit(
            network(),
            DATA,
            epochs=6,
            batch_size=100,
            optimizer=lambda groups: torch.optim.SGD(groups, lr=0.1),
            scheduler=lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4]),
            callbacks=[Recorder(folder), Watch(), *callbacks],
        )
        return rates

    whole = once(tmp_path / "whole", [])
    with pytest.raises(Stop):
        once(tmp_path / "parts", [StopAfter(5)])
    assert once(tmp_path / "parts", []) == whole[1:]


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
