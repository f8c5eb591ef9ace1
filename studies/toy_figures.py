"""The figures of the synthetic rings: boundaries (fig:toy), certificate and worst case (fig:loss-bound)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from certus.datasets.bundled import INNER_RADIUS, OUTER_RADIUS, rings
from certus.display.canvas import COLOURS, new_figure, subscripted
from studies.reproduction import Measured
from studies.toy_networks import METHOD_NAMES, TOY_GAMMA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOUR_OF = {"erm": COLOURS[4], "fgm": COLOURS[3], "wrm": COLOURS[2]}  # yellow, purple, green: the paper's


def draw_boundaries(measured: Measured) -> Figure:
    figure = new_figure(8.4, 8.6)
    grid = figure.subplots(2, 2, sharex=True, sharey=True)
    data = rings(train=600).train
    for column, (activation, title) in enumerate((("relu", "(a) ReLU model"), ("elu", "(b) ELU model"))):
        found = measured[f"{activation}-0"]["methods"]
        with_data, alone = grid[0][column], grid[1][column]
        for label, colour in ((0, COLOURS[0]), (1, COLOURS[1])):
            points = data.inputs[data.targets == label]
            with_data.scatter(points[:, 0], points[:, 1], s=4, color=colour, alpha=0.5, linewidths=0)
        _circles(alone)
        for axes in (with_data, alone):
            _boundaries(axes, found)
            axes.set(xlim=(-3.2, 3.2), ylim=(-3.2, 3.2), aspect="equal")
            axes.spines[["top", "right"]].set_visible(False)
        with_data.set_title(f"{title}, with training data")
        alone.set_title(f"{title}, with the classes' own edges")
    handles, names = grid[0][0].get_legend_handles_labels()
    edges, edge_names = grid[1][0].get_legend_handles_labels()
    both = dict(zip([*names, *edge_names], [*handles, *edges], strict=True))
    figure.legend(both.values(), both.keys(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _circles(axes: Axes) -> None:
    angle = torch.linspace(0, 2 * math.pi, 200)
    for number, radius in enumerate((INNER_RADIUS, OUTER_RADIUS)):
        words = "edges of the two classes" if number == 0 else "_"
        axes.plot(radius * angle.cos(), radius * angle.sin(), color="#9a9a9a", linestyle="--", label=words)


def _boundaries(axes: Axes, methods: Mapping[str, Any]) -> None:
    for name, words in METHOD_NAMES.items():
        for number, line in enumerate(methods[name]["lines"]):
            across, up = zip(*line, strict=True)
            label = words if number == 0 else "_"
            axes.plot(across, up, color=_COLOUR_OF[name], linewidth=2, label=label)


def draw_toy_certificate(measured: Measured) -> Figure:
    """Near ρ̂, where the bracket was computed; and with all γ_adv, of which some move far beyond."""
    found = measured["certificate"]
    bracket = found["bracket"]
    figure = new_figure(9.6, 4.8)
    near, far = figure.subplots(1, 2)
    moved = [one["rho"] for one in found["adversary"]]
    reach = max(one["rho"] for one in bracket)
    _certificate(near, found, [0.0, reach])
    ends = min(moved), max(reach, *moved)
    _certificate(far, found, [ends[0] * (ends[1] / ends[0]) ** (step / 100) for step in range(101)])
    near.locator_params(axis="x", nbins=5)
    near.set(xlim=(0, 1.02 * reach), ylim=(0, 1.05 * bracket[-1]["at_most"]))
    far.set(xscale="log", yscale="log")
    for axes in (near, far):
        axes.set(xlabel="ρ, mean squared distance", ylabel="expected loss")
        axes.spines[["top", "right"]].set_visible(False)
    handles, names = far.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure


def _certificate(axes: Axes, found: Mapping[str, Any], along: Sequence[float]) -> None:
    """The certificate as a line; what was measured as marks."""
    line = [found["intercept"] + TOY_GAMMA * rho for rho in along]
    axes.plot(along, line, color=COLOURS[0], label=f"the paper's certificate, γ = {TOY_GAMMA:g} (estimated)")
    bracket = [one for one in found["bracket"] if one["rho"] >= along[0]]  # logarithmic axes have no 0
    rhos = [one["rho"] for one in bracket]
    low, high = [one["at_least"] for one in bracket], [one["at_most"] for one in bracket]
    axes.fill_between(rhos, low, high, color=COLOURS[2], alpha=0.25, linewidth=0)
    above = "worst case on test data: at most (proven)"
    axes.plot(rhos, high, ".-", color=COLOURS[2], label=above)
    axes.plot(rhos, low, ".:", color=COLOURS[2], label="at least (attained)")
    points = [(one["rho"], one["worst_case"]) for one in found["adversary"]]
    words = subscripted("the paper's worst case on test data, one for each γ_adv (attained)")
    axes.plot(*zip(*points, strict=True), "s", ms=5, mfc="none", color=COLOURS[1], label=words)
    axes.axvline(found["rho_hat"], color="#5f5f5f", linewidth=1, label="ρ̂ reached in training")
