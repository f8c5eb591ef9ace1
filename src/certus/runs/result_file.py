"""What is written at the end of a run, and how it is read again."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from certus.datasets import DataSet
from certus.evidence import Evidence
from certus.losses import ModelLoss
from certus.runs.kinds import is_digest, is_kind, is_table
from certus.storage.files import DamageError, RunError, read_json
from certus.storage.write import SEAL, check_seal, unsealed
from certus.training import Fit, evaluate
from certus.training.metrics import class_verdict, regression_verdict

WEIGHTS = "weights_sha256"
"""Binds a result to the weights that it is about."""


def result_of(done: Fit, loss: ModelLoss, data: DataSet) -> dict[str, Any]:
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
    test = evaluate(loss, data.test)
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
        raise DamageError(f"{path} is corrupt: it does not hold a result.")
    if sealed or SEAL in result:
        check_seal(result, path)
    for name, holds in (("test", _is_test), ("level", _is_level), ("proof", _is_proof), *_VERDICTS):
        if name in result and not holds(result[name]):
            raise DamageError(f"{path} is corrupt: its {name} is not what certus writes.")
    if sealed and not is_digest(result.get(WEIGHTS)):
        raise DamageError(f"{path} is corrupt: it does not name its weights.")
    return unsealed(result)


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
