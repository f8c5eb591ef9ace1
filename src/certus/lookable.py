"""What can be looked at: printed as a table, shown in a notebook, drawn.

How is known where tables and pictures are made (``certus.display.render``), far below what is looked at: it
is loaded when it is first asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus.lazily import lazily

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOOKS = lazily(__name__, {"look_of": "certus.display.render"})


class Lookable:
    """``print(it)``, ``it.plot()``, and a notebook that shows it."""

    def __str__(self) -> str:
        return str(self._look.text(self))

    def _repr_html_(self) -> str:
        return str(self._look.html(self))

    def plot(self, path: str | Path | None = None, *, title: str = "") -> Figure:
        """A picture of it, as a figure of matplotlib.

        Args:
            path: also write it there; the ending says which kind: .png, .svg, .pdf.
        """
        figure: Figure = self._look.plot(self, None if path is None else Path(path), title)
        return figure

    @property
    def _look(self) -> Any:
        return _LOOKS("look_of")(self)
