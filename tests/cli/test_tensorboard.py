"""``certus train --tensorboard DIR``, read back by TensorBoard's own reader."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from certus.runs.directory import Recorder
from certus.training._fit import TrainingState
from tests.cli.test_cli import certus, refused

TRAIN = ["train", "wine", "--gamma", "2", "--model", "mlp:4:elu", "--epochs", "4", "-o", "runs/one"]


def logged(folder: Path, name: str) -> dict[int, float]:
    """What TensorBoard shows: step → value. Raises if a step is shown twice."""
    reader = EventAccumulator(str(folder))
    reader.Reload()
    events = reader.Scalars(name)
    assert len({event.step for event in events}) == len(events)
    return {event.step: event.value for event in events}


def measured(run: Path, name: str) -> dict[int, Any]:
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {entry["epoch"]: pytest.approx(entry[name], rel=1e-6) for entry in entries}


def test_every_epoch_reaches_tensorboard(tmp_path: Path) -> None:
    done = certus(*TRAIN, "--tensorboard", "logs", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "TensorBoard: tensorboard --logdir logs" in done.stderr
    for name in ("loss", "phi", "rho_running", "gamma", "calibration_accuracy"):
        assert logged(tmp_path / "logs/one", name) == measured(tmp_path / "runs/one", name)
    said = certus("resume", "runs/one", "--tensorboard", "logs", folder=tmp_path)
    refused(said, "`--tensorboard` must be left out for runs/one, which is complete")


@pytest.mark.parametrize("again", ["logs", "elsewhere"])
@pytest.mark.parametrize("kept", [False, True], ids=["before the checkpoint", "before the log"])
def test_a_resumed_run_goes_on_with_the_count(
    kept: bool, again: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after the third epoch, with or without its checkpoint: every epoch is shown, and once."""
    record = Recorder.on_epoch_end

    def stopping(self: Recorder, state: TrainingState) -> None:
        if state.epoch == 3:
            if kept:
                record(self, state)
            raise KeyboardInterrupt
        record(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "on_epoch_end", stopping)
        assert certus(*TRAIN, "--tensorboard", "logs", folder=tmp_path).returncode == 130
    assert set(logged(tmp_path / "logs/one", "loss")) == {1, 2}
    done = certus("resume", "runs/one", "--tensorboard", again, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = logged(tmp_path / again / "one", "loss")
    assert set(found) == {1, 2, 3, 4}
    assert found == measured(tmp_path / "runs/one", "loss")


def test_refusals_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    refused(
        certus(*TRAIN, "--tensorboard", "file", folder=tmp_path), "`--tensorboard` must be a folder; got file"
    )
    refused(
        certus(*TRAIN, "--tensorboard", "runs", folder=tmp_path),
        "`--tensorboard` must be a folder other than that of the runs; got runs",
    )
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    refused(
        certus(*TRAIN, "--tensorboard", "logs", folder=tmp_path),
        "--tensorboard needs tensorboard: pip install 'certus[tensorboard]'.",
    )
    assert [path.name for path in tmp_path.rglob("*")] in (["file"], ["file", "runs"])
