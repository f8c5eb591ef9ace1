"""Figures of certificates: brackets against √ρ (fig:loss-bound, done soundly) and accuracy against ε.

The lines of a certificate are computed here once: for matplotlib below, and for the charts of the report.
Attained lines are dashed and lie above proven ones, so that both are seen where they agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from certus.bounds.smoothness import format_assumptions
from certus.certificates import Bracket, Certificate
from certus.certificates.files import PREDICTED_LABELS_STATEMENT
from certus.display.canvas import (
    COLOURS,
    Line,
    broken,
    draw_lines,
    legend_below,
    new_figure,
    title_above,
)
from certus.display.tables import differing_words, error_name
from certus.smoothing.certificate import Quantity, SmoothedCertificate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROVEN, ATTAINED, POPULATION, ESTIMATED = COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[6]
DISTANCE, RADIUS = "root mean square distance √ρ", "distance ε of each sample"
_POINTS, _GRID = 60, 48
_MAX_RADII = 200  # steps are smaller than a picture shows
_BESIDE = 1e-6
_BELOW = 0.02  # room under 0, where a line would lie on the axis and not be seen


def units_of(certificate: Certificate | SmoothedCertificate) -> str:
    """Return the units of distances; a certificate that was made in Python has no name for them."""
    return str(certificate.about.get("units") or "the norm of the cost")


def bracket_lines(certificate: Certificate, curve: Sequence[Bracket], quantity: str) -> list[Line]:
    """Return the lines of ``quantity``, "loss" or "error", against the distance √ρ."""

    def line(name: str, attribute: str, colour: str, dash: str = "solid", *, filled: bool = False) -> Line:
        values = [getattr(bracket, attribute) for bracket in curve]
        return Line(name, [bracket.distance for bracket in curve], values, colour, dash, filled=filled)

    lines = []
    if certificate.no_proof is None:
        lines.append(line(f"at most ({certificate.evidence})", f"{quantity}_high", PROVEN))
    lines.append(line("at least (attained)", f"{quantity}_low", ATTAINED, "dash", filled=bool(lines)))
    people = certificate.population
    if people is not None:
        scope = f"confidence {people.confidence:g}"
        if quantity == "loss" and certificate.clip is None:
            scope += f", loss clipped at {people.clip:.3g}"
        if certificate.assumptions:
            scope += ", assumed"
        lines.append(line(f"population at most ({scope})", f"population_{quantity}", POPULATION, "dash"))
        lines.append(line(f"population at least ({scope})", f"population_{quantity}_low", POPULATION, "dot"))
    return lines


def accuracy_lines(certificate: Certificate, farthest: float) -> list[Line]:
    """Return the share that no move of length ε misleads: certified, and left by attacks.

    All shares fall with ε, in steps at the radii that were certified and found. The lines have points on both
    sides of them. Between two points the value at the farther one is proven, that at the nearer one attained.
    """
    radii = {*certificate.epsilons, *(farthest * step / _GRID for step in range(_GRID + 1))}
    for costs in (certificate.proven_error_cost, certificate.attained_error_cost):
        if costs is not None:
            steps = {math.sqrt(max(cost, 0.0) / certificate.unit_cost) for cost in costs.tolist()}
            inside = sorted(radius for radius in steps if 0 < radius < farthest)
            for radius in inside[:: len(inside) // _MAX_RADII + 1]:
                radii |= {radius * (1 - _BESIDE), min(radius * (1 + _BESIDE), farthest)}
    x = sorted(radii)
    curve = certificate.accuracies(x)
    attacked, certified = [point.attacked for point in curve], [point.certified for point in curve]
    lines = [
        Line(f"at least ({certificate.evidence})", x, certified, PROVEN, step="pre"),
        Line("at most (attained)", x, attacked, ATTAINED, "dash", step="post", filled=True),
    ]
    if certificate.population is not None:
        low = [point.population_certified for point in curve]
        high = [point.population_attacked for point in curve]
        lines.append(Line("population at least", x, low, POPULATION, "dash", step="pre"))
        lines.append(Line("population at most", x, high, POPULATION, "dot", step="post"))
    return lines


def accuracy_name(labels: str) -> str:
    """Name the share of correct predictions: with predicted labels, of unchanged ones."""
    return "accuracy" if labels == "given" else "share of unchanged predictions"


def bracket_figure(certificate: Certificate, title: str = "") -> Figure:
    """Draw loss, and for a classifier the error rate, against √ρ, and the accuracy against ε."""
    units = units_of(certificate)
    positive = [rho for rho in certificate.rhos if rho > 0] or [0.01]
    low, high = min(positive) / 2, max(positive) * 1.1
    rhos = [low * (high / low) ** (index / (_POINTS - 1)) for index in range(_POINTS)]
    curve = [certificate.bracket(rho) for rho in [0.0, *rhos]]
    distances = [bracket.distance for bracket in curve]
    classify = certificate.attained_error_cost is not None
    figure = new_figure(15.0 if classify else 7.0, 4.0)
    grid = figure.subplots(1, 3 if classify else 1, squeeze=False)[0]
    losses = grid[0]
    draw_lines(losses, bracket_lines(certificate, curve, "loss"))
    if certificate.no_proof is None:
        estimates = [bracket.loss_estimate for bracket in curve]
        draw_lines(losses, [Line("the paper's recipe (an estimate)", distances, estimates, ESTIMATED, "dot")])
    losses.set_ylabel(_loss_name(certificate))
    guessing = certificate.vacuous_loss
    if guessing is not None:
        tops = [max(bracket.loss_high, bracket.population_loss or 0.0) for bracket in curve]
        ceiling = min(1.6 * guessing, 1.1 * max(tops))
        losses.set_ylim(-_BELOW * ceiling, ceiling)
        if guessing < ceiling:
            losses.axhline(guessing, color=ESTIMATED, linewidth=0.8)
            place, words = (0.02, guessing), "ln K: bounds above it say nothing"
            losses.annotate(words, place, xycoords=("axes fraction", "data"), va="bottom", fontsize=8)
    if classify:
        draw_lines(grid[1], bracket_lines(certificate, curve, "error"))
        grid[1].set(ylabel=error_name(certificate.labels), ylim=(-_BELOW, 1.02))
        roots = [math.sqrt(rho / certificate.unit_cost) for rho in certificate.rhos]
        farthest = 1.1 * max(*certificate.epsilons, *roots, 1e-3)
        draw_lines(grid[2], accuracy_lines(certificate, farthest))
        grid[2].set(xlim=(0, farthest), ylim=(-_BELOW, 1.02))
        accuracy = f"{accuracy_name(certificate.labels)} if each sample moves by at most ε"
        grid[2].set_ylabel(broken(accuracy, 3.0))
        grid[2].set_xlabel(broken(f"{RADIUS} ({units})", 4.2))
        grid[2].legend(loc="lower left", frameon=False, fontsize=8)
    for axes in grid[:2]:
        axes.set(xlabel=broken(f"{DISTANCE} ({units})", 4.2), xlim=(0, max(distances)))
    legend_below(figure, *losses.get_legend_handles_labels())
    remarks = [
        title,
        "" if certificate.no_proof is None else f"No proof: {certificate.no_proof}",
        differing_words(certificate),
        PREDICTED_LABELS_STATEMENT if certificate.labels == "predicted" else "",
        format_assumptions(certificate.assumptions) if certificate.assumptions else "",
    ]
    if any(remarks):
        title_above(figure, "\n".join(filter(None, remarks)))
    return figure


def _loss_name(certificate: Certificate) -> str:
    """Name the mean; that of a population is clipped even if that of the sample is not."""
    if certificate.clip is not None:
        return f"mean of min(loss, {certificate.clip:g})"
    people = certificate.population
    return "mean loss" if people is None else f"mean loss\n(population: of min(loss, {people.clip:.3g}))"


# ---------------------------------------------------------------------------------------------------------
# Certificates by randomised smoothing
# ---------------------------------------------------------------------------------------------------------


def smoothed_quantities(certificate: SmoothedCertificate) -> list[Quantity]:
    """Return the quantities that have a panel: the ideal vote is drawn beside the vote, if there is one."""
    names = {quantity.name for quantity in certificate.quantities}
    return [one for one in certificate.quantities if one.name != "ideal_vote" or "vote" not in names]


def smoothed_lines(
    certificate: SmoothedCertificate, quantity: Quantity, distances: Sequence[float]
) -> list[Line]:
    """Return the lines of a quantity against √ρ; an ideal vote cannot be measured and has no lower side."""
    evidence = certificate.evidence
    highs = [quantity.high(distance**2) for distance in distances]
    lines = [Line(f"at most ({evidence})", distances, highs, PROVEN)]
    if quantity.name != "ideal_vote":
        lows = [quantity.low(distance**2) for distance in distances]
        lines.append(Line("at least (attained)", distances, lows, ATTAINED, "dash", filled=True))
    for ideal in certificate.quantities:
        if (quantity.name, ideal.name) == ("vote", "ideal_vote"):
            highs = [ideal.high(distance**2) for distance in distances]
            name = f"at most, ideal vote ({evidence})"
            lines.append(Line(name, distances, highs, POPULATION, "dash"))
    return lines


def quantity_name(quantity: Quantity, certificate: SmoothedCertificate) -> str:
    """Name a quantity on an axis."""
    return {
        "error": "error rate of one noisy prediction",
        "vote": f"error rate of a vote of {certificate.votes}",
        "ideal_vote": "error rate of the ideal vote",
        "loss": f"mean of min(loss, {quantity.ceiling:g}) in noise",
    }[quantity.name]


def smoothed_figure(certificate: SmoothedCertificate, title: str = "") -> Figure:
    """Draw a panel for each quantity against the distance √ρ."""
    positive = [rho for rho in certificate.rhos if rho > 0] or [certificate.sigma**2]
    farthest = 1.1 * max(positive) ** 0.5
    distances = [farthest * index / (_POINTS - 1) for index in range(_POINTS)]
    quantities = smoothed_quantities(certificate)
    figure = new_figure(4.6 * len(quantities), 4.0)
    grid = figure.subplots(1, len(quantities), squeeze=False)[0]
    for axes, quantity in zip(grid, quantities, strict=True):
        draw_lines(axes, smoothed_lines(certificate, quantity, distances))
        axes.set_xlabel(broken(f"{DISTANCE} ({units_of(certificate)})", 4.2))
        axes.set_ylabel(quantity_name(quantity, certificate))
        axes.set(xlim=(0, farthest), ylim=(-_BELOW * quantity.ceiling, 1.02 * quantity.ceiling))
        axes.legend(loc="upper left", frameon=False, fontsize=8)
    scope = (
        f"in noise of sigma {certificate.sigma:g}, for the population (confidence {certificate.confidence:g})"
    )
    title_above(figure, f"{title}\n{scope}".strip())
    return figure
