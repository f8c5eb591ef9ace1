"""LightGBM models: classifiers, regressors, boosters and .txt files.

LightGBM compares float64 numbers, of which it reads those up to 1e-35 in absolute value as 0, and goes left
at x ≤ t, left for the listed categories, and right for categories that are not listed, negative or missing. A
gap in a number goes as the node says; a node without a direction reads it as 0; with ``zero_as_missing``
zeros are gaps. Scores are sums of float64 numbers.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from certus.bounds.trees.folding import FLOAT64, Array, Codes, Tree, Trees
from certus.bounds.trees.model import Output
from certus.bounds.trees.parsed import Parsed, refused
from certus.errors import UnreadableModelError

_OUTPUTS: dict[str, Output] = {
    "binary": "logistic",
    "multiclass": "softmax",
    "regression": "number",
    "regression_l1": "number",
    "huber": "number",
    "fair": "number",
    "quantile": "number",
    "mape": "number",
}
_TIE = 2.0**-50
"""A float64 sigmoid or softmax with an exponential that is accurate to 4 ulp may lose smaller differences."""

_ZERO = float(np.float32(1e-35))
_BELOW_ZERO = -np.nextafter(0.0, 1.0)
_MOST_NODES = 1_000_000
_WRAPPERS = {"LGBMClassifier": ("logistic", "softmax"), "LGBMRegressor": ("number",)}


def is_lightgbm(model: Any) -> bool:
    """Whether a model is of LightGBM, a subclass excluded."""
    return type(model).__module__.split(".")[0] == "lightgbm"


def flush_to_zero(numbers: Array) -> Array:
    """Read numbers as LightGBM does: 0 if at most 1e-35 (as float32) in absolute value."""
    return np.where(np.abs(numbers) <= _ZERO, 0.0, numbers)


def read_lightgbm(model: Any) -> Parsed:
    """Return the trees of a fitted wrapper or of a booster, those that its ``predict`` uses."""
    kind = type(model).__name__
    booster, classes = model, None
    if kind != "Booster":
        if kind not in _WRAPPERS:
            raise refused(f"{kind} of LightGBM")
        if not model.__sklearn_is_fitted__():
            raise UnreadableModelError(f"{kind} is not fitted")
        if callable(model.objective_):
            raise refused(f"{kind} with a custom objective")
        booster = model.booster_
        classes = model.classes_ if kind == "LGBMClassifier" else None
    options = {**getattr(booster, "params", {}), **(model.get_params() if kind != "Booster" else {})}
    for name in options:
        if name.startswith(("pred_early_stop", "start_iteration_predict", "num_iteration_predict")):
            raise refused(f"LightGBM's option {name}")
    text = booster.model_to_string()
    parsed = parse_lightgbm(text, booster.pandas_categorical)
    if kind in _WRAPPERS and parsed.output not in _WRAPPERS[kind]:
        raise refused(f"{kind}(objective={model.objective_!r})")
    if classes is not None and parsed.classes is not None and len(classes) != len(parsed.classes):
        raise UnreadableModelError(f"{kind} has {len(classes)} classes, its trees {len(parsed.classes)}")
    scale = _scale(text)

    def raw(rows: Any) -> Array:
        scores = np.asarray(model.predict(rows, raw_score=True), dtype=np.float64)
        return scale * scores.reshape(len(scores), -1)

    return Parsed(
        parsed.trees,
        parsed.output,
        parsed.classes if classes is None else np.asarray(classes),
        f"lightgbm {sys.modules['lightgbm'].__version__}",
        raw,
    )


def parse_lightgbm(text: str, categories: Any = None) -> Parsed:
    """Return the trees of a model in LightGBM's text format.

    Args:
        text: content of the file, which holds the trees up to the best iteration.
        categories: labels of the columns of categories, in order; by default those in the text.
    """
    try:
        return _parse(text, categories)
    except (KeyError, TypeError, ValueError, IndexError) as reason:
        raise UnreadableModelError(
            f"the LightGBM model is damaged or of an unknown version: {reason!r}"
        ) from None


def _fields(block: str) -> dict[str, str]:
    lines = (line.partition("=") for line in block.splitlines())
    return {name: value for name, _, value in lines if name}


def _scale(text: str) -> float:
    """The factor from LightGBM's raw scores, which are sums, to those of which it takes the sigmoid."""
    factor = re.search(r"^objective=binary.* sigmoid:(\S+)", text, re.MULTILINE)
    averaged = re.search(r"^average_output$", text, re.MULTILINE)  # of random forests
    outputs = re.search(r"^num_tree_per_iteration=(\d+)$", text, re.MULTILINE)
    rounds = len(re.findall(r"^Tree=\d+$", text, re.MULTILINE)) // (1 if outputs is None else int(outputs[1]))
    return (1.0 if factor is None else float(factor[1])) / (1 if averaged is None else rounds)


