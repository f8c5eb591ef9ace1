"""How many samples have an error within a distance: one step for each sample whose error was found."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from certus.figures.canvas import COLOURS, broken, legend_below, new_figure, title_above

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def nearest_line(name: str, distances: Sequence[float]) -> tuple[list[float], list[float], str]:
    """Distances that were found, the share of samples within each, and what the legend says.

    >>> nearest_line("mine", [0.2, math.inf, 0.1, 0.4])
    ([0.1, 0.2, 0.4], [0.25, 0.5, 0.75], 'mine (none found for 1 of 4)')
    """
    found, total = sorted(value for value in distances if math.isfinite(value)), len(distances)
    none = f" (none found for {total - len(found)} of {total})" if len(found) < total else ""
    return found, [(place + 1) / total for place in range(len(found))], f"{name}{none}"


def nearest_figure(runs: Mapping[str, Sequence[float]], units: str, title: str = "") -> Figure:
    """One line for each run; inf where no error was found."""
    figure = new_figure(7.0, 4.0)
    axes = figure.subplots()
    for place, (name, distances) in enumerate(runs.items()):
        found, shares, words = nearest_line(name, distances)
        steps = ([0.0, *found], [0.0, *shares])
        axes.plot(*steps, drawstyle="steps-post", color=COLOURS[place % len(COLOURS)], label=words)
    axes.set_xlabel(broken(f"distance to the nearest error that was found ({units})", 6.0))
    axes.set(ylabel="share of the samples", ylim=(0, 1.02))
    axes.set_xlim(left=0)
    axes.spines[["top", "right"]].set_visible(False)
    legend_below(figure, *axes.get_legend_handles_labels())
    if title:
        title_above(figure, title, 10)
    return figure
