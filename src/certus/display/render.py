"""Text, HTML and figures of results: certificates, certificates by smoothing, and trainings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from certus._format import escape_controls
from certus.certificates.certificate import Certificate
from certus.display.canvas import save_figure
from certus.display.figures import bracket_figure, monitor_figure, smoothed_figure, training_figure
from certus.display.tables import certificate_parts, fit_parts, gate_parts, monitor_parts, smoothed_parts
from certus.display.text import Part
from certus.errors import UnsupportedError
from certus.monitoring import MonitorResult
from certus.requirements import GateResult
from certus.smoothing.certificate import SmoothedCertificate
from certus.training._fit import Fit

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure


def no_figure(result: object, title: str) -> Figure:
    """Refuse to draw what is a table alone."""
    raise UnsupportedError("Requirements are a table: plot the certificate.")


_VIEWS: dict[type, tuple[Callable[[Any], list[Part]], Callable[[Any, str], Figure]]] = {
    Certificate: (certificate_parts, bracket_figure),
    SmoothedCertificate: (smoothed_parts, smoothed_figure),
    MonitorResult: (monitor_parts, lambda result, title: monitor_figure([result.as_json()], title)),
    GateResult: (gate_parts, no_figure),
    Fit: (fit_parts, lambda fit, title: training_figure([asdict(epoch) for epoch in fit.history], title)),
}


def parts_of(result: object) -> list[Part]:
    """Return the tables and sentences of a result, for a console or a page."""
    return next(parts for kind, (parts, _) in _VIEWS.items() if isinstance(result, kind))(result)


def figure_of(result: object, path: Path | None = None, title: str = "") -> Figure:
    """Draw a result, and write the figure if there is a path."""
    figure = next(draw for kind, (_, draw) in _VIEWS.items() if isinstance(result, kind))(result, title)
    if path is not None:
        save_figure(figure, path)
    return figure


def html_of(result: object) -> str:
    """Return a result as HTML for a notebook; every name in it is escaped."""
    return templates().get_template("parts.html").render(parts=parts_of(result))


@cache
def templates() -> Environment:
    """Return the Jinja2 environment of the templates of this package, with autoescaping."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # inside: only needed to write HTML
    from markupsafe import Markup

    environment = Environment(
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else escape_controls(str(value)),
        loader=PackageLoader("certus.display"),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return environment
