"""Fitted estimators of scikit-learn, read exactly.

| estimator | network | loss |
|---|---|---|
| LogisticRegression, two classes | one linear output | logistic |
| LogisticRegression, several | linear outputs | cross-entropy |
| LinearSVC, two classes | one linear output | its hinge, squared or not |
| LinearSVC, several | linear outputs | cross-entropy of the scores |
| LinearRegression, Ridge | linear outputs | squared error |
| MLPClassifier, MLPRegressor | its layers | logistic or cross-entropy; squared error |

alone, or at the end of a ``Pipeline`` of linear steps, which are folded into the first layer. What was read
is run beside the model itself on random rows and must agree with it, so that a version of scikit-learn that
means something else by an attribute is refused and not misread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from certus.errors import UnprovableError
from certus.losses import Criterion, CrossEntropy, Hinge, Logistic, SquaredError
from certus.readers.model_reading import Reading, Unread
from certus.readers.steps_before import AffineMap, read_step, unchanged

_CLOSE = 1e-6  # how far outputs may be apart, relative to their size
_ROWS = 64
_Array = np.ndarray[Any, Any]
_UNITS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
}


def read_estimator(model: Any) -> Reading:
    """The network that a fitted estimator is; raises ``Unread`` for what is not read exactly."""
    count = getattr(model, "n_features_in_", None)
    if count is None:
        raise Unread(f"{type(model).__name__} is not fitted")
    last, before = model, unchanged(int(count))
    if _is_theirs(model, "Pipeline"):
        for _, step in model.steps[:-1]:
            before = read_step(step, len(before.offset)).after(before)
        last = model.steps[-1][1]
    kind = type(last).__name__
    if not _is_theirs(last, kind) or kind not in _KINDS:
        own = " (it has a `certify` of its own)" if callable(getattr(last, "certify", None)) else ""
        raise Unread(f"{kind} is not read exactly{own}")
    layers, criterion = _KINDS[kind](last)
    first = layers[0]
    assert isinstance(first, AffineMap)
    parts = [first.after(before), *layers[1:]]
    network = nn.Sequential(*(_layer(part) if isinstance(part, AffineMap) else part for part in parts))
    reading = Reading(network.double().eval(), criterion, getattr(last, "classes_", None))
    _compare(model, reading, int(count))
    return reading


def _is_theirs(model: Any, kind: str) -> bool:
    """Of the library itself: a subclass may compute anything."""
    return type(model).__name__ == kind and type(model).__module__.startswith("sklearn.")


def _layer(part: AffineMap) -> nn.Linear:
    outputs, inputs = part.matrix.shape
    layer = nn.Linear(inputs, outputs, dtype=torch.float64)
    layer.weight.data.copy_(torch.from_numpy(part.matrix))
    layer.bias.data.copy_(torch.from_numpy(part.offset))
    return layer.requires_grad_(False)


_Layers = list[AffineMap | nn.Module]


def _linear(model: Any) -> AffineMap:
    weights = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))
    return AffineMap(weights, np.broadcast_to(np.asarray(model.intercept_, np.float64), len(weights)).copy())


def _logistic(model: Any) -> tuple[_Layers, Criterion]:
    return [_linear(model)], Logistic() if len(model.classes_) == 2 else CrossEntropy()


def _support_vectors(model: Any) -> tuple[_Layers, Criterion]:
    if len(model.classes_) > 2:
        return [_linear(model)], CrossEntropy()
    return [_linear(model)], Hinge(squared=model.loss == "squared_hinge")


def _least_squares(model: Any) -> tuple[_Layers, Criterion]:
    return [_linear(model)], SquaredError()


def _perceptron(model: Any) -> tuple[_Layers, Criterion]:
    if model.activation not in _UNITS:
        raise Unread(f"{type(model).__name__} with the activation {model.activation!r} is not read")
    layers: _Layers = []
    for weights, bias in zip(model.coefs_, model.intercepts_, strict=True):
        layers += [AffineMap(np.asarray(weights, np.float64).T, np.asarray(bias, np.float64))]
        layers += [_UNITS[model.activation]()]
    criteria: dict[str, Criterion] = {
        "logistic": Logistic(),
        "softmax": CrossEntropy(),
        "identity": SquaredError(),
    }
    several = model.out_activation_ == "logistic" and len(model.classes_) != 2
    if several or model.out_activation_ not in criteria or getattr(model, "loss", "") == "poisson":
        raise Unread(f"{type(model).__name__} with this output or loss is not read")
    return layers[:-1], criteria[model.out_activation_]


_KINDS: dict[str, Callable[[Any], tuple[_Layers, Criterion]]] = {
    "LogisticRegression": _logistic,
    "LinearSVC": _support_vectors,
    "LinearRegression": _least_squares,
    "Ridge": _least_squares,
    "MLPClassifier": _perceptron,
    "MLPRegressor": _perceptron,
}


def _compare(model: Any, reading: Reading, count: int) -> None:
    """Run both on random rows."""
    rows = 3 * np.random.default_rng(0).standard_normal((_ROWS, count))
    with torch.no_grad():
        ours = reading.network(torch.from_numpy(rows)).numpy()
    named = getattr(model, "feature_names_in_", None)
    given: Any = rows if named is None else _frame(model, rows, named)
    if reading.classes is None:
        theirs, mine = np.asarray(model.predict(given), np.float64).reshape(len(rows), -1), ours
    elif callable(getattr(model, "predict_proba", None)):
        theirs = np.asarray(model.predict_proba(given), np.float64)
        logits = torch.from_numpy(ours if ours.shape[1] > 1 else np.concatenate([0 * ours, ours], 1))
        mine = logits.softmax(1).numpy()
    else:
        theirs = np.asarray(model.decision_function(given), np.float64).reshape(len(rows), -1)
        mine = ours
    apart = float(np.abs(mine - theirs).max()) if mine.shape == theirs.shape else np.inf
    if not apart <= _CLOSE * (1 + float(np.abs(theirs).max())):
        raise UnprovableError(
            f"{type(model).__name__} does not say what was read from it: outputs differ by {apart:.3g}. "
            "Please report it with the version of scikit-learn; `smoothing` certifies the model without "
            "reading it."
        )


def _frame(model: Any, rows: _Array, names: _Array) -> Any:
    """Rows under the names that the model was fitted with, where there is a library for it."""
    try:
        import pandas
    except ImportError:
        raise Unread(f"{type(model).__name__} was fitted on named columns, and pandas is not there") from None
    return pandas.DataFrame(rows, columns=list(names))
