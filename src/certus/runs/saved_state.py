"""Whether what a checkpoint holds can go on: the kinds of its entries, and the shapes of its tensors.

A digest says that a file is as it was written. It does not say that whoever wrote it wrote a training state.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from certus.errors import require


def check_progress(note: dict[str, Any]) -> None:
    """Epoch, step, seconds and sums; raises ``ArgumentError`` at the first that is something else."""
    for name in ("epoch", "step"):
        value = note[name]
        require(type(value) is int and value >= 0, name, "be a count", repr(value)[:40])
    require(_is_number(note["seconds"]), "seconds", "be a number", repr(note["seconds"])[:40])
    sums = note["sums"]
    pairs = isinstance(sums, dict) and all(
        isinstance(pair, list) and len(pair) == 2 and all(map(_is_number, pair)) for pair in sums.values()
    )
    require(pairs, "sums", "be pairs of numbers, by name", repr(sums)[:40])


def check_finite_weights(weights: dict[str, Tensor]) -> None:
    """Finite, all of them."""
    for name, tensor in weights.items():
        finite = not tensor.is_complex() and bool(torch.isfinite(tensor).all())
        require(finite, "model", "have real and finite weights", name)


def check_optimizer(fresh: dict[str, Any], saved: Any, parameters: list[Tensor]) -> None:
    """Groups with entries of the optimizer's kinds; for each parameter tensors of its shape, or numbers."""
    groups = saved["param_groups"]
    require(alike(fresh["param_groups"], groups), "param_groups", "be the optimizer's", repr(groups)[:80])
    for index, kept in saved["state"].items():
        known = type(index) is int and 0 <= index < len(parameters)
        require(known, "state", "be of the parameters", repr(index)[:40])
        shape = parameters[index].shape
        for name, value in kept.items():
            fits = value is None or _is_number(value)
            if isinstance(value, Tensor):
                fits = value.shape in (shape, torch.Size([])) and value.is_floating_point()
            require(fits, name, f"be a number, or have the shape {tuple(shape)}", repr(value)[:40])


def alike(mine: Any, theirs: Any) -> bool:
    """Whether one value can stand for another: numbers, flags, and what is inside of lists and mappings.

    >>> alike({"lr": 0.1, "foreach": None}, {"lr": 1, "foreach": None}), alike([0.1], ["x"])
    (True, False)
    """
    if isinstance(mine, dict):
        same = isinstance(theirs, dict) and mine.keys() == theirs.keys()
        return same and all(alike(value, theirs[name]) for name, value in mine.items())
    if isinstance(mine, list | tuple):
        same = isinstance(theirs, list | tuple) and len(mine) == len(theirs)
        return same and all(map(alike, mine, theirs))
    if mine is None:  # not chosen yet, or never
        return theirs is None or isinstance(theirs, int | float)
    if isinstance(mine, int | float) and not isinstance(mine, bool):
        return isinstance(theirs, int | float) and not isinstance(theirs, bool)
    return type(mine) is type(theirs)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
