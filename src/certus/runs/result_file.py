"""What is written at the end of a run."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from certus.data import DataSet
from certus.evidence import Evidence
from certus.losses import ModelLoss
from certus.training import Fit, evaluate


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
    return {"test": evaluate(loss, data.test), "level": robustness} | (
        {} if proof is None else {"proof": proof}
    )
