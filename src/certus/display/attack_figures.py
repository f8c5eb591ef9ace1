"""Figures of attacks: error against strength (fig:mnist), and distances to the nearest error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from certus.attacks.evaluation import Interval
from certus.display.canvas import (
    COLOURS,
    MARKERS,
    Line,
    broken,
    draw_lines,
    legend_below,
    new_figure,
    title_above,
)
from certus.errors import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Curve:
    """Values at rising strengths, with the ends of their intervals."""

    strengths: Sequence[float]
    values: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]

    @staticmethod
    def of(strengths: Sequence[float], intervals: Sequence[Interval]) -> Curve:
        """Return the curve of estimates with confidence intervals."""
        return Curve(
            strengths,
            [interval.value for interval in intervals],
            [interval.low for interval in intervals],
            [interval.high for interval in intervals],
        )


@dataclass(frozen=True)
class Style:
    """Colour, marker and line style of a name, as matplotlib spells them."""

    colour: str
    marker: str
    line: str = "-"


FAILED = "hollow: found less than a weaker attack did, so this one failed"
"""The entry of the legend for marks that ``failed_places`` names."""


def failed_places(strengths: Sequence[float], values: Sequence[float], towards: int = 1) -> list[int]:
    """Return the places where an attack failed: it found less than a weaker one, whose moves it may make too.

    Args:
        towards: 1 if larger strengths are stronger, −1 if smaller ones are, 0 for curves of no attack.

    >>> failed_places([0.0, 0.1, 0.2, 0.3], [0.1, 0.5, 0.3, 0.5])
    [2]
    """
    failed, most = [], -math.inf
    order = sorted(range(len(values)), key=lambda place: towards * strengths[place]) if towards else []
    for place in order:
        if values[place] < most:
            failed.append(place)
        most = max(most, values[place])
    return sorted(failed)


@dataclass(frozen=True)
class Panel:
    """Curves on one pair of axes.

    Attributes:
        strength, quantity: labels of the axes; ``logarithmic`` is about the first.
        marked, mark: place and label of a vertical line.
        marks: ticks of the axis of strengths; chosen by matplotlib if empty.
        towards: the direction of stronger attacks, for ``failed_places``.
    """

    title: str
    strength: str
    quantity: str
    curves: Mapping[str, Curve]
    marked: float | None = None
    logarithmic: bool = False
    mark: str = "budget of training"
    marks: Sequence[float] = ()
    towards: int = 0


def numbered_styles(names: Iterable[str]) -> dict[str, Style]:
    """Assign the next colour and the next marker to each name."""
    return {
        name: Style(COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)])
        for place, name in enumerate(names)
    }


def sweep_figure(
    panels: Sequence[Panel],
    title: str = "",
    columns: int | None = None,
    styles: Mapping[str, Style] | None = None,
) -> Figure:
    """Draw panels side by side, with one legend: a name has one colour everywhere.

    Args:
        columns: panels in a row; at most three when None.
        styles: of every name; by their order when None.
    """
    require(len(panels) > 0, "panels", "not be empty", list(panels))
    if len(panels) == 1 and panels[0].title in title:  # said once is enough
        panels = [replace(panels[0], title="")]
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    styles = numbered_styles(names) if styles is None else styles
    columns = columns or (min(3, len(panels)) if len(panels) != 4 else 2)
    rows = -(-len(panels) // columns)
    figure = new_figure(4.6 * columns, 3.8 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    for place, panel in enumerate(panels):
        _draw_panel(grid[place // columns][place % columns], panel, styles)
    for place in range(len(panels), rows * columns):
        grid[place // columns][place % columns].set_visible(False)
    drawn = {
        line.get_label(): line for axes in grid.flat for line in axes.lines if line.get_label() in styles
    }
    handles = [drawn[name] for name in names]
    hollow = [line for axes in grid.flat for line in axes.lines if line.get_label() == FAILED]
    legend_below(figure, [*handles, *hollow[:1]], [*names, *([FAILED] if hollow else [])])
    if title:
        title_above(figure, title, 10)
    return figure


def _draw_panel(axes: Axes, panel: Panel, styles: Mapping[str, Style]) -> None:
    for name, curve in panel.curves.items():
        style = styles[name]
        colour, marker = style.colour, style.marker
        axes.plot(
            curve.strengths, curve.values, style.line, color=colour, marker=marker, markersize=4, label=name
        )
        failed = failed_places(curve.strengths, curve.values, panel.towards)
        if failed:
            where = ([curve.strengths[place] for place in failed], [curve.values[place] for place in failed])
            hollow: dict[str, Any] = {
                "marker": marker,
                "markersize": 7,
                "markerfacecolor": "white",
                "linestyle": "none",
            }
            axes.plot(*where, color=colour, label=FAILED, zorder=3, **hollow)
        if len(curve.values) == 1:  # a band has no width there
            axes.vlines(curve.strengths, curve.low, curve.high, color=colour)
        axes.fill_between(curve.strengths, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
    axes.set(title=broken(panel.title, 3.8, 12), xlabel=broken(panel.strength, 3.8))
    axes.set_ylabel(broken(panel.quantity, 3.0))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(0, max(1.05 * max((max(curve.high) for curve in panel.curves.values()), default=0.0), 1e-9))
    if panel.marks:
        axes.set_xticks(list(panel.marks))
        axes.set_xlim(
            panel.marks[0] - 0.5, max(max(curve.strengths) for curve in panel.curves.values()) + 0.5
        )
    elif not panel.logarithmic:
        axes.locator_params(axis="x", nbins=5)  # more labels of small numbers would overlap
    if panel.logarithmic:
        axes.set_xscale("log")
    if panel.marked is not None:
        _mark(axes, panel.marked, panel.mark)


def _mark(axes: Axes, place: float, words: str) -> None:
    """Draw a vertical line with its label on the side that has more room."""
    axes.axvline(place, color="#5f5f5f", linewidth=1, linestyle=":")
    across = axes.transAxes.inverted().transform(axes.transData.transform((place, 0.5)))[0]
    axes.annotate(
        f" {words} ",
        (place, 0.99),
        xycoords=("data", "axes fraction"),
        ha="left" if across < 0.5 else "right",
        va="top",
        fontsize=8,
    )


def nearest_lines(runs: Mapping[str, Sequence[float]]) -> list[Line]:
    """Return the share of samples with an error within a distance, for each run; inf where none was found.

    >>> (line,) = nearest_lines({"mine": [0.2, math.inf, 0.1, 0.4]})
    >>> line.x, line.y, line.name
    ([0.0, 0.1, 0.2, 0.4], [0.0, 0.25, 0.5, 0.75], 'mine (none found for 1 of 4)')
    """
    lines = []
    for place, (name, distances) in enumerate(runs.items()):
        finite, total = sorted(value for value in distances if math.isfinite(value)), len(distances)
        none = f" (none found for {total - len(finite)} of {total})" if len(finite) < total else ""
        shares = [(index + 1) / total for index in range(len(finite))]
        colour = COLOURS[place % (len(COLOURS) - 1)]
        lines.append(Line(f"{name}{none}", [0.0, *finite], [0.0, *shares], colour, step="post"))
    return lines


def nearest_figure(runs: Mapping[str, Sequence[float]], units: str, title: str = "") -> Figure:
    """Draw ``nearest_lines``."""
    figure = new_figure(7.0, 4.0)
    axes = figure.subplots()
    draw_lines(axes, nearest_lines(runs))
    axes.set_xlabel(broken(f"distance to the nearest error that was found ({units})", 6.0))
    axes.set(ylabel="share of the samples", ylim=(0, 1.02))
    axes.set_xlim(left=0)
    legend_below(figure, *axes.get_legend_handles_labels())
    if title:
        title_above(figure, title, 10)
    return figure
