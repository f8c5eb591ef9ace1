"""Killed at any moment and resumed by the command, a run ends with the same weights and metrics."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runs.kills import AfterStep, BeforeReplacing, InsideWriting, Moment, is_killed, run
from tests.runs.metrics import without_time

# Eleven steps per epoch.
TRAIN = [
    *("train", "breast-cancer", "--model", "mlp:32:elu", "--rho", "0.05"),
    *("--epochs", "4", "--batch-size", "32"),
]
SPLIT, SETTINGS, CHECKPOINT = "split.safetensors", "run.json", "checkpoint.safetensors"
METRICS, MODEL, RESULT = "metrics.jsonl", "model.safetensors", "result.json"

BEFORE_THE_RUN: list[Moment] = [InsideWriting(1000), BeforeReplacing(SPLIT), BeforeReplacing(SETTINGS)]
# One life after another of the same run; counted from the start of each life.
LIVES: list[Moment] = [
    BeforeReplacing(CHECKPOINT),  # the first one, of the weights before training
    BeforeReplacing(METRICS),
    AfterStep(1),
    AfterStep(6),
    AfterStep(11),  # an epoch is trained, and nothing is kept of it
    InsideWriting(6000),  # its checkpoint
    BeforeReplacing(CHECKPOINT),
    BeforeReplacing(METRICS, time=2),  # its checkpoint is kept, its metrics are not
    AfterStep(2),
    AfterStep(14),  # three steps into the third epoch
    AfterStep(10),
    InsideWriting(6000),
    AfterStep(12),
    AfterStep(8),
    BeforeReplacing(METRICS, time=2),
    BeforeReplacing(MODEL),  # all is trained and measured
    BeforeReplacing(RESULT),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nobody killed."""
    folder = tmp_path_factory.mktemp("whole")
    assert run([*TRAIN, "-o", str(folder / "run")], folder / "log") == 0, (folder / "log").read_text()
    return folder / "run"


def test_twenty_kills(whole: Path, tmp_path: Path) -> None:
    """Before there is a run, inside every kind of step and write, at the end of training and after it."""
    killed, log = tmp_path / "killed", tmp_path / "log"
    train, resume = [*TRAIN, "-o", str(killed)], ["resume", str(killed)]
    for moment in BEFORE_THE_RUN:
        assert is_killed(train, log, moment), f"{moment}: {log.read_text()}"
        assert not killed.exists()
    for life, moment in enumerate(LIVES):
        assert is_killed(resume if life else train, log, moment), f"{life}, {moment}: {log.read_text()}"
        assert not (killed / RESULT).exists()
    assert len(BEFORE_THE_RUN) + len(LIVES) == 20
    assert run(resume, log) == 0, log.read_text()
    compare(whole, killed)


@pytest.mark.soak
@pytest.mark.parametrize(
    "moment",
    [
        *(AfterStep(number) for number in range(1, 45)),
        *(BeforeReplacing(file, time) for file in (CHECKPOINT, METRICS) for time in range(1, 6)),
        *(InsideWriting(bytes) for bytes in (5000, 9000, 17000)),
    ],
    ids=str,
)
def test_a_kill_at_every_moment(whole: Path, tmp_path: Path, moment: Moment) -> None:
    killed, log = tmp_path / "killed", tmp_path / "log"
    assert is_killed([*TRAIN, "-o", str(killed)], log, moment), log.read_text()
    assert run(["resume", str(killed)], log) == 0, log.read_text()
    compare(whole, killed)


def compare(whole: Path, killed: Path) -> None:
    for file in (SPLIT, MODEL, RESULT):
        assert (killed / file).read_bytes() == (whole / file).read_bytes()
    assert without_time(killed) == without_time(whole)
