"""Base class of results that are printed, shown in a notebook and plotted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from certus.display.render import Look


class Lookable:
    """A result with ``print(result)``, ``result.plot()`` and a table in notebooks."""

    def __str__(self) -> str:
        return self._look.text(self)

    def _repr_html_(self) -> str:
        return self._look.html(self)

    def plot(self, path: str | Path | None = None, *, title: str = "") -> Figure:
        """Plot the result as a matplotlib figure.

        Args:
            path: also write the figure there; the suffix chooses the format: .png, .svg or .pdf.
        """
        return self._look.plot(self, None if path is None else Path(path), title)

    @property
    def _look(self) -> Look:
        from certus.display.render import look_of  # inside: display imports the results

        return look_of(self)
