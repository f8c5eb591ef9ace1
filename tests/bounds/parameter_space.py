"""Legal parameters of the classes of scikit-learn that are read, as their ``_parameter_constraints`` say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVC
from sklearn.utils._param_validation import Hidden, Interval, Options, StrOptions, make_constraint

_PARTS: list[Any] = [("scaled", StandardScaler(), [2, 0]), ("same", "passthrough", [1])]
_STEPS: list[Any] = [("scaled", StandardScaler()), ("last", LogisticRegression())]

CLASSES: dict[type, Callable[..., Any]] = {
    LogisticRegression: LogisticRegression,
    LinearSVC: LinearSVC,
    LinearRegression: LinearRegression,
    Ridge: Ridge,
    MLPClassifier: MLPClassifier,
    MLPRegressor: MLPRegressor,
    StandardScaler: StandardScaler,
    MinMaxScaler: MinMaxScaler,
    MaxAbsScaler: MaxAbsScaler,
    RobustScaler: RobustScaler,
    PCA: PCA,
    TruncatedSVD: TruncatedSVD,
    FunctionTransformer: FunctionTransformer,
    ColumnTransformer: lambda **options: ColumnTransformer(**({"transformers": _PARTS} | options)),
    Pipeline: lambda **options: Pipeline(**({"steps": _STEPS} | options)),
}
"""What certus reads, and how an instance with some parameters is made."""

CHEAP: dict[type, dict[str, Any]] = {
    MLPClassifier: {"hidden_layer_sizes": (4,), "max_iter": 5},
    MLPRegressor: {"hidden_layer_sizes": (4,), "max_iter": 5},
}
"""Other defaults, for the sake of time."""

STRUCTURED: dict[str, list[Any]] = {
    "class_weight": [{0: 2.0, 1: 1.0, 2: 0.5}],
    "feature_range": [(0, 1), (-3.0, 2.0), (5, 5.5)],
    "quantile_range": [(25.0, 75.0), (0.0, 100.0), (10.0, 50.0)],
    "hidden_layer_sizes": [(), (3,), (4, 3)],
    "alpha": [np.array([0.5])],
    "func": [np.tanh, np.negative],
    "inverse_func": [np.arctanh],
    "kw_args": [{}, {"where": True}],
    "inv_kw_args": [{}],
    "feature_names_out": ["one-to-one"],
    "transformer_weights": [{"scaled": 2.0}, {"same": -1.0, "scaled": 0.0}],
    "verbose_feature_names_out": ["{transformer_name}_{feature_name}"],
    "remainder": [StandardScaler(), MaxAbsScaler(), PCA(1)],
    "transformers": [
        [("one", PCA(2), slice(0, 3)), ("two", "drop", [3])],
        [("one", MinMaxScaler(), [True, False, True, False]), ("two", RobustScaler(), [3, 1])],
        [("one", make_pipeline(StandardScaler(), PCA(1)), [-1, 0])],
    ],
    "steps": [
        [("a", "passthrough"), ("last", LogisticRegression())],
        [("a", PCA(2)), ("b", None), ("c", MaxAbsScaler()), ("last", LinearSVC())],
        [("a", MinMaxScaler(clip=True)), ("last", LogisticRegression())],
        [("last", Ridge())],
    ],
    "transform_input": [[]],
    "memory": [],
    "random_state": [0, None],
    "n_jobs": [None, 1],
    "verbose": [0],
}
"""Values where a constraint says only what type they have. Nothing is cached or printed."""


def _numbers(interval: Interval) -> list[Any]:
    """Three inside, and the ends that belong to it."""
    left = -math.inf if interval.left is None else interval.left
    right = math.inf if interval.right is None else interval.right
    if interval.type is Integral:
        start = int(left) if math.isfinite(left) else 0
        inside = [value for value in (start + 1, start + 2, start + 7) if value < right]
        ends = [int(left)] if interval.closed in ("left", "both") and math.isfinite(left) else []
        return [*inside, *ends]
    size = right - left if math.isfinite(right) else 1.0
    shares = (0.1, 0.5, 0.9) if math.isfinite(right) else (0.01, 1.0, 50.0)
    between = [left + share * size for share in shares]
    closed_left = interval.closed in ("left", "both") and math.isfinite(left)
    closed_right = interval.closed in ("right", "both")
    return [*between, *([float(left)] if closed_left else []), *([float(right)] if closed_right else [])]


def legal(kind: type) -> dict[str, list[Any]]:
    """Parameter → values to try, for every parameter that the class checks."""
    values: dict[str, list[Any]] = {}
    for name, constraints in kind._parameter_constraints.items():  # type: ignore[attr-defined]
        tried: list[Any] = list(STRUCTURED.get(name, []))
        for constraint in constraints if isinstance(constraints, list) else []:
            while isinstance(constraint, Hidden):
                constraint = constraint.constraint
            if constraint is None:
                tried.append(None)
            elif isinstance(constraint, str) and constraint == "boolean":
                tried += [True, False, np.bool_(True)]
            elif not isinstance(constraint, str | type):
                rule = make_constraint(constraint)
                tried += _numbers(rule) if isinstance(rule, Interval) else []
                tried += sorted(rule.options, key=str) if isinstance(rule, StrOptions | Options) else []
        values[name] = tried
    return values


@dataclass(frozen=True, eq=False)
class Setting:
    """A class, some of its parameters, and the data that a model of it is fitted on."""

    kind: type
    options: dict[str, Any]
    classes: int
    data: str = "plain"

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.kind.__name__}({given}), {self.classes} classes, {self.data} data"


def alone(kind: type) -> Iterator[Setting]:
    """Each value of each parameter, one at a time."""
    for classes, data in ((2, "wide"), (3, "plain")):
        yield Setting(kind, {}, classes, data)
        for name, values in legal(kind).items():
            for value in values:
                yield Setting(kind, {name: value}, classes, data)


def combined(kind: type, count: int, seed: int) -> Iterator[Setting]:
    """Random combinations, each parameter left out with a chance of one half, on random data."""
    draw, values = np.random.default_rng(seed), legal(kind)
    for _ in range(count):
        options = {
            name: tried[draw.integers(len(tried))]
            for name, tried in values.items()
            if tried and draw.random() < 0.5
        }
        data = ("plain", "wide", "repeated", "constant", "single")[draw.integers(5)]
        yield Setting(kind, options, int(draw.integers(2, 4)), data)
