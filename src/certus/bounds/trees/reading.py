"""From a fitted model, or a file of one, to ``TreeModel``."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from certus.bounds.trees.catboost_models import is_catboost, parse_catboost, read_catboost
from certus.bounds.trees.folding import Array, Derived, Trees, coded, fold
from certus.bounds.trees.lightgbm_models import is_lightgbm, parse_lightgbm, read_lightgbm
from certus.bounds.trees.model import TreeColumn, TreeModel
from certus.bounds.trees.parsed import Parsed, refused
from certus.bounds.trees.sklearn_ensembles import is_sklearn_ensemble, read_sklearn_ensemble
from certus.bounds.trees.steps import Columns, follow, split_pipeline
from certus.bounds.trees.ubjson import read_ubjson
from certus.bounds.trees.xgboost_models import is_xgboost, parse_xgboost, read_xgboost
from certus.data import fitted_names
from certus.errors import ArgumentError, UnreadableModelError

_READERS = (
    (is_sklearn_ensemble, read_sklearn_ensemble),
    (is_xgboost, read_xgboost),
    (is_lightgbm, read_lightgbm),
    (is_catboost, read_catboost),
)
_CHECKED_ROWS = 256
_MOST_COLUMNS = 1_000_000
_PICKLES = (b"\x80", b"\x78", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x5d\x00\x00")
"""First bytes of pickles, and of those that joblib compressed."""


def is_tree_model(model: Any) -> bool:
    """Whether a model, or the last step of a pipeline, is of a library of trees that is read."""
    _, last = split_pipeline(model)
    return any(own(last) for own, _ in _READERS)


def read_ensemble(model: Any) -> TreeModel:
    """Return the tree ensemble that a fitted model is, alone or at the end of a pipeline.

    The reading is compared with the model's own scores and predictions at its thresholds.

    Raises:
        UnreadableModelError: naming the part that has no rule.
    """
    steps, last = split_pipeline(model)
    readers = [read for own, read in _READERS if own(last)]
    if not readers:
        raise refused(type(last).__name__)
    parsed = readers[0](last)
    names = (
        fitted_names(steps[0] if steps else last)
        if steps or is_sklearn_ensemble(last)
        else parsed.trees.names
    )
    count = int(steps[0].n_features_in_) if steps else parsed.trees.columns
    columns = Columns([Derived(place) for place in range(count)])
    for step in steps:
        columns = follow(step, columns)
    tree_model = _assembled(parsed, columns, count, names, model, steps)
    _check(tree_model)
    return tree_model


def load_ensemble(
    path: str | Path,
    *,
    iterations: int | None = None,
    classes: Sequence[Any] | None = None,
    allow_code: bool = False,
) -> TreeModel:
    """Return the tree ensemble in a file of XGBoost (.json, .ubj), LightGBM (.txt) or CatBoost (.json).

    The content decides, not the name; no library of the model is needed, and nothing is executed.

    Args:
        path: the file.
        iterations: rounds of boosting to use, of an XGBoost file with a best iteration before its last; 0 for
            all.
        classes: labels of the codes 0, 1, …, where the file has none: the labels of the targets that the
            model was fitted on, in their order; by default the codes.
        allow_code: also read a pickle or a file of joblib, which executes the code that it names.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as reason:
        raise ArgumentError(f"`path` must be a file that can be read: {reason}") from None
    if content.startswith(_PICKLES):
        return _unpickled(path, allow_code, iterations, classes)
    parsed = _parse(content, iterations)
    if parsed.trees.columns > _MOST_COLUMNS:
        raise UnreadableModelError(f"the file has {parsed.trees.columns} columns; at most {_MOST_COLUMNS}")
    if classes is not None:
        count = 0 if parsed.classes is None else len(parsed.classes)
        if not count == len(classes) == len(set(classes)):
            raise ArgumentError(f"`classes` must be {count} different labels; got {list(classes)}.")
        parsed = replace(parsed, classes=np.array(classes))
    columns = Columns([Derived(place) for place in range(parsed.trees.columns)])
    return _assembled(parsed, columns, parsed.trees.columns, parsed.trees.names, None, [])


def _unpickled(path: str | Path, allow_code: bool, *unused: Any) -> TreeModel:
    """The model in a pickle, which is a program."""
    if not allow_code:
        raise UnreadableModelError(
            f"{path} is a pickle or a file of joblib, which executes the code that it names. Save the model "
            "in its library's own format, or allow code (`allow_code=True`, --allow-code) if you trust it."
        )
    if any(option is not None for option in unused):
        raise ArgumentError("`iterations` and `classes` must be left out for a pickle: its model has them.")
    import joblib

    try:
        model = joblib.load(path)
    except Exception as reason:  # of any code
        raise UnreadableModelError(f"{path} cannot be loaded: {type(reason).__name__}: {reason}") from None
    return read_ensemble(model)


def _parse(content: bytes, iterations: int | None) -> Parsed:
    if content[:4] == b"CBM1":
        raise refused("CatBoost's binary format", 'save the model with format="json"')
    if content[:5] == b"tree\n":
        return parse_lightgbm(content.decode(errors="replace"))
    if content[:2] in (b"{L", b"{i", b"{U", b"{I", b"{l", b"{#", b"{$"):
        return parse_xgboost(read_ubjson(content), iterations)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        document = None
    if isinstance(document, dict) and "learner" in document:
        return parse_xgboost(document, iterations)
    if isinstance(document, dict) and "model_info" in document and "features_info" in document:
        return parse_catboost(document)
    raise UnreadableModelError(
        "the file is not a model of XGBoost (.json, .ubj), LightGBM (.txt) or CatBoost (.json)"
    )


