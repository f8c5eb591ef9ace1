"""A run directory: one training, its settings, its data split, its progress and its result.

run.json                  schema version, settings, sha256 of the data (and of a user's model file), of the
                          split and of itself
split.safetensors         row numbers of the train, calibration and test samples
checkpoint.safetensors    the training state, replaced as a whole
metrics.jsonl             one line per epoch
model.safetensors         the final weights
result.json               what was measured at the end, with sha256 of the weights and itself; its presence
                          means that the run is complete
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from certus.runs.recorder import METRICS, read_history
from certus.runs.result_file import WEIGHTS, read_result
from certus.runs.run_file import SEALED, describe_run, read_run
from certus.storage.files import DamageError, RunError, write_json
from certus.storage.sealed import seal
from certus.storage.tensors import digest, load_tensors, save_tensors

_SETTINGS, _SPLIT, _MODEL, _RESULT = "run.json", "split.safetensors", "model.safetensors", "result.json"


@dataclass(frozen=True)
class RunDirectory:
    """A folder with the files above; ``create`` or ``open`` it."""

    path: Path

    @staticmethod
    def create(path: Path, settings: Mapping[str, Any], rows: Mapping[str, Tensor]) -> RunDirectory:
        """A new run. The folder may exist, if it is empty."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            hint = (
                f"`certus resume {path}` goes on with it" if (path / _SETTINGS).exists() else "choose another"
            )
            raise RunError(f"{path} exists and is not empty; {hint}.")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as reason:
            raise RunError(f"Cannot make {path}: {reason.strerror}.") from None
        save_tensors(path / _SPLIT, dict(rows))
        # Last, so that a folder with settings is complete.
        write_json(path / _SETTINGS, describe_run(settings, rows))
        return RunDirectory(path)

    @staticmethod
    def open(path: Path) -> RunDirectory:
        """An existing run of a schema that this version knows."""
        if not (path / _SETTINGS).exists():
            raise RunError(f"{path} is no run directory: it has no {_SETTINGS}.")
        read_run(path / _SETTINGS)
        return RunDirectory(path)

    @property
    def settings(self) -> dict[str, Any]:
        """The content of run.json, checked."""
        return read_run(self.path / _SETTINGS)

    @property
    def rows(self) -> dict[str, Tensor]:
        """Row numbers of the source data, by split."""
        rows, known = load_tensors(self.path / _SPLIT)[0], self.settings["split_sha256"]
        if known is not None and digest(rows) != known:
            raise DamageError(f"{self.path / _SPLIT} is corrupt: it is not the split of the run.")
        return rows

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per complete epoch."""
        path = self.path / METRICS
        if not path.exists():
            return []
        return read_history(path)

    @property
    def result(self) -> dict[str, Any] | None:
        """What was measured at the end; None while the run is incomplete."""
        if not (self.path / _RESULT).exists():
            return None
        return read_result(self.path / _RESULT, sealed=self._sealed)

    def finish(self, weights: Mapping[str, Tensor], result: Mapping[str, Any]) -> None:
        """Write the final weights, then the result."""
        save_tensors(self.path / _MODEL, dict(weights))
        write_json(self.path / _RESULT, seal({**result, WEIGHTS: digest(dict(weights))}))

    def weights(self) -> dict[str, Tensor]:
        """The final weights, which are those that the result is about."""
        weights, result = load_tensors(self.path / _MODEL)[0], self.result
        known = None if result is None else result.get(WEIGHTS)
        if known is not None and digest(weights) != known:
            raise DamageError(f"{self.path / _MODEL} is corrupt: its result is about other weights.")
        return weights

    @property
    def _sealed(self) -> bool:
        return bool(self.settings["schema_version"] >= SEALED)


def find_runs(folder: Path) -> list[RunDirectory]:
    """Every run in a folder and its sub-folders, by path."""
    return [RunDirectory(path.parent) for path in sorted(folder.rglob(_SETTINGS))]
