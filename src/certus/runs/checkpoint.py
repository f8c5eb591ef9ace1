"""Checkpoints: a training state in one file, validated when it is read.

The file is replaced as a whole or not at all. Its checksum shows that it is as it was written; that it
holds a state of this model, method and optimizer is checked entry by entry.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct
from torch import Tensor

from certus.errors import UnsupportedError, require
from certus.storage.files import CorruptFileError, Count, RunError, convert
from certus.storage.tensors import load_tensors, save_tensors
from certus.training._fit import TrainingState
from certus.training.metrics import EpochMetrics, Sums


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
    require(same, "param_groups", "be the optimizer's", repr(groups)[:80])
    for index, entries in saved["state"].items():
        valid = type(index) is int and 0 <= index < len(parameters)
        require(valid, "state", "be of the parameters", repr(index)[:40])
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
        "sums": state.sums.state(),
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
            require(same, "schedule", "be of its kind", "another")
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
