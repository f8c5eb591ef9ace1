"""Figures of training, curvature and sensitivity.

A picture of a smoothness bound: each rule beside the sampled curvature, and each layer's share.

A bar for each feature: from what is attained to what is proven, if it moves alone.

Training, epoch by epoch: loss, accuracy, and the gradients that the inner problem took.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus.bounds.smoothness import LayerBound, SmoothnessBound, format_assumptions
from certus.display.attack_figures import Curve, Panel, sweep_figure
from certus.display.canvas import (
    COLOURS,
    broken,
    legend_below,
    literal_text,
    new_figure,
    save_figure,
    title_above,
)
from certus.errors import ArgumentError, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SAMPLED = "sampled (estimated)"


def layer_words(layer: LayerBound) -> str:
    """``2 (ELU)``: where the layer is in the network, and what it is; the loss has no place in it."""
    return f"{layer.path} ({layer.kind})" if layer.path else f"the {layer.kind}"


def draw_bound(bound: SmoothnessBound, sampled: float | None, path: Path) -> Path:
    """Write the picture to ``path``; its suffix is the format.

    Args:
        sampled: the largest curvature found at sampled points (*estimated*), or None.
    """
    bars = {name: value for name, value in bound.bounds.items() if 0 < value < math.inf}
    if not bars:
        raise ArgumentError("`bound` must have a finite, positive rule to be drawn; got none.")
    if sampled is not None and sampled > 0:
        bars[_SAMPLED] = sampled
    lines = [layer for layer in bound.layers if 0 < layer.curvature < math.inf]
    labels = [literal_text(broken(layer_words(layer), 2.6)) for layer in lines]
    figure = new_figure(11, max(3.6, 1.4 + 0.34 * sum(label.count("\n") + 1 for label in labels)))
    left, right = figure.subplots(1, 2)
    names = [name if name == _SAMPLED else f"{name} ({bound.evidence})" for name in bars]
    colours = [COLOURS[6] if name == _SAMPLED else COLOURS[0] for name in bars]
    left.scatter(list(bars.values()), names, color=colours, s=50)
    left.set_xscale("log")
    low, high = min(bars.values()), max(bars.values())
    left.set_xlim(low / 2, high * 6)  # room for the numbers
    left.set_ylim(len(bars) - 0.5, -0.5)
    for place, value in enumerate(bars.values()):
        left.annotate(f"{value:.4g}", (value, place), (8, 0), textcoords="offset points", va="center")
    left.set(xlabel="largest curvature of the loss", ylabel="rule", title="bounds, and what was found")
    left.grid(axis="x", color="#dddddd")
    if bound.assumptions:
        title_above(figure, format_assumptions(bound.assumptions), 8)
    drawn = right.barh(range(len(lines)), [layer.curvature for layer in lines], color=COLOURS[4])
    right.bar_label(drawn, [f"{layer.curvature:.4g}" for layer in lines], padding=3)
    right.set_yticks(range(len(lines)), labels)
    right.invert_yaxis()
    right.margins(x=0.18)
    right.set(xlabel="adds to the curvature", ylabel="layer", title="what each layer adds (sum rule)")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    save_figure(figure, path)
    return path


_MOST = 20


def draw_fragile(found: Sequence[Any], now: Mapping[str, float], share: float, path: Path) -> Path:
    """Write the picture to ``path``.

    Args:
        found: each with ``feature.name`` and a ``bracket``, the most fragile first; 20 are drawn.
        now: loss and accuracy of the data as they are.
    """
    shown = list(found[:_MOST])[::-1]
    labelled = shown[0].bracket.error_high is not None
    what = "error" if labelled else "loss"
    low = [getattr(one.bracket, f"{what}_low") for one in shown]
    high = [getattr(one.bracket, f"{what}_high") for one in shown]
    count = len(shown)  # two long names may be alike where they are broken: they are numbered
    names = [
        literal_text(broken(f"{count - place}. {one.feature.name}", 3.4)) for place, one in enumerate(shown)
    ]
    figure = new_figure(7.8, 1.6 + 0.34 * sum(name.count("\n") + 1 for name in names))
    axes = figure.subplots()
    axes.barh(
        names, [top - bottom for top, bottom in zip(high, low, strict=True)], left=low, color=COLOURS[0]
    )
    axes.scatter(low, names, color=COLOURS[1], marker="|", s=60, label="attained", zorder=3)
    before = 1 - now["accuracy"] if labelled else now["loss"]
    axes.axvline(before, color=COLOURS[6], linewidth=1, linestyle=":", label="unmoved data")
    axes.set_xlabel(f"{what}: at least (attained, left end), at most ({shown[0].evidence}, right end)")
    axes.spines[["top", "right"]].set_visible(False)
    title_above(figure, f"one feature moves by {share:g} of its standard deviation (root mean square)")
    handles, labels = axes.get_legend_handles_labels()
    legend_below(figure, handles, labels)
    save_figure(figure, path, dpi=figure.dpi)
    return path


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
