"""JSON files of a run: schema, serialization of objects, settings and results.

Costs, domains, losses and maximisers as tagged JSON, read back without executing anything.

SquaredLp(p=1.5)  ↔  {"type": "SquaredLp", "p": 1.5}

run.json: what a run is, with a digest of its own and of the split.

The digests find damage, and edits by hand. They find no forgery: whoever writes a new run.json can write new
digests, too.

What is written at the end of a run, and how it is read again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from certus.costs import LabelCost, Mahalanobis, Masked, SquaredL2, SquaredLp, SquaredSup, WeightedL2
from certus.datasets import SplitDataset
from certus.domains import Ball, Box, Unbounded
from certus.errors import UnsupportedError
from certus.evidence import Evidence
from certus.inner import BarzilaiBorwein, PaperAscent, ProximalAscent
from certus.losses import CrossEntropy, Logistic, MissProbability, ModelLoss, SmoothMargin, SquaredError
from certus.runs._kinds import is_digest, is_kind, is_table
from certus.storage.files import CorruptFileError, RunError, read_json
from certus.storage.tensors import digest
from certus.storage.write import CHECKSUM, add_checksum, verify_checksum, without_checksum
from certus.training import Fit
from certus.training.metrics import class_verdict, clean_metrics, regression_verdict

_KNOWN: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(SquaredL2, WeightedL2, Mahalanobis, SquaredLp, SquaredSup, Masked, LabelCost),
        *(Unbounded, Box, Ball),
        *(CrossEntropy, SquaredError, Logistic, SmoothMargin, MissProbability),
        *(BarzilaiBorwein, PaperAscent, ProximalAscent),
    )
}

_DTYPES = {str(kind).removeprefix("torch."): kind for kind in (torch.float32, torch.float64, torch.bool)}


def serialize(thing: Any) -> Any:
    """JSON for a known object, a tensor, a number, a string or None."""
    if isinstance(thing, Tensor):
        return {
            "type": "tensor",
            "dtype": str(thing.dtype).removeprefix("torch."),
            "values": _plain(thing.tolist()),
        }
    if isinstance(thing, float) and not math.isfinite(thing):
        return {"type": "number", "value": str(thing)}
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    if _KNOWN.get(type(thing).__name__) is not type(thing):
        known = ", ".join(_KNOWN)
        raise UnsupportedError(
            f"A run can store {known}; {type(thing).__name__} holds code and cannot be stored."
        )
    tag: dict[str, Any] = {"type": type(thing).__name__}
    return tag | {field.name: serialize(getattr(thing, field.name)) for field in fields(thing) if field.init}


def deserialize(tag: Any) -> Any:
    """The object that ``serialize`` was given."""
    try:
        return _read(tag)
    except (TypeError, ValueError, KeyError) as reason:
        raise RunError(f"A run is corrupt: {str(tag)[:60]} describes nothing: {reason}.") from None


def _read(tag: Any) -> Any:
    if not isinstance(tag, dict):
        return tag
    kind, rest = tag.get("type"), {name: value for name, value in tag.items() if name != "type"}
    if kind == "tensor":
        return torch.tensor(_numbers(rest["values"]), dtype=_DTYPES[rest["dtype"]])
    if kind == "number":
        return float(rest["value"])
    if kind not in _KNOWN:
        raise RunError(f"A run names {kind!r}, which this version of certus does not know.")
    return _KNOWN[kind](**{name: _read(value) for name, value in rest.items()})


def _plain(values: Any) -> Any:
    """Nested lists in which infinities are strings: JSON has none."""
    if isinstance(values, list):
        return [_plain(value) for value in values]
    return str(values) if isinstance(values, float) and not math.isfinite(values) else values


def _numbers(values: Any) -> Any:
    if isinstance(values, list):
        return [_numbers(value) for value in values]
    return float(values) if isinstance(values, str) else values


RUN_VERSION = 3
SEALED = 3
_READ = (1, 2, RUN_VERSION)
"""1 had another name for a setting (see ``read_settings``); 1 and 2 have no digests."""


def _or_none(holds: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or holds(value)


def _digests(value: object) -> bool:
    return isinstance(value, dict) and all(is_digest(one) for one in value.values())


def _words(value: object) -> bool:
    return isinstance(value, list) and all(is_kind(one, str) for one in value)


_FIELDS: dict[str, Callable[[object], bool]] = {
    "certus_version": lambda value: is_kind(value, str),
    "torch_version": lambda value: is_kind(value, str),
    "origin": lambda value: value in ("trained", "imported"),
    "settings": lambda value: isinstance(value, dict),
    "data_sha256": is_digest,
    "model_sha256": _or_none(is_digest),
    "model_imports": _or_none(_digests),
    "model_uncovered": _or_none(_words),
    "criterion": lambda value: isinstance(value, dict),
    "cost": lambda value: isinstance(value, dict),
    "domain": lambda value: isinstance(value, dict),
    "split_sha256": _or_none(is_digest),
}
_NEW = ("origin", "model_imports", "model_uncovered", "split_sha256")  # which older versions may lack


def describe_run(settings: Mapping[str, Any], rows: Mapping[str, Tensor]) -> dict[str, Any]:
    """The content of run.json."""
    return add_checksum({"schema_version": RUN_VERSION, **settings, "split_sha256": digest(dict(rows))})


def read_run(path: Path) -> dict[str, Any]:
    """The content of a run.json, checked: its digest, and the kind of every entry."""
    about = read_json(path)
    if not isinstance(about, dict):
        raise CorruptFileError(f"{path} is corrupt: it does not describe a run.")
    version = about.get("schema_version")
    if not is_kind(version, int) or version not in _READ:
        raise RunError(
            f"{path.parent} has schema version {version!r}; this version of certus reads "
            f"{', '.join(map(str, _READ[:-1]))} and {_READ[-1]}."
        )
    if version >= SEALED:
        verify_checksum(about, path)
    elif CHECKSUM in about:
        raise CorruptFileError(f"{path} is corrupt: schema version {version} has no {CHECKSUM}.")
    else:
        about = dict.fromkeys(_NEW) | {"origin": "trained"} | about
    missing = _FIELDS.keys() - about.keys()
    if missing:
        raise CorruptFileError(f"{path.parent} is corrupt: run.json lacks {', '.join(sorted(missing))}.")
    for name, holds in _FIELDS.items():
        if not holds(about[name]):
            raise CorruptFileError(f"{path} is corrupt: {name} is {f'{about[name]!r}'[:80]}.")
    return without_checksum(about)


WEIGHTS = "weights_sha256"
"""Binds a result to the weights that it is about."""


def measure_result(done: Fit, loss: ModelLoss, data: SplitDataset) -> dict[str, Any]:
    """What is worth knowing of a trained model, as JSON; ρ̂ and φ are estimated by an ascent."""
    robustness = None
    if done.robustness is not None:
        robustness = asdict(done.robustness) | {
            "status": done.robustness.status.value,
            "distance": math.sqrt(done.robustness.rho_hat),
            "units": data.units,
            "evidence": Evidence.ESTIMATED,
        }
    proof = None if done.proof is None else {"gamma": done.proof.gamma, **done.proof.as_json()}
    test = clean_metrics(loss, data.test)
    if not all(math.isfinite(value) for value in test.values()):
        raise RunError(f"The weights are of no use: their loss on {data.name} is {test['loss']}.")
    told = {"test": test, "level": robustness} | ({} if proof is None else {"proof": proof})
    if data.classes is None:
        return told | {"regression": regression_verdict(loss, data)}
    return told | {"classes": class_verdict(loss, data).as_json()}


def read_result(path: Path, *, sealed: bool) -> dict[str, Any]:
    """The content of a result.json, checked.

    Args:
        sealed: it must have a digest; those of older runs have none.
    """
    result = read_json(path)
    if not isinstance(result, dict) or not result.keys() >= {"test", "level"}:
        raise CorruptFileError(f"{path} is corrupt: it does not hold a result.")
    if sealed or CHECKSUM in result:
        verify_checksum(result, path)
    for name, holds in (("test", _is_test), ("level", _is_level), ("proof", _is_proof), *_VERDICTS):
        if name in result and not holds(result[name]):
            raise CorruptFileError(f"{path} is corrupt: its {name} is not what certus writes.")
    if sealed and not is_digest(result.get(WEIGHTS)):
        raise CorruptFileError(f"{path} is corrupt: it does not name its weights.")
    return without_checksum(result)


def _is_classes(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    rows, recall = value.get("confusion"), value.get("recall")
    if not isinstance(rows, list) or not isinstance(recall, list) or len(rows) != len(recall):
        return False
    square = all(isinstance(row, list) and len(row) == len(rows) for row in rows)
    counted = square and all(is_kind(one, int) and one >= 0 for row in rows for one in row)
    known = {name: value.get(name) for name in ("balanced_accuracy", "majority_share")}
    labels = value.get("never_predicted")
    listed = isinstance(labels, list) and all(is_kind(one, int) and 0 <= one < len(rows) for one in labels)
    majority = value.get("majority")
    named = isinstance(majority, int) and is_kind(majority, int) and 0 <= majority < len(rows)
    shares = all(one is None or _is_share(one) for one in recall) and all(map(_is_share, known.values()))
    names = value.get("names")
    shares &= isinstance(names, list) and len(names) == len(rows) and all(is_kind(one, str) for one in names)
    return counted and listed and named and shares


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and is_kind(value, float) and 0 <= value <= 1


def _is_regression(value: object) -> bool:
    return isinstance(value, dict) and "rmse" in value and is_table(value, float)


_VERDICTS = (("classes", _is_classes), ("regression", _is_regression))


def _is_test(value: object) -> bool:
    known = isinstance(value, dict) and "loss" in value and is_table(value, float)
    return known and _is_share(value.get("accuracy", 0))  # type: ignore[attr-defined]  # it is a dict


def _is_level(value: object) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict):
        return False
    numbers = [value.get(name) for name in ("gamma", "rho_hat", "distance")]
    words = [value.get(name) for name in ("units", "evidence", "status")]
    if not all(is_kind(one, float) for one in numbers) or not all(is_kind(one, str) for one in words):
        return False
    return bool(value["gamma"] > 0 and value["rho_hat"] >= 0)


def _is_proof(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    numbers = {name: value.get(name) for name in ("gamma", "curvature")}
    assumptions = value.get("assumptions", [])
    words = isinstance(assumptions, list) and all(is_kind(one, str) for one in assumptions)
    return is_table(numbers, float) and is_kind(value.get("evidence"), str) and words
