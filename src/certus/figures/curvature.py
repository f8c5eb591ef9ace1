"""A picture of a smoothness bound: each rule beside the sampled curvature, and each layer's share."""

from __future__ import annotations

import math
from pathlib import Path

from certus.errors import ArgumentError
from certus.figures.canvas import new_figure, save_figure
from certus.smoothness.results import SmoothnessBound, assumed_words


def draw_bound(bound: SmoothnessBound, sampled: float | None, path: Path) -> Path:
    """Write the picture to ``path``; its suffix is the format.

    Args:
        sampled: the largest curvature found at sampled points (*estimated*), or None.
    """
    bars = {name: value for name, value in bound.bounds.items() if 0 < value < math.inf}
    if not bars:
        raise ArgumentError("`bound` must have a finite, positive rule to be drawn; got none.")
    if sampled is not None and sampled > 0:
        bars["sampled\n(estimated)"] = sampled
    figure = new_figure(9, 3.6)
    left, right = figure.subplots(1, 2)
    left.bar(list(bars), list(bars.values()), color=["tab:blue"] * len(bound.bounds) + ["tab:gray"])
    left.set_yscale("log")
    left.set_ylabel("largest curvature of the loss")
    left.set_title(f"{bound.evidence} from above")
    if bound.assumptions:
        figure.suptitle(assumed_words(bound.assumptions), fontsize=8, wrap=True)
    lines = [layer for layer in bound.layers if 0 < layer.curvature < math.inf]
    labels = [f"{layer.path} {layer.kind}".strip() for layer in lines]
    right.barh(labels[::-1], [layer.curvature for layer in lines][::-1], color="tab:orange")
    right.set_title("what each layer adds (sum rule)")
    save_figure(figure, path, dpi=figure.dpi)
    return path
