"""The page of ``certified-accuracy``: our figures beside those that were published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from certus._format import at_least
from certus.display.attack_figures import Curve, Panel, sweep_figure
from certus.evidence import Evidence
from studies.page import markdown_table
from studies.reproduction import Measured, Quantity, Verdict, outcome_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PUBLISHED: dict[str, dict[float, float]] = {
    "GloRo": {0.3: 95.7, 1.58: 62.8},
    "CRT (curvature bounds)": {1.58: 69.8},
    "nearest prototypes": {1.58: 73.0},
    "BCP": {1.58: 48.2},
}
"""Per cent of MNIST's test images, deterministic L2 certificates."""

_CLEAN = {"BCP": "92.5"}
"""Clean accuracy of the same networks, where it is at hand."""

_NAMES = {"near": "certus, for small distances", "far": "certus, for large distances"}
"""Networks as the table names them."""

_HEAD = """\
The share of MNIST's test images ({images:,}) that are *proven* to be classified rightly whatever moves them
by at most ε in L2, in all of space (not only in [0, 1]); and the share that is left by errors that were
found."""

_COUNTS = """\
Certified – attacked, both exact counts of images. Ours are of one hidden layer of 1,024 log cosh units on 100
principal components, one network each; epochs: {epochs}. The others are as published, from networks of
other kinds; a dash where no figure is at hand.

Both networks come from certified training (the curvature of cross-entropy is at most 2γ at every input), on
images that two steps of PGM moved by ε in L2: {plans}.

The certified radius of an image is that of a parabola that touches the margin where it is largest on a sphere
([how](../../docs/mathematics.md#how-far-the-nearest-error-is)). Of the images that are classified rightly, a
share of at least {same} has a radius within 1% of the distance of an error that was found. Where both counts
of a cell agree no better proof is possible, only a better network."""

_CHOICE = """\
Settings were compared on {images} images of the calibration split of seed 0, epochs: {epochs}; per cent
certified:"""


def _networks(measured: Measured) -> dict[str, Mapping[str, Any]]:
    return {name: measured[name] for name in _NAMES}


def accuracy_text(measured: Measured) -> str:
    """The table, how it was made, and what the settings were chosen from."""
    networks = _networks(measured)
    first = networks["near"]
    epsilons = [one["epsilon"] for one in first["within"]]
    rows = []
    for name, row in networks.items():
        cells = [f"{_per_cent(one['certified'])} – {_per_cent(one['attacked'])}" for one in row["within"]]
        rows.append([f"{_NAMES[name]} (γ = {row['gamma']:g})", _per_cent(row["clean"]), *cells])
    for name, known in _PUBLISHED.items():
        cells = [f"{known[epsilon]}" if epsilon in known else "–" for epsilon in epsilons]
        rows.append([name, _CLEAN.get(name, "–"), *cells])
    plans = "; ".join(
        f"γ = {row['gamma']:g}, temperature {row['temperature']:g}, ε = {row['epsilon']}"
        for row in networks.values()
    )
    same = at_least(min(row["close"] for row in networks.values()), 3)
    head = ["per cent of the test images", "clean", *(f"ε = {epsilon:g}" for epsilon in epsilons)]
    return "\n\n".join(
        [
            _HEAD.format(**first),
            markdown_table(head, rows),
            _COUNTS.format(epochs=first["epochs"], plans=plans, same=same),
            _choices([one for name, one in measured.items() if name.startswith("choice-")], head[1:]),
        ]
    )


def _choices(found: list[Mapping[str, Any]], head: list[str]) -> str:
    rows = []
    for row in found:
        cells = [f"{row[name]:g}" for name in ("gamma", "temperature", "epsilon", "margin")]
        shares = [row["clean"], *(one["certified"] for one in row["within"])]
        rows.append([*cells, *(_per_cent(share, 1) for share in shares)])
    table = markdown_table(["γ", "temperature", "ε of PGM", "margin", *head], rows)
    return f"{_CHOICE.format(**found[0])}\n\n{table}"


def accuracy_statements(measured: Measured) -> list[Verdict]:
    """At every distance with a published figure, the better of ours beside the best of those."""
    verdicts, networks = [], _networks(measured)
    for place, one in enumerate(networks["near"]["within"]):
        epsilon = one["epsilon"]
        published = {name: figures[epsilon] for name, figures in _PUBLISHED.items() if epsilon in figures}
        if published:
            ours = max((row["within"][place] for row in networks.values()), key=lambda row: row["certified"])
            verdicts.append(
                Verdict(
                    name=f"ε = {epsilon:g}",
                    label="",
                    claim=f"Are more images certified within ε = {epsilon:g} than by the best published "
                    "figure at hand?",
                    rule="a larger share of certified test images than every published one",
                    outcome=outcome_of(100 * ours["certified"] > max(published.values())),
                    paper={f"{name}, %": share for name, share in published.items()},
                    ours={
                        "certified": Quantity(ours["certified"], places=2, percent=True),
                        "left by attacks": Quantity(ours["attacked"], places=2, percent=True),
                    },
                    evidence=Evidence.PROVEN,
                )
            )
    return verdicts


def draw_accuracy(measured: Measured) -> Figure:
    """Both networks at every distance."""
    curves = {}
    for name, row in _networks(measured).items():
        certified, attacked = ([one[kind] for one in row["curve"]] for kind in ("certified", "attacked"))
        distances = [one["epsilon"] for one in row["curve"]]
        curves[_NAMES[name]] = Curve(distances, certified, certified, attacked)
    images = measured["near"]["images"]
    panel = Panel(f"MNIST, {images:,} test images", "ε in L2", "accuracy within ε", curves)
    return sweep_figure([panel], "Certified (line) and attacked (upper end of the band)")


def _per_cent(share: float, digits: int = 2) -> str:
    """Shares of 10,000 images have four decimals, shares of 500 three: nothing is rounded away."""
    return f"{100 * share:.{digits}f}"
