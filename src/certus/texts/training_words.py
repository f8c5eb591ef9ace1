"""Training as a table of its last epochs, and what was reached in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from certus.decimals import at_most
from certus.texts.plain_text import Shown, make_table, number
from certus.training.fit import Fit

_EPOCHS = 10
_COLUMNS = {
    "calibration_accuracy": "held-out accuracy",
    "calibration_loss": "held-out loss",
    "loss": "loss, moved",
    "accuracy": "accuracy, moved",
    "phi": "phi",
    "rho_running": "rho",
    "gamma": "gamma",
    "gradients": "gradients",
}


def epoch_table(history: Sequence[Mapping[str, Any]]) -> Table:
    """The last ten epochs; the held-out column is about data as they are. What was not measured has no
    column."""
    last = history[-1]
    names = [name for name in _COLUMNS if last[name] is not None]
    if "calibration_accuracy" in names:
        names.remove("calibration_loss")
    heads = dict(_COLUMNS)
    if last["rho_running"] is None:  # nothing is moved
        heads |= {"loss": "training loss", "accuracy": "training accuracy"}
    shown = make_table("epoch", *(heads[name] for name in names), "seconds")
    for column in shown.columns:  # heads break between words only
        column.min_width = max(map(len, str(column.header).split()))
    for entry in history[-_EPOCHS:]:
        cells = [number(entry[name]) for name in names]
        shown.add_row(str(entry["epoch"]), *cells, number(entry["seconds"], 3))
    return shown


def fit_parts(fit: Fit) -> list[Shown]:
    """The epochs, ρ̂ at the final weights, and what is proven of them."""
    parts: list[Shown] = [epoch_table([asdict(entry) for entry in fit.history])] if fit.history else []
    reached = fit.robustness
    if reached is not None:
        parts.append(
            f"Robustness reached on the training data (estimated): rho_hat {reached.rho_hat:.4g} at gamma "
            f"{reached.gamma:.4g}."
        )
    if fit.proof is not None:
        parts.append(
            f"Certified training ({fit.proof.evidence}): curvature at most {at_most(fit.proof.curvature, 5)} "
            "at every input: the inner problem is concave for every gamma above "
            f"{at_most(fit.proof.gamma, 5)}."
        )
    return parts
