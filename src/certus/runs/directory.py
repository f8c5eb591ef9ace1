"""A run directory: one training, its settings, its data split, its progress and its result.

run.json                  schema version, settings, sha256 of the data (and of a user's model file)
split.safetensors         row numbers of the train, calibration and test samples
checkpoint.safetensors    the training state, replaced as a whole
metrics.jsonl             one line per epoch
model.safetensors         the final weights
result.json               what was measured at the end; its presence means that the run is complete
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from certus.runs.recorder import METRICS
from certus.storage.files import RunError, parse_json, read_json, write_json
from certus.storage.tensors import load_tensors, save_tensors

RUN_VERSION = 2
_READ = (1, RUN_VERSION)  # 1 had another name for a setting; see ``settings_of``
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
        write_json(path / _SETTINGS, {"schema_version": RUN_VERSION, **settings})
        return RunDirectory(path)

    @staticmethod
    def open(path: Path) -> RunDirectory:
        """An existing run of a schema that this version knows."""
        if not (path / _SETTINGS).exists():
            raise RunError(f"{path} is no run directory: it has no {_SETTINGS}.")
        about = read_json(path / _SETTINGS)
        if not isinstance(about, dict):
            raise RunError(f"{path / _SETTINGS} is corrupt: it does not describe a run.")
        version = about.get("schema_version")
        if version not in _READ:
            raise RunError(
                f"{path} has schema version {version}; this version of certus reads "
                f"{' and '.join(map(str, _READ))}."
            )
        return RunDirectory(path)

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = read_json(self.path / _SETTINGS)
        return settings

    @property
    def rows(self) -> dict[str, Tensor]:
        """Row numbers of the source data, by split."""
        return load_tensors(self.path / _SPLIT)[0]

    @property
    def history(self) -> list[dict[str, Any]]:
        """One entry per complete epoch."""
        path = self.path / METRICS
        if not path.exists():
            return []
        try:
            return [parse_json(line) for line in path.read_text().splitlines()]
        except (ValueError, RunError):
            raise RunError(f"{path} is corrupt: it is no JSON.") from None

    @property
    def result(self) -> dict[str, Any] | None:
        """What was measured at the end; None while the run is incomplete."""
        if not (self.path / _RESULT).exists():
            return None
        result: dict[str, Any] = read_json(self.path / _RESULT)
        if not isinstance(result, dict) or not result.keys() >= {"test", "level"}:
            raise RunError(f"{self.path / _RESULT} is corrupt: it does not hold a result.")
        return result

    def finish(self, weights: Mapping[str, Tensor], result: Mapping[str, Any]) -> None:
        """Write the final weights, then the result."""
        save_tensors(self.path / _MODEL, dict(weights))
        write_json(self.path / _RESULT, result)

    def weights(self) -> dict[str, Tensor]:
        """The final weights."""
        return load_tensors(self.path / _MODEL)[0]


def find_runs(folder: Path) -> list[RunDirectory]:
    """Every run in a folder and its sub-folders, by path."""
    return [RunDirectory(path.parent) for path in sorted(folder.rglob(_SETTINGS))]
