"""A checkpoint with a digest that fits, and a content that does not, is refused with one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor

from certus.cli.app import app
from certus.runs.directory import RunDirectory
from certus.runs.train_run import train_run
from certus.storage.files import RunError
from certus.storage.tensors import load_tensors, save_tensors

Change = Callable[[dict[str, Tensor], dict[str, Any]], object]


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that lacks its result."""
    run = tmp_path_factory.mktemp("half") / "run"
    line = ["train", "wine", "--method", "erm", "--model", "mlp:4:elu", "--epochs", "1", "-o", str(run)]
    assert CliRunner().invoke(app, line).exit_code == 0
    (run / "result.json").unlink()
    return run


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _, note: note.update(sums=[]), "`sums.*` is wrong: Expected"),
        (lambda _, note: note.update(sums={"loss": [1.0, "x"]}), "`sums.*` is wrong: Expected"),
        (lambda _, note: note.update(step="x"), "`step` is wrong: Expected `int`"),
        (lambda _, note: note.update(epoch=-1), "`epoch` is wrong: Expected `int`"),
        (lambda _, note: note.update(epoch=True), "`epoch` is wrong: Expected `int`"),
        (lambda _, note: note.update(seconds=None), "`seconds` is wrong: Expected `float`"),
        (
            lambda _, note: note.update(history=[{**note["history"][0], "loss": "x"}]),
            "`loss` is wrong",
        ),
        (lambda _, note: note.update(optimizer={"items": 1}), "'int' object is not iterable"),
        (lambda _, note: note.update(method=3), "has no len|not iterable|must be empty"),
        (lambda tensors, _: _weights(tensors)[0].fill_(torch.nan), "finite weights"),
        (lambda tensors, _: tensors.update({"optimizer.state.0.exp_avg": torch.zeros(2)}), "`exp_avg` must"),
        (
            lambda _, note: _groups(note)[0].__setitem__(1, "x"),
            "`param_groups` must have the entries of the optimizer",
        ),
        (lambda _, note: note.clear(), "missing required field `epoch`"),
    ],
)
def test_files_without_a_training_state(half: Path, change: Change, words: str) -> None:
    path = half / "checkpoint.safetensors"
    kept = path.read_bytes()
    tensors, note = load_tensors(path)
    change(tensors, note)
    save_tensors(path, tensors, note)
    with pytest.raises(RunError, match=f"does not belong to this model and method: .*({words})"):
        train_run(RunDirectory.open(half))
    path.write_bytes(kept)


def test_weights_that_overflow(half: Path) -> None:
    path = half / "checkpoint.safetensors"
    kept = path.read_bytes()
    tensors, note = load_tensors(path)
    for tensor in _weights(tensors):
        tensor.copy_(tensor.sign() * 1e30)
    save_tensors(path, tensors, note)
    with pytest.raises(RunError, match="The loss on wine is"):
        train_run(RunDirectory.open(half))
    path.write_bytes(kept)


def _weights(tensors: dict[str, Tensor]) -> list[Tensor]:
    return [tensor for name, tensor in tensors.items() if name.startswith("model.")]


def _groups(note: dict[str, Any]) -> list[list[Any]]:
    """The entries of the optimizer's first group, as [name, value]."""
    entries: dict[str, Any] = dict(note["optimizer"]["items"])
    items: list[list[Any]] = entries["param_groups"]["list"][0]["items"]
    return items


def test_the_state_as_it_was_goes_on(half: Path) -> None:
    assert train_run(RunDirectory.open(half)).model is not None
