"""The user's own arrays in an .npz file: features or images, for labels or for a regression."""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
from torch import Tensor

from certus.data.arrays import Array
from certus.data.base import DataSet
from certus.data.columns import Numeric
from certus.data.images import image_set
from certus.data.precision import single
from certus.data.reasons import why_not
from certus.data.splits import beside_test, digest_arrays, in_fifths
from certus.data.tables import table
from certus.data.targets import Targets, labelled
from certus.domains import Unbounded
from certus.errors import ArgumentError, require
from certus.split import Split
from certus.storage.files import open_regular

CHANNELS = (1, 3, 4)
_MOST_BYTES = 2**35
LONG_NAMES = {"x": "inputs", "y": "targets", "test_x": "test_inputs", "test_y": "test_targets"}


def npz_file(path: Path, *, seed: int = 0, standardize: bool = True) -> DataSet:
    """The arrays ``inputs`` (n, …) and ``targets`` (n,), or ``x`` and ``y``, of a file made by ``np.savez``.

    Integer, boolean or string targets are labels, in sorted order; floating-point ones are a regression.
    Inputs of uint8 are pixels: scaled by 1/255, in the box [0, 1], (n, height, width) with a channel added.
    Other inputs of shape (n, features) are a table of numbers; more axes are taken as they are, unbounded.
    With ``test_inputs`` and ``test_targets`` the test is theirs, and the rest is split 80% / 20%.
    """
    source = f"npz:{path}"
    inputs, targets, test_count = _arrays(source, path)
    own = len(inputs) - test_count
    if test_count:
        rows = beside_test(source, own, test_count, seed, held_out=own // 5)
    else:
        rows = in_fifths(source, own, seed)
    sha256 = digest_arrays({"inputs": inputs, "targets": targets})
    found = _targets(source, targets)
    if inputs.dtype == np.uint8:
        shape = inputs.shape
        last = inputs.ndim == 4 and shape[1] not in CHANNELS and shape[3] in CHANNELS
        rule = "hold images as (n, channels, height, width)"
        require(not last, source, rule, f"shape {shape}, which looks like channels last")
        return image_set(source, inputs, found, rows, sha256)
    if inputs.ndim == 2:
        columns = [Numeric(f"x{index}", values) for index, values in enumerate(inputs.astype(np.float64).T)]
        return table(source, columns, found, rows, sha256=sha256, standardize=standardize)
    return _as_they_are(source, inputs, found, rows, sha256)


def _arrays(source: str, path: Path) -> tuple[Array, Array, int]:
    """Inputs and targets, those of the test last, and how many belong to the test."""
    arrays = {LONG_NAMES.get(name, name): array for name, array in _read(source, path).items()}
    complete = "inputs" in arrays and "targets" in arrays
    require(complete, source, "hold the arrays `inputs` and `targets` (or `x` and `y`)", sorted(arrays))
    tested = [name for name in ("test_inputs", "test_targets") if name in arrays]
    require(len(tested) != 1, source, "hold `test_inputs` and `test_targets` together", tested)
    for prefix in ("test_", "") if tested else ("",):
        inputs, targets = arrays[prefix + "inputs"], arrays[prefix + "targets"]
        _check(source, prefix, inputs, targets)
    if not tested:
        return arrays["inputs"], arrays["targets"], 0
    for name in ("inputs", "targets"):
        own, test = arrays[name], arrays[f"test_{name}"]
        rule = f"have `{name}` and `test_{name}` of one kind and shape"
        alike = _kind(own) == _kind(test) and own.shape[1:] == test.shape[1:]
        require(alike, source, rule, f"{own.dtype} {own.shape} and {test.dtype} {test.shape}")
    inputs = np.concatenate([arrays["inputs"], arrays["test_inputs"]])
    targets = np.concatenate([arrays["targets"], arrays["test_targets"]])
    return inputs, targets, len(arrays["test_inputs"])


def _kind(array: Array) -> str:
    """What the type of an array decides: pixels, numbers, words, or else whole numbers of any width."""
    if array.dtype == np.uint8 and array.ndim > 1:
        return "pixels"
    return {"f": "numbers", "U": "words"}.get(array.dtype.kind, "whole numbers")


def _read(source: str, path: Path) -> dict[str, Array]:
    """The arrays that have a meaning here; others in the file are left alone, but named."""
    try:
        with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
            return {
                info.filename.removesuffix(".npy"): _member(source, archive, info)
                for info in _members(source, archive)
            }
    except ArgumentError:
        raise
    except Exception as problem:  # whatever zipfile, its decoders and NumPy make of damage
        raise ArgumentError(f"`{source}` must be a complete .npz file; got {why_not(problem)}.") from problem


def _members(source: str, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The members of an archive, each of which is an array of its own name and of a bearable size."""
    found = archive.infolist()
    for name, count in Counter(info.filename for info in found).items():
        require(count == 1, source, "hold every array once", f"{name} {count} times")
    for info in found:
        whole = info.filename.endswith(".npy") and not info.flag_bits & 1
        require(whole, source, "hold arrays only, as np.savez writes them", _described(info))
    total = sum(info.file_size for info in found)
    require(total <= _MOST_BYTES, source, f"hold at most {_MOST_BYTES} bytes of numbers", total)
    return found


def _described(info: zipfile.ZipInfo) -> str:
    return f"{info.filename}, which is encrypted" if info.flag_bits & 1 else f"{info.filename}, which is none"


def _member(source: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Array:
    """One array. Memory is taken for it only if the archive has as many bytes as its shape asks for."""
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        rule = "hold arrays of the .npy format 1.0 or 2.0"
        if read_header is None:
            raise ArgumentError(f"`{source}` must {rule}; got {version} in {info.filename}.")
        shape, _, kind = read_header(stream)
        # A pickle can run any code while it is read, so none is ever read.
        if kind.hasobject:
            raise ArgumentError(
                f"`{source}` must hold plain arrays of numbers; it holds Python objects (a pickle), "
                "which can run code when they are read."
            )
        promised, held = math.prod(shape) * kind.itemsize, info.file_size - stream.tell()
        rule = f"hold the {promised} bytes that {info.filename} promises"
        require(promised == held and min(shape, default=0) >= 0, source, rule, held)
    with archive.open(info) as stream:
        array: Array = np.lib.format.read_array(stream, allow_pickle=False)
        return array


def _check(source: str, prefix: str, inputs: Array, targets: Array) -> None:
    shape = f"`{prefix}inputs` of shape (n, …)"
    require(inputs.ndim >= 2 and inputs.size > 0, source, f"have {shape}", inputs.shape)
    require(inputs.dtype.kind in "fiub", source, f"have numbers as `{prefix}inputs`", inputs.dtype)
    rule = f"have one target for each of its {len(inputs)} `{prefix}inputs`"
    require(targets.shape == inputs.shape[:1], source, rule, f"`{prefix}targets` of shape {targets.shape}")
    rule = f"have labels or numbers as `{prefix}targets`"
    require(targets.dtype.kind in "fiubU", source, rule, targets.dtype)
    for name, array in (("inputs", inputs), ("targets", targets)):
        if array.dtype.kind == "f":
            bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(1))
            place = f"NaN or infinity in `{prefix}{name}`, row {bad[0] if len(bad) else None}"
            require(len(bad) == 0, source, "hold finite numbers", place)


def _targets(source: str, values: Array) -> Targets:
    return Targets(values.astype(np.float64)) if values.dtype.kind == "f" else labelled(source, values)


def _as_they_are(
    source: str, inputs: Array, targets: Targets, rows: dict[str, Tensor], sha256: str
) -> DataSet:
    everything = Split(single(source, inputs), targets.tensor(source))
    return DataSet(
        name=source,
        train=everything[rows["train"]],
        calibration=everything[rows["calibration"]],
        test=everything[rows["test"]],
        domain=Unbounded(),
        classes=targets.classes,
        class_names=targets.class_names,
        rows=rows,
        sha256=sha256,
    )
