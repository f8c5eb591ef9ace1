"""How each kind of result looks: as text, as HTML for a notebook, as a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus.certificates.certificate import Certificate
from certus.display.canvas import save_figure
from certus.display.certificate_figures import bracket_figure, smoothed_figure
from certus.display.figures import training_figure
from certus.display.report.html import as_html
from certus.display.tables import certificate_parts, fit_parts, smoothed_parts
from certus.display.text import Shown, as_text
from certus.smoothing.certificate import SmoothedCertificate
from certus.training._fit import Fit

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Look:
    """Of one kind of result: its tables and sentences, and its picture under a title."""

    parts: Callable[[Any], Sequence[Shown]]
    figure: Callable[[Any, str], Figure]

    def text(self, thing: object) -> str:
        """What the command prints of it."""
        return as_text(self.parts(thing))

    def html(self, thing: object) -> str:
        """The same for a notebook; every name in it is escaped."""
        return as_html(self.parts(thing))

    def plot(self, thing: object, path: Path | None, title: str) -> Figure:
        """Draw it, and write it if there is a path."""
        figure = self.figure(thing, title)
        if path is not None:
            save_figure(figure, path)
        return figure


_LOOKS: dict[type, Look] = {
    Certificate: Look(
        certificate_parts, lambda found, title: bracket_figure(found, _units(found.about), title)
    ),
    SmoothedCertificate: Look(
        smoothed_parts, lambda found, title: smoothed_figure(found, _units(found.about), title)
    ),
    Fit: Look(fit_parts, lambda found, title: training_figure([asdict(one) for one in found.history], title)),
}


def look_of(thing: object) -> Look:
    """How this result looks."""
    return next(look for kind, look in _LOOKS.items() if isinstance(thing, kind))


def _units(about: dict[str, Any]) -> str:
    return str(about.get("units", "the norm of the cost"))
