"""Figures of attacks, certificates, training, smoothness bounds and sensitivity.

The lines of a result are computed once, for matplotlib here and for the charts of the report. Attained lines
are dashed and lie above proven ones, so that both are seen where they agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from certus.attacks.evaluation import Interval
from certus.bounds.smoothness import SmoothnessBound, format_assumptions
from certus.certificates import Bracket, Certificate
from certus.certificates.files import PREDICTED_LABELS_STATEMENT
from certus.display import canvas
from certus.display.canvas import COLOURS, MARKERS, Line, broken, literal_text
from certus.display.tables import differing_words, error_name, units_of
from certus.errors import ArgumentError, require
from certus.smoothing.certificate import Quantity, SmoothedCertificate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Attacks: error against strength (fig:mnist), and distances to the nearest error

Style = dict[str, Any]
"""Colour, marker and line style, as keywords of ``Axes.plot``."""


@dataclass(frozen=True)
class Curve:
    """Values at rising strengths, with the ends of their intervals."""

    strengths: Sequence[float]
    values: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]

    @staticmethod
    def of(strengths: Sequence[float], intervals: Sequence[Interval]) -> Curve:
        """Return the curve of estimates with confidence intervals."""
        ends = ([getattr(interval, end) for interval in intervals] for end in ("value", "low", "high"))
        return Curve(strengths, *ends)


FAILED = "hollow: the attack failed, since one with a smaller budget found more"
"""The entry of the legend for the markers at ``failed_attacks``."""


def failed_attacks(strengths: Sequence[float], values: Sequence[float], towards: int = 1) -> list[int]:
    """Return the indices of failed attacks: each found less than a weaker one, whose moves it may make too.
    Strengths grow towards 1 or −1; 0 is for curves of no attack.

    >>> failed_attacks([0.0, 0.1, 0.2, 0.3], [0.1, 0.5, 0.3, 0.5])
    [2]
    """
    failed, most = [], -math.inf
    order = sorted(range(len(values)), key=lambda index: towards * strengths[index]) if towards else []
    for index in order:
        if values[index] < most:
            failed.append(index)
        most = max(most, values[index])
    return sorted(failed)


@dataclass(frozen=True)
class Panel:
    """Curves on one pair of axes."""

    title: str
    strength: str  # label of the first axis
    quantity: str  # label of the second axis
    curves: Mapping[str, Curve]
    marked: float | None = None  # the budget of training, for a vertical line
    logarithmic: bool = False  # the first axis
    ticks: Sequence[float] = ()  # of the first axis; chosen by matplotlib if empty
    towards: int = 0  # the direction of stronger attacks, for ``failed_attacks``


def numbered_styles(names: Iterable[str]) -> dict[str, Style]:
    """Assign the next colour and the next marker to each name."""
    return {
        name: {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}
        for index, name in enumerate(names)
    }


def sweep_figure(
    panels: Sequence[Panel], title: str = "", columns: int = 0, styles: Mapping[str, Style] | None = None
) -> Figure:
    """Draw panels side by side, at most three in a row, with one legend: a name has one style everywhere."""
    require(len(panels) > 0, "panels", "not be empty", list(panels))
    if len(panels) == 1 and panels[0].title in title:
        panels = [replace(panels[0], title="")]
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    styles = numbered_styles(names) if styles is None else styles
    columns = columns or (min(3, len(panels)) if len(panels) != 4 else 2)
    rows = -(-len(panels) // columns)
    figure = canvas.new_figure(4.6 * columns, 3.8 * rows)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, panel in zip(grid, panels, strict=False):
        _draw_panel(axes, panel, styles)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    handles = {line.get_label(): line for axes in grid[::-1] for line in axes.lines[::-1]}
    entries = [name for name in (*names, FAILED) if name in handles]
    canvas.legend_below(figure, [handles[name] for name in entries], entries)
    canvas.title_above(figure, title, 10)
    return figure


def _draw_panel(axes: Axes, panel: Panel, styles: Mapping[str, Style]) -> None:
    for name, curve in panel.curves.items():
        style, colour = styles[name], styles[name]["color"]
        axes.plot(curve.strengths, curve.values, markersize=4, label=name, **style)
        failed = failed_attacks(curve.strengths, curve.values, panel.towards)
        if failed:
            x, y = ([values[index] for index in failed] for values in (curve.strengths, curve.values))
            hollow = style | {"markerfacecolor": "white", "linestyle": "none"}
            axes.plot(x, y, markersize=7, label=FAILED, zorder=3, **hollow)
        if len(curve.values) == 1:  # a band has no width there
            axes.vlines(curve.strengths, curve.low, curve.high, color=colour)
        axes.fill_between(curve.strengths, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
    axes.set(title=broken(panel.title, 3.8, 12), xlabel=broken(panel.strength, 3.8))
    axes.set_ylabel(broken(panel.quantity, 3.0))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(0, max(1.05 * max((max(curve.high) for curve in panel.curves.values()), default=0.0), 1e-9))
    if panel.ticks:
        last = max(max(curve.strengths) for curve in panel.curves.values())
        axes.set(xticks=list(panel.ticks), xlim=(panel.ticks[0] - 0.5, last + 0.5))
    elif not panel.logarithmic:
        axes.locator_params(axis="x", nbins=5)  # more labels of small numbers would overlap
    if panel.logarithmic:
        axes.set_xscale("log")
    if panel.marked is not None:
        axes.axvline(panel.marked, color="#5f5f5f", linewidth=1, linestyle=":")
        # The label stands on the side that has more room.
        across = axes.transAxes.inverted().transform(axes.transData.transform((panel.marked, 0.5)))[0]
        side = "left" if across < 0.5 else "right"
        where: Style = {"xycoords": ("data", "axes fraction"), "ha": side, "va": "top"}
        axes.annotate(" budget of training ", (panel.marked, 0.99), fontsize=8, **where)


def nearest_lines(runs: Mapping[str, Sequence[float]]) -> list[Line]:
    """Return the share of samples with an error within a distance, for each run; inf where none was found.

    >>> (line,) = nearest_lines({"mine": [0.2, math.inf, 0.1, 0.4]})
    >>> line.x, line.y, line.name
    ([0.0, 0.1, 0.2, 0.4], [0.0, 0.25, 0.5, 0.75], 'mine (none found for 1 of 4)')
    """
    lines = []
    for index, (name, distances) in enumerate(runs.items()):
        finite, total = sorted(value for value in distances if math.isfinite(value)), len(distances)
        none = f" (none found for {total - len(finite)} of {total})" if len(finite) < total else ""
        shares = [count / total for count in range(len(finite) + 1)]
        lines.append(Line(f"{name}{none}", [0.0, *finite], shares, canvas.run_colour(index), step="post"))
    return lines


def nearest_figure(runs: Mapping[str, Sequence[float]], units: str, title: str = "") -> Figure:
    """Draw ``nearest_lines``."""
    figure = canvas.new_figure(7.0, 4.0)
    axes = figure.subplots()
    canvas.draw_lines(axes, nearest_lines(runs))
    axes.set_xlabel(broken(f"distance to the nearest error that was found ({units})", 6.0))
    axes.set(ylabel="share of the samples", ylim=(0, 1.02))
    axes.set_xlim(left=0)
    canvas.legend_below(figure, *axes.get_legend_handles_labels())
    canvas.title_above(figure, title, 10)
    return figure


# Certificates: brackets against √ρ (fig:loss-bound, done soundly) and accuracy against ε

PROVEN, ATTAINED, POPULATION, ESTIMATED = COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[6]
_POINTS, _GRID = 60, 48
_MAX_RADII = 200  # steps are smaller than a picture shows
_BESIDE = 1e-6
_BELOW = 0.02  # room under 0, where a line would lie on the axis and not be seen


def distance_label(certificate: Certificate | SmoothedCertificate) -> str:
    """Label the axis of √ρ."""
    return f"root mean square distance √ρ ({units_of(certificate)})"


def bracket_lines(certificate: Certificate, curve: Sequence[Bracket], quantity: str) -> list[Line]:
    """Return the lines of ``quantity``, "loss" or "error", against the distance √ρ."""

    def line(name: str, attribute: str, colour: str, dash: str = "solid", *, filled: bool = False) -> Line:
        values = [getattr(bracket, attribute) for bracket in curve]
        return Line(name, [bracket.distance for bracket in curve], values, colour, dash, filled=filled)

    lines = []
    if certificate.no_proof is None:
        lines.append(line(f"at most ({certificate.evidence})", f"{quantity}_high", PROVEN))
    low = f"at least ({certificate.lower_evidence})"
    lines.append(line(low, f"{quantity}_low", ATTAINED, "dash", filled=bool(lines)))
    population = certificate.population
    if population is not None:
        scope = f"confidence {population.confidence:g}"
        if quantity == "loss" and certificate.clip is None:
            scope += f", loss clipped at {population.clip:.3g}"
        if certificate.assumptions:
            scope += ", assumed"
        lines.append(line(f"population at most ({scope})", f"population_{quantity}", POPULATION, "dash"))
        lines.append(line(f"population at least ({scope})", f"population_{quantity}_low", POPULATION, "dot"))
    return lines


def accuracy_lines(certificate: Certificate, farthest: float) -> list[Line]:
    """Return the share that no move of length ε misleads: certified, and left by attacks. All shares fall in
    steps, with points on both sides: between two the farther one's is proven, the nearer one's attained."""
    radii = {*certificate.epsilons, *(farthest * step / _GRID for step in range(_GRID + 1))}
    for costs in (certificate.proven_error_cost, certificate.attained_error_cost):
        if costs is not None:
            steps = {math.sqrt(max(cost, 0.0) / certificate.unit_cost) for cost in costs.tolist()}
            inside = sorted(radius for radius in steps if 0 < radius < farthest)
            for radius in inside[:: len(inside) // _MAX_RADII + 1]:
                radii |= {radius * (1 - _BESIDE), min(radius * (1 + _BESIDE), farthest)}
    x = sorted(radii)
    curve = certificate.accuracies(x)

    most, attacked = f"at most ({certificate.lower_evidence})", [bracket.attacked for bracket in curve]
    lines = [
        Line(
            f"at least ({certificate.evidence})",
            x,
            [bracket.certified for bracket in curve],
            PROVEN,
            step="pre",
        ),
        Line(most, x, attacked, ATTAINED, "dash", "post", filled=True),
    ]
    if certificate.population is not None:
        low = [bracket.population_certified for bracket in curve]
        high = [bracket.population_attacked for bracket in curve]
        lines.append(Line("population at least", x, low, POPULATION, "dash", "pre"))
        lines.append(Line("population at most", x, high, POPULATION, "dot", "post"))
    return lines


def accuracy_name(labels: str) -> str:
    """Name the share of correct predictions: with predicted labels, of unchanged ones."""
    return "accuracy" if labels == "given" else "share of unchanged predictions"


def bracket_figure(certificate: Certificate, title: str = "") -> Figure:
    """Draw loss, and for a classifier the error rate, against √ρ, and the accuracy against ε."""
    positive = [rho for rho in certificate.rhos if rho > 0] or [0.01]
    low, high = min(positive) / 2, max(positive) * 1.1
    rhos = [low * (high / low) ** (index / (_POINTS - 1)) for index in range(_POINTS)]
    curve = [certificate.bracket(rho) for rho in [0.0, *rhos]]
    distances = [bracket.distance for bracket in curve]
    classify = certificate.attained_error_cost is not None
    figure = canvas.new_figure(15.0 if classify else 7.0, 4.0)
    grid = figure.subplots(1, 3 if classify else 1, squeeze=False)[0]
    losses = grid[0]
    lines = bracket_lines(certificate, curve, "loss")
    if certificate.no_proof is None:
        estimates = [bracket.loss_estimate for bracket in curve]
        lines.append(Line("the paper's recipe (an estimate)", distances, estimates, ESTIMATED, "dot"))
    canvas.draw_lines(losses, lines)
    # The mean over a population is clipped even if that over the sample is not.
    clip, population = certificate.clip, certificate.population
    clipped = "" if population is None else f"\n(population: of min(loss, {population.clip:.3g}))"
    losses.set_ylabel(f"mean loss{clipped}" if clip is None else f"mean of min(loss, {clip:g})")
    guessing = certificate.vacuous_loss
    if guessing is not None:
        tops = [max(bracket.loss_high, bracket.population_loss or 0.0) for bracket in curve]
        ceiling = min(1.6 * guessing, 1.1 * max(tops))
        losses.set_ylim(-_BELOW * ceiling, ceiling)
        if guessing < ceiling:
            losses.axhline(guessing, color=ESTIMATED, linewidth=0.8)
            where, words = (0.02, guessing), "a constant answer: bounds above it say nothing"
            losses.annotate(words, where, xycoords=("axes fraction", "data"), va="bottom", fontsize=8)
    if classify:
        canvas.draw_lines(grid[1], bracket_lines(certificate, curve, "error"))
        grid[1].set(ylabel=error_name(certificate.labels), ylim=(-_BELOW, 1.02))
        roots = [math.sqrt(rho / certificate.unit_cost) for rho in certificate.rhos]
        farthest = 1.1 * max(*certificate.epsilons, *roots, 1e-3)
        canvas.draw_lines(grid[2], accuracy_lines(certificate, farthest))
        grid[2].set(xlim=(0, farthest), ylim=(-_BELOW, 1.02))
        accuracy = f"{accuracy_name(certificate.labels)} if each sample moves by at most ε"
        grid[2].set_ylabel(broken(accuracy, 3.0))
        grid[2].set_xlabel(broken(f"distance ε of each sample ({units_of(certificate)})", 4.2))
        grid[2].legend(loc="lower left", frameon=False, fontsize=8)
    for axes in grid[:2]:
        axes.set(xlabel=broken(distance_label(certificate), 4.2), xlim=(0, max(distances)))
    canvas.legend_below(figure, *losses.get_legend_handles_labels())
    remarks = [
        title,
        "" if certificate.no_proof is None else f"No proof: {certificate.no_proof}",
        differing_words(certificate),
        PREDICTED_LABELS_STATEMENT if certificate.labels == "predicted" else "",
        format_assumptions(certificate.assumptions) if certificate.assumptions else "",
    ]
    canvas.title_above(figure, "\n".join(filter(None, remarks)))
    return figure


def smoothed_panels(
    certificate: SmoothedCertificate, distances: Sequence[float]
) -> list[tuple[Quantity, str, list[Line]]]:
    """Return the quantities that have a panel, each with the label of its axis and its lines against √ρ. The
    ideal vote, which has no lower side, is drawn beside the vote if there is one."""
    labels = {
        "error": "error rate of one noisy prediction",
        "vote": f"error rate of a vote of {certificate.votes}",
        "ideal_vote": "error rate of the ideal vote",
    }
    rhos, panels = [distance**2 for distance in distances], []
    quantities = {quantity.name: quantity for quantity in certificate.quantities}
    ideal = quantities.pop("ideal_vote", None) if "vote" in quantities else None
    for name, quantity in quantities.items():
        lines = [Line(f"at most ({certificate.evidence})", distances, list(map(quantity.high, rhos)), PROVEN)]
        if name != "ideal_vote":
            lows = list(map(quantity.low, rhos))
            words = f"at least ({certificate.lower_evidence})"
            lines.append(Line(words, distances, lows, ATTAINED, "dash", filled=True))
        if name == "vote" and ideal is not None:
            words = f"at most, ideal vote ({certificate.evidence})"
            lines.append(Line(words, distances, list(map(ideal.high, rhos)), POPULATION, "dash"))
        label = labels.get(name, f"mean of min(loss, {quantity.ceiling:g}) in noise")
        panels.append((quantity, label, lines))
    return panels


def smoothed_figure(certificate: SmoothedCertificate, title: str = "") -> Figure:
    """Draw a panel for each quantity of a certificate by smoothing against the distance √ρ."""
    positive = [rho for rho in certificate.rhos if rho > 0] or [certificate.sigma**2]
    farthest = 1.1 * max(positive) ** 0.5
    panels = smoothed_panels(certificate, [farthest * index / (_POINTS - 1) for index in range(_POINTS)])
    figure = canvas.new_figure(4.6 * len(panels), 4.0)
    grid = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (quantity, label, lines) in zip(grid, panels, strict=True):
        canvas.draw_lines(axes, lines)
        axes.set(xlabel=broken(distance_label(certificate), 4.2), ylabel=label)
        axes.set(xlim=(0, farthest), ylim=(-_BELOW * quantity.ceiling, 1.02 * quantity.ceiling))
        axes.legend(loc="upper left", frameon=False, fontsize=8)
    scope = f"in noise of sigma {certificate.sigma:g}, for the population"
    canvas.title_above(figure, f"{title}\n{scope} (confidence {certificate.confidence:g})".strip())
    return figure


# Smoothness bounds, sensitivity and training


def layer_curvatures(bound: SmoothnessBound) -> list[tuple[str, float]]:
    """Return the positive and finite contributions of layers, named as in ``2 (ELU)``, to the curvature."""
    return [
        (f"{layer.path} ({layer.kind})" if layer.path else f"the {layer.kind}", layer.curvature)
        for layer in bound.layers
        if 0 < layer.curvature < math.inf
    ]


def smoothness_figure(bound: SmoothnessBound, sampled: float | None = None) -> Figure:
    """Draw the bound of each rule beside the sampled curvature (*estimated*), and each layer's share."""
    rules = {
        f"{name} ({bound.evidence})": value for name, value in bound.bounds.items() if 0 < value < math.inf
    }
    if not rules:
        raise ArgumentError("`bound` must have a finite, positive rule to be drawn; got none.")
    colours = [COLOURS[0]] * len(rules)
    if sampled is not None and sampled > 0:
        rules["sampled (estimated)"] = sampled
        colours.append(COLOURS[6])
    layers = layer_curvatures(bound)
    labels = [literal_text(broken(name, 2.6)) for name, _ in layers]
    figure = canvas.new_figure(11, max(3.6, 1.4 + 0.34 * sum(label.count("\n") + 1 for label in labels)))
    left, right = figure.subplots(1, 2)
    left.scatter(list(rules.values()), list(rules), color=colours, s=50)
    low, high = min(rules.values()), max(rules.values())
    left.set(xscale="log", xlim=(low / 2, high * 6), ylim=(len(rules) - 0.5, -0.5))  # room for the numbers
    for index, value in enumerate(rules.values()):
        left.annotate(f"{value:.4g}", (value, index), (8, 0), textcoords="offset points", va="center")
    left.set(xlabel="largest curvature of the loss", ylabel="rule", title="bounds, and what was found")
    left.grid(axis="x", color="#dddddd")
    if bound.assumptions:
        canvas.title_above(figure, format_assumptions(bound.assumptions), 8)
    sizes = [size for _, size in layers]
    bars = right.barh(range(len(sizes)), sizes, color=COLOURS[4])
    right.bar_label(bars, [f"{size:.4g}" for size in sizes], padding=3)
    right.set_yticks(range(len(sizes)), labels)
    right.invert_yaxis()
    right.margins(x=0.18)
    right.set(xlabel="curvature", ylabel="layer", title="contribution of each layer (sum rule)")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


