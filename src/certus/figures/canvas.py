"""A figure to draw on, without a display and without global state; and the colours of all pictures."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from certus.errors import ArgumentError, UnsupportedError
from certus.storage.writing import write_atomically

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


def save_figure(figure: Figure, path: Path, dpi: float = 150) -> None:
    """Write a picture, whole or not at all; the suffix says which kind."""
    from matplotlib import rc_context

    content = io.BytesIO()
    # The same picture is the same file: without a date, and with names that are no random numbers.
    with _named(path) as kind, rc_context({"svg.hashsalt": "certus"}):
        dated = {"Date": None} if kind == "svg" else {"CreationDate": None} if kind == "pdf" else None
        figure.savefig(content, format=kind, dpi=dpi, metadata=dated)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())


def require_format(option: str, path: Path) -> None:
    """Raise ``ArgumentError`` unless a picture can have this name: a small one is tried."""
    try:
        with _named(path) as kind:
            new_figure(1, 1).canvas.print_figure(io.BytesIO(), format=kind, dpi=10)
    except UnsupportedError as reason:
        raise ArgumentError(f"`{option}` must name a picture that can be drawn. {reason}") from None


@contextmanager
def _named(path: Path) -> Iterator[str]:
    """The format that a name asks for; what matplotlib says against it becomes an ``UnsupportedError``."""
    kind = path.suffix.removeprefix(".").lower()
    if not kind:
        raise UnsupportedError(f"Cannot draw {path}: its name has no ending such as .png, .svg or .pdf.")
    try:
        yield kind
    except (ValueError, RuntimeError, OSError) as reason:  # of formats that need programs beside matplotlib
        words = " ".join(str(reason).split())
        raise UnsupportedError(f"Cannot draw {path}: {words}.") from None
