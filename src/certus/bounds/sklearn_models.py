"""Fitted scikit-learn estimators, read exactly as networks.

| estimator | network | loss |
|---|---|---|
| LogisticRegression, two classes | one linear output | logistic |
| LogisticRegression, several | linear outputs | cross-entropy |
| LinearSVC, two classes | one linear output | its hinge, squared or not |
| LinearSVC, several | linear outputs | cross-entropy of the scores |
| LinearRegression, Ridge | linear outputs | squared error |
| MLPClassifier, MLPRegressor | its layers | logistic or cross-entropy; squared error |
| RobustClassifier, RobustRegressor | their network | cross-entropy; squared error |

on their own, or at the end of a ``Pipeline`` of linear steps x ↦ Ax + b (scalers, PCA, selections of columns,
column transformers), which are read from their fitted attributes and folded into the first layer. A fitted
search of hyperparameters counts as its best model. Imputers and encoders: ``encoded_frames``.

A rule holds for one class and for listed values of its constructor parameters. Any other
class, subclasses included, any other parameter, such as one of a later version, and any other value are
refused by name. The network is then compared with the estimator on random rows and on the caller's
(``predict``, ``decision_function``, ``predict_proba``, and ``transform`` of the preceding steps), so that a
version of scikit-learn with other attributes is refused and not misread.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from certus.costs import Cost
from certus.data import in_fitted_order, named_rows, require_real
from certus.errors import ArgumentError, UnreadableModelError
from certus.losses import Criterion, CrossEntropy, Hinge, Logistic, SquaredError

_Array = np.ndarray[Any, Any]
_Layers = list["AffineMap | nn.Module"]
_Reader = Callable[..., Any]
"""For a transformer (step, columns) → ``AffineMap``; for a model its layers and its criterion."""

_SEARCHES = ("GridSearchCV", "RandomizedSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV")
_OWN = ("RobustClassifier", "RobustRegressor")  # estimators of certus, which predict by ``module_``
_UNITS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
}


@dataclass(frozen=True, eq=False)
class AffineMap:
    """x ↦ matrix·x + offset, with a matrix (outputs, inputs)."""

    matrix: _Array
    offset: _Array

    def after(self, first: AffineMap) -> AffineMap:
        """The composition self ∘ first."""
        return AffineMap(self.matrix @ first.matrix, self.matrix @ first.offset + self.offset)


@dataclass(frozen=True, eq=False)
class Reading:
    """A fitted model as a float64 network of its input rows.

    Attributes:
        network: (n, features) → (n, outputs); a linear model is one ``nn.Linear``, scaling included.
        criterion: the loss that the model minimises, without regularisation.
        classes: labels of the codes 0, 1, …; None for a regression.
        model: the fitted model itself; before: the composition of the linear steps before its last one.
        cost: the cost that an estimator of certus, alone, was fitted with; None for others.
    """

    network: nn.Sequential
    criterion: Criterion
    classes: _Array | None
    model: Any
    before: AffineMap
    cost: Cost | None = None

    def encoded(self, y: Any) -> Tensor:
        """(n,) codes of labels, or regression targets."""
        values = np.asarray(y)
        if self.classes is None:
            return torch.from_numpy(np.array(values, dtype=np.float64))
        place = np.searchsorted(self.classes, values).clip(0, len(self.classes) - 1)
        unknown = self.classes[place] != values
        if unknown.any():
            labels = ", ".join(map(str, self.classes))
            raise ArgumentError(
                f"`data` must have labels of the model's classes, {labels}; got {values[unknown][0]}."
            )
        return torch.from_numpy(place.astype(np.int64))


_PERCEPTRON = (
    "hidden_layer_sizes solver alpha batch_size learning_rate learning_rate_init power_t max_iter shuffle "
    "random_state tol verbose warm_start momentum nesterovs_momentum early_stopping validation_fraction "
    "beta_1 beta_2 epsilon n_iter_no_change max_fun"
)
_FREE = {
    "LogisticRegression": "penalty C l1_ratio dual tol fit_intercept intercept_scaling class_weight "
    "random_state solver max_iter verbose warm_start n_jobs",
    "LinearSVC": "penalty dual tol C fit_intercept intercept_scaling class_weight verbose random_state "
    "max_iter",
    "LinearRegression": "fit_intercept copy_X tol n_jobs positive",
    "Ridge": "alpha fit_intercept copy_X max_iter tol solver positive random_state",
    "MLPClassifier": _PERCEPTRON,
    "MLPRegressor": _PERCEPTRON,
    "StandardScaler": "copy with_mean with_std",
    "MinMaxScaler": "feature_range copy",
    "MaxAbsScaler": "copy",
    "RobustScaler": "with_centering with_scaling quantile_range copy unit_variance",
    "PCA": "n_components copy whiten svd_solver tol iterated_power n_oversamples power_iteration_normalizer "
    "random_state",
    "TruncatedSVD": "n_components algorithm n_iter n_oversamples power_iteration_normalizer random_state tol",
    "SimpleImputer": "missing_values strategy fill_value copy add_indicator keep_empty_features",
    "OneHotEncoder": "categories drop sparse_output dtype handle_unknown min_frequency max_categories "
    "feature_name_combiner",
    "OrdinalEncoder": "categories dtype handle_unknown unknown_value encoded_missing_value min_frequency "
    "max_categories",
    "SelectKBest": "score_func k",
    "SelectPercentile": "score_func percentile",
    "VarianceThreshold": "threshold",
    "FunctionTransformer": "inverse_func validate accept_sparse check_inverse feature_names_out inv_kw_args",
    "ColumnTransformer": "transformers remainder sparse_threshold n_jobs verbose verbose_feature_names_out "
    "force_int_remainder_cols",
    "Pipeline": "steps transform_input memory verbose",
}
"""Parameters that affect only the fit, or that the reader follows: any value is supported."""

_LIMITED: dict[str, dict[str, tuple[Any, ...]]] = {
    "LogisticRegression": {"multi_class": ("deprecated", "auto", "multinomial")},
    "LinearSVC": {"loss": ("hinge", "squared_hinge"), "multi_class": ("ovr", "crammer_singer")},
    "MLPClassifier": {"activation": tuple(_UNITS)},
    "MLPRegressor": {"activation": tuple(_UNITS), "loss": ("squared_error",)},
    "MinMaxScaler": {"clip": (False,)},
    "MaxAbsScaler": {"clip": (False,)},
    "FunctionTransformer": {"func": (None,), "kw_args": (None,)},
    "ColumnTransformer": {"transformer_weights": (None,)},
}
"""The other parameters, each with its supported values."""


def is_exactly(model: Any, kind: str) -> bool:
    """Whether a model is of scikit-learn's own class; a subclass may compute anything."""
    module = type(model).__module__
    own = getattr(sys.modules.get(module), kind, None)
    return module.split(".")[0] in ("sklearn", "certus") and type(model) is own


