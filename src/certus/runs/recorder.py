"""Keeps a run directory up to date while a model trains: checkpoints, and one line of metrics per epoch."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from certus.runs.checkpoint import restore_state, save_state
from certus.runs.kinds import check_kinds
from certus.storage.files import MOST_JSON, DamageError, RunError, parse_json, read_regular
from certus.storage.write import write_atomically
from certus.training._fit import Observer, TrainingState
from certus.training.metrics import EpochMetrics

CHECKPOINT, METRICS = "checkpoint.safetensors", "metrics.jsonl"


class Recorder(Observer):
    """Writes ``checkpoint.safetensors`` after each epoch and every so many seconds, and ``metrics.jsonl``.

    If the folder has a checkpoint, training goes on from there, and the metrics are cut back to it.

    Args:
        every: seconds between checkpoints inside an epoch.
        writes: False in all processes but one.
    """

    def __init__(self, folder: Path, *, every: float = 60.0, writes: bool = True) -> None:
        self._folder, self._every, self._writes = folder, every, writes
        self._last = time.monotonic()
        self._steps: int | None = None

    def start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        self._steps = steps
        if (self._folder / CHECKPOINT).exists():
            restore_state(self._folder / CHECKPOINT, state)
        elif self._writes:
            save_state(self._folder / CHECKPOINT, state)
        self._write_metrics(state)

    def after_step(self, state: TrainingState) -> None:
        # The last step of an epoch is followed by the epoch's own checkpoint.
        last = state.step == self._steps
        if not last and time.monotonic() - self._last >= self._every:
            self._save(state)

    def after_epoch(self, state: TrainingState) -> None:
        self._save(state)
        self._write_metrics(state)

    def _save(self, state: TrainingState) -> None:
        if state.guard is not None:
            state.guard()
        if self._writes:
            save_state(self._folder / CHECKPOINT, state)
        self._last = time.monotonic()

    def _write_metrics(self, state: TrainingState) -> None:
        if self._writes:
            lines = [json.dumps(asdict(entry), allow_nan=False) + "\n" for entry in state.history]
            write_atomically(self._folder / METRICS, "".join(lines).encode())


def read_history(path: Path) -> list[dict[str, Any]]:
    """The lines of ``metrics.jsonl``, checked: one object per epoch."""
    try:
        entries = [parse_json(line) for line in read_regular(path, MOST_JSON).decode().splitlines()]
        epochs = [EpochMetrics(**entry) for entry in entries]
        for epoch in epochs:
            check_kinds(epoch)
    except OSError as reason:
        raise RunError(f"Cannot read {path}: {reason.strerror}.") from None
    except (ValueError, TypeError, RunError) as reason:
        line = " ".join(str(reason).split())
        raise DamageError(
            f"{path} is corrupt: it does not hold the metrics of epochs: {line[:200]}"
        ) from None
    return [asdict(epoch) for epoch in epochs]