_MAX_FEATURES = 20


def sensitivity_figure(moves: Sequence[Any], clean: Mapping[str, float], share: float) -> Figure:
    """Draw a bar for each of the 20 most fragile features, from attained to proven, where it moves alone by a
    share of its spread; ``clean`` are loss and accuracy of the unmoved data."""
    moves = list(moves[:_MAX_FEATURES])[::-1]
    labelled, count = moves[0].bracket.error_high is not None, len(moves)
    quantity = "error" if labelled else "loss"
    low, high = ([getattr(move.bracket, f"{quantity}_{side}") for move in moves] for side in ("low", "high"))
    widths = [top - bottom for bottom, top in zip(low, high, strict=True)]
    # Two long names may be alike where they are broken: they are numbered.
    numbered = [f"{count - index}. {move.feature.name}" for index, move in enumerate(moves)]
    names = [literal_text(broken(name, 3.4)) for name in numbered]
    figure = canvas.new_figure(7.8, 1.6 + 0.34 * sum(name.count("\n") + 1 for name in names))
    axes = figure.subplots()
    axes.barh(names, widths, left=low, color=COLOURS[0])
    axes.scatter(low, names, color=COLOURS[1], marker="|", s=60, label="attained", zorder=3)
    before = 1 - clean["accuracy"] if labelled else clean["loss"]
    axes.axvline(before, color=COLOURS[6], linewidth=1, linestyle=":", label="unmoved data")
    axes.set_xlabel(f"{quantity}: at least (attained, left end), at most ({moves[0].evidence}, right end)")
    axes.spines[["top", "right"]].set_visible(False)
    canvas.title_above(figure, f"one feature moves by {share:g} of its standard deviation (root mean square)")
    canvas.legend_below(figure, *axes.get_legend_handles_labels())
    return figure


