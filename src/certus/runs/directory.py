"""Run directories: layout, creation, ownership, checkpoints and metrics.

``run.json`` has the schema version, the settings, and checksums of the data, of a user's model file, of the
split and of itself; ``split.safetensors`` the row numbers of the train, calibration and test samples;
``checkpoint.safetensors`` the training state, replaced as a whole; ``metrics.jsonl`` one line per epoch;
``model.safetensors`` the final weights; ``result.json`` the final metrics, with checksums of the weights and
of itself. A run with a ``result.json`` is complete.

A run directory is built beside its place and renamed, so that it appears whole or not at all, and only one
of several processes creates it. An existing empty folder receives its files under its lock, ``run.json``
last. Ownership of folders and files prevents one command from overwriting the results of another.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from certus.errors import ArgumentError
from certus.runs.checkpoint import restore_state, save_state
from certus.runs.files import RUN_VERSION, WEIGHTS, RunRecord, read_result, read_run
from certus.storage.files import (
    MOST_JSON,
    CorruptFileError,
    RunError,
    convert,
    parse_json,
    read_json,
    read_regular,
)
from certus.storage.tensors import digest, load_tensors, save_tensors
from certus.storage.write import (
    LOCK,
    RunLock,
    add_checksum,
    is_temporary,
    pending_transaction,
    remove_stale_temporaries,
    temporary_folder,
    write_atomically,
    write_json,
)
from certus.training._fit import Callback, TrainingState
from certus.training.metrics import EpochMetrics

CHECKPOINT, METRICS = "checkpoint.safetensors", "metrics.jsonl"


class Recorder(Callback):
    """Callback that writes ``checkpoint.safetensors`` after each epoch and at intervals, and
    ``metrics.jsonl``.

    If the folder has a checkpoint, training goes on from there, and the metrics are cut back to it.

    Args:
        every: seconds between checkpoints inside an epoch.
        writes: False in all processes but one.
    """

    def __init__(self, folder: Path, *, every: float = 60.0, writes: bool = True) -> None:
        self._folder, self._every, self._writes = folder, every, writes
        self._last = time.monotonic()
        self._steps: int | None = None

    def on_train_start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        self._steps = steps
        if (self._folder / CHECKPOINT).exists():
            restore_state(self._folder / CHECKPOINT, state)
        elif self._writes:
            save_state(self._folder / CHECKPOINT, state)
        self._write_metrics(state)

    def on_step_end(self, state: TrainingState) -> None:
        # The last step of an epoch is followed by the epoch's own checkpoint.
        last = state.step == self._steps
        if not last and time.monotonic() - self._last >= self._every:
            self._save(state)

    def on_epoch_end(self, state: TrainingState) -> None:
        self._save(state)
        self._write_metrics(state)

    def _save(self, state: TrainingState) -> None:
        if state.prove is not None:
            state.prove()
        if self._writes:
            save_state(self._folder / CHECKPOINT, state)
        self._last = time.monotonic()

    def _write_metrics(self, state: TrainingState) -> None:
        if self._writes:
            lines = [json.dumps(asdict(entry), allow_nan=False) + "\n" for entry in state.history]
            write_atomically(self._folder / METRICS, "".join(lines).encode())


SETTINGS, SPLIT, MODEL, RESULT = "run.json", "split.safetensors", "model.safetensors", "result.json"
INITIAL_FILES = (SPLIT, MODEL, RESULT, SETTINGS)
"""The files of a new run, in the order in which they are moved into an existing folder."""


class RunExistsError(RunError):
    """The place of a new run is taken."""


def resolve_parents(path: Path) -> Path:
    """Resolve a path with ``..``, even through folders that do not exist; return others unchanged."""
    return Path(os.path.realpath(path)) if ".." in path.parts else path


def require_name(path: Path) -> None:
    """Raise ``RunError`` for a path that is not UTF-8: tensor files cannot be read there."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise RunError(f"The name of a run must be valid UTF-8; got {path}: choose or rename it.") from None


