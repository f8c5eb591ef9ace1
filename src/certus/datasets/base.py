"""The type of a data set; targets, digests of arrays, and splits into train, calibration and test rows."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from certus.data import Samples
from certus.domains import Box, Domain
from certus.errors import require, require_seed

if TYPE_CHECKING:
    from certus.datasets.encoding import Recipe

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
PARTS = ("train", "calibration", "test")


@dataclass(frozen=True, eq=False)
class SplitDataset:
    """A named data set with disjoint train, calibration and test samples.

    The fields without a default are enough for a data set of your own making; ``load`` fills in all of them.

    Attributes:
        domain: the set Z that contains the inputs.
        classes: number of labels, or None for regression.
        units: meaning of a distance of 1 between two inputs, in words.
        weights: (features,) weights for ``WeightedL2``; None means that plain ``SquaredL2`` fits.
        feature_names: one name for each column of a table.
        class_names: names of the labels 0, 1, … in the source.
        input_scale: (mean, scale), both (features,) float64, with inputs = (raw − mean) / scale; None if raw.
        target_scale: (mean, scale) of a regression, with targets = (raw − mean) / scale; None if raw.
        later: named samples drawn after those above, for measuring an actual shift.
        rows: the int64 row numbers, in the source, of "train", "calibration" and "test".
        sha256: digest of the source's inputs and targets, all of them, before splitting and scaling.
        recipe: encoding of each column of a table of words, numbers and missing values; None for others.
        notes: remarks on a table that was encoded by the recipe of another table.
    """

    name: str
    train: Samples
    calibration: Samples
    test: Samples
    domain: Domain
    classes: int | None
    units: str = "units of the inputs"
    weights: Tensor | None = None
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    input_scale: tuple[Tensor, Tensor] | None = None
    target_scale: tuple[float, float] | None = None
    later: Mapping[str, Samples] = field(default_factory=dict)
    rows: dict[str, Tensor] = field(default_factory=dict)
    sha256: str = ""
    recipe: Recipe | None = None
    notes: tuple[str, ...] = ()


def split_samples(samples: Samples, rows: dict[str, Tensor]) -> dict[str, Any]:
    """Return the fields "train", "calibration", "test" and "rows" of a ``SplitDataset``."""
    return {**{name: samples[rows[name]] for name in PARTS}, "rows": rows}


@dataclass(frozen=True, eq=False)
class Targets:
    """Labels (n,) int64 from 0 to classes − 1, or numbers (n,) float64 if ``classes`` is None."""

    values: Array
    classes: int | None = None
    class_names: tuple[str, ...] | None = None

    def tensor(self, source: str) -> Tensor:
        """Labels as int64, numbers as float32."""
        return (
            as_float32(source, self.values) if self.classes is None else torch.from_numpy(self.values).long()
        )


def as_float32(source: str, values: Array) -> Tensor:
    """Convert to float32; raise ``ArgumentError`` if a number is too large for it."""
    with np.errstate(over="ignore"):  # refused below, with a better message
        narrow = torch.from_numpy(values.astype(np.float32))
    fits = bool(torch.isfinite(narrow).all())
    require(fits, source, "hold numbers in the range of float32", "one beyond 3.4e38")
    return narrow


def labelled(source: str, values: Array) -> Targets:
    """Number the distinct values of (n,) integers, booleans or strings, in sorted order, as labels 0, 1, …

    >>> targets = labelled("example", np.array(["dog", "cat", "dog"]))
    >>> targets.values, targets.class_names
    (array([1, 0, 1]), ('cat', 'dog'))
    """
    distinct, labels = np.unique(values, return_inverse=True)
    require(len(distinct) >= 2, source, "have at least 2 different targets", len(distinct))
    return Targets(labels.astype(np.int64), len(distinct), tuple(str(value) for value in distinct))


def digest_arrays(arrays: Mapping[str, Array]) -> str:
    """SHA-256 of the names, types, shapes and bytes of arrays.

    >>> digest = digest_arrays({"x": np.arange(3, dtype=np.uint8)})
    >>> digest == hashlib.sha256(b"x |u1 (3,)\\n" + bytes([0, 1, 2])).hexdigest()
    True
    """
    sha = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        # Little-endian everywhere, so that a run can be checked on another machine.
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        sha.update(f"{name} {little.dtype.str} {little.shape}\n".encode())
        sha.update(little.reshape(-1).view(np.uint8).data)
    return sha.hexdigest()


def describe_error(problem: Exception) -> str:
    """Message of an error without its number and path.

    >>> describe_error(PermissionError(13, "Permission denied", "data.csv"))
    'Permission denied'
    """
    if isinstance(problem, FileNotFoundError):
        return "no file at that path"
    if isinstance(problem, IsADirectoryError):
        return "a folder"
    return getattr(problem, "strerror", None) or str(problem) or type(problem).__name__


FEWEST_ROWS = 10
"""Smallest number of rows: a fifth of fewer has less than two samples."""


def shuffled(count: int, seed: int) -> Tensor:
    """Return 0 … count − 1 in the random order of a seed, (count,) int64."""
    require_seed(seed)
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


def in_fifths(source: str, count: int, seed: int) -> dict[str, Tensor]:
    """Split the rows of a data set without a test set at random: 60% / 20% / 20%.

    >>> {name: len(rows) for name, rows in in_fifths("wine", 178, seed=0).items()}
    {'train': 108, 'calibration': 35, 'test': 35}
    """
    require(count >= FEWEST_ROWS, source, f"have at least {FEWEST_ROWS} rows", count)
    fifth = count // 5
    return dict(zip(PARTS, shuffled(count, seed).split([count - 2 * fifth, fifth, fifth]), strict=True))


def split_by(source: str, seed: int, way: str, values: Array) -> dict[str, Tensor]:
    """Split rows 60% / 20% / 20% by the (n,) values of a column: "stratified" takes the same shares of each
    value; in a "group" rows of one value stay together; by "time" the largest values test."""
    count = len(values)
    order = shuffled(count, seed)
    codes = torch.from_numpy(np.unique(values, return_inverse=True)[1].reshape(-1))
    if way == "stratified":
        order = order[torch.sort(codes[order], stable=True).indices]  # label by label, by chance inside
        # Row i of the list goes to the fifth that i falls into: each label has the same share of each.
        part = torch.tensor([0, 0, 0, 1, 2])[torch.arange(count) % 5]
    else:
        groups = int(codes.max()) + 1
        require(groups >= 3, source, f"have at least 3 different values to split by {way}", groups)
        ranks = torch.arange(groups) if way == "time" else shuffled(groups, seed)
        sizes = torch.bincount(codes, minlength=groups)[ranks].cumsum(0)
        # A value belongs to the part that its last row falls into; every part gets one.
        train = min(max(1, int((sizes <= 0.6 * count).sum())), groups - 2)
        test = max(train + 1, min(int((sizes <= 0.8 * count).sum()), groups - 1))
        part_of = torch.empty(groups, dtype=torch.long)
        part_of[ranks] = (torch.arange(groups) >= train).long() + (torch.arange(groups) >= test).long()
        part = part_of[codes[order]]
    return {name: order[part == at] for at, name in enumerate(PARTS)}


def beside_test(source: str, count: int, test_count: int, seed: int, held_out: int) -> dict[str, Tensor]:
    """Split rows whose test set comes last in the source; ``held_out`` of the others calibrate.

    >>> rows = beside_test("mnist", 60_000, 10_000, seed=0, held_out=5_000)
    >>> len(rows["train"]), len(rows["calibration"]), rows["test"][0].item()
    (55000, 5000, 60000)
    """
    require(count >= FEWEST_ROWS, source, f"have at least {FEWEST_ROWS} rows to train on", count)
    require(test_count >= 1, source, "have at least 1 row to test on", test_count)
    train, calibration = shuffled(count, seed).split([count - held_out, held_out])
    return {"train": train, "calibration": calibration, "test": torch.arange(count, count + test_count)}


PIXELS = "pixels in [0, 1]"


def image_set(
    name: str, pixels: Bytes, targets: Targets, rows: dict[str, Tensor], sha256: str
) -> SplitDataset:
    """Make a data set of 8-bit images (n, height, width) or (n, channels, height, width), scaled to [0, 1];
    grey images get a channel of 1."""
    images = torch.from_numpy(pixels if pixels.ndim != 3 else pixels[:, None])
    values = targets.tensor(name)
    # Chosen as bytes and scaled afterwards: a quarter of the memory is moved about.
    parts: dict[str, Any] = {
        part: Samples(images[rows[part]].float().div_(255), values[rows[part]]) for part in PARTS
    }
    return SplitDataset(
        name=name,
        **parts,
        domain=Box(0.0, 1.0),
        classes=targets.classes,
        units=PIXELS,
        class_names=targets.class_names,
        rows=rows,
        sha256=sha256,
    )
