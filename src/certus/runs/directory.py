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
import math
import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor

from certus._epoch_metrics import EpochMetrics
from certus.errors import ArgumentError, UnsupportedError, require
from certus.runs.records import (
    METRICS,
    MODEL,
    RESULT,
    RUN_VERSION,
    SETTINGS,
    SPLIT,
    WEIGHTS,
    RunRecord,
    find_folders,
    read_history,
    read_result,
    read_run,
)
from certus.storage.files import (
    CorruptFileError,
    Count,
    RunError,
    convert,
    read_json,
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
from certus.training.metrics import Sums

# Checkpoints: a checksum shows that the file is as written; its entries are compared with the model,
# the method and the optimizer one by one.


class _Note(Struct, forbid_unknown_fields=True):
    """The JSON part of a checkpoint."""

    epoch: Count
    step: Count
    sums: dict[str, tuple[int | float, int | float]]
    seconds: float
    history: list[dict[str, Any]]
    optimizer: Any
    schedule: Any
    method: Any


def _check_optimizer(fresh: dict[str, Any], saved: Any, parameters: list[Tensor]) -> None:
    """Check the entries of parameter groups, and the shapes of the state of each parameter."""
    groups = saved["param_groups"]
    same = same_structure(fresh["param_groups"], groups)
    require(same, "param_groups", "have the entries of the optimizer", repr(groups)[:80])
    for index, entries in saved["state"].items():
        valid = type(index) is int and 0 <= index < len(parameters)
        require(valid, "state", "be numbered by parameters of the model", repr(index)[:40])
        shape = parameters[index].shape
        for name, value in entries.items():
            if isinstance(value, Tensor):
                fits = value.shape in (shape, torch.Size([])) and value.is_floating_point()
            else:
                fits = value is None or (_kind(value) is float and math.isfinite(value))
            require(fits, name, f"be a number, or have the shape {tuple(shape)}", repr(value)[:40])


def same_structure(mine: Any, theirs: Any) -> bool:
    """Whether two values have the same nesting, keys and types; all numbers are of one type.

    >>> same_structure({"lr": 0.1, "foreach": None}, {"lr": 1, "foreach": None}), same_structure([0.1], ["x"])
    (True, False)
    """
    if isinstance(mine, dict):
        same = isinstance(theirs, dict) and mine.keys() == theirs.keys()
        return same and all(same_structure(value, theirs[name]) for name, value in mine.items())
    if isinstance(mine, list | tuple):
        same = isinstance(theirs, list | tuple) and len(mine) == len(theirs)
        return same and all(map(same_structure, mine, theirs))
    if mine is None:  # not chosen yet, or never
        return theirs is None or isinstance(theirs, int | float)
    return _kind(mine) is _kind(theirs)


def _kind(value: object) -> type:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float if number else type(value)


def save_state(path: Path, state: TrainingState) -> None:
    """Write all that is needed to resume the training bit for bit."""
    tensors = {f"model.{name}": tensor for name, tensor in state.model.state_dict().items()}
    schedule = None if state.scheduler is None else state.scheduler.state_dict()
    note = {
        "epoch": state.epoch,
        "step": state.step,
        "sums": state.sums.totals,
        "seconds": state.seconds,
        "history": [asdict(entry) for entry in state.history],
        "optimizer": _split_tensors(state.optimizer.state_dict(), "optimizer", tensors),
        "schedule": _split_tensors(schedule, "schedule", tensors),
        "method": state.method.state_dict(),
    }
    try:
        save_tensors(path, tensors, note)
    except TypeError as reason:
        raise UnsupportedError(f"The learning-rate schedule cannot be stored as JSON: {reason}.") from None


def restore_state(path: Path, state: TrainingState) -> None:
    """Restore a saved state in place."""
    tensors, content = load_tensors(path)
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    try:
        for name, tensor in weights.items():
            finite = not tensor.is_complex() and bool(torch.isfinite(tensor).all())
            require(finite, "model", "have real and finite weights", name)
        note = convert(content, _Note)
        history = [convert(entry, EpochMetrics) for entry in note.history]
        optimizer = _join_tensors(note.optimizer, tensors)
        parameters = [each for group in state.optimizer.param_groups for each in group["params"]]
        _check_optimizer(state.optimizer.state_dict(), optimizer, parameters)
        state.model.load_state_dict(weights)
        state.optimizer.load_state_dict(optimizer)
        if state.scheduler is not None:
            schedule = _join_tensors(note.schedule, tensors)
            same = same_structure(state.scheduler.state_dict(), schedule)
            require(same, "schedule", "have the entries of the scheduler", "others")
            state.scheduler.load_state_dict(schedule)
        state.method.load_state_dict(note.method)
        state.epoch, state.step, state.seconds = note.epoch, note.step, note.seconds
        state.sums = Sums(dict(note.sums))
        state.history[:] = history
    except (CorruptFileError, RuntimeError, AttributeError, LookupError, TypeError, ValueError) as reason:
        first = (str(reason).strip() or type(reason).__name__).splitlines()[0]
        raise RunError(f"{path} does not belong to this model and method: {first}") from None


def checkpoint_position(path: Path) -> tuple[int, int]:
    """Return the numbers of complete epochs, and of steps in the next one; zeros if there is no file."""
    if not path.exists():
        return 0, 0
    try:
        note = load_tensors(path)[1]
        return int(note["epoch"]), int(note["step"])
    except (KeyError, TypeError, ValueError) as reason:
        raise RunError(f"{path} is corrupt: it holds no training state: {reason}.") from None


def _split_tensors(tree: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Move the tensors of a tree into ``tensors``; return the tree with their names in their places."""
    if isinstance(tree, Tensor):
        tensors[name] = tree
        return {"tensor": name}
    if isinstance(tree, dict):
        # JSON has only strings for keys, and the optimizer's are numbers.
        items = [[key, _split_tensors(value, f"{name}.{key}", tensors)] for key, value in tree.items()]
        return {"counter" if isinstance(tree, Counter) else "items": items}
    if isinstance(tree, list | tuple):
        parts = [_split_tensors(value, f"{name}.{index}", tensors) for index, value in enumerate(tree)]
        return {"list" if isinstance(tree, list) else "tuple": parts}
    return tree


def _join_tensors(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(tree, dict):
        return tree
    if "tensor" in tree:
        return tensors[tree["tensor"]]
    if "items" in tree:
        return {key: _join_tensors(value, tensors) for key, value in tree["items"]}
    if "counter" in tree:
        return Counter(dict(tree["counter"]))
    if "list" in tree:
        return [_join_tensors(value, tensors) for value in tree["list"]]
    return tuple(_join_tensors(value, tensors) for value in tree["tuple"])


CHECKPOINT = "checkpoint.safetensors"


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
            hint = f"{'the folder is not empty' if path.is_dir() else 'it is not a folder'}; choose another"
        raise RunExistsError(f"{path} exists already: {hint}.")


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
"""Files of a certificate: deterministic, and by smoothing. A folder may have one or both."""
_BESIDE = ("certificate.png", "smoothing.png", "smoothing.safetensors", "samples.csv", "unfinished")
_CHECKED = ("graph.json", "graph.safetensors", "witnesses.safetensors", "rows.safetensors")
CERTIFICATE = Owner("a certificate", frozenset({*CERTIFICATES, *_BESIDE, *_CHECKED, LOCK}))


def owner_of(folder: Path) -> Owner | None:
    """Return the owner of a folder, None if certus did not write it. A killed writer may have left the file
    that identifies the folder in a pending transaction."""
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
    rule = f"`{option}` must be a separate folder; got {folder}"
    if current is not None:
        raise ArgumentError(f"{rule}, which holds {current.words}.")
    if names := sorted(owner.files & {*os.listdir(folder)} - {LOCK}):
        raise ArgumentError(f"{rule}, whose {names[0]} does not belong to {owner.words}.")


def require_unowned_file(option: str, file: Path) -> None:
    """Raise ``ArgumentError`` for a file that belongs to a run or a certificate."""
    owner = owner_of(file.parent)
    if owner is not None and file.name in owner.files:
        rule = f"`{option}` must be a separate file"
        raise ArgumentError(f"{rule}; got {file}, which belongs to {owner.words}.")


def certified_origin(file: Path) -> tuple[str, str, bool | None] | None:
    """Return the run that a certificate is about, the checksum of its weights, and whether labels are the
    network's own; None if unknown."""
    own = None
    try:
        about = read_json(file)["about"]
        run, weights = str(about["run"]), str(about["digests"]["weights"])
        with suppress(KeyError, TypeError):
            own = about["settings"]["own_labels"] is True
    except (RunError, KeyError, TypeError):
        return None
    return run, weights, own


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
        if (path / "trees.json").is_file():
            raise RunError(f"{path} is the run of a tree model, which this command does not take.")
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
        return read_history(self.path)

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
            raise CorruptFileError(f"{self.path / MODEL} is corrupt: its result belongs to other weights.")
        return weights


def find_runs(folder: Path) -> list[RunDirectory]:
    """Return every run in a folder and its subfolders, by path, except those being created."""
    return [RunDirectory(path) for path in find_folders(folder)]
