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

from certus.runs.creation import MODEL, RESULT, SETTINGS, SPLIT, new_run, require_name, settled
from certus.runs.recorder import METRICS, read_history
from certus.runs.result_file import WEIGHTS, read_result
from certus.runs.run_file import SEALED, describe_run, read_run
from certus.storage.files import DamageError, RunError
from certus.storage.tensors import digest, load_tensors, save_tensors
from certus.storage.write import is_temporary, seal, write_json


@dataclass(frozen=True)
class RunDirectory:
    """A folder with the files above; ``create`` or ``open`` it.

    Attributes:
        moved: where its own data are now, if they are not where they were, such as "csv:FILE".
    """

    path: Path
    moved: str | None = None

    @staticmethod
    def create(
        path: Path,
        settings: Mapping[str, Any],
        rows: Mapping[str, Tensor],
        *,
        done: tuple[Mapping[str, Tensor], Mapping[str, Any]] | None = None,
        locking: bool = True,
    ) -> RunDirectory:
        """A new run, whole or not at all. The folder may exist, if it is empty.

        Args:
            done: weights and result of a run that was trained elsewhere.
            locking: False where the file system has no locks.
        """
        path = settled(path)
        with new_run(path, locking=locking) as folder:
            save_tensors(folder / SPLIT, dict(rows))
            if done is not None:
                RunDirectory(folder).finish(*done)
            write_json(folder / SETTINGS, describe_run(settings, rows))
        return RunDirectory(path)

    @staticmethod
    def open(path: Path, *, data: str | None = None) -> RunDirectory:
        """An existing run of a schema that this version knows.

        Args:
            data: where its own data are now, if they are not where they were, such as "csv:FILE".
        """
        if not (path / SETTINGS).exists():
            raise RunError(f"{path} is no run directory: it has no {SETTINGS}.")
        require_name(path)
        read_run(path / SETTINGS)
        return RunDirectory(path, data)

    @property
    def settings(self) -> dict[str, Any]:
        """The content of run.json, checked."""
        return read_run(self.path / SETTINGS)

    @property
    def rows(self) -> dict[str, Tensor]:
        """Row numbers of the source data, by split."""
        rows, known = load_tensors(self.path / SPLIT)[0], self.settings["split_sha256"]
        if known is not None and digest(rows) != known:
            raise DamageError(f"{self.path / SPLIT} is corrupt: it is not the split of the run.")
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
        if not (self.path / RESULT).exists():
            return None
        return read_result(self.path / RESULT, sealed=self._sealed)

    def finish(self, weights: Mapping[str, Tensor], result: Mapping[str, Any]) -> None:
        """Write the final weights, then the result."""
        save_tensors(self.path / MODEL, dict(weights))
        write_json(self.path / RESULT, seal({**result, WEIGHTS: digest(dict(weights))}))

    def weights(self) -> dict[str, Tensor]:
        """The final weights, which are those that the result is about."""
        weights, result = load_tensors(self.path / MODEL)[0], self.result
        known = None if result is None else result.get(WEIGHTS)
        if known is not None and digest(weights) != known:
            raise DamageError(f"{self.path / MODEL} is corrupt: its result is about other weights.")
        return weights

    @property
    def _sealed(self) -> bool:
        return bool(self.settings["schema_version"] >= SEALED)


def find_runs(folder: Path) -> list[RunDirectory]:
    """Every run in a folder and its sub-folders, by path; not those that are being made."""
    found = (path.parent for path in sorted(folder.rglob(SETTINGS)))
    return [RunDirectory(path) for path in found if not any(map(is_temporary, path.parts))]
