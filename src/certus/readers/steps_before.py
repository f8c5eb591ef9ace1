"""Scalers and other linear steps before a model, as x ↦ Ax + b.

Every step is read from its fitted attributes. A pipeline is the composition of its steps; a column
transformer stacks the maps of its columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from certus.readers.model_reading import AffineMap, Unread
from certus.readers.parameters import check_parameters, is_exactly

_Array = np.ndarray[Any, Any]


def scaling(factors: _Array, offset: _Array) -> AffineMap:
    """x ↦ factors·x + offset, entry by entry."""
    return AffineMap(np.diag(np.asarray(factors, dtype=np.float64)), np.asarray(offset, dtype=np.float64))


def unchanged(count: int) -> AffineMap:
    """x ↦ x."""
    return scaling(np.ones(count), np.zeros(count))


def read_step(step: Any, count: int) -> AffineMap:
    """A fitted transformer of ``count`` columns; raises ``Unread`` for one that is not known to be linear."""
    if step is None or (isinstance(step, str) and step == "passthrough"):
        return unchanged(count)
    kind = type(step).__name__
    if kind not in _STEPS or not is_exactly(step, kind):
        raise Unread(f"{kind} is not known to be linear")
    check_parameters(step)
    return _STEPS[kind](step, count)


def _standard(step: Any, count: int) -> AffineMap:
    scale = step.scale_ if step.with_std else np.ones(count)
    mean = np.zeros(count) if not step.with_mean else step.mean_
    return scaling(1 / scale, -mean / scale)


def _min_max(step: Any, count: int) -> AffineMap:
    return scaling(step.scale_, step.min_)


def _max_abs(step: Any, count: int) -> AffineMap:
    return scaling(1 / step.scale_, np.zeros(count))


def _robust(step: Any, count: int) -> AffineMap:
    scale = step.scale_ if step.with_scaling else np.ones(count)
    centre = step.center_ if step.with_centering else np.zeros(count)
    return scaling(1 / scale, -centre / scale)


def _components(step: Any, count: int) -> AffineMap:
    """PCA: rows of ``components_`` on centred data, each divided by its spread if whitened."""
    matrix = np.asarray(step.components_, dtype=np.float64)
    if step.whiten:
        spread = np.sqrt(step.explained_variance_)
        matrix = matrix / np.maximum(spread, np.finfo(spread.dtype).eps)[:, None]
    return AffineMap(matrix, -matrix @ step.mean_)


def _truncated(step: Any, count: int) -> AffineMap:
    return AffineMap(np.asarray(step.components_, dtype=np.float64), np.zeros(len(step.components_)))


def _function(step: Any, count: int) -> AffineMap:
    return unchanged(count)


def _columns(step: Any, count: int) -> AffineMap:
    """The maps of all parts, one below the other, each on its own columns."""
    names = getattr(step, "feature_names_in_", None)
    parts = []
    for _, part, columns in step.transformers_:
        if isinstance(part, str) and part == "drop":
            continue
        places = _places(columns, count, names)
        if len(places) > 0:
            chosen = AffineMap(np.eye(count)[places], np.zeros(len(places)))
            parts.append(read_step(part, len(places)).after(chosen))
    if not parts:
        raise Unread("ColumnTransformer drops all columns")
    return AffineMap(
        np.concatenate([part.matrix for part in parts]), np.concatenate([part.offset for part in parts])
    )


def _places(columns: Any, count: int, names: _Array | None) -> list[int]:
    """Columns as a column transformer knows them: numbers, names, a slice, a mask, or one of them."""
    if isinstance(columns, slice) and not isinstance(columns.start, str):
        return list(range(count))[columns]
    if isinstance(columns, slice):
        raise Unread("ColumnTransformer with a slice of names is not read: list the columns")
    several = [columns] if isinstance(columns, str | int) else list(columns)
    if several and all(isinstance(one, bool | np.bool_) for one in several):
        return [place for place, taken in enumerate(several) if taken]
    found = []
    for one in several:
        if isinstance(one, str):
            if names is None or one not in names:
                raise Unread(f"ColumnTransformer names a column {one!r} that is not known")
            found.append(int(np.flatnonzero(names == one)[0]))
        else:
            found.append(int(one) % count)
    return found


def _pipeline(step: Any, count: int) -> AffineMap:
    found = unchanged(count)
    for _, part in step.steps:
        found = read_step(part, len(found.offset)).after(found)
    return found


_STEPS: dict[str, Callable[[Any, int], AffineMap]] = {
    "StandardScaler": _standard,
    "MinMaxScaler": _min_max,
    "MaxAbsScaler": _max_abs,
    "RobustScaler": _robust,
    "PCA": _components,
    "TruncatedSVD": _truncated,
    "FunctionTransformer": _function,
    "ColumnTransformer": _columns,
    "Pipeline": _pipeline,
}