def require_new_run(path: Path) -> None:
    """Raise ``RunExistsError`` unless a run can be created there, ``RunError`` if the name is not UTF-8."""
    require_name(path)
    if os.path.lexists(path) and not _is_free(path):
        if (path / SETTINGS).exists():
            complete = (path / RESULT).exists()
            go_on = "choose another `--output`" if complete else f"`certus resume {path}` continues it"
            hint = f"it holds a {'complete ' if complete else ''}run; {go_on}"
        else:
            hint = f"{'the folder is not empty' if path.is_dir() else 'it is no folder'}; choose another"
        raise RunExistsError(f"{path} is taken: {hint}.")


def remove_run(path: Path, *, keep_folder: bool) -> None:
    """Remove a run without any result."""
    for name in (SETTINGS, CHECKPOINT, METRICS, *INITIAL_FILES, LOCK):
        (path / name).unlink(missing_ok=True)
    if not keep_folder:
        with suppress(OSError):
            path.rmdir()


def _is_free(path: Path) -> bool:
    """Whether a folder is empty, except for what a killed process left while creating a run."""
    try:
        names = {name for name in os.listdir(path) if name != LOCK and not is_temporary(name)}
    except OSError:
        return False
    return not names or (SPLIT in names and SETTINGS not in names and names <= set(INITIAL_FILES))


@dataclass(frozen=True)
class Owner:
    """A type of folder that certus writes: what it holds, and the names of its files."""

    words: str
    files: frozenset[str]


RUN = Owner("a run", frozenset({*INITIAL_FILES, CHECKPOINT, METRICS, LOCK}))
CERTIFICATE_FOLDER, OWN_LABELS_FOLDER = "certificate", "certificate-own-labels"
"""Folders in a run: certificates of the labels of its data, and of the network's own predictions."""
CERTIFICATES = ("certificate.json", "smoothing.json")
"""Either may be there without the other: the second is by noise."""
_BESIDE = ("certificate.png", "smoothing.png", "samples.csv", "unfinished")
CERTIFICATE = Owner("a certificate", frozenset({*CERTIFICATES, *_BESIDE, LOCK}))


def owner_of(folder: Path) -> Owner | None:
    """Return the owner of a folder, None if certus did not write it.

    A killed writer may have left the file by which its folder is recognised in a pending transaction.
    """
    for place in (folder, pending_transaction(folder)):
        if (place / SETTINGS).exists():
            return RUN
        if any((place / name).exists() for name in CERTIFICATES) or (place / "unfinished").is_dir():
            return CERTIFICATE
    return None


def require_owned_folder(owner: Owner, option: str, folder: Path) -> None:
    """Raise ``ArgumentError`` if a folder has another owner, or files that would be overwritten."""
    current = owner_of(folder)
    if current is owner or not folder.is_dir():
        return
    rule = f"`{option}` must be a folder of its own; got {folder}"
    if current is not None:
        raise ArgumentError(f"{rule}, which holds {current.words}.")
    if names := sorted(owner.files & {*os.listdir(folder)} - {LOCK}):
        raise ArgumentError(f"{rule}, whose {names[0]} is not of {owner.words}.")


def require_unowned_file(option: str, file: Path) -> None:
    """Raise ``ArgumentError`` for a file that belongs to a run or a certificate."""
    owner = owner_of(file.parent)
    if owner is not None and file.name in owner.files:
        rule = f"`{option}` must be a file of its own"
        raise ArgumentError(f"{rule}; got {file}, which belongs to {owner.words}.")


def certified_run(file: Path) -> tuple[str, str] | None:
    """Return the run that a certificate is about, and the checksum of its weights; None if unknown."""
    try:
        about = read_json(file)["about"]
        return str(about["run"]), str(about["digests"]["weights"])
    except (RunError, KeyError, TypeError):
        return None


def certified_labels(file: Path) -> str | None:
    """Return whether a certificate is about "given" or "predicted" labels; None if unknown."""
    try:
        return "predicted" if read_json(file)["about"]["settings"]["own_labels"] is True else "given"
    except (RunError, KeyError, TypeError):
        return None


