"""The bar of a training: the epoch keeps its line, the numbers stand below it, and it can be switched off."""

from __future__ import annotations

import io
import re

import pytest
import torch
from rich.console import Console
from torch import nn

from certus import fit
from certus.inner import WRM
from certus.training._fit import TrainingState
from certus.training.callbacks import ProgressBar

DATA = torch.linspace(-1, 1, 24).reshape(12, 2), torch.arange(12) % 2


def shown(text: str) -> list[str]:
    """Lines, without what moves the cursor or colours them."""
    return [
        line for line in re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)) if line.strip()
    ]


class Refreshed(ProgressBar):
    """Shows every step at once; by itself it shows those that ten looks in a second meet."""

    def on_step_end(self, state: TrainingState) -> None:
        super().on_step_end(state)
        self._progress.refresh()


def test_two_lines_at_80_columns() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80, force_jupyter=False)
    with Refreshed(console) as bar:
        fit(nn.Linear(2, 2), DATA, method=WRM(2.0), epochs=3, batch_size=4, callbacks=[bar], progress=False)
    lines = shown(written.getvalue())
    assert all(len(line) <= 80 for line in lines)
    epochs = [line for line in lines if line.startswith("epoch ") or "measuring" in line]
    news = [line for line in lines if line.startswith("moved inputs: loss ")]
    assert epochs
    assert news
    assert all("━" in line and "9/9" in line for line in epochs[-1:])
    assert not any("loss" in line for line in epochs)


def test_in_a_terminal_unless_it_is_switched_off(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(nn.Linear(2, 2), DATA, epochs=1)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes the stream for a terminal
    fit(nn.Linear(2, 2), DATA, epochs=1, progress=False)
    assert capsys.readouterr() == ("", "")
    fit(nn.Linear(2, 2), DATA, epochs=1)
    out, err = capsys.readouterr()
    assert out == ""
    assert "epoch 1/1" in err


def test_a_loader_that_does_not_know_its_length() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80, force_jupyter=False)

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self):  # type: ignore[no-untyped-def]
            yield from zip(*DATA, strict=True)

    loader = torch.utils.data.DataLoader(Stream(), batch_size=4)
    with ProgressBar(console) as bar:
        fit(nn.Linear(2, 2), loader, epochs=2, callbacks=[bar], progress=False)
    assert "epoch 2/2" in written.getvalue()
