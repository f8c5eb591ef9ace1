"""A fitted model beside its reading: both are run on the same rows, near and far.

Compared are ``predict``, ``decision_function``, ``predict_proba`` and the ``transform`` of the steps before.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from certus.errors import ArgumentError, UnprovableError
from certus.feature_names import in_fitted_order, named_rows
from certus.readers.model_reading import Reading
from certus.split import require_real

_CLOSE = 1e-6  # how far outputs may be apart, relative to their size
_COARSE = 1e-3  # the same, for rows that the model may take in single precision
_ULPS = 1e-13  # rounding in float64, relative to the terms that are added
_RANDOM_ROWS = 64
_MANY = 1000  # of the caller's rows, at most, that are multiplied
_MULTIPLES = (10.0, -10.0, 1e3, -1e3, 1e6)
_BEYOND = (0.0, 1e-6, 0.1, 1.0, 10.0)  # in widths of the range of a column

_Array = np.ndarray[Any, Any]


def check_random_rows(reading: Reading) -> None:
    """Raise ``UnprovableError`` unless model and reading agree on random rows, and on multiples of them."""
    count = reading.before.matrix.shape[1]
    _check(reading, _far(3 * np.random.default_rng(0).standard_normal((_RANDOM_ROWS, count))))


def read_samples(reading: Reading, data: Any) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Rows, targets as the criterion takes them, and weights of a ``Split`` or of (X, y).

    The model must accept the rows, and agree with its reading on them and far outside their range.
    """
    weights = getattr(data, "weights", None)
    pair = (data.inputs, data.targets) if hasattr(data, "inputs") else data
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ArgumentError(f"`data` must be (X, y) for a model of scikit-learn; got {type(data)}.")
    given, targets = (part.cpu().numpy() if isinstance(part, Tensor) else part for part in pair)
    require_real(inputs=given, targets=targets)
    if len(np.shape(given)) != 2:
        raise ArgumentError(f"`data` must hold rows, (n, features); got shape {np.shape(given)}.")
    rows = np.array(in_fitted_order(reading.model, given), dtype=np.float64)
    _compare(reading, rows, given, _COARSE)
    _check(reading, rows)
    _check(reading, _far(rows[:: -(-len(rows) // _MANY)]))
    return torch.from_numpy(rows), None if targets is None else reading.encoded(targets), weights


def _far(rows: _Array) -> _Array:
    """Multiples of rows, and the ends of each column's range, up to and beyond which a step might clip."""
    low, high = rows.min(0), rows.max(0)
    ends = [end for by in _BEYOND for end in (low - by * (high - low), high + by * (high - low))]
    return np.concatenate([rows, *(factor * rows for factor in _MULTIPLES), ends])


def _check(reading: Reading, rows: _Array) -> None:
    """Compare both on rows in float64, and the steps before by themselves."""
    model, before = reading.model, reading.before
    _compare(reading, rows, named_rows(model, rows), _CLOSE)
    moved: Any = named_rows(model, rows.copy())
    for _, step in getattr(model, "steps", [])[:-1]:
        moved = moved if step is None or isinstance(step, str) else step.transform(moved)
    sizes = np.abs(rows) @ np.abs(before.matrix).T + np.abs(before.offset)
    _require_close(model, rows @ before.matrix.T + before.offset, moved, _CLOSE, sizes)


def _compare(reading: Reading, rows: _Array, given: Any, close: float) -> None:
    """Compare all that the model says of rows, as it is given them, with what its reading says."""
    model = reading.model

    def asked(method: str) -> Any:
        return getattr(model, method)(copy.deepcopy(given))  # which a step with copy=False overwrites

    with torch.no_grad():
        ours = reading.network(torch.from_numpy(rows)).numpy()
        sizes = _sizes(reading, rows)
    if reading.classes is None:
        _require_close(model, ours, asked("predict"), close, sizes)
        return
    if callable(getattr(model, "decision_function", None)):
        _require_close(model, ours, asked("decision_function"), close, sizes)
    scores = ours if ours.shape[1] > 1 else np.concatenate([0 * ours, ours], 1)
    if callable(getattr(model, "predict_proba", None)):
        probabilities = torch.from_numpy(scores).softmax(1).numpy()
        _require_close(model, probabilities, asked("predict_proba"), close, sizes.max(1, keepdims=True))
    best = np.sort(scores, 1)
    sure = best[:, -1] - best[:, -2] > 2 * _room(np.abs(best).max(1), close, sizes.max(1))
    others = sure & (reading.classes[scores.argmax(1)] != np.asarray(asked("predict")))
    if others.any():
        raise _disagreement(model, f"it predicts other labels for {int(others.sum())} of {len(rows)} rows")


def _sizes(reading: Reading, rows: _Array) -> _Array:
    """(n, outputs) sums of the absolute terms of each output: the rounding of both is relative to them."""
    sizes = torch.from_numpy(np.abs(rows))
    for layer in reading.network:
        sizes = sizes + 1  # an activation is 1-Lipschitz, and at most 1 at 0
        if isinstance(layer, nn.Linear):
            sizes = sizes @ layer.weight.abs().T + layer.bias.abs()
    return sizes.numpy()


def _require_close(model: Any, ours: _Array, outputs: Any, close: float, sizes: _Array) -> None:
    theirs = np.asarray(outputs, dtype=np.float64).reshape(len(ours), -1)
    if theirs.shape != ours.shape:
        raise _disagreement(model, f"outputs have the shape {theirs.shape} instead of {ours.shape}")
    apart = np.abs(ours - theirs)
    agree = apart <= _room(np.abs(theirs).max(1, keepdims=True), close, sizes)
    if not agree.all():
        raise _disagreement(model, f"outputs differ by {np.max(apart[~agree]):.3g}")


def _room(outputs: _Array, close: float, sizes: _Array) -> _Array:
    """By how much outputs may differ: relatively, and by the rounding of terms that cancel, if small."""
    return close * (1 + outputs) + np.minimum(_ULPS * sizes, _COARSE * (1 + outputs))


def _disagreement(model: Any, how: str) -> UnprovableError:
    return UnprovableError(
        f"{type(model).__name__} does not say what was read from it: {how}. Please report it with the "
        "version of scikit-learn; `smoothing` certifies the model without reading it."
    )
