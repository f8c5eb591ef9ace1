"""Base class of results that are printed, shown in a notebook and plotted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Renderable:
    """A result with ``print(result)``, ``result.plot()`` and a table in notebooks."""

    # ``display`` is imported inside the methods, since it imports the results.

    def __str__(self) -> str:
        from certus.display.render import parts_of
        from certus.display.text import as_text

        return as_text(parts_of(self))

    def _repr_html_(self) -> str:
        from certus.display.render import html_of

        return html_of(self)

    def plot(self, path: str | Path | None = None, *, title: str = "") -> Figure:
        """Plot the result as a matplotlib figure.

        Args:
            path: also write the figure there; the suffix chooses the format: .png, .svg or .pdf.
        """
        from certus.display.render import figure_of

        return figure_of(self, None if path is None else Path(path), title)
