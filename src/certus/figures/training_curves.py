"""Training, epoch by epoch: loss, accuracy, and the gradients that the inner problem took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from certus.errors import require
from certus.figures.attack_curves import Curve, Panel, sweep_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOVED, _HELD_OUT = "training, at moved inputs", "held out, unmoved data"
TRAINING_CURVES = {
    "loss": ("mean loss", {"loss": _MOVED, "calibration_loss": _HELD_OUT}),
    "accuracy": ("accuracy", {"accuracy": _MOVED, "calibration_accuracy": _HELD_OUT}),
    "gradients": ("gradients per sample", {"gradients": "gradient evaluations to find a sample's move"}),
}
"""Name → what its axis says, and its lines: what an epoch calls it, and what the legend does."""


def curve_words(words: str, history: Sequence[Mapping[str, Any]]) -> str:
    """What the legend says of a line; without an adversary nothing is moved."""
    still = history[-1]["rho_running"] is None
    return "training" if still and words == _MOVED else words


def epoch_marks(last: int) -> list[int]:
    """Whole epochs from 1 on, at most nine of them.

    >>> epoch_marks(3), epoch_marks(20)
    ([1, 2, 3], [1, 5, 10, 15, 20])
    """
    step = next(
        digit * 10**power for power in range(12) for digit in (1, 2, 5) if last <= 8 * digit * 10**power
    )
    return sorted({1, *range(step, last + 1, step)})


def training_figure(history: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """One panel for each of the curves; what a method does not measure is left out."""
    require(len(history) > 0, "history", "have an epoch", list(history))
    epochs, panels = [float(entry["epoch"]) for entry in history], []
    for quantity, lines in TRAINING_CURVES.values():
        curves = {}
        for key, words in lines.items():
            values = [entry[key] for entry in history]
            if all(value is not None for value in values):
                curves[curve_words(words, history)] = Curve(epochs, values, values, values)
        if curves:
            panels.append(Panel("", "epoch", quantity, curves, marks=epoch_marks(int(epochs[-1]))))
    return sweep_figure(panels, title)
