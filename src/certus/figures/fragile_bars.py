"""A bar for each feature: from what is attained to what is proven, if it moves alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from certus.figures.canvas import (
    COLOURS,
    broken,
    legend_below,
    literal_text,
    new_figure,
    save_figure,
    title_above,
)

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
