"""Tables as a data set: numbers standardised, categories one-hot, and weights that make both cost alike.

A numeric column x becomes (x − mean) / deviation, both taken from the training rows, so that moving it by
one standard deviation costs 1. A categorical column becomes one 0/1 column for each category, with weight ½:
changing the category moves two of them by 1 each and costs ½ + ½ = 1, as much as one standard deviation.

The domain keeps one-hot columns in [0, 1] and leaves numbers free. It is a relaxation: a moved point may be
"half one category, half another". Every true category lies in it, so a bound over it also bounds those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from certus.data.arrays import Array
from certus.data.base import DataSet
from certus.data.columns import Column, Numeric
from certus.data.precision import single
from certus.data.targets import Targets
from certus.domains import Box, Domain, Unbounded
from certus.row_encoding import EncodedColumn, RowEncoding
from certus.split import Split

ONE_HOT_WEIGHT = 0.5


def table(
    name: str,
    columns: Sequence[Column],
    targets: Targets,
    rows: dict[str, Tensor],
    *,
    sha256: str,
    standardize: bool = True,
    later: Mapping[str, Tensor] | None = None,
) -> DataSet:
    """A data set of (n, features) float32 inputs, with the columns in the order given.

    Args:
        standardize: False leaves numeric columns and the targets of a regression as they are.
        later: name → row numbers of later samples; like all others they are scaled by the training rows.
    """
    train = rows["train"].numpy()
    means, scales = _feature_scale(columns, train, standardize)
    categorical = torch.tensor([flag for column in columns for flag in _one_hot_flags(column)])
    target_scale = _scale(targets.values, train) if standardize and targets.classes is None else None
    values = targets.values if target_scale is None else _standardise(targets.values, *target_scale)
    everything = Split(
        single(name, encode_columns(columns, means.numpy(), scales.numpy())),
        Targets(values, targets.classes).tensor(name),
        encoding=RowEncoding(_groups(columns), means, scales),
    )
    return DataSet(
        name=name,
        train=everything[rows["train"]],
        calibration=everything[rows["calibration"]],
        test=everything[rows["test"]],
        domain=_domain(categorical),
        classes=targets.classes,
        units=_units(standardize, bool(categorical.any())),
        weights=torch.where(categorical, ONE_HOT_WEIGHT, 1.0) if categorical.any() else None,
        feature_names=tuple(label for column in columns for label in _labels(column)),
        class_names=targets.class_names,
        input_scale=(means, scales) if standardize else None,
        target_scale=target_scale,
        later={key: everything[which] for key, which in (later or {}).items()},
        rows=rows,
        sha256=sha256,
    )


def contents(columns: Sequence[Column], targets: Targets) -> dict[str, Array]:
    """The source's own numbers, codes and category names, for its digest."""
    found: dict[str, Array] = {"targets": targets.values, "classes": np.array(targets.class_names or ())}
    for column in columns:
        if isinstance(column, Numeric):
            found[f"column:{column.name}"] = column.values
        else:
            found[f"column:{column.name}"] = column.codes
            found[f"categories:{column.name}"] = np.array(column.categories)
    return found


def _scale(values: Array, train: Array) -> tuple[float, float]:
    """Mean and standard deviation of the training rows; 1 for a constant, which has none to divide by."""
    fitted = values[train]
    # In units of the largest, so that no square overflows: an infinite deviation would turn all into zeros.
    unit = float(np.abs(fitted).max()) or 1.0
    mean, deviation = float((fitted / unit).mean()) * unit, float((fitted / unit).std()) * unit
    # The computed deviation of a constant need not be exactly 0, and that of tiny numbers may well be.
    constant = fitted.min() == fitted.max() or deviation == 0
    return mean, 1.0 if constant else deviation


def _standardise(values: Array, mean: float, scale: float) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):  # refused by ``single``, with a better message
        return (values - mean) / scale


def _feature_scale(columns: Sequence[Column], train: Array, standardize: bool) -> tuple[Tensor, Tensor]:
    """Mean and scale of every encoded feature: those of its training rows, or 0 and 1. Two (features,)."""
    scales: list[tuple[float, float]] = []
    for column in columns:
        if isinstance(column, Numeric):
            scales.append(_scale(column.values, train) if standardize else (0.0, 1.0))
        else:
            scales.extend([(0.0, 1.0)] * len(column.categories))
    means, deviations = zip(*scales, strict=True)
    return torch.tensor(means, dtype=torch.float64), torch.tensor(deviations, dtype=torch.float64)


def encode_columns(columns: Sequence[Column], means: Array, scales: Array) -> Array:
    """The (n, features) float32 matrix. An unknown category leaves its whole group at 0."""
    first = columns[0]
    count = len(first.values if isinstance(first, Numeric) else first.codes)
    matrix = np.zeros((count, len(means)), dtype=np.float32)
    start = 0
    for column in columns:
        if isinstance(column, Numeric):
            with np.errstate(over="ignore"):
                matrix[:, start] = _standardise(column.values, means[start], scales[start])
            start += 1
        else:
            known = np.flatnonzero(column.codes >= 0)
            matrix[known, start + column.codes[known].astype(np.int64)] = 1
            start += len(column.categories)
    return matrix


def _groups(columns: Sequence[Column]) -> tuple[EncodedColumn, ...]:
    """Which inputs belong to one column of the table: what is derived from it stands behind it."""
    groups: dict[str, list[Column]] = {}
    places: dict[str, list[int]] = {}
    start = 0
    for column in columns:
        width, owner = len(_one_hot_flags(column)), column.part_of or column.name
        groups.setdefault(owner, []).append(column)
        places.setdefault(owner, []).extend(range(start, start + width))
        start += width
    found = []
    for name, parts in groups.items():
        if not isinstance(parts[0], Numeric):
            found.append(EncodedColumn(name, "category", tuple(places[name])))
            continue
        numbers = sum(isinstance(part, Numeric) for part in parts)
        kind = "number" if numbers == 1 else "date"
        found.append(EncodedColumn(name, kind, tuple(places[name][:numbers]), tuple(places[name][numbers:])))
    return tuple(found)


def _one_hot_flags(column: Column) -> list[bool]:
    return [False] if isinstance(column, Numeric) else [True] * len(column.categories)


def _labels(column: Column) -> list[str]:
    if isinstance(column, Numeric):
        return [column.name]
    return [f"{column.name}={category}" for category in column.categories]


def _domain(categorical: Tensor) -> Domain:
    if not categorical.any():
        return Unbounded()
    return Box(torch.where(categorical, 0.0, -math.inf), torch.where(categorical, 1.0, math.inf))


def _units(standardize: bool, categorical: bool) -> str:
    numbers = "standard deviations" if standardize else "units of the features"
    return f"{numbers}, a changed category counting as 1" if categorical else numbers
