"""The parts of a page, from escaped text: every string of the user's goes through ``escaped``."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

from certus._format import printable
from certus.display.text import Shown, cells_of


def escaped(text: object) -> str:
    """Text that a browser shows as it is, and a terminal too."""
    return html.escape(printable(str(text)))


def paragraphs(sentences: Iterable[str]) -> str:
    return "".join(f"<p>{escaped(sentence)}</p>" for sentence in sentences)


def section(title: str, *parts: str) -> str:
    """A part of the page; nothing at all where there is nothing to show."""
    content = "".join(parts)
    return f"<section><h2>{escaped(title)}</h2>{content}</section>" if content else ""


def side_by_side(cards: Sequence[tuple[str, str]]) -> str:
    """One card for each run that has something to show, under its name."""
    shown = [
        f'<div class="card"><h3>{escaped(name)}</h3>{content}</div>' for name, content in cards if content
    ]
    return f'<div class="side">{"".join(shown)}</div>' if shown else ""


def chart_place(name: str, chart: dict[str, Any]) -> str:
    """Where a chart is drawn, under a legend that wraps: lines are named outside of the drawing."""
    # A height of its own: plotly forgets that of a layout when the window changes.
    height = int(chart["layout"]["height"])
    place = f'<div class="chart" id="{escaped(name)}" style="height:{height}px"></div>'
    return f'<div class="drawn">{_legend(chart["data"])}{place}</div>'


def _legend(lines: Sequence[dict[str, Any]]) -> str:
    if len(lines) == 1 and lines[0]["type"] == "bar":
        return ""
    styles = {"solid": "solid", "dash": "dashed", "dot": "dotted"}
    shown = [
        f'<span><i style="border-top-color:{line["line"]["color"]};'
        f'border-top-style:{styles[line["line"]["dash"]]}"></i>{escaped(line["name"])}</span>'
        for line in lines
    ]
    return f'<div class="legend">{"".join(shown)}</div>'


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, words: Sequence[int] = ()) -> str:
    """A table that scrolls inside the page where it is too wide; ``words`` are columns of text."""
    if not rows:
        return ""

    def cell(kind: str, place: int, text: str) -> str:
        return f"<{kind}{' class=words' if place in words else ''}>{escaped(text)}</{kind}>"

    head = "".join(cell("th", place, name) for place, name in enumerate(columns))
    body = "".join(
        f"<tr>{''.join(cell('td', place, text) for place, text in enumerate(row))}</tr>" for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def as_html(parts: Iterable[Shown]) -> str:
    """Tables and sentences, as a command prints them."""
    return "".join(
        paragraphs([part]) if isinstance(part, str) else html_table(*cells_of(part)) for part in parts
    )


def facts(entries: dict[str, object]) -> str:
    """Names and what they are."""
    shown = "".join(f"<dt>{escaped(name)}</dt><dd>{escaped(value)}</dd>" for name, value in entries.items())
    return f"<dl>{shown}</dl>" if shown else ""


def commands(lines: Sequence[str]) -> str:
    return f"<pre>{escaped(chr(10).join(lines))}</pre>" if lines else ""