def unwrapped_search(model: Any) -> Any:
    """Return the model that a fitted search of hyperparameters predicts with; any other model as it is."""
    kind = type(model).__name__
    if kind not in _SEARCHES or not is_exactly(model, kind):
        return model
    if not hasattr(model, "best_estimator_"):
        raise UnreadableModelError(f"{kind} has no model: fit it, with refit=True")
    return unwrapped_search(model.best_estimator_)


def reader_of(model: Any, readers: dict[str, _Reader], otherwise: str) -> _Reader:
    """The reader of the model's class; raise if there is none, or if it may not hold for the parameters."""
    kind = type(model).__name__
    if kind not in readers or not is_exactly(model, kind):
        raise UnreadableModelError(f"{kind} {otherwise}")
    if kind in _OWN:
        return readers[kind]
    limited = _LIMITED.get(kind, {})
    for name, value in model.get_params(deep=False).items():
        if name in limited:
            plain = value is None or isinstance(value, str | bool | np.bool_)
            if not plain or value not in limited[name]:
                short = text if len(text := repr(value)) <= 60 else f"{text[:60]}…"
                raise UnreadableModelError(f"{kind}({name}={short}) has no rule")
        elif name not in _FREE[kind].split():
            raise UnreadableModelError(
                f"{kind} has a parameter `{name}` that this version of certus does not know"
            )
    return readers[kind]


_CLOSE = 1e-6  # tolerance of outputs, relative to their size
_COARSE = 1e-3  # the same, for rows that the model may convert to float32
_ULPS = 1e-13  # rounding in float64, relative to the terms that are added
_RANDOM_ROWS = 64
_MANY = 1000  # largest number of the caller's rows that are scaled
_MULTIPLES = (10.0, -10.0, 1e3, -1e3, 1e6)
_BEYOND = (0.0, 1e-6, 0.1, 1.0, 10.0)  # in widths of the range of a column


