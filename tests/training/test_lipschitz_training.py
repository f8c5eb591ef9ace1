"""Flips, one cycle of the learning rate, and runs of 1-Lipschitz networks that are interrupted."""

from __future__ import annotations

from dataclasses import replace
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
from certus.storage.tensors import load_tensors
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


SETTINGS = Settings.chosen(
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


@pytest.mark.parametrize(("steps", "precision"), [(3, "float32"), (5, "float32"), (5, "bfloat16")])
def test_an_interrupted_run_ends_with_the_same_weights(steps: int, precision: str, tmp_path: Path) -> None:
    """With crops, flips, a margin, a temperature and one cycle, between epochs and within one."""
    settings = replace(SETTINGS, precision=precision)
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


def test_products_in_bfloat16_leave_the_weights_orthogonal(tmp_path: Path) -> None:
    """Whatever products are rounded to: the columns are those of float32, and the run ends elsewhere."""
    layer = certus.layers.Orthogonal(12, 8)
    expected = layer.weight
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer.weight, expected)
        assert layer(torch.randn(3, 12)).dtype == torch.bfloat16
    models = [
        train_run(start_run(tmp_path / precision, replace(SETTINGS, precision=precision), DATA)).model
        for precision in ("float32", "bfloat16")
    ]
    first, second = (torch.nn.utils.parameters_to_vector(model.parameters()).detach() for model in models)
    assert 1e-5 < float((first - second).abs().max()) < 0.1
    assert {weights.dtype for weights in models[1].parameters()} == {torch.float32}


def test_a_compiled_run_has_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled to what it was before, a network gets the same weights under the same names."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    states = []
    for compiled in (False, True):
        run = start_run(tmp_path / str(compiled), replace(SETTINGS, compile=compiled), DATA)
        train_run(run)
        states.append(load_tensors(run.path / "model.safetensors")[0])
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
