"""Trees, forests and boosted trees of scikit-learn.

Trees and forests cast rows to float32 and go left at x ≤ t; forests average probabilities, or numbers.
Gradient boosting adds its rate times the leaves to a constant; the histogram one compares float64 numbers,
encodes categories first, and reads an unknown category as a gap. All sums are of float64 numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from certus.bounds.sklearn_models import is_exactly
from certus.bounds.trees.folding import FLOAT64, Array, Codes, Derived, Tree, Trees, as_is, to_float32
from certus.bounds.trees.parsed import Parsed, refused
from certus.bounds.trees.steps import encode_ordinal
from certus.errors import UnreadableModelError


def is_sklearn_ensemble(model: Any) -> bool:
    """Whether a model is of a class of scikit-learn that is read."""
    return type(model).__name__ in _READERS and is_exactly(model, type(model).__name__)


def read_sklearn_ensemble(model: Any) -> Parsed:
    """Return the trees of a fitted model."""
    kind = type(model).__name__
    if not hasattr(model, "n_features_in_"):
        raise UnreadableModelError(f"{kind} is not fitted")
    return _READERS[kind](model)


def _library() -> str:
    return f"scikit-learn {sys.modules['sklearn'].__version__}"


def _tree(tree: Any, values: Array) -> Tree:
    """A tree with the values (nodes, outputs) of its leaves."""
    return Tree(
        np.maximum(tree.feature, -1).astype(np.int64),
        np.asarray(tree.threshold, dtype=np.float64),
        np.asarray(tree.children_left, dtype=np.int64),
        np.asarray(tree.children_right, dtype=np.int64),
        np.asarray(tree.missing_go_to_left, dtype=bool),
        values,
    )


def _forest(model: Any) -> Parsed:
    """A forest, or a single tree: the mean of probabilities or of numbers."""
    kind = type(model).__name__
    if model.n_outputs_ > 1:
        raise refused(f"{kind} with several outputs")
    members = getattr(model, "estimators_", [model])
    first = members[0]
    classes = getattr(model, "classes_", None)
    trees = [_tree(member.tree_, member.tree_.value[:, 0, :] / len(members)) for member in members]
    outputs = trees[0].value.shape[1]
    if classes is not None and len(classes) != outputs:
        raise UnreadableModelError(f"{kind} has {len(classes)} classes, its leaves {outputs} numbers")
    if classes is not None and len(classes) < 2:
        raise refused(f"{kind} of a single class")
    gaps = bool(first.__sklearn_tags__().input_tags.allow_nan) and first.monotonic_cst is None

    def raw(rows: Any) -> Array:
        scores = np.asarray(model.predict(rows) if classes is None else model.predict_proba(rows))
        return scores.reshape(len(scores), -1)

    return Parsed(
        Trees(trees, np.zeros(outputs), model.n_features_in_, to_float32, FLOAT64, missing=gaps),
        "number" if classes is None else "probability",
        classes,
        _library(),
        raw,
    )


def _boosting(model: Any) -> Parsed:
    kind = type(model).__name__
    start = model.init_
    constant = any(is_exactly(start, name) for name in ("DummyClassifier", "DummyRegressor"))
    if not (constant or (isinstance(start, str) and start == "zero")):
        raise refused(f"{kind}(init={type(start).__name__}), an initial model that is not constant,")
    if constant and start.strategy not in (
        "prior",
        "mean",
        "quantile",
        "constant",
        "median",
        "most_frequent",
    ):
        raise refused(f"{kind} with a start of the strategy {start.strategy}")
    classes = getattr(model, "classes_", None)
    bias = np.asarray(model._raw_predict_init(np.zeros((1, model.n_features_in_))), dtype=np.float64)[0]
    # The probability of the exponential loss is the logistic function of 2s.
    scale = 2.0 if classes is not None and model.loss == "exponential" else 1.0
    outputs, trees = len(bias), []
    for stage in model.estimators_:
        for group, member in enumerate(stage):
            own = member.tree_.value[:, 0, 0]
            values = np.zeros((len(own), outputs))
            values[:, group] = scale * (model.learning_rate * own)
            trees.append(_tree(member.tree_, values))

    def raw(rows: Any) -> Array:
        scores = np.asarray(model.predict(rows) if classes is None else model.decision_function(rows))
        return scale * scores.reshape(len(scores), -1)

    return Parsed(
        Trees(trees, scale * bias, model.n_features_in_, to_float32, FLOAT64, missing=False),
        _output(classes, outputs),
        classes,
        _library(),
        raw,
    )


def _output(classes: Array | None, outputs: int) -> Any:
    return "number" if classes is None else "logistic" if outputs == 1 else "softmax"


def _histogram(model: Any) -> Parsed:
    kind = type(model).__name__
    classes = getattr(model, "classes_", None)
    if classes is None and type(model._loss.link).__name__ != "IdentityLink":
        raise refused(f"{kind}(loss={model.loss!r})")
    bias = np.asarray(model._baseline_prediction, dtype=np.float64).ravel()
    trees = [
        _histogram_tree(predictor, group, len(bias))
        for stage in model._predictors
        for group, predictor in enumerate(stage)
    ]
    counts = {
        int(tree.feature[node]): len(codes.left) for tree in trees for node, codes in tree.codes.items()
    }

    def raw(rows: Any) -> Array:
        scores = np.asarray(model.predict(rows) if classes is None else model.decision_function(rows))
        return scores.reshape(len(scores), -1)

    return Parsed(
        Trees(trees, bias, model.n_features_in_, as_is, FLOAT64, code_counts=counts),
        _output(classes, len(bias)),
        classes,
        _library(),
        raw,
        None if model._preprocessor is None else lambda columns: _histogram_columns(model, columns),
    )


def _histogram_columns(model: Any, columns: list[Derived]) -> list[Derived]:
    """Columns of categories first, encoded; then the others: the order in which the trees count them."""
    categorical = np.asarray(model.is_categorical_, dtype=bool)
    encoder = model._preprocessor.named_transformers_["encoder"]
    first = [column for column, own in zip(columns, categorical, strict=True) if own]
    return encode_ordinal(encoder, first) + [
        column for column, own in zip(columns, categorical, strict=True) if not own
    ]


def _histogram_tree(predictor: Any, group: int, outputs: int) -> Tree:
    nodes = predictor.nodes
    leaf = nodes["is_leaf"].astype(bool)
    values = np.zeros((len(nodes), outputs))
    values[:, group] = nodes["value"]
    missing_left = nodes["missing_go_to_left"].astype(bool)
    codes = {}
    for node in np.flatnonzero(nodes["is_categorical"].astype(bool) & ~leaf).tolist():
        words = np.asarray(predictor.raw_left_cat_bitsets[nodes["bitset_idx"][node]], dtype=np.uint32)
        left = ((words[:, None] >> np.arange(32, dtype=np.uint32)) & 1).astype(bool).ravel()
        codes[node] = Codes(left, beyond=bool(missing_left[node]))
    return Tree(
        np.where(leaf, -1, nodes["feature_idx"].astype(np.int64)),
        nodes["num_threshold"].astype(np.float64),
        np.where(leaf, -1, nodes["left"].astype(np.int64)),
        np.where(leaf, -1, nodes["right"].astype(np.int64)),
        missing_left,
        values,
        codes,
    )


_FORESTS = [
    f"{name}{kind}"
    for name in ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees")
    for kind in ("Classifier", "Regressor")
]
_READERS: dict[str, Callable[[Any], Parsed]] = {
    **dict.fromkeys(_FORESTS, _forest),
    "GradientBoostingClassifier": _boosting,
    "GradientBoostingRegressor": _boosting,
    "HistGradientBoostingClassifier": _histogram,
    "HistGradientBoostingRegressor": _histogram,
}
