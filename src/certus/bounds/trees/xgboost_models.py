"""XGBoost models: classifiers, regressors and random forests, boosters, .json and .ubj files.

XGBoost casts numbers to float32, goes left at x < t, right for the listed categories and as the node says for
gaps, and adds float32 numbers. The bias is the base score: a probability for a logistic objective.
"""

from __future__ import annotations

import json
import math
import sys
from itertools import pairwise
from typing import Any

import numpy as np

from certus.bounds.trees.folding import FLOAT32, Array, Codes, Tree, Trees, last_below, to_float32
from certus.bounds.trees.model import Output
from certus.bounds.trees.parsed import Parsed, refused
from certus.errors import UnreadableModelError

_OUTPUTS: dict[str, Output] = {
    "binary:logistic": "logistic",
    "multi:softprob": "softmax",
    "multi:softmax": "softmax",
    "reg:squarederror": "number",
    "reg:absoluteerror": "number",
    "reg:pseudohubererror": "number",
    "reg:quantileerror": "number",
    "reg:squaredlogerror": "number",
}
_TIE = 2.0**-21
"""A float32 sigmoid or softmax with an exponential that is accurate to 4 ulp may lose smaller differences:
2⁻²³ for rounding a sum or a quotient next to 1, 2⁻²² for the exponential; each at most doubled."""

_MOST_CODES = 2**24
"""XGBoost stores categories as float32 numbers."""

_WRAPPERS = {
    "XGBClassifier": ("logistic", "softmax"),
    "XGBRFClassifier": ("logistic", "softmax"),
    "XGBRegressor": ("number",),
    "XGBRFRegressor": ("number",),
}


def is_xgboost(model: Any) -> bool:
    """Whether a model is of XGBoost, a subclass excluded."""
    return type(model).__module__.split(".")[0] == "xgboost"


def read_xgboost(model: Any) -> Parsed:
    """Return the trees of a fitted wrapper or of a booster."""
    import_ = sys.modules["xgboost"]
    library = f"xgboost {import_.__version__}"
    kind = type(model).__name__
    if kind == "Booster":
        parsed = parse_xgboost(json.loads(bytes(model.save_raw("json"))), iterations=0)

        def raw(rows: Any) -> Array:
            matrix = import_.DMatrix(rows, enable_categorical=True, feature_names=_names(model, rows))
            return _matrix(model.predict(matrix, output_margin=True))

        return Parsed(parsed.trees, parsed.output, parsed.classes, library, raw)
    if kind not in _WRAPPERS:
        raise refused(f"{kind} of XGBoost")
    if not model.__sklearn_is_fitted__():
        raise UnreadableModelError(f"{kind} is not fitted")
    if not (isinstance(model.missing, float) and math.isnan(model.missing)):
        raise refused(f"{kind}(missing={model.missing})")
    if callable(model.objective):
        raise refused(f"{kind} with a custom objective")
    booster = model.get_booster()
    best = booster.attr("best_iteration")
    content = json.loads(bytes(booster.save_raw("json")))
    parsed = parse_xgboost(content, iterations=0 if best is None else int(best) + 1)
    if parsed.output not in _WRAPPERS[kind]:
        raise refused(f"{kind}(objective={model.objective!r})")

    def scores(rows: Any) -> Array:
        return _matrix(model.predict(rows, output_margin=True))

    return Parsed(parsed.trees, parsed.output, parsed.classes, library, scores)


def _names(booster: Any, rows: Any) -> Any:
    return None if hasattr(rows, "columns") else booster.feature_names


def _matrix(scores: Any) -> Array:
    return np.asarray(scores, dtype=np.float64).reshape(len(scores), -1)


def parse_xgboost(content: Any, iterations: int | None = None) -> Parsed:
    """Return the trees of a saved model.

    Args:
        content: content of the .json or .ubj file.
        iterations: number of rounds of boosting to use; 0 for all, as a booster does. None refuses a model
            with a best iteration before its last one: a booster of the file uses all rounds, XGBClassifier
            only those.
    """
    try:
        return _parse(content, iterations)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as reason:
        raise UnreadableModelError(
            f"the XGBoost model is damaged or of an unknown version: {reason!r}"
        ) from None


def _parse(content: Any, iterations: int | None) -> Parsed:
    learner, version = content["learner"], content["version"]
    booster, parameters = learner["gradient_booster"], learner["learner_model_param"]
    objective = learner["objective"]["name"]
    if objective not in _OUTPUTS:
        raise refused(f"the XGBoost objective {objective}")
    if booster["name"] not in ("gbtree", "dart"):
        raise refused(f"the XGBoost booster {booster['name']}")
    weights = booster.get("weight_drop")
    model = booster["gbtree"]["model"] if booster["name"] == "dart" else booster["model"]
    outputs = max(int(parameters["num_class"]), 1)
    if int(parameters.get("num_target", "1")) > 1:
        raise refused("an XGBoost model with several targets")
    used = _tree_count(learner, model, outputs, iterations)
    count = int(parameters["num_feature"])
    labels = _labels(model.get("cats", {}).get("enc", []))
    codes = _code_counts(model["trees"], labels)
    trees = [
        _tree(tree, int(group), outputs, 1.0 if weights is None else float(np.float32(weights[place])), codes)
        for place, (tree, group) in enumerate(
            zip(model["trees"][:used], model["tree_info"][:used], strict=True)
        )
    ]
    output = _OUTPUTS[objective]
    names = learner.get("feature_names") or None
    return Parsed(
        Trees(
            trees,
            _bias(parameters["base_score"], outputs, output),
            count,
            to_float32,
            FLOAT32,
            tie=0.0 if output == "number" else _TIE,
            names=names,
            labels=labels,
            unknown="refused",
            code_counts=codes,
            sparse_gaps=True,
        ),
        output,
        None if output == "number" else np.arange(max(outputs, 2)),
        "xgboost " + ".".join(map(str, version)),
    )


