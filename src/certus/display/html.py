"""HTML from the Jinja2 templates of this package; every value is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from certus._format import escape_controls
from certus.display.text import Part

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def templates() -> Environment:
    """Return the environment of the templates, with autoescaping."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # inside: only needed to write HTML
    from markupsafe import Markup

    def written_out(value: object) -> object:
        return value if isinstance(value, Markup) else escape_controls(str(value))

    environment = Environment(
        autoescape=True,
        finalize=written_out,
        loader=PackageLoader("certus.display"),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    return environment


def as_html(parts: Iterable[Part]) -> str:
    """Return tables and sentences as HTML for a notebook."""
    return templates().get_template("parts.html").render(parts=parts)
