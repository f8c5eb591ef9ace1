"""Figures without global state: colours, titles, legends, and files."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus.errors import ArgumentError, UnsupportedError
from certus.storage.write import write_atomically

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, which colour-blind readers can distinguish; and markers, for print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5f5f5f")
_LETTER, _LINE, _HANDLE = 0.095, 0.19, 0.75  # inches, at 10 points: letters, lines, the mark of a legend
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def run_colour(index: int) -> str:
    """Return the colour of a run among others; grey is left out."""
    return COLOURS[index % (len(COLOURS) - 1)]


@dataclass(frozen=True)
class Line:
    """A named line, drawn by matplotlib in figures and by the basic bundle of plotly.js in reports."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]  # values at ``x``; None where there is none
    colour: str
    dash: str = "solid"  # or "dash", "dot"
    step: str = ""  # "post" holds a value until the next x, "pre" takes it from the previous x on
    filled: bool = False  # the band between this line and the one before it is shaded


_DASHES: dict[str, Any] = {"solid": "-", "dash": (0, (4, 3)), "dot": ":"}


def draw_lines(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw lines and their bands."""
    before: list[float] = []
    for line in lines:
        y = [math.nan if value is None else value for value in line.y]
        if line.filled:
            axes.fill_between(list(line.x), before, y, color=COLOURS[0], alpha=0.12, linewidth=0)
        style = {
            "linestyle": _DASHES[line.dash],
            "drawstyle": f"steps-{line.step}" if line.step else "default",
        }
        axes.plot(line.x, y, color=line.colour, label=line.name, **style)
        before = y
    axes.spines[["top", "right"]].set_visible(False)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size, in inches."""
    try:
        from certus.display.notebook import NotebookFigure

        return NotebookFigure(figsize=(width, height), layout="constrained")
    except ImportError:
        raise UnsupportedError("Pictures need matplotlib: pip install 'certus[report]'.") from None


def legend_below(figure: Figure, handles: Sequence[Artist], names: Sequence[str]) -> None:
    """Add one legend under all axes, in as many columns as fit the width; the figure grows by its lines."""
    width, height = (float(size) for size in figure.get_size_inches())
    labels = [broken(name, width - _HANDLE) for name in names]
    longest = max((len(line) for name in labels for line in name.split("\n")), default=1)
    columns = max(1, min(len(labels), int(width / (_LETTER * longest + _HANDLE))))
    lines = sum(name.count("\n") + 1 for name in labels) / columns
    figure.set_size_inches(width, height + _LINE * lines)
    texts = [literal_text(name) for name in labels]
    figure.legend(handles, texts, loc="outside lower center", ncols=columns, frameon=False)


def title_above(figure: Figure, title: str, size: float = 12.0) -> None:
    """Add a title over all axes, unless it is empty; the figure grows by its lines."""
    if not title:
        return
    width, height = (float(size) for size in figure.get_size_inches())
    lines = broken(title, width - 0.6, size)
    figure.set_size_inches(width, height + _LINE * size / 10 * (lines.count("\n") + 1))
    figure.suptitle(literal_text(lines), fontsize=size)


def broken(text: str, width: float, size: float = 10.0) -> str:
    """Break text into lines of at most ``width`` inches, in letters of ``size`` points.

    >>> broken("standard deviations of each feature", 1.5)
    'standard\\ndeviations of\\neach feature'
    """
    letters = max(8, int(width / (_LETTER * size / 10)))
    return "\n".join("\n".join(folded(line, letters)) for line in text.split("\n"))


def folded(text: str, letters: int) -> list[str]:
    """Break text into lines of at most ``letters`` letters; brackets stay together if a line holds them.

    >>> folded("the data move by a distance (pixels in [0, 1])", 30)
    ['the data move by a distance', '(pixels in [0, 1])']
    """

    def together(match: re.Match[str]) -> str:
        return match[0].replace(" ", "\N{NO-BREAK SPACE}") if len(match[0]) <= letters else match[0]

    for brackets in (r"\[[^\[\]]*\]", r"\([^()]*\)"):
        text = re.sub(brackets, together, text)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in textwrap.wrap(text, letters)]


def literal_text(text: str) -> str:
    """Escape dollar signs, between which matplotlib would read mathematics.

    >>> literal_text("$income$")
    '\\\\$income\\\\$'
    """
    return text.replace("$", r"\$")


def save_figure(figure: Figure, path: Path, dpi: float = 150) -> None:
    """Write a figure atomically; the suffix is the format."""
    content = _encode(figure, path, dpi)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content)


def require_format(option: str, path: Path) -> None:
    """Raise ``ArgumentError`` unless a figure can have this suffix: a small one is drawn."""
    try:
        _encode(new_figure(1, 1), path, 10)
    except UnsupportedError as reason:
        raise ArgumentError(f"`{option}` must name a picture that can be drawn. {reason}") from None


def _encode(figure: Figure, path: Path, dpi: float) -> bytes:
    from matplotlib import rc_context

    kind, content = path.suffix.removeprefix(".").lower(), io.BytesIO()
    if not kind:
        raise UnsupportedError(f"Cannot draw {path}: its name has no ending such as .png, .svg or .pdf.")
    # Equal figures are equal files: without a date or random identifiers.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    try:
        with rc_context({"svg.hashsalt": "certus"}):
            figure.savefig(content, format=kind, dpi=dpi, metadata=undated)
    except (ValueError, RuntimeError, OSError) as reason:  # of formats that need programs beside matplotlib
        raise UnsupportedError(f"Cannot draw {path}: {' '.join(str(reason).split())}.") from None
    return content.getvalue()
