"""Charts of the report as plotly JSON, with the ρ slider.

Charts of several runs side by side are compared by eye: what they measure has one scale in all of them.

The charts of a report, as the JSON that plotly.js draws: data, and what the axes are.

The slider over ρ: what it reads out, rounded outwards as in every table, and its line in the charts.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from certus._format import at_least, at_most
from certus.certificates.certificate import Bracket, Certificate
from certus.display.attack_figures import failed_places, nearest_line
from certus.display.canvas import COLOURS, folded
from certus.display.certificate_figures import quantity_words, step_places
from certus.display.figures import TRAINING_CURVES, curve_words, epoch_marks, layer_words
from certus.display.report.findings import Findings, moved_features
from certus.display.report.html import escaped
from certus.display.tables import error_name
from certus.smoothing.certificate import SmoothedCertificate

_AROUND = 0.05


def share_axes(charts: Mapping[str, dict[str, Any]]) -> None:
    """Charts whose names differ in the place of their run alone get the range that holds all of them."""
    alike: dict[str, list[dict[str, Any]]] = {}
    for name, chart in charts.items():
        alike.setdefault(re.sub(r"-\d+", "", name, count=1), []).append(chart)
    for group in alike.values():
        if len(group) > 1:
            axis = "xaxis" if group[0]["data"][0]["type"] == "bar" else "yaxis"
            ranges = [_range(chart, axis) for chart in group]
            both = [min(low for low, _ in ranges), max(high for _, high in ranges)]
            if both[0] < both[1]:
                for chart in group:
                    chart["layout"][axis]["range"] = both


def _range(chart: dict[str, Any], axis: str) -> tuple[float, float]:
    """From 0, unless the axis need not begin there, to a little beyond the largest value."""
    layout = chart["layout"][axis]
    if "range" in layout:
        return layout["range"][0], layout["range"][1]
    ends: list[float] = [0.0] if layout.get("rangemode") == "tozero" else []
    for line in chart["data"]:
        if line["type"] == "bar":
            base = line.get("base", [0.0] * len(line["x"]))
            ends += [*base, *(low + width for low, width in zip(base, line["x"], strict=True))]
        else:
            ends += [value for value in line["y"] if value is not None]
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    around = _AROUND * (high - low)
    return low if low == 0 else low - around, high + around


Chart = dict[str, Any]
_GREY = COLOURS[6]
_LETTERS = 38
_BESIDE = 46  # letters of a phone that bars leave to the title, less those of the longest name


def bracket_charts(certificate: Certificate, curve: Sequence[Bracket], units: str) -> dict[str, Chart]:
    """The worst mean loss, and the worst error rate of a classifier, against √ρ."""
    distances = [one.distance for one in curve]
    clip = "" if certificate.clip is None else f", clipped at {certificate.clip:g}"
    quantities = {"loss": (f"worst mean loss{clip}", "loss_low", "loss_high")}
    if certificate.error_found is not None:
        quantities["error"] = (f"worst {error_name(certificate.labels)}", "error_low", "error_high")
    charts = {}
    for name, (title, low, high) in quantities.items():
        lines = [_line(distances, [getattr(one, low) for one in curve], "at least (attained)", COLOURS[1])]
        if certificate.no_proof is None:
            upper = f"at most ({certificate.evidence})"
            lines.append(
                _line(distances, [getattr(one, high) for one in curve], upper, COLOURS[0], fill="tonexty")
            )
        people = certificate.population
        if people is not None:
            sure = f"{people.confidence:g}" + (
                "" if name == "error" else f", loss clipped at {people.clip:.3g}"
            )
            for side, dash in ((f"population_{name}", "dash"), (f"population_{name}_low", "dot")):
                words = "at least" if side.endswith("low") else "at most"
                values = [getattr(one, side) for one in curve]
                lines.append(
                    _line(distances, values, f"population {words} (confidence {sure})", COLOURS[2], dash=dash)
                )
        chart = _chart(lines, f"root mean square distance √ρ ({units})", title, y_from_zero=True)
        guessing = certificate.vacuous_loss
        if name == "loss" and guessing is not None:
            tops = [value for value in (getattr(one, high) for one in curve) if math.isfinite(value)]
            top = max([*tops, *(one.population_loss or 0.0 for one in curve), 1e-9])
            chart["layout"]["yaxis"]["range"] = [0, min(1.05 * top, 1.6 * guessing)]
        chart["layout"]["shapes"] = [_marker()]
        charts[name] = chart
    return charts


def accuracy_chart(certificate: Certificate, far: float, units: str) -> Chart:
    """The share of samples that no move of length ε misleads: certified, and left by attacks."""
    distances = step_places(certificate, far)
    curve = certificate.accuracies(distances)
    lines = [
        _line(
            distances, [one.attacked for one in curve], "at most (attained: attacks found errors)", COLOURS[1]
        )
    ]
    lines.append(
        _line(
            distances,
            [one.certified for one in curve],
            f"at least ({certificate.evidence})",
            COLOURS[0],
            fill="tonexty",
        )
    )
    for line, shape in zip(lines, ("hv", "vh"), strict=True):  # between two points: what holds all the way
        line["line"]["shape"] = shape
    title = f"every sample moves by at most ε ({units})"
    share = "accuracy" if certificate.labels == "given" else "share of unchanged predictions"
    return _chart(lines, title, share, y_from_zero=True)


def training_charts(history: Sequence[dict[str, Any]]) -> dict[str, Chart]:
    """Epoch by epoch; what a method does not measure is left out."""
    epochs = [entry["epoch"] for entry in history]
    charts = {}
    for name, (title, lines) in TRAINING_CURVES.items():
        drawn = [
            _line(epochs, [entry[key] for entry in history], curve_words(words, history), COLOURS[place])
            for place, (key, words) in enumerate(lines.items())
            if any(entry[key] is not None for entry in history)
        ]
        if drawn:
            charts[name] = _chart(drawn, "epoch", title, y_from_zero=True)
            around = {"range": [0.5, epochs[-1] + 0.5], "tickvals": epoch_marks(epochs[-1])}
            charts[name]["layout"]["xaxis"] |= around
    return charts


def attack_chart(findings: Sequence[Findings], units: str) -> Chart:
    """All runs under the same attacks, with 95% intervals."""
    lines = []
    for place, found in enumerate(findings):
        strengths = [trial.strength for trial, _ in found.attacks]
        intervals = [outcome.error or outcome.loss for _, outcome in found.attacks]
        values = [one.value for one in intervals]
        line = _line(strengths, values, found.name, _colour(place), markers=True)
        failed = failed_places(strengths, values)
        line["marker"] = {
            "symbol": ["circle-open" if at in failed else "circle" for at in range(len(values))],
            "size": [12 if at in failed else 8 for at in range(len(values))],
            "line": {"width": [2 if at in failed else 0 for at in range(len(values))]},
            "color": _colour(place),
            "opacity": 1,  # marks of many sizes are pale otherwise
        }
        line["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [one.high - one.value for one in intervals],
            "arrayminus": [one.value - one.low for one in intervals],
            "thickness": 1,
        }
        lines.append(line)
    labelled = findings[0].trained.data.classes is not None
    what = "error under attack" if labelled else "mean loss under attack"
    return _chart(lines, f"every sample moves by at most ε ({units})", what, y_from_zero=True)


def nearest_chart(findings: Sequence[Findings], units: str) -> Chart | None:
    """How many samples have an error within a distance."""
    lines = []
    for place, found in enumerate(findings):
        if found.nearest is not None:
            distances, shares, words = nearest_line(found.name, found.nearest.tolist())
            line = _line([0.0, *distances], [0.0, *shares], words, _colour(place))
            line["line"]["shape"] = "hv"  # between two errors no more are found
            lines.append(line)
    if not lines:
        return None
    title = f"distance to the nearest error that was found ({units})"
    return _chart(lines, title, "share of the samples", y_from_zero=True)


def layer_chart(found: Findings) -> Chart | None:
    """What each layer adds to the bound on the curvature, by the sum rule."""
    if found.bound is None:
        return None
    layers = [layer for layer in found.bound.layers if 0 < layer.curvature < math.inf]
    names = [layer_words(layer) for layer in layers]
    return _bars(names, [layer.curvature for layer in layers], "adds to the curvature (sum rule)", COLOURS[4])


def feature_chart(found: Findings) -> Chart | None:
    """The features that the worst case moves most, by their mean absolute move."""
    moved = moved_features(found)
    if moved is None:
        return None
    names, sizes = [name for name, _ in moved], [size for _, size in moved]
    return _bars(names, sizes, f"mean absolute move ({found.trained.data.units})", COLOURS[3])


def fragile_chart(found: Findings) -> Chart | None:
    """Each feature moved alone: from what is attained to what is proven; of a classifier, its errors."""
    what = "error" if found.trained.data.classes is not None else "loss"
    sides = [
        (one.feature.name, getattr(one.bracket, f"{what}_low"), getattr(one.bracket, f"{what}_high"))
        for one in found.fragile
    ]
    shown = [(name, low, high) for name, low, high in sides if high is not None and math.isfinite(high)]
    if not shown:
        return None
    lows, widths = [low for _, low, _ in shown], [high - low for _, low, high in shown]
    title = f"{what}, at least (attained) to at most ({found.fragile[0].evidence})"
    chart = _bars([name for name, _, _ in shown], widths, title, COLOURS[0])
    chart["data"][0] |= {
        "base": lows[::-1],
        "text": [f"{low:.3f} to {high:.3f}" for _, low, high in shown][::-1],
        "hovertemplate": "%{customdata}: %{text}<extra></extra>",
        "textposition": "none",
    }
    chart["layout"]["xaxis"]["rangemode"] = "normal"
    return chart


def noise_charts(certificate: SmoothedCertificate, units: str) -> dict[str, Chart]:
    """Each quantity of a certificate by smoothing, from both sides; the ideal vote beside the vote."""
    far = 1.25 * (max(certificate.rhos) ** 0.5 or certificate.sigma)
    distances = sorted({*(rho**0.5 for rho in certificate.rhos), *(far * step / 48 for step in range(49))})
    known = {one.name: one for one in certificate.quantities}
    charts = {}
    for name, one in known.items():
        if name == "ideal_vote":
            continue
        lines = [
            _line(distances, [one.low(far**2) for far in distances], "at least (attained)", COLOURS[1]),
            _line(
                distances,
                [one.high(far**2) for far in distances],
                f"at most ({certificate.evidence})",
                COLOURS[0],
                fill="tonexty",
            ),
        ]
        if name == "vote" and "ideal_vote" in known:
            ideal = [known["ideal_vote"].high(far**2) for far in distances]
            words = f"at most, ideal vote ({certificate.evidence})"
            lines.append(_line(distances, ideal, words, COLOURS[2], dash="dash"))
        title = quantity_words(one, certificate)
        charts[name] = _chart(lines, f"root mean square distance √ρ ({units})", title, y_from_zero=True)
    return charts


def literal(chart: Chart) -> Chart:
    """The same chart, with every name shown as it is: plotly reads markup such as <b> in them otherwise."""
    lines = []
    for line in chart["data"]:
        names = {"name": [line["name"]], "customdata": line.get("customdata", [])}
        if line["type"] == "bar":
            names["y"] = line["y"]
        shown = {key: [html.escape(text, quote=False) for text in texts] for key, texts in names.items()}
        lines.append(line | shown | {"name": shown["name"][0]})
    return chart | {"data": lines}


def _colour(place: int) -> str:
    return COLOURS[place % (len(COLOURS) - 1)]


def _line(
    x: Sequence[Any],
    y: Sequence[Any],
    name: str,
    colour: str,
    *,
    dash: str = "solid",
    fill: str | None = None,
    markers: bool = False,
) -> dict[str, Any]:
    finite = [None if value is None or not math.isfinite(value) else value for value in y]
    line: dict[str, Any] = {"x": list(x), "y": finite, "name": name, "type": "scatter"}
    line["mode"] = "lines+markers" if markers or len(line["x"]) == 1 else "lines"
    line["line"] = {"color": colour, "dash": dash, "width": 2}
    line["hovertemplate"] = "%{y:.4g} at %{x:.4g}<extra>%{fullData.name}</extra>"
    if fill is not None:
        line |= {"fill": fill, "fillcolor": f"rgba({_rgb(COLOURS[0])},0.12)"}
    return line


def _rgb(colour: str) -> str:
    return ",".join(str(int(colour[place : place + 2], 16)) for place in (1, 3, 5))


def _chart(lines: list[dict[str, Any]], x: str, y: str, *, y_from_zero: bool) -> Chart:
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": _lines(x)}, "automargin": True, "rangemode": "tozero"},
        "yaxis": {"title": {"text": y}, "automargin": True},
        "height": 330,
    }
    if y_from_zero:
        layout["yaxis"]["rangemode"] = "tozero"
    return {"data": lines, "layout": layout}


def _bars(names: Sequence[str], values: Sequence[float], title: str, colour: str) -> Chart:
    """Horizontal, the first on top, with the value on each; names are shortened in the middle."""
    short = [name if len(name) <= 28 else f"{name[:16]}…{name[-10:]}" for name in names]
    alike = len(set(short)) < len(short)  # two may be short for one name
    places = [f"{index + 1}. {name}" if alike else name for index, name in enumerate(short)]
    bar = {
        "type": "bar",
        "orientation": "h",
        "y": places[::-1],
        "x": list(values)[::-1],
        "customdata": list(names)[::-1],
        "text": [f"{value:.3g}" for value in values][::-1],
        "textposition": "auto",
        "textangle": 0,
        "hovertemplate": "%{customdata}: %{x:.4g}<extra></extra>",
        "marker": {"color": colour},
        "name": title,
    }
    longest = max(map(len, places), default=0)
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": _lines(title, _BESIDE - longest)}, "automargin": True},
        "yaxis": {"automargin": True, "type": "category"},  # names may look like numbers or dates
        "height": 120 + 28 * len(names),
    }
    layout["xaxis"] |= {"rangemode": "tozero", "nticks": 4}  # marks of a phone do not touch
    return {"data": [bar], "layout": layout}


def _lines(title: str, letters: int = _LETTERS) -> str:
    """A title in lines that fit a phone."""
    return "<br>".join(html.escape(line, quote=False) for line in folded(title, max(14, letters)))


def _marker() -> dict[str, Any]:
    """The line that the slider moves."""
    where = {"x0": 0, "x1": 0, "y0": 0, "y1": 1, "xref": "x", "yref": "paper"}
    return {"type": "line", **where, "line": {"color": _GREY, "width": 1.5, "dash": "dot"}}


_POINTS = 48
_COLUMNS = {
    "distance": "distance √ρ",
    "loss_low": "loss at least",
    "loss_high": "at most",
    "error_low": "error at least",
    "error_high": "at most",
    "population_loss": "population: loss at most",
    "population_error": "error at most",
}


def grid_of(certificates: Sequence[Certificate]) -> list[float]:
    """0, every ρ that was asked for, and many between and around them."""
    asked = sorted({rho for one in certificates for rho in one.rhos if rho > 0}) or [0.01]
    low, high = asked[0] / 4, asked[-1] * 1.25
    between = [low * (high / low) ** (place / (_POINTS - 1)) for place in range(_POINTS)]
    apart = [rho for rho in between if all(abs(rho / one - 1) > 0.02 for one in asked)]
    return sorted([0.0, *asked, *apart])


@dataclass(frozen=True)
class Reader:
    """One certificate under the slider.

    Attributes:
        place: of its run on the page; charts: ids of the charts whose line moves.
        columns: what is read out.
    """

    place: int
    name: str
    certificate: Certificate
    charts: tuple[str, ...]
    columns: tuple[str, ...]

    @staticmethod
    def of(place: int, name: str, certificate: Certificate, charts: Sequence[str]) -> Reader:
        first = certificate.bracket(certificate.rhos[0])
        columns = [column for column in _COLUMNS if getattr(first, column) is not None]
        if certificate.no_proof is not None:
            columns = [column for column in columns if not column.endswith("high")]
        return Reader(place, name, certificate, tuple(charts), tuple(columns))

    def cells(self, one: Bracket) -> dict[str, str]:
        """Element → its text, at one ρ."""
        return {f"read-{self.place}-{column}": read_out(column, one) for column in self.columns}

    def row(self, columns: Sequence[str]) -> str:
        """The empty read-out, to be filled by the slider; a dash for what the certificate does not say."""
        body = "".join(
            f'<td id="read-{self.place}-{column}"></td>' if column in self.columns else "<td>–</td>"
            for column in columns
        )
        return f"<tr><td>{escaped(self.name)}</td>{body}</tr>"


def read_out(column: str, one: Bracket) -> str:
    """A number as every table of certus prints it: lower sides rounded down, upper sides up."""
    value = getattr(one, column)
    if column == "distance":
        return f"{value:.3g}"
    return at_least(value) if column.endswith("low") else at_most(value)


def readings(readers: Sequence[Reader], grid: Sequence[float]) -> list[dict[str, Any]]:
    """What the page shows at each place of the slider."""
    made = []
    for rho in grid:
        cells: dict[str, str] = {}
        marks: dict[str, float] = {}
        for reader in readers:
            one = reader.certificate.bracket(rho)
            cells |= reader.cells(one)
            marks |= dict.fromkeys(reader.charts, one.distance)
        made.append({"rho": rho, "words": f"ρ = {rho:.4g}", "cells": cells, "marks": marks})
    return made


def slider_part(readers: Sequence[Reader], grid: Sequence[float]) -> str:
    """The slider, and one row for each certificate; it starts at the largest ρ that was asked for."""
    asked = max(rho for reader in readers for rho in reader.certificate.rhos)
    start = min(range(len(grid)), key=lambda place: abs(grid[place] - asked))
    columns = [column for column in _COLUMNS if any(column in reader.columns for reader in readers)]
    head = "".join(f"<th>{escaped(_COLUMNS[column])}</th>" for column in columns)
    rows = "".join(reader.row(columns) for reader in readers)
    table = f"<table><thead><tr><th>run</th>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return (
        '<div class="slider"><label for="slider">Mean squared distance by which the data may move: '
        '<output id="where"></output></label>'
        f'<input id="slider" type="range" min="0" max="{len(grid) - 1}" step="1" value="{start}">'
        f'<div class="scroll">{table}</div></div>'
    )
