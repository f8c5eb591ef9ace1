"""Text, HTML and figures of results: certificates, certificates by smoothing, and trainings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus.certificates.certificate import Certificate
from certus.display.canvas import save_figure
from certus.display.certificate_figures import bracket_figure, smoothed_figure
from certus.display.figures import training_figure
from certus.display.html import as_html
from certus.display.tables import certificate_parts, fit_parts, smoothed_parts
from certus.display.text import Part, as_text
from certus.smoothing.certificate import SmoothedCertificate
from certus.training._fit import Fit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PARTS: dict[type, Callable[[Any], list[Part]]] = {
    Certificate: certificate_parts,
    SmoothedCertificate: smoothed_parts,
    Fit: fit_parts,
}
_FIGURES: dict[type, Callable[[Any, str], Figure]] = {
    Certificate: bracket_figure,
    SmoothedCertificate: smoothed_figure,
    Fit: lambda result, title: training_figure([asdict(epoch) for epoch in result.history], title),
}


def parts_of(result: object) -> list[Part]:
    """Return the tables and sentences of a result, for a console or a page."""
    return _PARTS[_kind(result)](result)


def text_of(result: object) -> str:
    """Return a result as the command prints it."""
    return as_text(parts_of(result))


def html_of(result: object) -> str:
    """Return a result as HTML for a notebook; every name in it is escaped."""
    return as_html(parts_of(result))


def figure_of(result: object, path: Path | None = None, title: str = "") -> Figure:
    """Draw a result, and write the figure if there is a path."""
    figure = _FIGURES[_kind(result)](result, title)
    if path is not None:
        save_figure(figure, path)
    return figure


def _kind(result: object) -> type:
    return next(kind for kind in _PARTS if isinstance(result, kind))
