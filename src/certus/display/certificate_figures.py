"""Figures of certificates: brackets and certified accuracy.

Where certified accuracy falls: at the radii of its certificate, which a grid of distances would miss.

A certificate as a picture: what is attained, what is proven, and what lies between (fig:loss-bound, done
soundly).

A certificate by smoothing as a picture: each quantity between what is attained and what is proven.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from certus.bounds.smoothness import format_assumptions
from certus.certificates import Bracket, Certificate
from certus.certificates.files import OWN_LABELS
from certus.display.canvas import COLOURS, broken, legend_below, new_figure, save_figure, title_above
from certus.display.tables import differing_words, error_name
from certus.smoothing.certificate import Quantity, SmoothedCertificate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GRID = 48
_MOST = 200  # steps are smaller than a picture shows
_BESIDE = 1e-6


def step_places(certificate: Certificate, far: float) -> list[float]:
    """Distances up to ``far``: a grid, the ε asked for, and both sides of the radii proven and found.

    Both accuracies fall with the distance. So between two places, the value at the farther one is proven and
    that at the nearer one attained, whichever places are left out.
    """
    places = {*certificate.epsilons, *(far * step / _GRID for step in range(_GRID + 1))}
    for costs in (certificate.error_floor, certificate.error_found):
        if costs is not None:
            radii = {math.sqrt(max(cost, 0.0) / certificate.unit_price) for cost in costs.tolist()}
            inside = sorted(radius for radius in radii if 0 < radius < far)
            for radius in inside[:: len(inside) // _MOST + 1]:
                places |= {radius * (1 - _BESIDE), min(radius * (1 + _BESIDE), far)}
    return sorted(places)


_POINTS = 60
_BELOW = 0.02  # room under 0, where a line would lie on the axis and not be seen
_Values = Sequence[float | None]


def draw_bracket(certificate: Certificate, path: Path, units: str, title: str = "") -> None:
    """Write ``bracket_figure`` to a file."""
    save_figure(bracket_figure(certificate, units, title), path)


def bracket_figure(certificate: Certificate, units: str, title: str = "") -> Figure:
    """Loss, and for a classifier the error rate, against the distance √ρ, and the accuracy within ε."""
    positive = [rho for rho in certificate.rhos if rho > 0] or [0.01]
    low, high = min(positive) / 2, max(positive) * 1.1
    rhos = [low * (high / low) ** (index / (_POINTS - 1)) for index in range(_POINTS)]
    curve = [certificate.bracket(rho) for rho in [0.0, *rhos]]
    classify = certificate.error_found is not None
    figure = new_figure(15.0 if classify else 7.0, 4.0)
    grid = figure.subplots(1, 3 if classify else 1, squeeze=False)[0]
    _draw(
        grid[0],
        curve,
        [one.loss_low for one in curve],
        [one.loss_high for one in curve],
        ([one.population_loss_low for one in curve], [one.population_loss for one in curve]),
        _loss_words(certificate),
        certificate,
    )
    if certificate.no_proof is None:
        grid[0].plot(
            [one.distance for one in curve],
            [one.loss_estimate for one in curve],
            color=COLOURS[6],
            linestyle=":",
            label="the paper's recipe (an estimate)",
        )
    most = certificate.vacuous_loss
    if most is not None:
        tops = [one.loss_high for one in curve] + [one.population_loss or 0.0 for one in curve]
        ceiling = min(1.6 * most, 1.1 * max(tops))
        grid[0].set_ylim(-_BELOW * ceiling, ceiling)
        if most < ceiling:
            grid[0].axhline(most, color=COLOURS[6], linewidth=0.8)
            place = (0.02, most)
            words = "ln K: bounds above it say nothing"
            grid[0].annotate(words, place, xycoords=("axes fraction", "data"), va="bottom", fontsize=8)
    if classify:
        _draw(
            grid[1],
            curve,
            [one.error_low for one in curve],
            [one.error_high for one in curve],
            ([one.population_error_low for one in curve], [one.population_error for one in curve]),
            error_name(certificate.labels),
            certificate,
        )
        grid[1].set_ylim(-_BELOW, 1.02)
        _draw_accuracy(grid[2], certificate, units)
    for axes in grid[:2]:
        axes.set_xlabel(broken(f"root mean square distance √ρ ({units})", 4.2))
    handles, labels = grid[0].get_legend_handles_labels()
    legend_below(figure, handles, labels)
    if certificate.no_proof is not None:
        title = f"{title}\nNo proof: {certificate.no_proof}".strip()
    if certificate.differing:
        title = f"{title}\n{differing_words(certificate)}".strip()
    if certificate.labels == "predicted":
        title = f"{title}\n{OWN_LABELS}".strip()
    if certificate.assumptions:
        title = f"{title}\n{format_assumptions(certificate.assumptions)}".strip()
    if title:
        title_above(figure, title)
    return figure


def _loss_words(certificate: Certificate) -> str:
    """What the mean is of; that of a population is clipped also where that of the sample is not."""
    if certificate.clip is not None:
        return f"mean of min(loss, {certificate.clip:g})"
    people = certificate.population
    return "mean loss" if people is None else f"mean loss\n(population: of min(loss, {people.clip:.3g}))"


def _draw(
    axes: Axes,
    curve: list[Bracket],
    low: _Values,
    high: _Values,
    population: tuple[_Values, _Values],
    quantity: str,
    certificate: Certificate,
) -> None:
    distances = [one.distance for one in curve]
    bottom, top = _numbers(low), _numbers(high)
    if certificate.no_proof is None:
        axes.fill_between(distances, bottom, top, color=COLOURS[0], alpha=0.12, linewidth=0)
        axes.plot(distances, top, color=COLOURS[0], label=f"at most, on the sample ({certificate.evidence})")
    label = "at least, on the sample (attained)"
    axes.plot(distances, bottom, color=COLOURS[1], linestyle=(0, (4, 3)), label=label)  # may lie on the other
    if certificate.population is not None:
        sure = f"for the population (confidence {certificate.population.confidence:g})"
        sure += ", assumed" if certificate.assumptions else ""
        if certificate.clip is None:
            sure += f"; its loss is clipped at {certificate.population.clip:.3g}"
        for values, side in zip(population, ("at least", "at most"), strict=True):
            style = "--" if side == "at most" else "-."
            label = f"{side}, {sure}"
            axes.plot(distances, _numbers(values), color=COLOURS[2], linestyle=style, label=label)
    axes.set(ylabel=quantity, xlim=(0, max(distances)))
    axes.spines[["top", "right"]].set_visible(False)


def _draw_accuracy(axes: Axes, certificate: Certificate, units: str) -> None:
    """The share that no move of length ε misleads: certified, and left by attacks."""
    roots = [math.sqrt(rho / certificate.unit_price) for rho in certificate.rhos]
    far = 1.1 * max(*certificate.epsilons, *roots, 1e-3)
    distances = step_places(certificate, far)
    curve = certificate.accuracies(distances)
    low, high = [one.certified for one in curve], [one.attacked for one in curve]
    # Both fall with ε: between two points the value at the farther one is proven, at the nearer one attained.
    axes.fill_between(distances, low, high, color=COLOURS[0], alpha=0.12, linewidth=0)
    proven = f"at least ({certificate.evidence})"
    axes.plot(distances, low, color=COLOURS[0], drawstyle="steps-pre", label=proven)
    attained, dashes = "at most (attained)", (0, (4, 3))
    axes.plot(distances, high, color=COLOURS[1], drawstyle="steps-post", linestyle=dashes, label=attained)
    if certificate.population is not None:
        everyone = ([one.population_certified for one in curve], [one.population_attacked for one in curve])
        for values, side in zip(everyone, ("at least", "at most"), strict=True):
            style, label = "--" if side == "at least" else "-.", f"{side}, for the population"
            steps = "steps-pre" if side == "at least" else "steps-post"
            axes.plot(
                distances,
                _numbers(values),
                color=COLOURS[2],
                drawstyle=steps,
                linestyle=style,
                label=label,
            )
    share = "accuracy" if certificate.labels == "given" else "share of unchanged predictions"
    axes.set_ylabel(broken(f"{share} if each sample moves by at most ε", 3.0))
    axes.set_xlabel(broken(f"distance ε of each sample ({units})", 4.2))
    axes.set(xlim=(0, far), ylim=(-_BELOW, 1.02))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", frameon=False, fontsize=8)


def _numbers(values: _Values) -> list[float]:
    return [math.nan if value is None else value for value in values]


_WIDTH, _HEIGHT = 4.6, 4.0


def draw_smoothed(certificate: SmoothedCertificate, path: Path, units: str, title: str = "") -> None:
    """Write ``smoothed_figure`` to a file."""
    save_figure(smoothed_figure(certificate, units, title), path)


def smoothed_figure(certificate: SmoothedCertificate, units: str, title: str = "") -> Figure:
    """One panel for each quantity, against the distance √ρ; the ideal vote stands beside the deployed one."""
    positive = [rho for rho in certificate.rhos if rho > 0] or [certificate.sigma**2]
    far = 1.1 * max(positive) ** 0.5
    distances = [far * index / (_POINTS - 1) for index in range(_POINTS)]
    known = {one.name: one for one in certificate.quantities}
    shown = [one for one in certificate.quantities if one.name != "ideal_vote" or "vote" not in known]
    figure = new_figure(_WIDTH * len(shown), _HEIGHT)
    for axes, one in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        _draw_smoothed(axes, one, distances)
        if one.name == "vote" and "ideal_vote" in known:
            tops = [known["ideal_vote"].high(distance**2) for distance in distances]
            axes.plot(distances, tops, color=COLOURS[2], linestyle="--", label="at most, ideal vote (proven)")
        axes.set_xlabel(broken(f"root mean square distance √ρ ({units})", 4.2))
        axes.set_ylabel(quantity_words(one, certificate))
        axes.set(xlim=(0, far), ylim=(-0.02 * one.ceiling, 1.02 * one.ceiling))  # a line at 0 shows
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="upper left", frameon=False, fontsize=8)
    sure = (
        f"in noise of sigma {certificate.sigma:g}, for the population (confidence {certificate.confidence:g})"
    )
    title_above(figure, f"{title}\n{sure}".strip())
    return figure


def _draw_smoothed(axes: Axes, one: Quantity, distances: list[float]) -> None:
    tops = [one.high(distance**2) for distance in distances]
    axes.plot(distances, tops, color=COLOURS[0], label="at most (proven)")
    if one.name != "ideal_vote":  # nobody can measure it
        bottoms = [one.low(distance**2) for distance in distances]
        axes.fill_between(distances, bottoms, tops, color=COLOURS[0], alpha=0.12, linewidth=0)
        axes.plot(distances, bottoms, color=COLOURS[1], label="at least (attained)")


def quantity_words(one: Quantity, certificate: SmoothedCertificate) -> str:
    """What is counted, for an axis."""
    return {
        "error": "error rate of one noisy prediction",
        "vote": f"error rate of a vote of {certificate.votes}",
        "ideal_vote": "error rate of the ideal vote",
        "loss": f"mean of min(loss, {one.ceiling:g}) in noise",
    }[one.name]
