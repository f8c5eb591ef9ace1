"""A bar for each feature: from what is attained to what is proven, if it moves alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from certus.figures.canvas import new_figure, save_figure

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
    figure = new_figure(7, 1.4 + 0.32 * len(shown))
    axes = figure.subplots()
    names = [one.feature.name for one in shown]
    axes.barh(
        names, [top - bottom for top, bottom in zip(high, low, strict=True)], left=low, color="tab:blue"
    )
    before = 1 - now["accuracy"] if labelled else now["loss"]
    axes.axvline(before, color="black", linewidth=1, linestyle=":", label="as the data are")
    axes.set_xlabel(f"{what}: attained (left end) to proven (right end)")
    axes.set_title(f"one feature moves by {share:g} of its spread")
    axes.legend(loc="lower right", fontsize=8)
    save_figure(figure, path, dpi=figure.dpi)
    return path