def read_samples(reading: Reading, data: Any) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Rows, targets as the criterion takes them, and weights of ``Samples`` or of (X, y).

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
    """Rows, multiples of them, and points at and beyond the ends of each column, where a step might clip."""
    low, high = rows.min(0), rows.max(0)
    ends = [end for by in _BEYOND for end in (low - by * (high - low), high + by * (high - low))]
    return np.concatenate([rows, *(factor * rows for factor in _MULTIPLES), ends])


def _check(reading: Reading, rows: _Array) -> None:
    """Compare the network and the preceding steps on rows in float64."""
    model, before = reading.model, reading.before
    _compare(reading, rows, named_rows(model, rows), _CLOSE)
    moved: Any = named_rows(model, rows.copy())
    for _, step in getattr(model, "steps", [])[:-1]:
        moved = moved if step is None or isinstance(step, str) else step.transform(moved)
    sizes = np.abs(rows) @ np.abs(before.matrix).T + np.abs(before.offset)
    _require_close(model, rows @ before.matrix.T + before.offset, moved, _CLOSE, sizes)


def _compare(reading: Reading, rows: _Array, given: Any, close: float) -> None:
    """Compare all outputs of the model on rows, in the form that it was given, with the network's."""
    model = reading.model

    def call(method: str) -> Any:
        return getattr(model, method)(copy.deepcopy(given))  # a copy: a step with copy=False overwrites it

    with torch.no_grad():
        ours = reading.network(torch.from_numpy(rows)).numpy()
        sizes = _sizes(reading, rows)
    if reading.classes is None:
        _require_close(model, ours, call("predict"), close, sizes)
        return
    if callable(getattr(model, "decision_function", None)):
        two = ours.shape[1] == 2
        scores = ours[:, 1:] - ours[:, :1] if two else ours
        _require_close(
            model, scores, call("decision_function"), close, sizes.sum(1, keepdims=True) if two else sizes
        )
    scores = ours if ours.shape[1] > 1 else np.concatenate([0 * ours, ours], 1)
    if callable(getattr(model, "predict_proba", None)):
        probabilities = torch.from_numpy(scores).softmax(1).numpy()
        _require_close(model, probabilities, call("predict_proba"), close, sizes.max(1, keepdims=True))
    best = np.sort(scores, 1)
    sure = best[:, -1] - best[:, -2] > 2 * _room(np.abs(best).max(1), close, sizes.max(1))
    others = sure & (reading.classes[scores.argmax(1)] != np.asarray(call("predict")))
    if others.any():
        raise _disagreement(model, f"predictions differ for {int(others.sum())} of {len(rows)} rows")


def _sizes(reading: Reading, rows: _Array) -> _Array:
    """(n, outputs) sums of the absolute terms of each output: rounding is relative to them."""
    sizes = torch.from_numpy(np.abs(rows))
    for layer in _leaves(reading.network):
        sizes = sizes + 1  # an activation is 1-Lipschitz, and at most 1 at 0
        if isinstance(layer, nn.Linear):
            sizes = sizes @ layer.weight.abs().T + (0 if layer.bias is None else layer.bias.abs())
    return sizes.numpy()


def compare_tables(reading: Reading, rows: Tensor, table: Any) -> None:
    """Raise ``UnreadableModelError`` unless the network of some rows agrees with the model of their table."""
    _compare(reading, rows.numpy(), table, _COARSE)


def _leaves(network: nn.Module) -> list[nn.Module]:
    """The layers of a network in their order."""
    return [layer for layer in network.modules() if not list(layer.children())]


def _require_close(model: Any, ours: _Array, outputs: Any, close: float, sizes: _Array) -> None:
    theirs = np.asarray(outputs, dtype=np.float64).reshape(len(ours), -1)
    if theirs.shape != ours.shape:
        raise _disagreement(model, f"outputs have the shape {theirs.shape} instead of {ours.shape}")
    apart = np.abs(ours - theirs)
    agree = apart <= _room(np.abs(theirs).max(1, keepdims=True), close, sizes)
    if not agree.all():
        raise _disagreement(model, f"outputs differ by {np.max(apart[~agree]):.3g}")


def _room(outputs: _Array, close: float, sizes: _Array) -> _Array:
    """Tolerance of outputs: relative, plus the rounding of terms that cancel, if small."""
    return close * (1 + outputs) + np.minimum(_ULPS * sizes, _COARSE * (1 + outputs))


