"""A certificate by smoothing as a picture: each quantity between what is attained and what is proven."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from certus.figures.canvas import COLOURS, broken, new_figure, save_figure, title_above
from certus.smoothing.certificate import Quantity, SmoothedCertificate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINTS = 60
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
        _draw(axes, one, distances)
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


def _draw(axes: Axes, one: Quantity, distances: list[float]) -> None:
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
