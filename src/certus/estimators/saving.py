"""Estimators in one file of tensors and JSON: reading it executes nothing.

The file holds the parameters, the labels, the names of the features and the weights. A network that the user
gave as a module or a function is code, and is not stored: it is given again when the file is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from certus.errors import ArgumentError
from certus.estimators.base import cost_of, is_sizes, make_network
from certus.estimators.robust import RobustClassifier, RobustRegressor
from certus.runs.files import deserialize, serialize
from certus.storage.files import RunError
from certus.storage.tensors import load_tensors, save_tensors

_KINDS = {kind.__name__: kind for kind in (RobustClassifier, RobustRegressor)}
_NUMBERS = ("gamma_", "rho_hat_", "curvature_", "n_iter_", "n_features_in_", "loss_curve_")
_FORMAT = 1


def save_estimator(estimator: RobustClassifier | RobustRegressor, path: Path) -> None:
    """Write a fitted estimator."""
    kind = type(estimator).__name__
    if _KINDS.get(kind) is not type(estimator):
        raise ArgumentError(f"Only {' and '.join(_KINDS)} themselves can be saved; got {kind}.")
    if not hasattr(estimator, "module_"):
        raise ArgumentError(f"A {kind} must be fitted before it is saved.")
    tensors = {f"module.{name}": value for name, value in estimator.module_.state_dict().items()}
    for name in ("feature_costs_", "feature_spreads_", "class_weight_"):
        if getattr(estimator, name, None) is not None:
            tensors[name] = torch.from_numpy(np.array(getattr(estimator, name)))
    note = {
        "format": _FORMAT,
        "kind": kind,
        "parameters": {
            name: _as_json(name, value) for name, value in estimator.get_params(deep=False).items()
        },
        "found": {name: serialize(getattr(estimator, name)) for name in _NUMBERS if name != "loss_curve_"},
        "loss_curve_": [float(loss) for loss in estimator.loss_curve_],
        "names": _listed(getattr(estimator, "feature_names_in_", None)),
        "classes": _listed(getattr(estimator, "classes_", None)),
    }
    save_tensors(path, tensors, note)


def load_estimator(path: str | Path, network: Any = None) -> RobustClassifier | RobustRegressor:
    """Load a fitted estimator from a file of ``save``.

    Args:
        network: the module or function of the estimator, if it has one.
    """
    path = Path(path)
    tensors, note = load_tensors(path)
    try:
        return _restored(tensors, note, network)
    except (KeyError, TypeError, IndexError, AttributeError, RuntimeError) as reason:
        raise RunError(f"{path} holds no estimator of this version of certus: {reason}.") from None


def _restored(tensors: dict[str, Tensor], note: Any, network: Any) -> RobustClassifier | RobustRegressor:
    if note["format"] != _FORMAT:
        raise RunError(f"The file has the format {note['format']}; this version of certus reads {_FORMAT}.")
    parameters = {name: _read(value) for name, value in note["parameters"].items()}
    if parameters["network"] is None:
        if network is None:
            raise ArgumentError(
                "`network` must be given again: the estimator has a network of your own code."
            )
        parameters["network"] = network
    estimator = _KINDS[note["kind"]](**parameters)
    for name, value in note["found"].items():
        setattr(estimator, name, deserialize(value))
    estimator.loss_curve_ = list(note["loss_curve_"])
    for name, values in (("feature_names_in_", note["names"]), ("classes_", note["classes"])):
        if values is not None:
            setattr(estimator, name, np.array(values["values"], dtype=np.dtype(values["dtype"])))
    for name in ("feature_costs_", "feature_spreads_", "class_weight_"):
        if name in tensors:
            setattr(estimator, name, tensors[name].numpy())
    outputs = 1
    if isinstance(estimator, RobustClassifier):
        outputs = len(estimator.classes_)
        estimator.class_weight_ = getattr(estimator, "class_weight_", None)
    certified = bool(getattr(estimator, "certified", False))
    module = make_network(estimator.network, estimator.n_features_in_, outputs, certified=certified, seed=0)
    prefix = "module."
    module.load_state_dict(
        {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    )
    estimator.module_, estimator.cost_ = module, cost_of(estimator.feature_costs_)
    return estimator


def _as_json(name: str, value: Any) -> Any:
    """Return a parameter as JSON; None for code and random states."""
    if name == "network":
        return [int(width) for width in value] if is_sizes(value) else None
    if name == "random_state" and not isinstance(value, int | np.integer):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {"pairs": [[_as_json("", key), _as_json("", one)] for key, one in value.items()]}
    if isinstance(value, list | tuple | np.ndarray):
        kind = "array" if isinstance(value, np.ndarray) else type(value).__name__
        return {kind: [_as_json("", one) for one in np.asarray(value).tolist()]}
    return serialize(value)


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict) and "pairs" in value:
        return {_read(key): _read(one) for key, one in value["pairs"]}
    for kind, make in (("array", np.array), ("list", list), ("tuple", tuple)):
        if isinstance(value, dict) and kind in value:
            return make([_read(one) for one in value[kind]])
    return deserialize(value)


def _listed(values: np.ndarray | None) -> dict[str, Any] | None:
    """Return an array of labels or names with its dtype, as JSON."""
    if values is None:
        return None
    plain = all(isinstance(value, str | int | float | bool) for value in values.tolist())
    if not plain:
        raise ArgumentError(f"Labels and names must be texts or numbers to be saved; got {values[:3]}.")
    return {"dtype": values.dtype.str, "values": values.tolist()}
