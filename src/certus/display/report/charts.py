"""Charts of the report as plotly JSON, on common scales, and the slider over ρ."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from certus._format import at_least, at_most, escape_controls
from certus.certificates.certificate import Bracket, Certificate
from certus.display.canvas import COLOURS, Line, folded, run_colour
from certus.display.figures import (
    accuracy_lines,
    accuracy_name,
    bracket_lines,
    distance_label,
    epoch_ticks,
    failed_attacks,
    layer_curvatures,
    nearest_lines,
    smoothed_panels,
    training_curves,
    units_of,
)
from certus.display.report.contents import RunReport, moved_features
from certus.display.tables import error_name
from certus.smoothing.certificate import SmoothedCertificate

Chart = dict[str, Any]
_POINTS = 48

# ---------------------------------------------------------------------------------------------------------
# Certificates
# ---------------------------------------------------------------------------------------------------------


def bracket_charts(certificate: Certificate, curve: Sequence[Bracket]) -> dict[str, Chart]:
    """Return the worst mean loss, and the worst error rate of a classifier, against √ρ."""
    clip = "" if certificate.clip is None else f", clipped at {certificate.clip:g}"
    names = {"loss": f"worst mean loss{clip}", "error": f"worst {error_name(certificate.labels)}"}
    charts = {
        quantity: _line_chart(
            bracket_lines(certificate, curve, quantity), distance_label(certificate), names[quantity]
        )
        for quantity in _quantities(certificate)
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


def _quantities(certificate: Certificate) -> tuple[str, ...]:
    return ("loss",) if certificate.attained_error_cost is None else ("loss", "error")


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
        quantity.name: _line_chart(lines, distance_label(certificate), label)
        for quantity, label, lines in smoothed_panels(certificate, distances)
    }


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
    between = [low * (high / low) ** (step / (_POINTS - 1)) for step in range(_POINTS)]
    apart = [rho for rho in between if all(abs(rho / other - 1) > 0.02 for other in requested)]
    return sorted([0.0, *requested, *apart])


def slider(runs: Sequence[tuple[str, Certificate | None]], grid: Sequence[float]) -> dict[str, Any] | None:
    """Return the slider for the template, with its readings at each ρ; None without a certificate.

    It starts at the largest ρ of the certificates. A row has the ids of its cells, None where its certificate
    has no such bound. Lower sides are rounded down, upper sides up.
    """
    rows = [
        (index, name, certificate, _bounded(certificate))
        for index, (name, certificate) in enumerate(runs)
        if certificate is not None
    ]
    if not rows:
        return None
    columns = [column for column in _COLUMNS if any(column in bounded for *_, bounded in rows)]
    readings = []
    for rho in grid:
        cells: dict[str, str] = {}
        marks: dict[str, float] = {}  # of the vertical lines, by the ids of their charts
        for index, _, certificate, bounded in rows:
            bracket = certificate.bracket(rho)
            for column in bounded:
                value = getattr(bracket, column)
                text = at_least(value) if column.endswith("low") else at_most(value)
                cells[f"read-{index}-{column}"] = f"{value:.3g}" if column == "distance" else text
            marks |= {f"bracket-{index}-{name}": bracket.distance for name in _quantities(certificate)}
        readings.append({"rho": rho, "words": f"ρ = {rho:.4g}", "cells": cells, "marks": marks})
    largest = max(rho for _, _, certificate, _ in rows for rho in certificate.rhos)
    return {
        "last": len(grid) - 1,
        "start": min(range(len(grid)), key=lambda step: abs(grid[step] - largest)),
        "heads": [_COLUMNS[column] for column in columns],
        "rows": [
            (name, [f"read-{index}-{column}" if column in bounded else None for column in columns])
            for index, name, _, bounded in rows
        ],
        "readings": readings,
    }


def _bounded(certificate: Certificate) -> list[str]:
    """Return the columns of the quantities that the certificate bounds."""
    first, proof = certificate.bracket(certificate.rhos[0]), certificate.no_proof is None
    columns = [column for column in _COLUMNS if getattr(first, column) is not None]
    return [column for column in columns if proof or not column.endswith("high")]


# ---------------------------------------------------------------------------------------------------------
# Training, attacks and features
# ---------------------------------------------------------------------------------------------------------


def training_charts(history: Sequence[dict[str, Any]]) -> dict[str, Chart]:
    """Return loss, accuracy and gradients by epoch; a curve that was not measured is left out."""
    epochs = [entry["epoch"] for entry in history]
    charts = {}
    for quantity, (label, curves) in training_curves(history).items():
        lines = [
            Line(name, epochs, values, COLOURS[index]) for index, (name, values) in enumerate(curves.items())
        ]
        chart = _line_chart(lines, "epoch", label)
        chart["layout"]["xaxis"] |= {"range": [0.5, epochs[-1] + 0.5], "tickvals": epoch_ticks(epochs[-1])}
        charts[quantity] = chart
    return charts


def attack_chart(reports: Sequence[RunReport], units: str) -> Chart:
    """Return all runs under the same attacks, with 95% intervals; markers of failed attacks are hollow."""
    lines, marks = [], []
    for index, report in enumerate(reports):
        curve, colour = report.attack_curve, run_colour(index)
        lines.append(Line(report.name, curve.strengths, curve.values, colour))
        failures = failed_attacks(curve.strengths, curve.values)
        failed = [attack in failures for attack in range(len(curve.values))]
        marker = {
            "symbol": ["circle-open" if hollow else "circle" for hollow in failed],
            "size": [12 if hollow else 8 for hollow in failed],
            "line": {"width": [2 if hollow else 0 for hollow in failed]},
            "color": colour,
            "opacity": 1,  # markers of several sizes are pale otherwise
        }
        bars = {
            "type": "data",
            "symmetric": False,
            "array": [high - value for high, value in zip(curve.high, curve.values, strict=True)],
            "arrayminus": [value - low for low, value in zip(curve.low, curve.values, strict=True)],
            "thickness": 1,
        }
        marks.append({"mode": "lines+markers", "marker": marker, "error_y": bars})
    chart = _line_chart(lines, f"every sample moves by at most ε ({units})", reports[0].attacked_quantity)
    chart["data"] = [trace | extra for trace, extra in zip(chart["data"], marks, strict=True)]
    return chart


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
    return _bar_chart(layer_curvatures(report.bound), "adds to the curvature (sum rule)", COLOURS[4])


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
    trace = {
        "x": list(line.x),
        "y": [None if value is None or not math.isfinite(value) else value for value in line.y],
        "name": _escaped(line.name),
        "type": "scatter",
        "mode": "lines+markers" if len(line.y) == 1 else "lines",
        "line": {"color": line.colour, "dash": line.dash, "width": 2, "shape": _SHAPES[line.step]},
        "hovertemplate": "%{y:.4g} at %{x:.4g}<extra>%{fullData.name}</extra>",
    }
    if line.filled:
        red, green, blue = bytes.fromhex(COLOURS[0].removeprefix("#"))
        trace |= {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},0.12)"}
    return trace


def _escaped(name: str) -> Markup:
    """Escape a name: plotly reads markup such as <b> in it otherwise."""
    return Markup(html.escape(escape_controls(name), quote=False))


def _bar_chart(sizes: Sequence[tuple[str, float]], title: str, colour: str) -> Chart:
    """Return horizontal bars, the first on top, with their values; long names are shortened in the middle."""
    names, values = [name for name, _ in sizes], [value for _, value in sizes]
    short = [name if len(name) <= 28 else f"{name[:16]}…{name[-10:]}" for name in names]
    alike = len(set(short)) < len(short)
    labels = [f"{index + 1}. {name}" if alike else name for index, name in enumerate(short)]
    bars = {
        "type": "bar",
        "orientation": "h",
        "y": list(map(_escaped, labels[::-1])),
        "x": values[::-1],
        "customdata": list(map(_escaped, names[::-1])),
        "text": [f"{value:.3g}" for value in values][::-1],
        "textposition": "auto",
        "textangle": 0,
        "hovertemplate": "%{customdata}: %{x:.4g}<extra></extra>",
        "marker": {"color": colour},
        "name": _escaped(title),
    }
    letters = _BESIDE - max(map(len, labels), default=0)
    layout: dict[str, Any] = {
        "xaxis": {"title": {"text": _folded(title, letters)}, "automargin": True, "rangemode": "tozero"},
        "yaxis": {"automargin": True, "type": "category"},  # names may look like numbers or dates
        "height": 120 + 28 * len(names),
    }
    layout["xaxis"]["nticks"] = 4  # marks of a phone do not touch
    return {"data": [bars], "layout": layout}


def _folded(title: str, letters: int = _TITLE_LETTERS) -> str:
    """Break a title into lines that fit a phone."""
    return "<br>".join(html.escape(line, quote=False) for line in folded(title, max(14, letters)))


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