def _assembled(
    parsed: Parsed, columns: Columns, count: int, names: list[str] | None, model: Any, steps: list[Any]
) -> TreeModel:
    trees = parsed.trees
    if len(columns.derived) != trees.columns:
        raise UnreadableModelError(
            f"the steps before the trees pass {len(columns.derived)} columns, the model takes {trees.columns}"
        )
    derived = columns.derived if parsed.before is None else parsed.before(columns.derived)
    if columns.sparse and trees.sparse_gaps:
        derived = [_without_zeros(column) for column in derived]
    for place, codes in trees.code_counts.items():
        derived[place] = coded(derived[place], trees.labels.get(place), codes, trees.unknown)
    ensemble = fold(trees, derived, count)
    described = _describe(trees, derived, count, names, steps)
    raw = _before(parsed, steps)
    return TreeModel(
        ensemble, described, parsed.output, parsed.classes, parsed.library, model, names is not None, raw
    )


def _without_zeros(column: Derived) -> Derived:
    """A column of a sparse matrix in which zeros are read as gaps."""
    if column.values is None:
        raise refused(
            "a column of numbers in a sparse matrix, of which XGBoost reads zeros as gaps,",
            "set sparse_threshold=0 or sparse_output=False",
        )
    missing = np.nan if column.missing == 0 else column.missing
    return replace(column, values=np.where(column.values == 0, np.nan, column.values), missing=missing)


def _before(parsed: Parsed, steps: list[Any]) -> Any:
    """The model's own scores of rows that pass through the steps first."""
    own = parsed.raw
    if own is None or not steps:
        return own

    def raw(rows: Any) -> Array:
        for step in steps:
            rows = step.transform(rows)
        return own(rows)

    return raw


def _describe(
    trees: Trees,
    derived: list[Derived],
    count: int,
    names: list[str] | None,
    steps: list[Any],
) -> tuple[TreeColumn, ...]:
    described = []
    for place in range(count):
        own = [column for column in derived if column.source == place]
        kinds = {(column.labels, column.unknown) for column in own}
        name = f"column {place}" if names is None else names[place]
        if len(kinds) > 1:
            raise refused(f"{name}, which is encoded in two ways,")
        labels, unknown = next(iter(kinds), (None, "refused"))
        gaps = all(
            column.missing is not None and (trees.missing or not np.isnan(float(column.missing)))
            for column in own
        )
        dtype = not steps and place in trees.labels
        described.append(TreeColumn(name, labels, unknown, gaps, bool(own), dtype))
    return tuple(described)


def _check(model: TreeModel) -> None:
    """Compare scores and predictions with the model's own, at thresholds, the next numbers, codes, gaps."""
    rows = threshold_rows(model, _CHECKED_ROWS, seed=0)
    cells = model.decode(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            assert model.raw is not None
            theirs = model.raw(cells)
            predictions = model.predict(rows)
        except Exception as reason:  # of any library
            raise _disagreement(model, f"it refuses rows of its columns, {reason}") from None
    ensemble = model.ensemble
    ours = ensemble.scores(rows)
    if theirs.shape != tuple(ours.shape):
        raise _disagreement(model, f"scores have the shape {theirs.shape} instead of {tuple(ours.shape)}")
    apart = (ours - torch.from_numpy(theirs)).abs()
    if bool((apart > 2 * ensemble.rounding).any()):
        raise _disagreement(model, f"scores differ by {float(apart.max()):.3g}")
    if model.classes is None:
        return
    ordered = ours.sort(1).values
    margin = ours[:, 0].abs() if model.output == "logistic" else ordered[:, -1] - ordered[:, -2]
    sure = (margin > 2 * ensemble.rounding.max()).numpy()
    others = sure & (model.classes[model.decide(ours).numpy()] != predictions)
    if others.any():
        raise _disagreement(model, f"predictions differ for {int(others.sum())} of {len(rows)} rows")


def threshold_rows(model: TreeModel, count: int, seed: int) -> torch.Tensor:
    """(count, columns) encoded rows of thresholds and the next numbers, codes and gaps, drawn at random."""
    draw = np.random.default_rng(seed)
    ensemble = model.ensemble
    limit = float(np.finfo(np.float32).max)
    rows = np.zeros((count, len(model.columns)))
    for place, column in enumerate(model.columns):
        if column.labels is None:
            own = ensemble.threshold[(ensemble.feature == place) & (ensemble.category_set < 0)].numpy()
            own = own[np.abs(own) < limit]
            values = np.concatenate([[0.0], own, np.nextafter(own, np.inf)])
        else:
            values = np.arange(float(column.codes))
        if column.missing and column.used:
            values = np.append(values, np.nan)
        rows[:, place] = draw.choice(values, count) if len(values) else 0.0
    return torch.from_numpy(rows)


def _disagreement(model: TreeModel, how: str) -> UnreadableModelError:
    return UnreadableModelError(
        f"{type(model.model).__name__} of {model.library} disagrees with the trees read from it: {how}. "
        "Please report it with the version; `certify_smoothed` certifies the model without reading it."
    )
