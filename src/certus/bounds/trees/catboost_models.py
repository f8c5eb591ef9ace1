"""CatBoost models of numbers: classifiers, regressors and .json files.

CatBoost casts numbers to float32 and goes right at x > border. The i-th split of a symmetric tree is the i-th
bit of its leaf's index. Gaps go as the column says: below all borders or above. Scores are
scale · Σ + bias in float64.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from certus.bounds.trees.folding import FLOAT64, Array, Tree, Trees, to_float32
from certus.bounds.trees.model import Output
from certus.bounds.trees.parsed import Parsed, refused
from certus.errors import UnreadableModelError

_OUTPUTS: dict[str, Output] = {
    "Logloss": "logistic",
    "MultiClass": "softmax",
    "RMSE": "number",
    "MAE": "number",
    "Quantile": "number",
    "MAPE": "number",
    "Huber": "number",
    "Expectile": "number",
    "Lq": "number",
}
_WRAPPERS = {"CatBoostClassifier": ("logistic", "softmax"), "CatBoostRegressor": ("number",)}
_GAP_LEFT = {"AsIs": True, "AsFalse": True, "AsTrue": False}
_DEEPEST = 16


def is_catboost(model: Any) -> bool:
    """Whether a model is of CatBoost, a subclass excluded."""
    return type(model).__module__.split(".")[0] == "catboost"


def read_catboost(model: Any) -> Parsed:
    """Return the trees of a fitted wrapper."""
    kind = type(model).__name__
    if kind not in _WRAPPERS:
        raise refused(f"{kind} of CatBoost")
    if not model.is_fitted():
        raise UnreadableModelError(f"{kind} is not fitted")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        model.save_model(str(path), format="json")
        parsed = parse_catboost(json.loads(path.read_text()))
    if parsed.output not in _WRAPPERS[kind]:
        raise refused(f"{kind} with this loss function")

    def raw(rows: Any) -> Array:
        scores = np.asarray(model.predict(rows, prediction_type="RawFormulaVal"), dtype=np.float64)
        return scores.reshape(len(scores), -1)

    classes = None if parsed.classes is None else np.asarray(model.classes_)
    library = f"catboost {sys.modules['catboost'].__version__}"
    return Parsed(parsed.trees, parsed.output, classes, library, raw)


def parse_catboost(content: Any) -> Parsed:
    """Return the trees of a model that was saved with ``format="json"``."""
    try:
        return _parse(content)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as reason:
        raise UnreadableModelError(
            f"the CatBoost model is damaged or of an unknown version: {reason!r}"
        ) from None


def _parse(content: Any) -> Parsed:
    about, features = content["model_info"], content["features_info"]
    for name, entries in features.items():
        if name != "float_features" and entries:
            raise refused(f"a CatBoost model with {name.replace('_', ' ')}")
    loss = about["params"]["loss_function"]["type"]
    if loss not in _OUTPUTS:
        raise refused(f"the CatBoost loss function {loss}")
    border = float(about.get("binclass_probability_threshold", 0.5))
    if border != 0.5:
        raise refused(f"a CatBoost model with the probability threshold {border}")
    scale, bias = content["scale_and_bias"]
    columns = features["float_features"]
    places = {int(column["feature_index"]): int(column["flat_feature_index"]) for column in columns}
    gaps = {int(column["flat_feature_index"]): _GAP_LEFT[column["nan_value_treatment"]] for column in columns}
    growing = _Growing(places, gaps, len(bias), float(scale))
    if "oblivious_trees" in content:
        trees = [growing.symmetric(tree) for tree in content["oblivious_trees"]]
    else:
        trees = [growing.nested(tree) for tree in content["trees"]]
    output = _OUTPUTS[loss]
    classes = None
    if output != "number":
        classes = np.array(about["class_params"]["class_names"])
        if len(bias) != (1 if output == "logistic" else len(classes)):
            raise UnreadableModelError("the CatBoost model has another number of scores than of classes")
    elif len(bias) != 1:
        raise refused("a CatBoost model with several outputs")
    version = re.search(r"CatBoost release (\S+?)\.? ", about.get("catboost_version_info", ""))
    names = [
        str(column.get("feature_id", ""))
        for column in sorted(columns, key=lambda own: own["flat_feature_index"])
    ]
    return Parsed(
        Trees(
            trees,
            np.array(bias, dtype=np.float64),
            max(gaps) + 1,
            to_float32,
            FLOAT64,
            names=names if all(names) else None,
        ),
        output,
        classes,
        "catboost" if version is None else f"catboost {version[1]}",
    )


class _Growing:
    """Nodes of one tree after the other."""

    def __init__(self, places: dict[int, int], gaps: dict[int, bool], outputs: int, scale: float) -> None:
        self.places, self.gaps, self.outputs, self.scale = places, gaps, outputs, scale
        self.rows: list[list[Any]] = []
        self.values: list[Array] = []

    def symmetric(self, tree: Any) -> Tree:
        leaves = np.array(tree["leaf_values"], dtype=np.float64).reshape(-1, self.outputs)
        splits = tree.get("splits") or []
        if len(splits) > _DEEPEST or len(leaves) != 2 ** len(splits):
            raise UnreadableModelError(
                "a tree of the CatBoost model has another number of leaves than of splits"
            )
        self.rows, self.values = [], []
        self._level([self._split(split) for split in splits], leaves, 0, 0, {})
        return self._tree()

    def _level(
        self,
        splits: list[tuple[int, float]],
        leaves: Array,
        depth: int,
        index: int,
        reach: dict[int, tuple[float, float]],
    ) -> int:
        """Add the nodes from a split on, without those that no row reaches; return the first."""
        if depth == len(splits):
            return self._node(-1, 0.0, self.scale * leaves[index])
        column, border = splits[depth]
        low, high = reach.get(column, (-np.inf, np.inf))
        above = index | 1 << depth
        # A gap has gone the same way at the earlier split of this column.
        if high <= border:
            return self._level(splits, leaves, depth + 1, index, reach)
        if low >= border:
            return self._level(splits, leaves, depth + 1, above, reach)
        place = self._node(column, border, np.zeros(self.outputs))
        self.rows[place][2] = self._level(splits, leaves, depth + 1, index, {**reach, column: (low, border)})
        self.rows[place][3] = self._level(splits, leaves, depth + 1, above, {**reach, column: (border, high)})
        return place

    def nested(self, tree: Any) -> Tree:
        self.rows, self.values = [], []
        stack: list[tuple[Any, int, int]] = [(tree, -1, 0)]
        while stack:
            node, parent, side = stack.pop()
            if "split" in node:
                place = self._node(*self._split(node["split"]), np.zeros(self.outputs))
                stack += [(node["left"], place, 2), (node["right"], place, 3)]
            else:
                place = self._node(-1, 0.0, self.scale * np.array(node["value"], dtype=np.float64))
            if parent >= 0:
                self.rows[parent][side] = place
        return self._tree()

    def _split(self, split: Any) -> tuple[int, float]:
        if split["split_type"] != "FloatFeature":
            raise refused(f"a CatBoost split of the type {split['split_type']}")
        return self.places[int(split["float_feature_index"])], float(np.float32(split["border"]))

    def _node(self, column: int, border: float, value: Array) -> int:
        self.rows.append([column, border, -1, -1, column >= 0 and self.gaps[column]])
        self.values.append(np.broadcast_to(value, (self.outputs,)))
        return len(self.rows) - 1

    def _tree(self) -> Tree:
        feature, border, left, right, missing = (np.array(part) for part in zip(*self.rows, strict=True))
        return Tree(feature, border, left, right, missing.astype(bool), np.array(self.values))
