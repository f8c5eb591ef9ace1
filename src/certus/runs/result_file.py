"""What is written at the end of a run, and how it is read again."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from certus.data import DataSet
from certus.evidence import Evidence
from certus.losses import ModelLoss
from certus.runs.kinds import is_digest, is_kind, is_table
from certus.storage.files import DamageError, RunError, read_json
from certus.storage.sealed import SEAL, check_seal, unsealed
from certus.training import Fit, evaluate

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
    return {"test": test, "level": robustness} | ({} if proof is None else {"proof": proof})


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
    for name, holds in (("test", _is_test), ("level", _is_level), ("proof", _is_proof)):
        if name in result and not holds(result[name]):
            raise DamageError(f"{path} is corrupt: its {name} is not what certus writes.")
    if sealed and not is_digest(result.get(WEIGHTS)):
        raise DamageError(f"{path} is corrupt: it does not name its weights.")
    return unsealed(result)


def _is_test(value: object) -> bool:
    return isinstance(value, dict) and "loss" in value and is_table(value, float)


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