def _disagreement(model: Any, how: str) -> UnreadableModelError:
    return UnreadableModelError(
        f"{type(model).__name__} disagrees with the network read from it: {how}. Please report it with the "
        "version of scikit-learn; `certify_smoothed` certifies the model without reading it."
    )


def scaling(factors: _Array, offset: _Array) -> AffineMap:
    """x ↦ factors·x + offset, elementwise."""
    return AffineMap(np.diag(np.asarray(factors, dtype=np.float64)), np.asarray(offset, dtype=np.float64))


def unchanged(count: int) -> AffineMap:
    """Return the identity map."""
    return scaling(np.ones(count), np.zeros(count))


def read_step(step: Any, count: int) -> AffineMap:
    """Return a fitted transformer of ``count`` columns as an affine map, if it is known to be linear."""
    if step is None or (isinstance(step, str) and step == "passthrough"):
        return unchanged(count)
    moved: AffineMap = reader_of(step, _STEPS, "is not known to be linear")(step, count)
    return moved


def _standard(step: Any, count: int) -> AffineMap:
    scale = step.scale_ if step.with_std else np.ones(count)
    mean = np.zeros(count) if not step.with_mean else step.mean_
    return scaling(1 / scale, -mean / scale)


def _robust(step: Any, count: int) -> AffineMap:
    scale = step.scale_ if step.with_scaling else np.ones(count)
    center = step.center_ if step.with_centering else np.zeros(count)
    return scaling(1 / scale, -center / scale)


def _components(step: Any, count: int) -> AffineMap:
    """PCA: rows of ``components_`` on centred data, divided by the standard deviations if whitened."""
    matrix = np.asarray(step.components_, dtype=np.float64)
    if step.whiten:
        spread = np.sqrt(step.explained_variance_)
        matrix = matrix / np.maximum(spread, np.finfo(spread.dtype).eps)[:, None]
    return AffineMap(matrix, -matrix @ step.mean_)


def _columns(step: Any, count: int) -> AffineMap:
    """The maps of all parts, stacked, each on its own columns."""
    names = getattr(step, "feature_names_in_", None)
    parts = []
    for _, part, columns in step.transformers_:
        if isinstance(part, str) and part == "drop":
            continue
        places = column_places(columns, count, names)
        if len(places) > 0:
            chosen = AffineMap(np.eye(count)[places], np.zeros(len(places)))
            parts.append(read_step(part, len(places)).after(chosen))
    if not parts:
        raise UnreadableModelError("ColumnTransformer drops all columns")
    matrices, offsets = [part.matrix for part in parts], [part.offset for part in parts]
    return AffineMap(np.concatenate(matrices), np.concatenate(offsets))


def column_places(columns: Any, count: int, names: _Array | None) -> list[int]:
    """Column indices of a column transformer, given as numbers, names, a slice, a mask, or a single one."""
    if isinstance(columns, slice) and not isinstance(columns.start, str):
        return list(range(count))[columns]
    if isinstance(columns, slice):
        raise UnreadableModelError("ColumnTransformer with a slice of names is not read: list the columns")
    several = [columns] if isinstance(columns, str | int) else list(columns)
    if several and all(isinstance(column, bool | np.bool_) for column in several):
        return [place for place, taken in enumerate(several) if taken]
    places = []
    for column in several:
        if isinstance(column, str):
            if names is None or column not in names:
                raise UnreadableModelError(f"ColumnTransformer names an unknown column {column!r}")
            places.append(int(np.flatnonzero(names == column)[0]))
        else:
            places.append(int(column) % count)
    return places


def _pipeline(step: Any, count: int) -> AffineMap:
    total = unchanged(count)
    for _, part in step.steps:
        total = read_step(part, len(total.offset)).after(total)
    return total


def _chosen(step: Any, count: int) -> AffineMap:
    kept = step.get_support(indices=True)
    return AffineMap(np.eye(count)[kept], np.zeros(len(kept)))


_STEPS: dict[str, _Reader] = {
    "StandardScaler": _standard,
    "MinMaxScaler": lambda step, count: scaling(step.scale_, step.min_),
    "MaxAbsScaler": lambda step, count: scaling(1 / step.scale_, np.zeros(count)),
    "RobustScaler": _robust,
    "PCA": _components,
    "TruncatedSVD": lambda step, count: AffineMap(
        np.asarray(step.components_, dtype=np.float64), np.zeros(len(step.components_))
    ),
    "FunctionTransformer": lambda step, count: unchanged(count),
    "ColumnTransformer": _columns,
    "Pipeline": _pipeline,
    **dict.fromkeys(("SelectKBest", "SelectPercentile", "VarianceThreshold"), _chosen),
}