def _parse(text: str, categories: Any) -> Parsed:
    body, ended, rest = text.partition("\nend of trees")
    head, *blocks = re.split(r"^Tree=\d+$", body, flags=re.MULTILINE)
    about = _fields(head)
    cut = "\nparameters:" in rest and "\nend of parameters" not in rest
    if not ended or cut or not head.startswith("tree"):
        raise UnreadableModelError("the LightGBM file is truncated, or not a model")
    version = about.get("version", "none")
    if version not in ("v3", "v4"):
        raise refused(f"the version {version} of LightGBM's text format")
    objective, *options = about.get("objective", "(none, or custom)").split(" ")
    if objective not in _OUTPUTS or "sqrt" in options:
        raise refused(f"the LightGBM objective {' '.join([objective, *options])}")
    output = _OUTPUTS[objective]
    outputs, columns = int(about["num_tree_per_iteration"]), int(about["max_feature_idx"]) + 1
    if outputs != (int(about["num_class"]) if output == "softmax" else 1):
        raise UnreadableModelError("the LightGBM model has another number of trees than of classes")
    fields = [_fields(block) for block in blocks]
    if len(fields) % outputs or not fields:
        raise UnreadableModelError("the LightGBM model has no complete rounds of trees")
    scale = _scale(text)
    trees = [_tree(own, place % outputs, outputs, scale, version) for place, own in enumerate(fields)]
    counts: dict[int, int] = {}
    for tree in trees:
        for node, codes in tree.codes.items():
            column = int(tree.feature[node])
            counts[column] = max(counts.get(column, 1), len(codes.left))
    labels = _labels(about, rest, categories)
    counts.update({column: len(own) for column, own in labels.items()})
    return Parsed(
        Trees(
            trees,
            np.zeros(outputs),
            columns,
            flush_to_zero,
            FLOAT64,
            tie=0.0 if output == "number" else _TIE,
            names=_names(about),
            labels=labels,
            code_counts=counts,
        ),
        output,
        None if output == "number" else np.arange(max(outputs, 2)),
        f"lightgbm, text format {version}",
    )


def _names(about: dict[str, str]) -> list[str] | None:
    names = about["feature_names"].split(" ")
    return None if names == [f"Column_{place}" for place in range(len(names))] else names


def _labels(about: dict[str, str], rest: str, categories: Any) -> dict[int, tuple[Any, ...]]:
    """Labels of the columns that had the category type of pandas."""
    stored = re.search(r"^pandas_categorical:(.*)$", rest, re.MULTILINE)
    if categories is None and stored is not None:
        categories = json.loads(stored[1])
    if not categories:
        return {}
    listed = re.search(r"^\[categorical_feature: ([\d,]+)\]$", rest, re.MULTILINE)
    infos = about["feature_infos"].split(" ")
    places = [place for place, info in enumerate(infos) if not info.startswith("[") and info != "none"]
    if listed is not None:
        places = sorted(int(place) for place in listed[1].split(","))
    if len(places) != len(categories):
        raise refused(
            f"a LightGBM model of {len(categories)} columns with the category type, of which {len(places)} "
            "are read as categories (ordered ones are numbers)"
        )
    return {place: tuple(own) for place, own in zip(places, categories, strict=True)}


def _tree(about: dict[str, str], group: int, outputs: int, scale: float, version: str) -> Tree:
    if about.get("is_linear", "0") != "0":
        raise refused("a LightGBM model with linear trees")
    leaves = int(about["num_leaves"])

    def numbers(name: str, kind: type = np.int64) -> Array:
        return np.array(about[name].split() if leaves > 1 or name == "leaf_value" else [], dtype=kind)

    inner = leaves - 1
    values = np.zeros((inner + leaves, outputs))
    values[inner:, group] = scale * numbers("leaf_value", np.float64)
    feature, decision = numbers("split_feature"), numbers("decision_type")
    threshold = numbers("threshold", np.float64)
    children = [numbers(name) for name in ("left_child", "right_child")]
    if any(len(part) != inner for part in (feature, decision, threshold, *children)):
        raise UnreadableModelError("a tree of the LightGBM file has arrays of several lengths")
    left, right = (np.where(own < 0, inner + ~own, own) for own in children)
    grown = _Grown(outputs)
    sets = _sets(about, decision, threshold, version)
    grown.add(_Arrays(feature, decision, threshold, left, right, values, sets), 0)
    return grown.tree()


