"""Figures of training, smoothness bounds and sensitivity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from certus.bounds.smoothness import LayerBound, SmoothnessBound, format_assumptions
from certus.display.attack_figures import Curve, Panel, sweep_figure
from certus.display.canvas import (
    COLOURS,
    broken,
    legend_below,
    literal_text,
    new_figure,
    title_above,
)
from certus.errors import ArgumentError, require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SAMPLED = "sampled (estimated)"


def layer_words(layer: LayerBound) -> str:
    """Name a layer by its path and kind, as in ``2 (ELU)``; the loss has no path."""
    return f"{layer.path} ({layer.kind})" if layer.path else f"the {layer.kind}"


def smoothness_figure(bound: SmoothnessBound, sampled: float | None = None) -> Figure:
    """Draw the bound of each rule beside the sampled curvature, and each layer's share.

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
    return figure


_MAX_FEATURES = 20


def sensitivity_figure(moves: Sequence[Any], clean: Mapping[str, float], share: float) -> Figure:
    """Draw a bar for each feature that moves alone, from what is attained to what is proven.

    Args:
        moves: each with ``feature.name`` and a ``bracket``, the most fragile first; 20 are drawn.
        clean: loss and accuracy of the unmoved data.
        share: how far each moves, in standard deviations.
    """
    moves = list(moves[:_MAX_FEATURES])[::-1]
    labelled, count = moves[0].bracket.error_high is not None, len(moves)
    quantity = "error" if labelled else "loss"
    low = [getattr(move.bracket, f"{quantity}_low") for move in moves]
    widths = [
        getattr(move.bracket, f"{quantity}_high") - bottom for move, bottom in zip(moves, low, strict=True)
    ]
    # Two long names may be alike where they are broken: they are numbered.
    numbered = [f"{count - place}. {move.feature.name}" for place, move in enumerate(moves)]
    names = [literal_text(broken(name, 3.4)) for name in numbered]
    figure = new_figure(7.8, 1.6 + 0.34 * sum(name.count("\n") + 1 for name in names))
    axes = figure.subplots()
    axes.barh(names, widths, left=low, color=COLOURS[0])
    axes.scatter(low, names, color=COLOURS[1], marker="|", s=60, label="attained", zorder=3)
    before = 1 - clean["accuracy"] if labelled else clean["loss"]
    axes.axvline(before, color=COLOURS[6], linewidth=1, linestyle=":", label="unmoved data")
    axes.set_xlabel(f"{quantity}: at least (attained, left end), at most ({moves[0].evidence}, right end)")
    axes.spines[["top", "right"]].set_visible(False)
    title_above(figure, f"one feature moves by {share:g} of its standard deviation (root mean square)")
    legend_below(figure, *axes.get_legend_handles_labels())
    return figure


_MOVED, _HELD_OUT = "training, at moved inputs", "held out, unmoved data"
TRAINING_CURVES = {
    "loss": ("mean loss", {"loss": _MOVED, "calibration_loss": _HELD_OUT}),
    "accuracy": ("accuracy", {"accuracy": _MOVED, "calibration_accuracy": _HELD_OUT}),
    "gradients": ("gradients per sample", {"gradients": "gradient evaluations to find a sample's move"}),
}
"""Name → the label of its axis, and its lines: the key in the history, and the entry of the legend."""


def curve_words(words: str, history: Sequence[Mapping[str, Any]]) -> str:
    """Return the entry of a line in the legend; without an adversary nothing is moved."""
    still = history[-1]["rho_running"] is None
    return "training" if still and words == _MOVED else words


def epoch_marks(last: int) -> list[int]:
    """Return at most nine whole epochs from 1 on, for the axis.

    >>> epoch_marks(3), epoch_marks(20)
    ([1, 2, 3], [1, 5, 10, 15, 20])
    """
    step = next(
        digit * 10**power for power in range(12) for digit in (1, 2, 5) if last <= 8 * digit * 10**power
    )
    return sorted({1, *range(step, last + 1, step)})


def training_figure(history: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """Draw loss, accuracy and gradients by epoch; a curve that was not measured is left out."""
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
