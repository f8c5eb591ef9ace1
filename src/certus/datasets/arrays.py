"""Arrays of inputs and targets, their digests, and their splits into train, calibration and test rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.errors import require, require_seed


def single(source: str, values: Array) -> Tensor:
    """Convert to float32; raise ``ArgumentError`` if a number is too large for it."""
    with np.errstate(over="ignore"):  # refused below, with a better message
        narrow = torch.from_numpy(values.astype(np.float32))
    fits = bool(torch.isfinite(narrow).all())
    require(fits, source, "hold numbers that single precision can hold", "one beyond 3.4e38")
    return narrow


Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, eq=False)
class Targets:
    """Labels (n,) int64 from 0 to classes − 1, or numbers (n,) float64 if ``classes`` is None."""

    values: Array
    classes: int | None = None
    class_names: tuple[str, ...] | None = None

    def tensor(self, source: str) -> Tensor:
        """Labels as int64, numbers as float32."""
        return single(source, self.values) if self.classes is None else torch.from_numpy(self.values).long()


def labelled(source: str, values: Array) -> Targets:
    """Number the distinct values of (n,) integers, booleans or strings, in sorted order, as labels 0, 1, …

    >>> found = labelled("example", np.array(["dog", "cat", "dog"]))
    >>> found.values, found.class_names
    (array([1, 0, 1]), ('cat', 'dog'))
    """
    distinct, labels = np.unique(values, return_inverse=True)
    require(len(distinct) >= 2, source, "have at least 2 different targets", len(distinct))
    return Targets(labels.astype(np.int64), len(distinct), tuple(str(value) for value in distinct))


def why_not(problem: Exception) -> str:
    """Message of an error without its number and path.

    >>> why_not(PermissionError(13, "Permission denied", "data.csv"))
    'Permission denied'
    >>> why_not(FileNotFoundError(2, "No such file or directory", "data.csv"))
    'no file at that path'
    """
    if isinstance(problem, FileNotFoundError):
        return "no file at that path"
    if isinstance(problem, IsADirectoryError):
        return "a folder"
    return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__


FEWEST_ROWS = 10
"""With fewer rows a fifth holds less than two samples: nothing could be learnt or measured."""


def shuffled(count: int, seed: int) -> Tensor:
    """Return the numbers 0 … count − 1 in the random order of a seed. Returns: (count,) int64."""
    require_seed(seed)
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def in_fifths(source: str, count: int, seed: int) -> dict[str, Tensor]:
    """Split the rows of a data set without a test set at random: 60% / 20% / 20%.

    >>> {name: len(rows) for name, rows in in_fifths("wine", 178, seed=0).items()}
    {'train': 108, 'calibration': 35, 'test': 35}
    """
    require(count >= FEWEST_ROWS, source, f"have at least {FEWEST_ROWS} rows", count)
    fifth = count // 5
    train, calibration, test = shuffled(count, seed).split([count - 2 * fifth, fifth, fifth])
    return {"train": train, "calibration": calibration, "test": test}


def split_rows(source: str, count: int, seed: int, way: str, values: Array | None) -> dict[str, Tensor]:
    """Split rows 60% / 20% / 20%, at random, by label, by group or by time.

    Args:
        way: "random"; "stratified": of each of the (n,) labels the same shares; "group": rows of one value
            stay together; "time": the smallest values train, the largest test, equal ones together.
    """
    if way == "random" or (way == "stratified" and values is None):
        require(way == "random", "split", "be stratified for labels only", f"{source}, a regression")
        return in_fifths(source, count, seed)
    assert values is not None
    order = shuffled(count, seed)
    codes = torch.from_numpy(np.unique(values, return_inverse=True)[1].reshape(-1))
    if way == "stratified":
        place = order[torch.sort(codes[order], stable=True).indices]  # label by label, by chance inside
        # Row i of the list goes to the fifth that i falls into: each label has the same share of each.
        turn = torch.arange(count) % 5
        parts = {"train": place[turn < 3], "calibration": place[turn == 3], "test": place[turn == 4]}
    else:
        groups = int(codes.max()) + 1
        rule = f"have at least 3 different values to split by {way}"
        require(groups >= 3, source, rule, groups)
        ranks = torch.arange(groups) if way == "time" else shuffled(groups, seed)
        sizes = torch.bincount(codes, minlength=groups)[ranks].cumsum(0)
        # A value belongs to the part that its last row falls into; every part gets one.
        train = min(max(1, int((sizes <= 0.6 * count).sum())), groups - 2)
        test = max(train + 1, min(int((sizes <= 0.8 * count).sum()), groups - 1))
        part_of = torch.empty(groups, dtype=torch.long)
        part_of[ranks] = (torch.arange(groups) >= train).long() + (torch.arange(groups) >= test).long()
        which = part_of[codes[order]]
        parts = {name: order[which == at] for at, name in enumerate(("train", "calibration", "test"))}
    return parts


def beside_test(source: str, count: int, test_count: int, seed: int, held_out: int) -> dict[str, Tensor]:
    """Split rows whose test set comes last in the source; ``held_out`` of the others calibrate.

    >>> rows = beside_test("mnist", 60_000, 10_000, seed=0, held_out=5_000)
    >>> len(rows["train"]), len(rows["calibration"]), rows["test"][0].item()
    (55000, 5000, 60000)
    """
    require(count >= FEWEST_ROWS, source, f"have at least {FEWEST_ROWS} rows to train on", count)
    require(test_count >= 1, source, "have at least 1 row to test on", test_count)
    train, calibration = shuffled(count, seed).split([count - held_out, held_out])
    return {
        "train": train,
        "calibration": calibration,
        "test": torch.arange(count, count + test_count),
    }


def digest_arrays(arrays: Mapping[str, Array]) -> str:
    """SHA-256 of the names, types, shapes and bytes of arrays.

    >>> found = digest_arrays({"x": np.arange(3, dtype=np.uint8)})
    >>> found == hashlib.sha256(b"x |u1 (3,)\\n" + bytes([0, 1, 2])).hexdigest()
    True
    """
    sha = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        # Little-endian everywhere, so that a run can be checked on another machine.
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        sha.update(f"{name} {little.dtype.str} {little.shape}\n".encode())
        sha.update(little.reshape(-1).view(np.uint8).data)
    return sha.hexdigest()
