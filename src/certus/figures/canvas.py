"""A figure to draw on, without a display and without global state; and the colours of all pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from certus.errors import UnsupportedError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, told apart by people who see few colours too; and markers, for print.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5f5f5f")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of so many inches."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise UnsupportedError("Pictures need matplotlib: pip install 'certus[report]'.") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path) -> None:
    """Write a picture; the suffix says which kind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path, dpi=150)
    except ValueError as reason:
        raise UnsupportedError(f"Cannot draw {path}: {reason}.") from None