def read_estimator(model: Any) -> Reading:
    """Return a fitted estimator as a network; raise ``UnreadableModelError`` if it has no reader."""
    count = getattr(model, "n_features_in_", None)
    if count is None:
        raise UnreadableModelError(f"{type(model).__name__} is not fitted")
    before = unchanged(int(count))
    if is_exactly(model, "Pipeline"):
        reader_of(model, _STEPS, "")
        for _, step in model.steps[:-1]:
            before = read_step(step, len(before.offset)).after(before)
    reading = network_after(model, before)
    _check(reading, _far(3 * np.random.default_rng(0).standard_normal((_RANDOM_ROWS, int(count)))))
    return reading


def network_after(model: Any, before: AffineMap) -> Reading:
    """Return the last step of a fitted pipeline, or a model alone, as a network behind an affine map."""
    last = model.steps[-1][1] if is_exactly(model, "Pipeline") else model
    own = " (it has a `certify` of its own)" if callable(getattr(last, "certify", None)) else ""
    layers, criterion = reader_of(last, _MODELS, f"is not read exactly{own}")(last)
    if isinstance(layers[0], AffineMap):
        parts = [layers[0].after(before), *layers[1:]]
    else:  # a network of a user's own
        parts = layers if last is model else [before, *layers]
    network = nn.Sequential(*(_layer(part) if isinstance(part, AffineMap) else part for part in parts))
    classes = getattr(last, "classes_", None)
    cost = getattr(last, "cost_", None) if last is model else None
    return Reading(network.double().eval(), criterion, classes, model, before, cost)


def _layer(part: AffineMap) -> nn.Linear:
    outputs, inputs = part.matrix.shape
    layer = nn.Linear(inputs, outputs, dtype=torch.float64).requires_grad_(False)
    layer.weight.copy_(torch.from_numpy(part.matrix))
    layer.bias.copy_(torch.from_numpy(part.offset))
    return layer


def _linear(model: Any) -> AffineMap:
    dense = model.coef_.toarray() if hasattr(model.coef_, "toarray") else model.coef_  # after ``sparsify``
    weights = np.atleast_2d(np.asarray(dense, dtype=np.float64))
    return AffineMap(weights, np.broadcast_to(np.asarray(model.intercept_, np.float64), len(weights)).copy())


def _logistic(model: Any) -> tuple[_Layers, Criterion]:
    if len(model.classes_) == 2 and getattr(model, "multi_class", "auto") == "multinomial":
        raise UnreadableModelError("LogisticRegression(multi_class='multinomial') of two classes has no rule")
    return [_linear(model)], Logistic() if len(model.classes_) == 2 else CrossEntropy()


def _support_vectors(model: Any) -> tuple[_Layers, Criterion]:
    if len(model.classes_) > 2:
        return [_linear(model)], CrossEntropy()
    if model.multi_class == "crammer_singer":  # with its own loss
        raise UnreadableModelError("LinearSVC(multi_class='crammer_singer') of two classes has no rule")
    return [_linear(model)], Hinge(squared=model.loss == "squared_hinge")


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
        raise UnreadableModelError(f"{type(model).__name__} with this output is not read")
    return layers[:-1], criteria[model.out_activation_]


def _own(model: Any) -> tuple[_Layers, Criterion]:
    """The network of an estimator of certus; its first layer as a map, where it is a dense one."""
    if not hasattr(model, "module_"):
        raise UnreadableModelError(f"{type(model).__name__} is not fitted")
    module = copy.deepcopy(model.module_).requires_grad_(False)
    layers: _Layers = list(module) if type(module) is nn.Sequential else [module]
    first = layers[0]
    if type(first) is nn.Linear and not first._forward_hooks and not first._forward_pre_hooks:
        bias = torch.zeros(first.out_features) if first.bias is None else first.bias
        layers[0] = AffineMap(first.weight.double().numpy(), bias.double().numpy())
    return layers, model._criterion


_MODELS: dict[str, _Reader] = {
    "LogisticRegression": _logistic,
    "LinearSVC": _support_vectors,
    "LinearRegression": lambda model: ([_linear(model)], SquaredError()),
    "Ridge": lambda model: ([_linear(model)], SquaredError()),
    "MLPClassifier": _perceptron,
    "MLPRegressor": _perceptron,
    **dict.fromkeys(_OWN, _own),
}
