"""What a picture shows: the words and numbers of a figure, and the colours of the pixels in a file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image


def words_of(figure: Figure) -> list[str]:
    """All that a reader of the picture can read, but for the ticks."""
    return [text.get_text() for text in _texts(figure)]


def _texts(figure: Figure) -> list[Text]:
    """What is there to be read; matplotlib keeps ticks beyond the axes that it does not draw."""
    found = figure.findobj(lambda thing: isinstance(thing, Text) and thing.get_visible(), include_self=False)
    ticks = {
        id(label)
        for axes in figure.axes
        for label in (*axes.get_xticklabels(which="both"), *axes.get_yticklabels(which="both"))
    }
    return [text for text in found if id(text) not in ticks and text.get_text()]  # type: ignore[misc, attr-defined]


def line_of(axes: Axes, label: str) -> tuple[list[float], list[float]]:
    """The numbers of the line with this label."""
    (line,) = (line for line in axes.lines if line.get_label() == label)
    points = np.asarray(line.get_xydata(), dtype=np.float64)
    return points[:, 0].tolist(), points[:, 1].tolist()


def texts_of(figure: Figure) -> dict[str, Bbox]:
    """Every text but the ticks, and where it is, in pixels."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    return {
        f"{place} {one.get_text()}": one.get_window_extent(renderer)
        for place, one in enumerate(_texts(figure))
    }


def cut_or_covered(figure: Figure) -> list[str]:
    """Texts that leave the picture, and pairs that lie on each other."""
    texts, (width, height) = list(texts_of(figure).items()), figure.canvas.get_width_height()
    found = [
        f"cut: {words}"
        for words, box in texts
        if box.x0 < -1 or box.y0 < -1 or box.x1 > width + 1 or box.y1 > height + 1
    ]
    for place, (words, box) in enumerate(texts):
        for other, beside in texts[place + 1 :]:
            across = min(box.x1, beside.x1) - max(box.x0, beside.x0)
            up = min(box.y1, beside.y1) - max(box.y0, beside.y0)
            if across > 2 and up > 2:
                found.append(f"on each other: {words} | {other}")
    return found


def bars_of(axes: Axes) -> dict[str, float]:
    """Bars by the labels of their ticks: heights, or lengths if they lie."""
    lying = len({bar.get_x() for bar in axes.patches}) == 1 < len(axes.patches)  # type: ignore[attr-defined]
    ticks = axes.get_yticklabels() if lying else axes.get_xticklabels()
    sizes = [bar.get_width() if lying else bar.get_height() for bar in axes.patches]  # type: ignore[attr-defined]
    return {tick.get_text(): float(size) for tick, size in zip(ticks, sizes, strict=True)}


def pixels_of(path: Path) -> Counter[str]:
    """How many pixels of a saved picture have each colour, as #rrggbb."""
    with Image.open(path) as picture:
        values = np.asarray(picture.convert("RGB"), dtype=np.int64) @ (1 << 16, 1 << 8, 1)
    colours, counts = np.unique(values, return_counts=True)
    return Counter({f"#{c:06X}": int(n) for c, n in zip(colours, counts, strict=True)})
