"""Charts of the report as plotly JSON, on common scales, and the slider over ρ."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from certus._format import at_least, at_most
from certus.certificates.certificate import Bracket, Certificate
from certus.display.attack_figures import failed_places, nearest_lines
from certus.display.canvas import COLOURS, Line, folded
from certus.display.certificate_figures import (
    DISTANCE,
    accuracy_lines,
    accuracy_name,
    bracket_lines,
    quantity_name,
    smoothed_lines,
    smoothed_quantities,
    units_of,
)
from certus.display.figures import TRAINING_CURVES, curve_words, epoch_marks, layer_words
from certus.display.report.contents import RunReport, moved_features
from certus.display.tables import error_name
from certus.smoothing.certificate import SmoothedCertificate

Chart = dict[str, Any]
_POINTS = 48

# ---------------------------------------------------------------------------------------------------------
# Charts of a certificate
# ---------------------------------------------------------------------------------------------------------


def bracket_charts(certificate: Certificate, curve: Sequence[Bracket]) -> dict[str, Chart]:
    """Return the worst mean loss, and the worst error rate of a classifier, against √ρ."""
    clip = "" if certificate.clip is None else f", clipped at {certificate.clip:g}"
    names = {"loss": f"worst mean loss{clip}"}
    if certificate.attained_error_cost is not None:
        names["error"] = f"worst {error_name(certificate.labels)}"
    distance = f"{DISTANCE} ({units_of(certificate)})"
    charts = {
        quantity: _line_chart(bracket_lines(certificate, curve, quantity), distance, name)
        for quantity, name in names.items()
    }
    guessing = certificate.vacuous_loss
    if guessing is not None:
        tops = [bracket.loss_high for bracket in curve if math.isfinite(bracket.loss_high)]
        top = max([*tops, *(bracket.population_loss or 0.0 for bracket in curve), 1e-9])
        charts["loss"]["layout"]["yaxis"]["range"] = [0, min(1.05 * top, 1.6 * guessing)]
    for chart in charts.values():  # the vertical line that the slider moves
        ends = {"x0": 0, "x1": 0, "y0": 0, "y1": 1, "xref": "x", "yref": "paper"}
        style = {"color": COLOURS[6], "width": 1.5, "dash": "dot"}
        chart["layout"]["shapes"] = [{"type": "line", **ends, "line": style}]
    return charts


def accuracy_chart(certificate: Certificate, farthest: float) -> Chart:
    """Return the certified accuracy against ε."""
    title = f"every sample moves by at most ε ({units_of(certificate)})"
    return _line_chart(accuracy_lines(certificate, farthest), title, accuracy_name(certificate.labels))


def noise_charts(certificate: SmoothedCertificate) -> dict[str, Chart]:
    """Return each quantity of a certificate by smoothing against √ρ."""
    farthest = 1.25 * (max(certificate.rhos) ** 0.5 or certificate.sigma)
    grid = (farthest * step / _POINTS for step in range(_POINTS + 1))
    distances = sorted({*(rho**0.5 for rho in certificate.rhos), *grid})
    return {
        quantity.name: _line_chart(
            smoothed_lines(certificate, quantity, distances),
            f"{DISTANCE} ({units_of(certificate)})",
            quantity_name(quantity, certificate),
        )
        for quantity in smoothed_quantities(certificate)
    }


# ---------------------------------------------------------------------------------------------------------
# Charts of training, attacks and features
# ---------------------------------------------------------------------------------------------------------


def training_charts(history: Sequence[dict[str, Any]]) -> dict[str, Chart]:
    """Return loss, accuracy and gradients by epoch; a curve that was not measured is left out."""
    epochs = [entry["epoch"] for entry in history]
    charts = {}
    for name, (title, curves) in TRAINING_CURVES.items():
        lines = [
            Line(curve_words(words, history), epochs, [entry[key] for entry in history], COLOURS[place])
            for place, (key, words) in enumerate(curves.items())
            if any(entry[key] is not None for entry in history)
        ]
        if lines:
            charts[name] = _line_chart(lines, "epoch", title)
            whole = {"range": [0.5, epochs[-1] + 0.5], "tickvals": epoch_marks(epochs[-1])}
            charts[name]["layout"]["xaxis"] |= whole
    return charts


def attack_chart(reports: Sequence[RunReport], units: str) -> tuple[Chart, bool]:
    """Return all runs under the same attacks, with 95% intervals, and whether an attack failed."""
    lines, marks, any_failed = [], [], False
    for place, report in enumerate(reports):
        strengths = [trial.strength for trial, _ in report.attacks]
        intervals = [outcome.error or outcome.loss for _, outcome in report.attacks]
        values = [interval.value for interval in intervals]
        lines.append(Line(report.name, strengths, values, _colour(place)))
        failures = failed_places(strengths, values)
        failed = [index in failures for index in range(len(values))]
        any_failed |= any(failed)
        marker = {
            "symbol": ["circle-open" if hollow else "circle" for hollow in failed],
            "size": [12 if hollow else 8 for hollow in failed],
            "line": {"width": [2 if hollow else 0 for hollow in failed]},
            "color": _colour(place),
            "opacity": 1,  # marks of many sizes are pale otherwise
        }
        bars = {
            "type": "data",
            "symmetric": False,
            "array": [interval.high - interval.value for interval in intervals],
            "arrayminus": [interval.value - interval.low for interval in intervals],
            "thickness": 1,
        }
        marks.append({"mode": "lines+markers", "marker": marker, "error_y": bars})
    labelled = reports[0].trained.data.classes is not None
    title = "error under attack" if labelled else "mean loss under attack"
    chart = _line_chart(lines, f"every sample moves by at most ε ({units})", title)
    chart["data"] = [trace | extra for trace, extra in zip(chart["data"], marks, strict=True)]
    return chart, any_failed


def nearest_chart(reports: Sequence[RunReport], units: str) -> Chart | None:
    """Return the share of samples with an error within a distance."""
    distances = {report.name: report.nearest.tolist() for report in reports if report.nearest is not None}
    lines = nearest_lines(distances)
    title = f"distance to the nearest error that was found ({units})"
    return _line_chart(lines, title, "share of the samples") if lines else None


def layer_chart(report: RunReport) -> Chart | None:
    """Return what each layer adds to the bound on the curvature, by the sum rule."""
    if report.bound is None:
        return None
    layers = [layer for layer in report.bound.layers if 0 < layer.curvature < math.inf]
    sizes = [(layer_words(layer), layer.curvature) for layer in layers]
    return _bar_chart(sizes, "adds to the curvature (sum rule)", COLOURS[4])


def feature_chart(report: RunReport) -> Chart | None:
    """Return the features that the worst case moves most, by their mean absolute move."""
    moves = moved_features(report)
    title = f"mean absolute move ({report.trained.data.units})"
    return _bar_chart(moves, title, COLOURS[3]) if moves else None


def sensitivity_chart(report: RunReport) -> Chart | None:
    """Return brackets of the error (of a regression: the loss) where each feature moves alone."""
    quantity = "error" if report.trained.data.classes is not None else "loss"
    sides = [
        (move.feature.name, *(getattr(move.bracket, f"{quantity}_{side}") for side in ("low", "high")))
        for move in report.sensitivity
    ]
    finite = [(name, low, high) for name, low, high in sides if high is not None and math.isfinite(high)]
    if not finite:
        return None
    title = f"{quantity}, at least (attained) to at most ({report.sensitivity[0].evidence})"
    chart = _bar_chart([(name, high - low) for name, low, high in finite], title, COLOURS[0])
    chart["data"][0] |= {
        "base": [low for _, low, _ in finite][::-1],
        "text": [f"{low:.3f} to {high:.3f}" for _, low, high in finite][::-1],
        "hovertemplate": "%{customdata}: %{text}<extra></extra>",
        "textposition": "none",
    }
    chart["layout"]["xaxis"]["rangemode"] = "normal"
    return chart


# ---------------------------------------------------------------------------------------------------------
# Plotly
# ---------------------------------------------------------------------------------------------------------

_TITLE_LETTERS = 38
_BESIDE = 46  # letters of a phone that bars leave to the title, less those of the longest name
_SHAPES = {"": "linear", "pre": "vh", "post": "hv"}
_MARGIN = 0.05


def _line_chart(lines: Sequence[Line], x: str, y: str) -> Chart:
    layout = {
        "xaxis": {"title": {"text": _folded(x)}, "automargin": True, "rangemode": "tozero"},
        "yaxis": {"title": {"text": y}, "automargin": True, "rangemode": "tozero"},
        "height": 330,
    }
    return {"data": [_trace(line) for line in lines], "layout": layout}


def _trace(line: Line) -> dict[str, Any]:
    finite = [None if value is None or not math.isfinite(value) else value for value in line.y]
    trace: dict[str, Any] = {"x": list(line.x), "y": finite, "name": line.name, "type": "scatter"}
    trace["mode"] = "lines+markers" if len(finite) == 1 else "lines"
    shape = _SHAPES[line.step]
    trace["line"] = {"color": line.colour, "dash": line.dash, "width": 2, "shape": shape}
    trace["hovertemplate"] = "%{y:.4g} at %{x:.4g}<extra>%{fullData.name}</extra>"
    if line.filled:
        red, green, blue = bytes.fromhex(COLOURS[0].removeprefix("#"))
        trace |= {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.12)"}
    return trace


def _bar_chart(sizes: Sequence[tuple[str, float]], title: str, colour: str) -> Chart:
    """Return horizontal bars, the first on top, with their values; long names are shortened in the middle."""
    names, values = [name for name, _ in sizes], [value for _, value in sizes]
    short = [name if len(name) <= 28 else f"{name[:16]}…{name[-10:]}" for name in names]
    alike = len(set(short)) < len(short)
    labels = [f"{index + 1}. {name}" if alike else name for index, name in enumerate(short)]
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": labels[::-1],
        "x": values[::-1],
        "customdata": names[::-1],
        "text": [f"{value:.3g}" for value in values][::-1],
        "textposition": "auto",
        "textangle": 0,
        "hovertemplate": "%{customdata}: %{x:.4g}<extra></extra>",
        "marker": {"color": colour},
        "name": title,
    }
    letters = _BESIDE - max(map(len, labels), default=0)
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": _folded(title, letters)}, "automargin": True, "rangemode": "tozero"},
        "yaxis": {"automargin": True, "type": "category"},  # names may look like numbers or dates
        "height": 120 + 28 * len(names),
    }
    layout["xaxis"]["nticks"] = 4  # marks of a phone do not touch
    return {"data": [bars], "layout": layout}


def _colour(place: int) -> str:
    return COLOURS[place % (len(COLOURS) - 1)]


def _folded(title: str, letters: int = _TITLE_LETTERS) -> str:
    """Break a title into lines that fit a phone."""
    return "<br>".join(html.escape(line, quote=False) for line in folded(title, max(14, letters)))


def escape_names(chart: Chart) -> Chart:
    """Return the chart with its names escaped: plotly reads markup such as <b> in them otherwise."""
    traces = []
    for trace in chart["data"]:
        names = {"name": [trace["name"]], "customdata": trace.get("customdata", [])}
        if trace["type"] == "bar":
            names["y"] = trace["y"]
        escaped = {key: [html.escape(text, quote=False) for text in texts] for key, texts in names.items()}
        traces.append(trace | escaped | {"name": escaped["name"][0]})
    return chart | {"data": traces}


def share_axes(charts: Mapping[str, Chart]) -> None:
    """Give charts whose names differ in the place of their run alone the range that holds all of them."""
    groups: dict[str, list[Chart]] = {}
    for name, chart in charts.items():
        groups.setdefault(re.sub(r"-\d+", "", name, count=1), []).append(chart)
    for group in groups.values():
        if len(group) > 1:
            axis = "xaxis" if group[0]["data"][0]["type"] == "bar" else "yaxis"
            ranges = [_range(chart, axis) for chart in group]
            common = [min(low for low, _ in ranges), max(high for _, high in ranges)]
            if common[0] < common[1]:
                for chart in group:
                    chart["layout"][axis]["range"] = common


def _range(chart: Chart, axis: str) -> tuple[float, float]:
    """From 0, unless the axis need not begin there, to a little beyond the largest value."""
    layout = chart["layout"][axis]
    if "range" in layout:
        return layout["range"][0], layout["range"][1]
    ends: list[float] = [0.0] if layout.get("rangemode") == "tozero" else []
    for trace in chart["data"]:
        if trace["type"] == "bar":
            base = trace.get("base", [0.0] * len(trace["x"]))
            ends += [*base, *(low + width for low, width in zip(base, trace["x"], strict=True))]
        else:
            ends += [value for value in trace["y"] if value is not None]
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    margin = _MARGIN * (high - low)
    return low if low == 0 else low - margin, high + margin


# ---------------------------------------------------------------------------------------------------------
# The slider over ρ
# ---------------------------------------------------------------------------------------------------------

_COLUMNS = {
    "distance": "distance √ρ",
    "loss_low": "loss at least",
    "loss_high": "at most",
    "error_low": "error at least",
    "error_high": "at most",
    "population_loss": "population: loss at most",
    "population_error": "error at most",
}


def slider_grid(certificates: Sequence[Certificate]) -> list[float]:
    """Return 0, every ρ of the certificates, and many between and around them."""
    requested = sorted({rho for one in certificates for rho in one.rhos if rho > 0}) or [0.01]
    low, high = requested[0] / 4, requested[-1] * 1.25
    between = [low * (high / low) ** (place / (_POINTS - 1)) for place in range(_POINTS)]
    apart = [rho for rho in between if all(abs(rho / other - 1) > 0.02 for other in requested)]
    return sorted([0.0, *requested, *apart])


@dataclass(frozen=True)
class SliderRow:
    """A certificate under the slider.

    Attributes:
        place: of its run on the page.
        charts: ids of the charts whose vertical line moves.
    """

    place: int
    name: str
    certificate: Certificate
    charts: Sequence[str]

    @property
    def columns(self) -> list[str]:
        """The quantities that the certificate bounds."""
        first = self.certificate.bracket(self.certificate.rhos[0])
        columns = [column for column in _COLUMNS if getattr(first, column) is not None]
        if self.certificate.no_proof is not None:
            columns = [column for column in columns if not column.endswith("high")]
        return columns

    def cells(self, bracket: Bracket) -> dict[str, str]:
        """Map the id of an element to its text: lower sides are rounded down, upper sides up."""
        cells = {}
        for column in self.columns:
            value = getattr(bracket, column)
            text = at_least(value) if column.endswith("low") else at_most(value)
            cells[f"read-{self.place}-{column}"] = f"{value:.3g}" if column == "distance" else text
        return cells


def slider_readings(rows: Sequence[SliderRow], grid: Sequence[float]) -> list[dict[str, Any]]:
    """Return what the page shows at each place of the slider."""
    readings = []
    for rho in grid:
        cells: dict[str, str] = {}
        marks: dict[str, float] = {}
        for row in rows:
            bracket = row.certificate.bracket(rho)
            cells |= row.cells(bracket)
            marks |= dict.fromkeys(row.charts, bracket.distance)
        readings.append({"rho": rho, "words": f"ρ = {rho:.4g}", "cells": cells, "marks": marks})
    return readings


def slider_table(rows: Sequence[SliderRow], grid: Sequence[float]) -> dict[str, Any]:
    """Return the slider for the template: it starts at the largest ρ of the certificates.

    A row has the ids of its cells; None for what its certificate does not bound.
    """
    largest = max(rho for row in rows for rho in row.certificate.rhos)
    columns = [column for column in _COLUMNS if any(column in row.columns for row in rows)]
    return {
        "last": len(grid) - 1,
        "start": min(range(len(grid)), key=lambda place: abs(grid[place] - largest)),
        "heads": [_COLUMNS[column] for column in columns],
        "rows": [
            (row.name, [f"read-{row.place}-{name}" if name in row.columns else None for name in columns])
            for row in rows
        ],
    }