@dataclass(frozen=True)
class RunDirectory:
    """A run directory; ``create`` or ``open`` one.

    Attributes:
        moved: the present place of its data, such as "csv:FILE", if they were moved.
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
        """Create a run, whole or not at all. The folder may exist if it is empty.

        Args:
            done: weights and result of a run that was trained elsewhere.
            locking: False where the file system has no locks.
        """
        path = resolve_parents(path)
        require_new_run(path)
        target = Path(os.path.realpath(path))
        remove_stale_temporaries(target.parent, target.name)
        exists = os.path.isdir(target)
        with temporary_folder(target / "run" if exists else target, path, "make") as folder:
            save_tensors(folder / SPLIT, dict(rows))
            if done is not None:
                RunDirectory(folder).finish(*done)
            content = {"schema_version": RUN_VERSION, **settings, "split_sha256": digest(dict(rows))}
            write_json(folder / SETTINGS, add_checksum(content))
            if exists:
                with RunLock(target, locking=locking):
                    require_new_run(path)
                    for name in INITIAL_FILES:
                        with suppress(FileNotFoundError):
                            os.rename(folder / name, target / name)
                return RunDirectory(path)
            try:
                os.rename(folder, target)
            except OSError:
                require_new_run(path)  # another process may have been faster
                raise
        return RunDirectory(path)

    @staticmethod
    def open(path: Path, *, data: str | None = None) -> RunDirectory:
        """Open an existing run of the current schema version.

        Args:
            data: the present place of its data, such as "csv:FILE", if they were moved.
        """
        if not (path / SETTINGS).exists():
            raise RunError(
                f"{path} is not a run directory: it has no {SETTINGS}. `certus runs FOLDER` lists runs."
            )
        require_name(path)
        read_run(path / SETTINGS)
        return RunDirectory(path, data)

    @property
    def record(self) -> RunRecord:
        """Content of ``run.json``, checked."""
        return read_run(self.path / SETTINGS)

    @property
    def rows(self) -> dict[str, Tensor]:
        """Row numbers of the source data by split."""
        rows = load_tensors(self.path / SPLIT)[0]
        if digest(rows) != self.record.split_sha256:
            raise CorruptFileError(f"{self.path / SPLIT} is corrupt: it is not the split of the run.")
        return rows

    @property
    def history(self) -> list[dict[str, Any]]:
        """Content of ``metrics.jsonl``, checked: one entry per complete epoch."""
        path = self.path / METRICS
        try:
            lines = read_regular(path, MOST_JSON).decode().splitlines()
            return [asdict(convert(parse_json(line), EpochMetrics)) for line in lines]
        except FileNotFoundError:
            return []
        except OSError as reason:
            raise RunError(f"Cannot read {path}: {reason.strerror}.") from None
        except (ValueError, TypeError, RunError) as reason:
            problem = f"it does not hold the metrics of epochs: {' '.join(str(reason).split())[:200]}"
            raise CorruptFileError(f"{path} is corrupt: {problem}") from None

    @property
    def result(self) -> dict[str, Any] | None:
        """Final metrics; None while the run is incomplete."""
        path = self.path / RESULT
        return read_result(path) if path.exists() else None

    def finish(self, weights: Mapping[str, Tensor], result: Mapping[str, Any]) -> None:
        """Write the final weights, then the result."""
        save_tensors(self.path / MODEL, dict(weights))
        write_json(self.path / RESULT, add_checksum({**result, WEIGHTS: digest(dict(weights))}))

    def weights(self) -> dict[str, Tensor]:
        """Final weights, checked to be those of the result."""
        weights, result = load_tensors(self.path / MODEL)[0], self.result
        if result is not None and digest(weights) != result[WEIGHTS]:
            raise CorruptFileError(f"{self.path / MODEL} is corrupt: its result is about other weights.")
        return weights


def find_runs(folder: Path) -> list[RunDirectory]:
    """Return every run in a folder and its subfolders, by path, except those being created."""
    folders = (path.parent for path in sorted(folder.rglob(SETTINGS)))
    return [RunDirectory(path) for path in folders if not any(map(is_temporary, path.parts))]
