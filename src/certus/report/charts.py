"""The charts of a report, as the JSON that plotly.js draws: data, and what the axes are."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from certus.certificates.certificate import Bracket, Certificate
from certus.figures.accuracy_steps import step_places
from certus.figures.attack_curves import failed_places
from certus.figures.canvas import COLOURS, folded
from certus.figures.curvature import layer_words
from certus.figures.nearest_steps import nearest_line
from certus.figures.noisy_brackets import quantity_words
from certus.figures.training_curves import TRAINING_CURVES, curve_words, epoch_marks
from certus.report.features import moved_features
from certus.report.findings import Findings
from certus.smoothing.certificate import SmoothedCertificate
from certus.texts.certificate_words import error_name

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
        intervals = [outcome.error() or outcome.mean_loss() for _, outcome in found.attacks]
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