def training_curves(history: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, dict[str, list[float]]]]:
    """Return, for each measured quantity, the label of its axis, and its curves by epoch."""
    # Without an adversary nothing is moved.
    training = "training" if history[-1]["rho_running"] is None else "training, at moved inputs"
    held_out, quantities = "held out, unmoved data", {}
    for name, label, keys in (
        ("loss", "mean loss", {training: "loss", held_out: "calibration_loss"}),
        ("accuracy", "accuracy", {training: "accuracy", held_out: "calibration_accuracy"}),
        ("gradients", "gradients per sample", {"gradient evaluations to find a sample's move": "gradients"}),
    ):
        curves = {words: [entry[key] for entry in history] for words, key in keys.items()}
        measured = {words: values for words, values in curves.items() if None not in values}
        if measured:
            quantities[name] = (label, measured)
    return quantities


def epoch_ticks(last: int) -> list[int]:
    """Return at most nine whole epochs from 1 on, for the axis.

    >>> epoch_ticks(3), epoch_ticks(20)
    ([1, 2, 3], [1, 5, 10, 15, 20])
    """
    steps = (digit * 10**power for power in range(12) for digit in (1, 2, 5))
    step = next(step for step in steps if last <= 8 * step)
    return sorted({1, *range(step, last + 1, step)})


