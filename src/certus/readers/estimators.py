"""Fitted estimators of scikit-learn, read exactly.

| estimator | network | loss |
|---|---|---|
| LogisticRegression, two classes | one linear output | logistic |
| LogisticRegression, several | linear outputs | cross-entropy |
| LinearSVC, two classes | one linear output | its hinge, squared or not |
| LinearSVC, several | linear outputs | cross-entropy of the scores |
| LinearRegression, Ridge | linear outputs | squared error |
| MLPClassifier, MLPRegressor | its layers | logistic or cross-entropy; squared error |

alone, or at the end of a ``Pipeline`` of linear steps, which are folded into the first layer. Parameters that
are not known are refused (``parameters``). What was read is run beside the model itself, on random rows and
on the caller's (``equivalence``), so that a version of scikit-learn that means something else by an attribute
is refused and not misread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from certus.losses import Criterion, CrossEntropy, Hinge, Logistic, SquaredError
from certus.readers.equivalence import check_random_rows
from certus.readers.model_reading import AffineMap, Reading, Unread
from certus.readers.parameters import check_parameters, is_exactly
from certus.readers.steps_before import read_step, unchanged

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
    if is_exactly(model, "Pipeline"):
        check_parameters(model)
        for _, step in model.steps[:-1]:
            before = read_step(step, len(before.offset)).after(before)
        last = model.steps[-1][1]
    kind = type(last).__name__
    if kind not in _KINDS or not is_exactly(last, kind):
        own = " (it has a `certify` of its own)" if callable(getattr(last, "certify", None)) else ""
        raise Unread(f"{kind} is not read exactly{own}")
    check_parameters(last)
    layers, criterion = _KINDS[kind](last)
    first = layers[0]
    assert isinstance(first, AffineMap)
    parts = [first.after(before), *layers[1:]]
    network = nn.Sequential(*(_layer(part) if isinstance(part, AffineMap) else part for part in parts))
    classes = getattr(last, "classes_", None)
    reading = Reading(network.double().eval(), criterion, classes, model, before)
    check_random_rows(reading)
    return reading


def _layer(part: AffineMap) -> nn.Linear:
    outputs, inputs = part.matrix.shape
    layer = nn.Linear(inputs, outputs, dtype=torch.float64)
    layer.weight.data.copy_(torch.from_numpy(part.matrix))
    layer.bias.data.copy_(torch.from_numpy(part.offset))
    return layer.requires_grad_(False)


_Layers = list[AffineMap | nn.Module]


def _linear(model: Any) -> AffineMap:
    dense = model.coef_.toarray() if hasattr(model.coef_, "toarray") else model.coef_  # after ``sparsify``
    weights = np.atleast_2d(np.asarray(dense, dtype=np.float64))
    return AffineMap(weights, np.broadcast_to(np.asarray(model.intercept_, np.float64), len(weights)).copy())


def _logistic(model: Any) -> tuple[_Layers, Criterion]:
    if len(model.classes_) == 2 and getattr(model, "multi_class", "auto") == "multinomial":
        raise Unread("LogisticRegression(multi_class='multinomial') of two classes has no rule")
    return [_linear(model)], Logistic() if len(model.classes_) == 2 else CrossEntropy()


def _support_vectors(model: Any) -> tuple[_Layers, Criterion]:
    if len(model.classes_) > 2:
        return [_linear(model)], CrossEntropy()
    if model.multi_class == "crammer_singer":  # which has a loss of its own
        raise Unread("LinearSVC(multi_class='crammer_singer') of two classes has no rule")
    return [_linear(model)], Hinge(squared=model.loss == "squared_hinge")


def _least_squares(model: Any) -> tuple[_Layers, Criterion]:
    return [_linear(model)], SquaredError()


def _perceptron(model: Any) -> tuple[_Layers, Criterion]:
    layers: _Layers = []
    for weights, bias in zip(model.coefs_, model.intercepts_, strict=True):
        layers += [AffineMap(np.asarray(weights, np.float64).T, np.asarray(bias, np.float64))]
        layers += [_UNITS[model.activation]()]
    criteria: dict[str, Criterion] = {
        "logistic": Logistic(),
        "softmax": CrossEntropy(),
        "identity": SquaredError(),
    }
    several = model.out_activation_ == "logistic" and model.n_outputs_ != 1
    if several or model.out_activation_ not in criteria:
        raise Unread(f"{type(model).__name__} with this output is not read")
    return layers[:-1], criteria[model.out_activation_]


_KINDS: dict[str, Callable[[Any], tuple[_Layers, Criterion]]] = {
    "LogisticRegression": _logistic,
    "LinearSVC": _support_vectors,
    "LinearRegression": _least_squares,
    "Ridge": _least_squares,
    "MLPClassifier": _perceptron,
    "MLPRegressor": _perceptron,
}
