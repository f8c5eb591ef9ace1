"""A picture of a smoothness bound: each rule beside the sampled curvature, and each layer's share."""

from __future__ import annotations

import math
from pathlib import Path

from certus.bounds.smoothness import LayerBound, SmoothnessBound, assumed_words
from certus.errors import ArgumentError
from certus.figures.canvas import COLOURS, broken, literal_text, new_figure, save_figure, title_above

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
        title_above(figure, assumed_words(bound.assumptions), 8)
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
