"""Training as a table of its last epochs, and what was reached in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from certus.decimals import at_most
from certus.texts.plain_text import Shown, make_table, number
from certus.training._fit import Fit

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
    "reached": "That is the requested rho, within 5%.",
    "floor": "The requested rho was not reached: that would take a gamma below the smallest allowed one.",
    "missed": "The requested rho was not met: this is the nearest rho that was found.",
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
        parts.append(
            "Held out: on unmoved calibration data. Moved: on training inputs where training moved them, "
            "which is harder."
        )
    if last["phi"] is not None:
        parts.append("Robust loss: the moved loss minus gamma times rho (phi), which training minimises.")
        parts.append("Rho: the mean transport cost of the moves, by default their mean squared distance.")
        if len({entry["gamma"] for entry in history}) > 1:
            parts.append("Gamma is adjusted to the requested rho during training, and once more at the end.")
    if last["gradients"] is not None:
        parts.append("Gradients: gradient evaluations per sample to find its move.")
    return parts


def reached_words(level: Mapping[str, Any]) -> str:
    """ρ̂ at the final weights, how far that is in the data's units if they are known, and whether it was
    asked for."""
    rho, gamma = level["rho_hat"], level["gamma"]
    found = f"Robustness reached on the training data ({level['evidence']}): "
    found += f"rho_hat {rho:.4g} at gamma {gamma:.4g}."
    if "distance" in level:
        away = f"a root mean square distance of {level['distance']:.3g} ({level['units']})"
        found += f" The worst case at this gamma moves the training inputs by {away}."
    return f"{found} {_MET[level['status']]}".rstrip()


def fit_parts(fit: Fit) -> list[Shown]:
    """The epochs, ρ̂ at the final weights, and what is proven of them."""
    parts = epoch_parts([asdict(entry) for entry in fit.history])
    if fit.robustness is not None:
        told = {"gamma": fit.robustness.gamma, "rho_hat": fit.robustness.rho_hat}
        parts.append(reached_words(told | {"evidence": "estimated", "status": fit.robustness.status.value}))
    if fit.proof is not None:
        parts.append(
            f"Certified training ({fit.proof.evidence}): at the final weights the curvature of the loss is "
            f"at most {at_most(fit.proof.curvature, 5)} at every input, so that the inner problem is concave "
            f"for every gamma above {at_most(fit.proof.gamma, 5)}."
        )
    return parts
