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
    "phi": "robust loss",
    "rho_running": "rho",
    "gamma": "gamma",
    "gradients": "gradients",
}


_MET = {
    "fixed": "",
    "reached": "That is the rho asked for, within 5%.",
    "floor": "The rho asked for is not reached: it would take a gamma below the smallest that is allowed.",
    "missed": "The rho asked for is not met: this is the nearest that was found.",
}
"""How a wanted ρ was met (``RobustnessStatus``), in words."""


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
    for entry in history[-_EPOCHS:]:
        cells = [number(entry[name]) for name in names]
        shown.add_row(str(entry["epoch"]), *cells, number(entry["seconds"], 3))
    return shown


def epoch_parts(history: Sequence[Mapping[str, Any]]) -> list[Shown]:
    """The table, and what its columns are; nothing where no epoch was trained."""
    if not history:
        return []
    parts: list[Shown] = [epoch_table(history)]
    if len(history) > _EPOCHS:
        parts.append(f"These are the last {_EPOCHS} of {len(history)} epochs.")
    last = history[-1]
    if last["rho_running"] is not None:
        parts.append("Held out: data as they are. Moved: inputs that training moved, which are harder.")
    if last["phi"] is not None:
        parts.append("Robust loss: the moved loss less gamma times rho (phi); training lowers it.")
        parts.append("Rho: the mean cost of the moves, by default their squared length.")
        if len({entry["gamma"] for entry in history}) > 1:
            parts.append("Gamma follows the rho that was asked for; in the end it is set anew (below).")
    if last["gradients"] is not None:
        parts.append("Gradients: how many each sample's move took.")
    return parts


def reached_words(level: Mapping[str, Any]) -> str:
    """ρ̂ at the final weights, how far that is in the data's units if they are known, and whether it was
    asked for."""
    rho, gamma = level["rho_hat"], level["gamma"]
    found = f"Robustness reached on the training data ({level['evidence']}): "
    found += f"rho_hat {rho:.4g} at gamma {gamma:.4g}."
    if "distance" in level:
        away = f"a distance of {level['distance']:.3g} ({level['units']})"
        found += f" The worst case moves inputs by {away}, in root mean square."
    return f"{found} {_MET[level['status']]}".rstrip()


def fit_parts(fit: Fit) -> list[Shown]:
    """The epochs, ρ̂ at the final weights, and what is proven of them."""
    parts = epoch_parts([asdict(entry) for entry in fit.history])
    if fit.robustness is not None:
        told = {"gamma": fit.robustness.gamma, "rho_hat": fit.robustness.rho_hat}
        parts.append(reached_words(told | {"evidence": "estimated", "status": fit.robustness.status.value}))
    if fit.proof is not None:
        parts.append(
            f"Certified training ({fit.proof.evidence}): curvature at most {at_most(fit.proof.curvature, 5)} "
            "at every input: the inner problem is concave for every gamma above "
            f"{at_most(fit.proof.gamma, 5)}."
        )
    return parts