def _sets(about: dict[str, str], decision: Array, threshold: Array, version: str) -> dict[int, Array]:
    """The listed codes of categorical nodes, as bits of 32-bit words."""
    nodes = np.flatnonzero(decision & 1)
    if not len(nodes):
        return {}
    if version != "v4":
        raise refused(f"categories in the version {version} of LightGBM's text format")
    ends = np.array(about["cat_boundaries"].split(), dtype=np.int64)
    words = np.array(about["cat_threshold"].split(), dtype=np.uint32)
    sets = {}
    for node in nodes.tolist():
        place = int(threshold[node])
        own = words[ends[place] : ends[place + 1]]
        listed = ((own[:, None] >> np.arange(32, dtype=np.uint32)) & 1).astype(bool).ravel()
        sets[node] = np.trim_zeros(listed, "b")
    return sets


@dataclass(frozen=True, eq=False)
class _Arrays:
    """A tree of the file; leaves are numbered after the inner nodes."""

    feature: Array
    decision: Array
    threshold: Array
    left: Array
    right: Array
    values: Array
    sets: dict[int, Array]


@dataclass
class _Grown:
    """A tree under construction, in which a node may become three: those that read zeros as gaps."""

    outputs: int
    rows: list[list[Any]] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    codes: dict[int, Codes] = field(default_factory=dict)

    def tree(self) -> Tree:
        feature, threshold, left, right, missing = (np.array(part) for part in zip(*self.rows, strict=True))
        return Tree(feature, threshold, left, right, missing.astype(bool), np.array(self.values), self.codes)

    def node(self, feature: int, threshold: float, missing_left: bool) -> int:
        if len(self.rows) >= _MOST_NODES:
            raise refused(f"a LightGBM tree of more than {_MOST_NODES} nodes")
        self.rows.append([feature, threshold, -1, -1, missing_left])
        self.values.append(np.zeros(self.outputs))
        return len(self.rows) - 1

    def add(self, source: _Arrays, root: int) -> None:
        """Copy a tree; a node of the source and the place of its parent's child are kept on a stack."""
        stack: list[tuple[int, int, int]] = [(root, -1, 0)]
        while stack:
            node, parent, side = stack.pop()
            if node >= len(source.feature):
                if node - len(source.feature) >= len(source.values) - len(source.feature):
                    raise UnreadableModelError(
                        "a tree of the LightGBM file names a leaf that it does not have"
                    )
                place = self.node(-1, 0.0, False)
                self.values[place] = source.values[node]
                self._attach(parent, side, place)
                continue
            children = int(source.left[node]), int(source.right[node])
            if min(children) <= node and min(children) < len(source.feature):
                raise UnreadableModelError("a tree of the LightGBM file has a child before its parent")
            feature, threshold = int(source.feature[node]), float(source.threshold[node])
            decision = int(source.decision[node])
            default_left, kind = bool(decision & 2), (decision >> 2) & 3
            natural = threshold >= 0
            if decision & 1:
                place = self.node(feature, 0.0, False)
                self.codes[place] = Codes(source.sets[node], beyond=False)
                ends = [(place, 0, 0), (place, 1, 1)]
            elif kind == 1 and natural != default_left:
                ends = self._zeros(feature, threshold, default_left)
                place = ends[0][0]
            else:
                # No direction: NaN is read as 0.
                place = self.node(feature, threshold, natural if kind == 0 else default_left)
                ends = [(place, 0, 0), (place, 1, 1)]
            self._attach(parent, side, place)
            stack += [(children[child], at, slot) for at, slot, child in ends]

    def _attach(self, parent: int, side: int, place: int) -> None:
        if parent >= 0:
            self.rows[parent][2 + side] = place

    def _zeros(self, feature: int, threshold: float, zero_left: bool) -> list[tuple[int, int, int]]:
        """Add three nodes for x ≤ threshold with zeros and gaps on the other side.

        Returns:
            (node, slot, child) of each end: 0 is left and 1 right, for slots and for children.
        """
        if zero_left:  # x ≤ t < 0: left; below zero: right; zero: left; above: right
            tests = [(threshold, True), (_BELOW_ZERO, False), (0.0, True)]
        else:  # below zero: left; zero: right; x ≤ t: left; above: right
            tests = [(_BELOW_ZERO, False), (0.0, True), (threshold, False)]
        nodes = [self.node(feature, at, missing_left) for at, missing_left in tests]
        for first, second in pairwise(nodes):
            self.rows[first][3] = second
        first, second, third = nodes
        return [(first, 0, 0), (second, 0, 1), (third, 0, 0), (third, 1, 1)]
