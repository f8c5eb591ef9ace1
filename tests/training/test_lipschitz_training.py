"""Flips, one cycle of the learning rate, and runs of 1-Lipschitz networks that are interrupted."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import OneCycleLR

import certus
from certus.errors import ArgumentError
from certus.models import build_model
from certus.runs.directory import RunDirectory
from certus.runs.settings import Settings
from certus.runs.train_run import start_run, train_run
from certus.training import Callback, RandomFlip, TrainingState, fit

DATA = certus.datasets.digits()


def test_half_of_the_images_are_mirrored() -> None:
    images = torch.arange(4000.0).reshape(1000, 1, 2, 2)
    changed = RandomFlip()(images)
    flipped = (changed == images.flip(-1)).flatten(1).all(1)
    assert bool((flipped | (changed == images).flatten(1).all(1)).all())
    assert 400 < int(flipped.sum()) < 600
    with pytest.raises(ArgumentError, match="batch, channels"):
        RandomFlip()(torch.zeros(3, 4))


def test_one_cycle_steps_with_every_batch() -> None:
    rates: list[float] = []

    class Watch(Callback):
        def on_step_end(self, state: TrainingState) -> None:
            rates.append(state.optimizer.param_groups[0]["lr"])

    model = nn.Linear(2, 2)
    data = torch.randn(64, 2), torch.randint(2, (64,))
    schedule = partial(OneCycleLR, max_lr=0.1, total_steps=8, cycle_momentum=False)
    fit(
        model,
        data,
        epochs=2,
        batch_size=16,
        scheduler=schedule,
        callbacks=[Watch()],
        progress=False,
    )
    plain = schedule(torch.optim.SGD(nn.Linear(1, 1).parameters()))
    expected = []
    for _ in range(8):
        plain.optimizer.step()
        if plain.last_epoch < 7:
            plain.step()
        expected.append(plain.optimizer.param_groups[0]["lr"])
    assert rates[:7] == pytest.approx(expected[:7])
    assert max(rates) == pytest.approx(0.1, rel=0.05)


class Stop(Exception):
    """Stands for an interruption."""


class StopAfter(Callback):
    def __init__(self, steps: int) -> None:
        self.left = steps

    def on_step_end(self, state: TrainingState) -> None:
        self.left -= 1
        if self.left == 0:
            raise Stop


@pytest.mark.parametrize("steps", [3, 5])
def test_an_interrupted_run_ends_with_the_same_weights(steps: int, tmp_path: Path) -> None:
    """With crops, flips, a margin, a temperature and one cycle, between epochs and within one."""
    settings = Settings.chosen(
        data="digits",
        model="lipschitz:8x3",
        method="erm",
        epochs=2,
        batch_size=300,
        schedule="onecycle",
        learning_rate=0.005,
        margin=0.2,
        temperature=0.25,
        translate=1,
        flip=True,
    )
    models = []
    for name, stops in (("whole", []), ("parts", [StopAfter(steps)])):
        run = start_run(tmp_path / name, settings, DATA)
        if stops:
            with pytest.raises(Stop):
                train_run(run, callbacks=[*stops])
            run = RunDirectory.open(tmp_path / name)
        models.append(train_run(run).model.state_dict())
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])
    untrained = build_model("lipschitz:8x3", DATA, seed=0).state_dict()
    assert not any(torch.equal(models[0][name], untrained[name]) for name in untrained)