def _tree_count(learner: Any, model: Any, outputs: int, iterations: int | None) -> int:
    """The number of trees that are used, of ``iterations`` rounds."""
    total = len(model["trees"])
    per_round = outputs * max(int(model["gbtree_model_param"].get("num_parallel_tree", "1")), 1)
    ends = model.get("iteration_indptr") or list(range(0, total + 1, per_round))
    rounds = len(ends) - 1
    best = learner.get("attributes", {}).get("best_iteration")
    if iterations is None:
        if best is not None and int(best) + 1 < rounds:
            raise UnreadableModelError(
                f"the XGBoost file has {rounds} rounds, and the best after {int(best) + 1}: XGBClassifier "
                f"and XGBRegressor use {int(best) + 1}, a Booster all {rounds}. Name the number, as "
                "`iterations`."
            )
        iterations = 0
    if not 0 <= iterations <= rounds:
        raise UnreadableModelError(f"the XGBoost model has {rounds} rounds; `iterations` is {iterations}")
    return int(ends[iterations]) if iterations else total


def _bias(text: str, outputs: int, output: Output) -> Array:
    scores = np.array([float(part) for part in text.strip("[]").split(",")], dtype=np.float32)
    if output == "logistic":
        if not ((scores > 0) & (scores < 1)).all():
            raise UnreadableModelError(f"the base score of a logistic objective is not a probability: {text}")
        unit = np.float32(1)
        scores = -np.log(unit / scores - unit)  # in float32, as XGBoost does
    return np.broadcast_to(scores, outputs).astype(np.float64)


def _labels(encoders: list[Any]) -> dict[int, tuple[Any, ...]]:
    """Labels of the categories of columns; a text is stored as bytes and offsets."""
    labels: dict[int, tuple[Any, ...]] = {}
    for column, encoder in enumerate(encoders):
        values = encoder["values"]
        if "offsets" in encoder:
            offsets = encoder["offsets"]
            text = bytes(value % 256 for value in values)
            labels[column] = tuple(text[a:b].decode() for a, b in pairwise(offsets))
        else:
            labels[column] = tuple(values)
    return {column: own for column, own in labels.items() if own}


def _code_counts(trees: list[Any], labels: dict[int, tuple[Any, ...]]) -> dict[int, int]:
    """Number of codes of each column that some tree compares as categories."""
    counts = {column: len(own) for column, own in labels.items()}
    for tree in trees:
        segments = zip(tree.get("categories_segments", []), tree.get("categories_sizes", []), strict=True)
        for node, (start, size) in zip(tree.get("categories_nodes", []), segments, strict=True):
            column = int(tree["split_indices"][node])
            listed = tree["categories"][start : start + size]
            if not all(0 <= code < _MOST_CODES for code in listed):
                raise UnreadableModelError(f"an XGBoost tree lists categories beyond 0 to {_MOST_CODES}")
            counts[column] = max([counts.get(column, 1), *(code + 1 for code in listed)])
    return counts


def _tree(tree: Any, group: int, outputs: int, weight: float, counts: dict[int, int]) -> Tree:
    if int(tree["tree_param"].get("size_leaf_vector", "1")) > 1:
        raise refused("an XGBoost tree with a vector in each leaf (multi_output_tree)")
    left, right = (np.array(tree[name], dtype=np.int64) for name in ("left_children", "right_children"))
    conditions = np.array(tree["split_conditions"], dtype=np.float32)
    feature = np.where(left < 0, -1, np.array(tree["split_indices"], dtype=np.int64))
    value = np.zeros((len(left), outputs))
    value[:, group] = np.where(left < 0, conditions.astype(np.float64) * weight, 0.0)
    segments = zip(tree.get("categories_segments", []), tree.get("categories_sizes", []), strict=True)
    codes = {}
    for node, (start, size) in zip(tree.get("categories_nodes", []), segments, strict=True):
        goes_left = np.ones(counts[int(feature[node])], dtype=bool)
        goes_left[tree["categories"][start : start + size]] = False
        codes[int(node)] = Codes(goes_left, beyond=True)
    categorical = np.flatnonzero(np.array(tree.get("split_type", []), dtype=np.int64) == 1)
    if set(categorical.tolist()) != set(codes):
        raise UnreadableModelError("an XGBoost tree has categorical splits without their categories")
    return Tree(
        feature,
        last_below(conditions),
        left,
        right,
        np.array(tree["default_left"], dtype=bool),
        value,
        codes,
    )
