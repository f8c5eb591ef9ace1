"""The JSON files of a run: serialization of costs, domains and losses; ``run.json``; ``result.json``.

    SquaredLp(p=1.5)  ↔  {"type": "SquaredLp", "p": 1.5}

Objects of a fixed list of classes are rebuilt from their fields, so that reading a file executes no code.
They hold tensors and infinities, for which JSON has no notation; all other entries are read by ``msgspec``
(``convert``). Checksums reveal damage and edits by hand, not forgery: whoever writes a new ``run.json`` can
write new checksums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

import torch
from msgspec import UNSET, Struct, UnsetType
from torch import Tensor

from certus.costs import LabelCost, Mahalanobis, Masked, SquaredL2, SquaredLp, SquaredSup, WeightedL2
from certus.datasets import SplitDataset
from certus.domains import Ball, Box, Unbounded
from certus.errors import UnsupportedError
from certus.inner import BarzilaiBorwein, PaperAscent, ProximalAscent
from certus.kernel.evidence import Evidence
from certus.losses import CrossEntropy, Logistic, MissProbability, ModelLoss, SmoothMargin, SquaredError
from certus.storage.files import (
    CorruptFileError,
    Count,
    NonNegative,
    Positive,
    RunError,
    Sha256,
    Share,
    T,
    convert,
    read_json,
)
from certus.storage.write import verify_checksum
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


RUN_VERSION = 5


class RunRecord(Struct, forbid_unknown_fields=True, frozen=True):
    """Content of ``run.json``."""

    schema_version: int
    certus_version: str
    torch_version: str
    origin: Literal["trained", "imported"]
    settings: dict[str, Any]  # those of ``Settings``; ``certus.runs.factory.read_settings`` checks them
    data_sha256: Sha256
    model_sha256: Sha256 | None  # of the user's model file
    model_imports: dict[str, Sha256] | None  # of the modules beside it
    model_uncovered: list[str] | None  # its imports without a checksum
    criterion: dict[str, Any]  # serialized, as cost and domain
    cost: dict[str, Any]
    domain: dict[str, Any]
    split_sha256: Sha256


def read_run(path: Path) -> RunRecord:
    """Read ``run.json``; check its version, its checksum and the types of its entries."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise CorruptFileError(f"{path} is corrupt: it does not describe a run.")
    version = content.get("schema_version")
    if version != RUN_VERSION or type(version) is not int:
        raise RunError(
            f"{path.parent} has schema version {version!r}, and this version of certus reads {RUN_VERSION} "
            "only: train again, or use the version of certus that wrote it."
        )
    return _converted(verify_checksum(content, path), RunRecord, path)


WEIGHTS = "weights_sha256"
"""Binds a result to the weights that it is about."""


class _Test(Struct, forbid_unknown_fields=True):
    loss: float
    accuracy: Share = 0.0


class _Robustness(Struct, forbid_unknown_fields=True):
    gamma: Positive
    rho_hat: NonNegative
    phi: float
    gradients: float
    status: str
    distance: float
    units: str
    evidence: str


class _Proof(Struct):
    gamma: float
    curvature: float
    evidence: str
    assumptions: list[str] = []


class _Classes(Struct, forbid_unknown_fields=True):
    names: list[str]
    confusion: list[list[Count]]
    recall: list[Share | None]
    balanced_accuracy: Share
    majority: Count
    majority_share: Share
    never_predicted: list[Count]

    def __post_init__(self) -> None:
        count = len(self.confusion)
        square = all(len(row) == count for row in self.confusion)
        if not square or len(self.recall) != count or len(self.names) != count:
            raise ValueError("Expected as many rows, columns, names and recalls as classes")
        if max(self.majority, *self.never_predicted, 0) >= count:
            raise ValueError(f"Expected labels below {count}")


class _Regression(Struct, forbid_unknown_fields=True):
    rmse: float
    r2: float = 0.0


class _Result(Struct, forbid_unknown_fields=True):
    test: _Test
    robustness: _Robustness | None
    weights_sha256: Sha256
    proof: _Proof | UnsetType = UNSET
    classes: _Classes | UnsetType = UNSET
    regression: _Regression | UnsetType = UNSET
    smoothed: dict[str, Any] | UnsetType = UNSET


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
    if done.proof is not None:
        result["proof"] = {"gamma": done.proof.gamma, **done.proof.as_json()}
    if data.classes is None:
        return result | {"regression": regression_report(loss, data)}
    return result | {"classes": classification_report(loss, data).as_json()}


def read_result(path: Path) -> dict[str, Any]:
    """Read ``result.json``; check its checksum and the types of its entries."""
    content = verify_checksum(read_json(path), path)
    _converted(content, _Result, path)
    return content


def _converted(content: dict[str, Any], kind: type[T], path: Path) -> T:
    try:
        return convert(content, kind)
    except CorruptFileError as reason:
        raise CorruptFileError(f"{path} is corrupt: {reason}") from None