def training_figure(history: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """Draw loss, accuracy and gradients by epoch; a curve that was not measured is left out."""
    require(len(history) > 0, "history", "have an epoch", list(history))
    epochs = [float(entry["epoch"]) for entry in history]
    ticks = epoch_ticks(int(epochs[-1]))
    panels = []
    for label, curves in training_curves(history).values():
        lines = {name: Curve(epochs, values, values, values) for name, values in curves.items()}
        panels.append(Panel("", "epoch", label, lines, ticks=ticks))
    return sweep_figure(panels, title)


# Monitoring: distance by time, with the line of chance and the budget

_VERDICTS = {"fine": (COLOURS[2], "o"), "alarm": (COLOURS[1], "X"), "undecided": (COLOURS[6], "s")}
_MOST_TICKS = 14


def monitor_figure(results: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """Draw stored checks in their order: the change in multiples of chance, with the alarm line; the distance
    with the budget; and observed errors, with the bound where it is not vacuous."""
    require(len(results) > 0, "results", "hold a check", "none")
    met = [_met(result) for result in results]
    errors = any(value is not None for value in met)
    panels = 3 if errors else 2
    figure = canvas.new_figure(max(6.0, min(12.0, 1.5 + 0.45 * len(results))), 0.6 + 2.1 * panels)
    grid = figure.subplots(panels, 1, squeeze=False, sharex=True)[:, 0]
    places, (first, second) = range(len(results)), grid[:2]
    change = [result["statistic"] for result in results]
    first.plot(places, change, color=COLOURS[6], linewidth=0.8, zorder=1)
    lines = [result["line"] for result in results]
    first.plot(places, lines, color=COLOURS[1], linestyle="--", label="alarm line")
    for verdict, (colour, marker) in _VERDICTS.items():
        inside = [place for place in places if results[place]["verdict"] == verdict]
        values = [change[place] for place in inside]
        if inside:
            first.plot(inside, values, color=colour, marker=marker, linestyle="none", label=verdict, zorder=3)
    first.set_ylabel(broken("change, in multiples of chance", 2.0))
    first.set_ylim(0, 1.08 * max(*change, *lines, 1e-9))
    low, high = ([_root(result, side) for result in results] for side in ("low", "high"))
    second.vlines(places, low, high, color=COLOURS[6], linewidth=4, alpha=0.5, label="at least – at most")
    budget = [math.sqrt(result["rho"] / result["distance"]["unit"]) for result in results]
    second.plot(places, budget, color=COLOURS[0], label="budget √ρ")
    units = results[-1].get("units") or "units of the inputs"
    second.set_ylabel(broken(f"distance ({units})", 2.0))
    second.set_ylim(0, None)
    if errors:
        _draw_met(grid[2], results, met)
    for each in grid:
        each.spines[["top", "right"]].set_visible(False)
    handles, names = (
        first_ + second_
        for first_, second_ in zip(
            *(each.get_legend_handles_labels() for each in (first, second)), strict=True
        )
    )
    canvas.legend_below(figure, handles, names)
    step = -(-len(results) // _MOST_TICKS)
    ticks = [canvas.literal_text(str(result["name"])) for result in results]
    grid[-1].set_xticks(list(places)[::step], ticks[::step], rotation=45, ha="right", fontsize=8)
    canvas.title_above(figure, title, 11)
    return figure


def _root(result: Mapping[str, Any], side: str) -> float:
    """A side of the distance, as a root mean square distance; that of the other side where it is infinite."""
    value = result["distance"][side]
    value = result["distance"]["low"] if value is None else value
    return math.sqrt(value / result["distance"]["unit"])


def _met(result: Mapping[str, Any]) -> float | None:
    own = result["realised"]
    return None if own is None else own["loss"] if own["error"] is None else own["error"]


def _draw_met(axes: Axes, results: Sequence[Mapping[str, Any]], met: Sequence[float | None]) -> None:
    """Draw what was observed on labelled rows, and the bound at the measured distance."""
    inside = [place for place, value in enumerate(met) if value is not None]
    axes.plot(
        inside,
        [value for value in met if value is not None],
        color=COLOURS[1],
        marker="o",
        markersize=4,
        label="observed",
    )
    limit = math.inf if results[-1]["regression"] else 1.0
    bounds = [
        (place, result["bound"])
        for place, result in enumerate(results)
        if result["bound"] is not None and result["bound"] < limit
    ]
    if bounds:
        axes.plot(*zip(*bounds, strict=True), color=COLOURS[0], marker="_", linestyle="none", label="at most")
    axes.set_ylabel("mean loss" if results[-1]["regression"] else "error rate")
    tops = [value for value in met if value is not None] + [bound for _, bound in bounds]
    axes.set_ylim(0, 1.08 * max(*tops, 1e-9))
    axes.legend(frameon=False, fontsize=8)
