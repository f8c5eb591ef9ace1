"""The figures of the synthetic rings: boundaries (fig:toy), certificate and worst case (fig:loss-bound)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from certus.data.rings import INNER_RADIUS, OUTER_RADIUS, rings
from certus.figures.canvas import COLOURS, new_figure
from certus.reproduce.reproduction import Measured
from certus.reproduce.toy_networks import METHOD_NAMES, TOY_GAMMA

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
    found = measured["certificate"]
    figure = new_figure(6.4, 4.6)
    axes = figure.subplots()
    bracket = found["bracket"]
    rhos = [one["rho"] for one in bracket]
    line = [found["intercept"] + TOY_GAMMA * rho for rho in rhos]
    axes.plot(rhos, line, color=COLOURS[0], label="the paper's certificate, γ = 2 (estimated)")
    points = sorted((one for one in found["adversary"]), key=lambda one: one["rho"])
    shown = [one for one in points if one["rho"] <= max(rhos)]
    across, up = [one["rho"] for one in shown], [one["worst_case"] for one in shown]
    axes.plot(across, up, "s--", color=COLOURS[1], label="the paper's worst case on test data (estimated)")
    low, high = [one["at_least"] for one in bracket], [one["at_most"] for one in bracket]
    axes.fill_between(rhos, low, high, color=COLOURS[2], alpha=0.25, linewidth=0)
    axes.plot(rhos, high, color=COLOURS[2], label="worst case on test data: at most (proven)")
    axes.plot(rhos, low, color=COLOURS[2], linestyle=":", label="at least (attained)")
    if found["rho_hat"] <= max(rhos):
        axes.axvline(found["rho_hat"], color="#5f5f5f", linewidth=1, label="ρ̂ reached in training")
    axes.set(xlabel="ρ, mean squared distance", ylabel="expected loss", xlim=(0, max(rhos)))
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure
