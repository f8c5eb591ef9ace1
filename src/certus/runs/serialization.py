"""Serialization of the costs, domains and losses of a run, and the content of its ``result.json``.

    SquaredLp(p=1.5)  ↔  {"type": "SquaredLp", "p": 1.5}

Objects of a fixed list of classes are rebuilt from their fields, so that reading a file executes no code.
They hold tensors and infinities, for which JSON has no notation; all other entries are read by ``msgspec``
(``certus.runs.records``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import Tensor

from certus.costs import LabelCost, Mahalanobis, Masked, SquaredL2, SquaredLp, SquaredSup, WeightedL2
from certus.datasets import SplitDataset
from certus.domains import Ball, Box, Unbounded
from certus.errors import UnsupportedError
from certus.inner import BarzilaiBorwein, PaperAscent, ProximalAscent
from certus.kernel.evidence import Evidence
from certus.losses import CrossEntropy, Logistic, MissProbability, ModelLoss, SmoothMargin, SquaredError
from certus.storage.files import RunError
from certus.training import Fit
from certus.training.metrics import classification_report, clean_metrics, regression_report

_CLASSES: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(SquaredL2, WeightedL2, Mahalanobis, SquaredLp, SquaredSup, Masked, LabelCost),
        *(Unbounded, Box, Ball),
        *(CrossEntropy, SquaredError, Logistic, SmoothMargin, MissProbability),
        *(BarzilaiBorwein, PaperAscent, ProximalAscent),
    )
}
_DTYPES = {str(kind).removeprefix("torch."): kind for kind in (torch.float32, torch.float64, torch.bool)}


def serialize(value: Any) -> Any:
    """Return the JSON form of a known object, a tensor, a number, a string or None."""
    if isinstance(value, Tensor):
        return {
            "type": "tensor",
            "dtype": str(value.dtype).removeprefix("torch."),
            "values": _map_numbers(value.tolist(), lambda x: x if math.isfinite(x) else str(x)),
        }
    if isinstance(value, float) and not math.isfinite(value):
        return {"type": "number", "value": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    name = type(value).__name__
    if _CLASSES.get(name) is not type(value):
        names = ", ".join(_CLASSES)
        raise UnsupportedError(f"A run can store {names}; {name} holds code and cannot be stored.")
    entries = {field.name: serialize(getattr(value, field.name)) for field in fields(value) if field.init}
    return {"type": name, **entries}


def deserialize(content: Any) -> Any:
    """Return the object that was serialized."""
    try:
        return _deserialize(content)
    except (TypeError, ValueError, KeyError) as reason:
        raise RunError(f"A run is corrupt: {str(content)[:60]} is not valid: {reason}.") from None


def _deserialize(content: Any) -> Any:
    if not isinstance(content, dict):
        return content
    entries = dict(content)
    kind = entries.pop("type", None)
    if kind == "tensor":
        return torch.tensor(_map_numbers(entries["values"], float), dtype=_DTYPES[entries["dtype"]])
    if kind == "number":
        return float(entries["value"])
    if kind not in _CLASSES:
        raise RunError(f"A run names {kind!r}, which this version of certus does not know.")
    return _CLASSES[kind](**{name: _deserialize(entry) for name, entry in entries.items()})


def _map_numbers(values: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(values, list):
        return [_map_numbers(value, function) for value in values]
    return function(values)


def measure_result(done: Fit, loss: ModelLoss, data: SplitDataset) -> dict[str, Any]:
    """Measure a trained model, as the content of ``result.json``; ρ̂ and φ are estimated by an ascent."""
    robustness = None
    if done.robustness is not None:
        robustness = asdict(done.robustness) | {
            "status": done.robustness.status.value,
            "distance": math.sqrt(done.robustness.rho_hat),
            "units": data.units,
            "evidence": Evidence.ESTIMATED,
        }
    test = clean_metrics(loss, data.test)
    if not all(math.isfinite(value) for value in test.values()):
        raise RunError(f"The loss on {data.name} is {test['loss']}: the weights must give a finite loss.")
    result: dict[str, Any] = {"test": test, "robustness": robustness}
    if done.inner_precision is not None:
        result["inner_precision"] = done.inner_precision
    if done.proof is not None:
        result["proof"] = {"gamma": done.proof.gamma, **done.proof.as_json()}
    if data.classes is None:
        return result | {"regression": regression_report(loss, data)}
    return result | {"classes": classification_report(loss, data).as_json()}
