"""The picture of the digits demo: each model's worst case at one cost, and what it reads there.

What is read is blue with a tick where it is right, and vermilion with a cross where it is wrong:
the palette of Okabe and Ito, and a mark, so that colour alone never has to tell them apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from certus.data import Samples

RIGHT, WRONG, INK, FAINT, LINE = "#0072B2", "#D55E00", "#1a1a1a", "#5f5f5f", "#c4c4c4"
INKED = "gray_r"  # a digit is dark ink on white paper
CHANGED = "PRGn_r"  # green lighter, purple darker: safe, and far from the two colours above
CLASSES = 10

# Inches; y counts from the top.
WIDTH, HEIGHT, MARGIN = 13.2, 11.55, 0.35
LEFT, CELL, PITCH = 1.95, 1.0, 1.1
ORIGINALS, FIRST_MODEL, NEXT_MODEL, CHANGES, FOOTER = 1.5, 3.0, 2.6, 1.07, 10.9


@dataclass(frozen=True, eq=False)
class Reading:
    """Images (n, 1, 8, 8), and the labels (n,) that a model reads in them."""

    images: Tensor
    labels: Tensor


def draw(
    test: Samples, readings: dict[str, Reading], rho: float, mapped: Reading, where: str, path: Path
) -> None:
    """Draw the first test image of each class, as it is, as moved against each model, and under T_γ.

    Args:
        readings: for each model by name, all test images moved at cost ρ.
        mapped: all test images moved to T_γ of the robust model; ``where`` says at which γ and cost.
        path: the PNG file to write.
    """
    chosen = torch.stack([(test.targets == digit).nonzero()[0, 0] for digit in range(CLASSES)])
    originals = test.inputs[chosen, 0]
    rows = {**readings, "$T_γ$": mapped}
    changes = {name: reading.images[chosen, 0] - originals for name, reading in rows.items()}
    reach = max(change.abs().max().item() for change in changes.values())
    right = {name: reading.labels == test.targets for name, reading in rows.items()}

    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=150, facecolor="white")
    FigureCanvasAgg(figure)
    verdict = ", ".join(f"{name} reads {mean(right[name]):.0%}" for name in readings)
    write(figure, MARGIN, 0.62, f"Digits moved equally far: {verdict}", 22, weight="bold")
    far = f"by up to {math.sqrt(rho):.2g} in L2 (cost ρ = {rho:g})"
    subtitle = f"Every digit is moved against each model, {far}. Above it: what the model reads."
    write(figure, MARGIN, 0.98, subtitle, 12.5, color=FAINT)

    name_row(figure, ORIGINALS, "Original", "and its true label")
    for column, image in enumerate(originals):
        show(figure, column, ORIGINALS, image, INKED, (0, 1))
        label(figure, column, ORIGINALS, str(column), INK)
    for row, (name, reading) in enumerate(rows.items()):
        top = FIRST_MODEL + row * NEXT_MODEL
        here, overall = int(right[name][chosen].sum()), mean(right[name])
        note = f"{here} of these {CLASSES},\n{overall:.0%} of all {len(test)}\nread right"
        note = note if name in readings else f"WRM's own map,\n{where}"
        name_row(figure, top, name, note)
        name_row(figure, top + CHANGES, "", "what changed")
        for column, index in enumerate(chosen):
            mark, color = ("✓", RIGHT) if right[name][index] else ("✗", WRONG)
            show(figure, column, top, reading.images[index, 0], INKED, (0, 1), edge=color)
            label(figure, column, top, f"{reading.labels[index]} {mark}", color)
            show(figure, column, top + CHANGES, changes[name][column], CHANGED, (-reach, reach))

    write(figure, MARGIN, FOOTER, "Shown: the first test image of each class.", 11, color=FAINT)
    caveat = "Estimated: an attack found these moves; there may be worse ones."
    write(figure, MARGIN, FOOTER + 0.25, caveat, 11, color=FAINT)
    draw_key(figure, reach)
    figure.savefig(path)


def mean(hits: Tensor) -> float:
    """Share of the samples that are true."""
    return hits.double().mean().item()


def place(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    """Axes whose upper left corner is at (x, y), in inches."""
    bottom = 1 - (y + height) / HEIGHT
    return figure.add_axes((x / WIDTH, bottom, width / WIDTH, height / HEIGHT))


def write(
    figure: Figure,
    x: float,
    y: float,
    text: str,
    size: float,
    *,
    weight: str = "normal",
    color: str = INK,
    align: str = "left",
    anchor: str = "baseline",
) -> None:
    """Text at (x, y), in inches; y is where its baseline is, unless ``anchor`` says otherwise."""
    figure.text(
        x / WIDTH,
        1 - y / HEIGHT,
        text,
        fontsize=size,
        fontweight=weight,
        color=color,
        ha=align,
        va=anchor,
        linespacing=1.35,
    )


def show(
    figure: Figure,
    column: int,
    top: float,
    image: Tensor,
    colors: str,
    limits: tuple[float, float],
    *,
    edge: str = LINE,
) -> None:
    """One image of 8 × 8 pixels in a frame, which is thin unless it has a colour to show."""
    axes = place(figure, LEFT + column * PITCH, top, CELL, CELL)
    axes.imshow(image.numpy(), cmap=colors, vmin=limits[0], vmax=limits[1], interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(edge)
        spine.set_linewidth(0.8 if edge == LINE else 2.0)


def label(figure: Figure, column: int, top: float, text: str, color: str) -> None:
    """What is read in an image, centred above it."""
    middle = LEFT + column * PITCH + CELL / 2
    write(figure, middle, top - 0.1, text, 14, weight="bold", color=color, align="center")


def name_row(figure: Figure, top: float, name: str, note: str) -> None:
    """The name of a row and a note on it, left of its images."""
    write(figure, MARGIN, top + 0.32, name, 17, weight="bold")
    write(figure, MARGIN, top + 0.43, note, 11, color=FAINT, anchor="top")


def draw_key(figure: Figure, reach: float) -> None:
    """What the colours of a change mean."""
    left, length = LEFT + 7.4 * PITCH, 2.1
    axes = place(figure, left, FOOTER - 0.12, length, 0.14)
    scale = ScalarMappable(Normalize(-reach, reach), CHANGED)
    bar = figure.colorbar(scale, cax=axes, orientation="horizontal")
    bar.set_ticks([-reach, 0, reach], labels=[f"−{reach:.2f}", "0", f"+{reach:.2f}"])
    axes.tick_params(labelsize=10, length=0, labelcolor=FAINT)
    bar.outline.set_visible(False)
    write(figure, left - 0.12, FOOTER, "lighter", 11, color=FAINT, align="right")
    write(figure, left + length + 0.12, FOOTER, "darker", 11, color=FAINT)
