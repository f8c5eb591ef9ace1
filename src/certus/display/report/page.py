"""The report: one HTML page with plotly.js, style and script inside, which fetches nothing; its figures.

Charts are plotly JSON, on common scales; a slider runs over ρ.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from torch import Tensor

import certus
from certus._format import at_least, at_most, escape_controls
from certus.certificates.certificate import Bracket, Certificate
from certus.display import figures, tables
from certus.display.canvas import COLOURS, Line, folded, run_colour, save_figure
from certus.display.render import templates
from certus.display.report import contents
from certus.display.report.contents import RunReport, summary
from certus.display.report.opening import (
    GLOSSARY,
    Opening,
    Purpose,
    by_class,
    opening_of,
    subject_of,
    worst_of,
)
from certus.display.tables import error_name
from certus.smoothing.certificate import SmoothedCertificate
from certus.training.metrics import clean_metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Card = tuple[str, list[Any]]
"""The name of a run, and its parts: sentences, tables, charts, or a kind of other content with that."""

_IMAGES = 6


def render_report(reports: Sequence[RunReport], purpose: Purpose | None = None) -> str:
    """Return the page about one run, or about several side by side."""
    purpose = purpose or Purpose()
    grid = slider_grid([report.certificate for report in reports if report.certificate is not None])
    models = ", ".join(f"{report.name} ({report.trained.settings.model})" for report in reports)
    return render_page(
        [opening_of(subject_of(report), purpose) for report in reports],
        _sections(reports, grid, purpose),
        slider([(report.name, report.certificate) for report in reports], grid),
        headline=headline(models, reports[0].trained.data.name, purpose),
        rows=reports[0].chosen.words,
        seed=reports[0].seed,
    )


def render_page(
    openings: Sequence[Opening],
    sections: Mapping[str, list[Card]],
    control: dict[str, Any] | None,
    *,
    headline: Sequence[str],
    rows: str = "",
    seed: int = 0,
) -> str:
    """Return a page with these openings and sections.

    Args:
        control: the slider over ρ, if there is a certificate.
        rows: the attacked rows in words, chosen by ``seed``; empty without attacks.
    """
    folder = files("certus.display").joinpath("templates")
    style, script = (folder.joinpath(name).read_text("utf-8") for name in ("report.css", "report.js"))
    library = plotly_js()
    parts = [part for cards in sections.values() for _, content in cards for part in content]
    charts = {part["id"]: part for part in parts if isinstance(part, dict)}
    share_axes(charts)
    attacks = charts["attacks"]["data"] if "attacks" in charts else []
    return (
        templates()
        .get_template("report.html")
        .render(
            title="certus report: " + ", ".join(opening.name for opening in openings),
            policy=security_policy([library, script], [style]),
            headline=headline,
            openings=openings,
            glossary=GLOSSARY,
            sections=sections,
            slider=control,
            rows=rows,
            strongest=f"{contents.STRENGTHS[-1]:.0%}",
            failed=any("circle-open" in trace["marker"]["symbol"] for trace in attacks),
            share=f"{contents.SHARE:g}",
            version=certus.__version__,
            seed=seed,
            map_styles=sorted(set(re.findall(r'getElementById\("([0-9a-f]{64})"\)', library))),
            data={"charts": charts, "readings": [] if control is None else control["readings"]},
            style=Markup(style),  # texts of certus and plotly, not of users
            script=Markup(script),
            library=Markup(library),
        )
    )


def headline(models: str, data: str, purpose: Purpose) -> list[str]:
    """Return date, models, data, author and purpose, as far as they are given."""
    parts = {
        "": purpose.date,
        "Model": models,
        "Data": data,
        "Author": purpose.author,
        "Purpose": purpose.purpose,
    }
    return [f"{name}: {value}" if name else value for name, value in parts.items() if value]


def _sections(reports: Sequence[RunReport], grid: Sequence[float], purpose: Purpose) -> dict[str, list[Card]]:
    """Return the cards of each section: one for each run, or one without a name about all runs."""
    sections: dict[str, list[Card]] = defaultdict(list)
    certificates = [report.certificate for report in reports if report.certificate is not None]
    distances = [bracket.distance for certificate in certificates for bracket in certificate.curve()]
    farthest = 1.25 * max(
        [*distances, *(epsilon for certificate in certificates for epsilon in certificate.epsilons), 0.0]
    )
    for place, report in enumerate(reports):
        for section, parts in _run_parts(place, report, grid, farthest or 0.1, purpose):
            if parts:
                sections[section].append((report.name, parts))
    units = reports[0].trained.data.units
    sections["attacks"] = [("", [attack_chart(reports, f"{RADIUS} ({units})")])]
    lines = figures.nearest_lines(contents.nearest_distances(reports))
    if lines:
        title = f"distance to the nearest error that was found ({units})"
        sections["nearest"] = [("", [line_chart("nearest", lines, title, "share of the samples")])]
    return sections


def _run_parts(
    place: int, report: RunReport, grid: Sequence[float], farthest: float, purpose: Purpose
) -> Iterator[tuple[str, list[Any]]]:
    """Yield what each section shows of a run; ``place`` is that of the run on the page."""
    certificate, smoothed, bound = report.certificate, report.smoothed, report.bound
    share, history = report.concave_share, report.trained.run.history
    yield "summary", [*summary(report), *(("note", remark) for remark in report.remarks)]
    yield "classes", by_class(report, worst_of(certificate, purpose))
    if report.checks:
        yield "monitor", [*monitor_charts(place, report.checks), tables.chunk_table(report.checks)]
    if certificate is not None:
        yield from certificate_parts(place, certificate, grid, farthest)
    if report.stability is not None:
        yield "stability", tables.certificate_parts(report.stability)
    if smoothed is not None:
        yield "noise", [*noise_charts(place, smoothed), *tables.smoothed_parts(smoothed)]
    if history:
        yield "training", training_charts(place, history)
    smoothness: list[Any] = []
    if bound is not None:
        smoothness.append(
            f"The curvature of the loss is at most {at_most(bound.curvature)} at every input "
            f"({bound.evidence}). The inner problem, which finds the worst case of a sample at "
            f"the penalty γ, is therefore concave for every γ above {at_most(bound.gamma)}."
        )
    if share is not None:
        undecided = f"; undecided at {share.unresolved}" if share.unresolved else ""
        smoothness.append(
            f"At γ = {report.trained.gamma:.4g}, at which this run ended, the inner problem is concave "
            f"at {share.concave} of {share.count} samples (estimated{undecided})."
        )
    if bound is not None:
        sizes, title = figures.layer_curvatures(bound), "contribution to the curvature (sum rule)"
        smoothness.append(bar_chart(f"layers-{place}", sizes, title, COLOURS[4]))
    yield "smoothness", smoothness
    if report.sensitivity:
        charts = sensitivity_charts(place, report)
        yield "sensitivity", [*charts, tables.sensitivity_table(report.sensitivity)]
    worst_case, rows = _images(report), contents.moved_rows(report)
    if rows is not None:
        table, moves = rows
        title = f"mean absolute move ({report.trained.data.units})"
        chart = bar_chart(f"features-{place}", moves, title, COLOURS[3])
        worst_case += [table, chart] if moves else [table]
    yield "worst_case", worst_case
    yield "origin", [("facts", contents.run_facts(report)), ("commands", contents.report_commands(report))]


def certificate_parts(
    place: int, certificate: Certificate, grid: Sequence[float], farthest: float
) -> Iterator[tuple[str, list[Any]]]:
    """Yield the worst case over ρ, and certified accuracy up to the distance ``farthest``."""
    charts = bracket_charts(place, certificate, certificate.curve(grid))
    yield "brackets", [*charts, *tables.bracket_tables(certificate)]
    if certificate.classes is not None and certificate.no_proof is None:
        lines, radius = figures.accuracy_lines(certificate, farthest), tables.units_of(certificate)
        axes = f"{RADIUS} ({radius})", figures.accuracy_name(certificate.labels)
        chart = line_chart(f"accuracy-{place}", lines, *axes)
        yield "accuracy", [chart, *tables.accuracy_tables(certificate)]


def _images(report: RunReport) -> list[Any]:
    """Return images before and after the worst case moves them; nothing for other data."""
    moves = report.worst_case
    if moves is None or moves.before.dim() != 4 or moves.before.shape[1] not in (1, 3):
        return []
    pairs = []
    for index in contents.most_moved(moves, _IMAGES):
        target = contents.label_words(report, moves.targets[index])
        caption = f"target {target}, predicted {contents.changed_words(report, index)}"
        before, after = (_data_url(side[index]) for side in (moves.before, moves.after))
        pairs.append({"before": before, "after": after, "caption": caption})
    return [("images", pairs)]


def _data_url(image: Tensor) -> str:
    """Return a (channels, height, width) image with values in [0, 1], grey or RGB, as a PNG in a URL."""
    from matplotlib.image import imsave

    levels = (image.detach().double().clamp(0, 1) * 255).round().byte().permute(1, 2, 0)
    content = io.BytesIO()
    imsave(content, levels.expand(-1, -1, 3).contiguous().numpy(), format="png")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def plotly_js() -> str:
    """Return plotly.js (MIT licence), its basic bundle with lines and bars alone."""
    return files("certus.display").joinpath("templates", "plotly-basic.min.js").read_text("utf-8")


def security_policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """Return a Content-Security-Policy under which only these scripts run, and nothing is fetched. Style
    elements are ours, or start empty, as plotly's does; style attributes are allowed."""

    def hashes(texts: Sequence[str]) -> str:
        digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    return (
        f"default-src 'none'; script-src {hashes(scripts)}; style-src-elem {hashes([*styles, ''])}; "
        "style-src-attr 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def draw_figures(reports: Sequence[RunReport], folder: Path) -> list[str]:
    """Draw the figures that there are data for, as PNG, SVG and PDF. Returns: names without suffixes."""
    data, rows = reports[0].trained.data, reports[0].chosen.words
    strength, curves = f"{RADIUS} ({data.units})", {report.name: report.attacks for report in reports}
    panel = figures.Panel("pgd, norm 2", strength, reports[0].attacked_quantity, curves, towards=1)
    drawn = {"attacks": figures.sweep_figure([panel], f"{rows}; 95% intervals")}
    distances = contents.nearest_distances(reports)
    if distances:
        title = f"nearest errors of {rows}, by PGD with bisection (attained)"
        drawn["nearest"] = figures.nearest_figure(distances, data.units, title)
    for number, report in enumerate(reports, 1):
        mark = "" if len(reports) == 1 else f"-{number}"
        drawn |= {f"{name}{mark}": figure for name, figure in _run_figures(report).items()}
    for name, figure in drawn.items():
        for suffix in ("png", "svg", "pdf"):
            save_figure(figure, folder / f"{name}.{suffix}")
    return list(drawn)


def _run_figures(report: RunReport) -> dict[str, Figure]:
    drawn, moves = {}, report.sensitivity
    if report.certificate is not None:
        drawn["brackets"] = figures.bracket_figure(report.certificate, report.name)
    if report.bound is not None and report.bound.curvature > 0:
        drawn["smoothness"] = figures.smoothness_figure(report.bound)
    if report.smoothed is not None:
        drawn["smoothing"] = figures.smoothed_figure(report.smoothed, report.name)
    if moves and math.isfinite(moves[0].bracket.loss_high):
        clean = clean_metrics(report.trained.loss, report.chosen.data)
        drawn["fragile"] = figures.sensitivity_figure(moves, clean, contents.SHARE)
    if report.trained.run.history:
        drawn["training"] = figures.training_figure(report.trained.run.history, report.name)
    return drawn


Chart = dict[str, Any]
"""``data`` and ``layout`` of plotly, and the ``id`` of the element."""

RADIUS = "every sample moves by at most ε"
_POINTS = 48

# Certificates


def bracket_charts(place: int, certificate: Certificate, curve: Sequence[Bracket]) -> list[Chart]:
    """Return the worst mean loss, and the worst error rate of a classifier, against √ρ."""
    clip = "" if certificate.clip is None else f", clipped at {certificate.clip:g}"
    names = {"loss": f"worst mean loss{clip}", "error": f"worst {error_name(certificate.labels)}"}
    charts, distance, guessing = [], figures.distance_label(certificate), certificate.vacuous_loss
    for quantity in _quantities(certificate):
        lines = figures.bracket_lines(certificate, curve, quantity)
        charts.append(line_chart(f"bracket-{place}-{quantity}", lines, distance, names[quantity]))
    if guessing is not None:
        tops = [bracket.loss_high for bracket in curve if math.isfinite(bracket.loss_high)]
        top = max([*tops, *(bracket.population_loss or 0.0 for bracket in curve), 1e-9])
        charts[0]["layout"]["yaxis"]["range"] = [0, min(1.05 * top, 1.6 * guessing)]
    for chart in charts:  # the vertical line that the slider moves
        ends = {"x0": 0, "x1": 0, "y0": 0, "y1": 1, "xref": "x", "yref": "paper"}
        style = {"color": COLOURS[6], "width": 1.5, "dash": "dot"}
        chart["layout"]["shapes"] = [{"type": "line", **ends, "line": style}]
    return charts


def _quantities(certificate: Certificate) -> tuple[str, ...]:
    return ("loss",) if certificate.attained_error_cost is None else ("loss", "error")


def noise_charts(place: int, certificate: SmoothedCertificate) -> list[Chart]:
    """Return each quantity of a certificate by smoothing against √ρ."""
    farthest = 1.25 * (max(certificate.rhos) ** 0.5 or certificate.sigma)
    grid = (farthest * step / _POINTS for step in range(_POINTS + 1))
    distances = sorted({*(rho**0.5 for rho in certificate.rhos), *grid})
    return [
        line_chart(f"noise-{place}-{quantity.name}", lines, figures.distance_label(certificate), label)
        for quantity, label, lines in figures.smoothed_panels(certificate, distances)
    ]


# The slider over ρ

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
    requested = sorted({rho for certificate in certificates for rho in certificate.rhos if rho > 0}) or [0.01]
    low, high = requested[0] / 4, requested[-1] * 1.25
    between = [low * (high / low) ** (step / (_POINTS - 1)) for step in range(_POINTS)]
    apart = [rho for rho in between if all(abs(rho / other - 1) > 0.02 for other in requested)]
    return sorted([0.0, *requested, *apart])


def slider(runs: Sequence[tuple[str, Certificate | None]], grid: Sequence[float]) -> dict[str, Any] | None:
    """Return the slider for the template, with its readings at each ρ, rounded outwards; None without a
    certificate. A row has the ids of its cells, None where its certificate has no such bound."""
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


# Training, attacks and features


def training_charts(place: int, history: Sequence[dict[str, Any]]) -> list[Chart]:
    """Return loss, accuracy and gradients by epoch; a curve that was not measured is left out."""
    epochs, charts = [entry["epoch"] for entry in history], []
    axis = {"range": [0.5, epochs[-1] + 0.5], "tickvals": figures.epoch_ticks(epochs[-1])}
    for quantity, (label, curves) in figures.training_curves(history).items():
        named = zip(curves.items(), COLOURS, strict=False)
        lines = [Line(name, epochs, values, colour) for (name, values), colour in named]
        charts.append(line_chart(f"training-{place}-{quantity}", lines, "epoch", label))
        charts[-1]["layout"]["xaxis"] |= axis
    return charts


def attack_chart(reports: Sequence[RunReport], strength: str) -> Chart:
    """Return all runs under the same attacks, with 95% intervals; markers of failed attacks are hollow."""
    lines, marks = [], []
    for index, report in enumerate(reports):
        curve, colour = report.attacks, run_colour(index)
        lines.append(Line(report.name, curve.strengths, curve.values, colour))
        failures = figures.failed_attacks(curve.strengths, curve.values)
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
    chart = line_chart("attacks", lines, strength, reports[0].attacked_quantity)
    chart["data"] = [trace | extra for trace, extra in zip(chart["data"], marks, strict=True)]
    return chart


def sensitivity_charts(place: int, report: RunReport) -> list[Chart]:
    """Return brackets of the error (of a regression: the loss) where each feature moves alone."""
    quantity = "error" if report.trained.data.classes is not None else "loss"
    sides = [
        (move.feature.name, *(getattr(move.bracket, f"{quantity}_{side}") for side in ("low", "high")))
        for move in report.sensitivity
    ]
    finite = [(name, low, high) for name, low, high in sides if high is not None and math.isfinite(high)]
    if not finite:
        return []
    title = f"{quantity}, at least (attained) to at most ({report.sensitivity[0].evidence})"
    widths = [(name, high - low) for name, low, high in finite]
    chart = bar_chart(f"fragile-{place}", widths, title, COLOURS[0])
    chart["data"][0] |= {
        "base": [low for _, low, _ in finite][::-1],
        "text": [f"{low:.3f} to {high:.3f}" for _, low, high in finite][::-1],
        "hovertemplate": "%{customdata}: %{text}<extra></extra>",
        "textposition": "none",
        "marker": {"color": COLOURS[0], "line": {"color": COLOURS[0], "width": 3}},  # narrow ones are seen
    }
    chart["layout"]["xaxis"]["rangemode"] = "normal"
    return [chart]


def monitor_charts(place: int, checks: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Return the change at each check, with the alarm line; and errors that were met, if there are any."""
    names, places = [str(check["name"]) for check in checks], range(len(checks))
    lines = [
        Line("change, in multiples of chance", places, [check["statistic"] for check in checks], COLOURS[6]),
        Line("alarm line", places, [check["line"] for check in checks], COLOURS[1], "dash"),
    ]
    charts = [line_chart(f"monitor-{place}", lines, "rows of", "change ÷ chance")]
    charts[0]["data"][0] |= {
        "mode": "lines+markers",
        "marker": {"color": [_VERDICTS[check["verdict"]] for check in checks], "size": 10},
    }
    met = [check["realised"] for check in checks]
    if any(each is not None for each in met):
        name = "loss" if checks[-1]["regression"] else "error"
        values = [None if each is None else each[name] for each in met]
        label = "mean loss" if name == "loss" else "error rate"
        line = Line(f"observed {label}", places, values, COLOURS[1])
        charts.append(line_chart(f"monitor-{place}-met", [line], "rows of", label))
        charts[1]["data"][0]["mode"] = "lines+markers"
    for chart in charts:
        chart["layout"]["xaxis"] |= {"type": "category", "rangemode": "normal"}
        for trace in chart["data"]:
            trace["x"] = names
            trace["hovertemplate"] = "%{y:.4g}, %{x}<extra>%{fullData.name}</extra>"
    return charts


_VERDICTS = {"fine": COLOURS[2], "alarm": COLOURS[1], "undecided": COLOURS[6]}

# Plotly

_TITLE_LETTERS = 38
_BESIDE = 46  # letters of a phone that bars leave to the title, less those of the longest name
_SHAPES = {"": "linear", "pre": "vh", "post": "hv"}
_MARGIN = 0.05


def line_chart(identifier: str, lines: Sequence[Line], x: str, y: str) -> Chart:
    """Return lines with these labels of the axes."""
    layout = {
        "xaxis": {"title": {"text": _folded(x)}, "automargin": True, "rangemode": "tozero"},
        "yaxis": {"title": {"text": y}, "automargin": True, "rangemode": "tozero"},
        "height": 330,
    }
    return {"id": identifier, "data": [_trace(line) for line in lines], "layout": layout}


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


def bar_chart(identifier: str, sizes: Sequence[tuple[str, float]], title: str, colour: str) -> Chart:
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
    return {"id": identifier, "data": [bars], "layout": layout}


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
    """Return the range of an axis, from 0 if it should begin there, to slightly beyond the largest value."""
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
