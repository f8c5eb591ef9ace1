"""The page of ``smoothing``: three bounds beside each other, and the deterministic bracket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from certus._format import at_least, at_most
from certus.display.attack_figures import Curve, Panel, sweep_figure
from certus.evidence import Evidence
from studies.page import markdown_table
from studies.reproduction import Measured, Quantity, Verdict, outcome_of_several

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = {
    "ours": "ours",
    "clopper": "Clopper–Pearson per sample",
    "affine": "concave majorant of the mean",
}
_HEAD = """\
Networks that were trained with Gaussian noise of σ = {sigma:g} on their inputs: how often they err in that
noise at most, on any distribution within √ρ of the population of the test images. All bounds of one network
rest on the same {draws} predictions of each image, and each number has the confidence 0.95 by itself ([what
is certified, and why](../../docs/smoothing.md)). The least of the three is in bold. The last row is about the
network without noise: at least (attained) – at most (proven), for the population, with the same
confidence."""


def _entries(measured: Measured) -> dict[str, dict[str, Any]]:
    """Data → what was measured with noise, and without."""
    found: dict[str, dict[str, Any]] = {}
    for part, content in measured.items():
        name, _, kind = part.rpartition("-")
        found.setdefault(name, {})[kind] = content
    return found


def smoothing_text(measured: Measured) -> str:
    """A section for each network."""
    entries = _entries(measured)
    about = next(iter(entries.values()))["noisy"]
    return "\n\n".join([_HEAD.format(**about), *(_section(name, entry) for name, entry in entries.items())])


def smoothing_statements(measured: Measured) -> list[Verdict]:
    """Is ours the least of the three bounds?"""
    verdicts = []
    for name, entry in _entries(measured).items():
        bounds = entry["noisy"]["bounds"]
        least = [row["ours"] < min(row["clopper"], row["affine"]) for row in bounds if row["ours"] < 1]
        far = next(row for row in bounds if row["distance"] == 0.2)
        verdicts.append(
            Verdict(
                name=name,
                label="",
                claim=f"{name}: is our bound below those of two rivals, on the same predictions?",
                rule="wherever it is below 1; *partly*: in some of these cells",
                outcome=outcome_of_several(least),
                ours={
                    "cells below 1": Quantity(len(least), places=0),
                    "least in": Quantity(sum(least), places=0),
                    **{
                        f"{words}, √ρ = 0.2": Quantity(far[which], places=3, side="at most")
                        for which, words in _NAMES.items()
                    },
                },
                evidence=Evidence.PROVEN,
            )
        )
    return verdicts


def draw_bounds(measured: Measured) -> Figure:
    """A panel for each network."""
    panels = [_panel(name, entry) for name, entry in _entries(measured).items()]
    return sweep_figure(panels, "Mean error in noise, at most, with confidence 0.95 each")


def _section(name: str, entry: Mapping[str, Any]) -> str:
    noisy = entry["noisy"]
    words = (
        f"`{noisy['model']}`, {noisy['parameters']:,} weights, {noisy['epochs']} epochs "
        f"({noisy['seconds of training'] / 60:.1f} minutes by the wall clock, on one shared core). "
        f"Mean error in noise, on {noisy['rows']['test']['words']}: {noisy['mean error in noise']:.3f}. "
        f"{noisy['rows']['calibration']['words'].capitalize()} chose the plan."
    )
    table = []
    for kind in dict.fromkeys(row["kind"] for row in noisy["bounds"]):
        rows = [row for row in noisy["bounds"] if row["kind"] == kind]
        table += [[f"{kind}: {words}", *_cells(rows, which)] for which, words in _NAMES.items()]
    if "plain" in entry:
        table.append(_plain(entry["plain"]))
    distances = dict.fromkeys(row["distance"] for row in noisy["bounds"])
    shown = markdown_table(["within √ρ =", *(f"{one:g}" for one in distances)], table)
    return "\n\n".join([f"## {name}", words, shown, _summary(noisy)])


def _cells(rows: Sequence[Mapping[str, Any]], which: str) -> list[str]:
    cells = []
    for row in rows:
        high = at_most(row[which], 3)
        least = row[which] < 1 and row[which] <= min(row[other] for other in _NAMES)
        cells.append(f"**{high}**" if least else high)
    return cells


def _plain(plain: Mapping[str, Any]) -> list[str]:
    """The row of the network itself."""
    cells = []
    for one in plain["brackets"]:
        vacuous = " (vacuous)" if one["population_error"] >= 1 else ""
        low, high = at_least(one["population_error_low"], 3), at_most(one["population_error"], 3)
        cells.append(f"{low} – {high}{vacuous}")
    return [f"without noise, by its layers ({plain['rows']['words']})", *cells]


def _summary(noisy: Mapping[str, Any]) -> str:
    return (
        f"{noisy['predictions per second']:,} predictions a second of the processor's time, from copies that "
        f"take at most {noisy['megabytes of noisy copies']:g} MB at once; plans took "
        f"{noisy['seconds of planning']:g} s, {noisy['share of planning']:.1%} of the time of both."
    )


def _panel(name: str, entry: Mapping[str, Any]) -> Panel:
    rows = [row for row in entry["noisy"]["bounds"] if row["kind"] == "error"]
    places = [row["distance"] for row in rows]
    curves = {}
    for which, words in _NAMES.items():
        values = [row[which] for row in rows]
        curves[words] = Curve(places, values, values, values)
    if plain := entry.get("plain"):
        low = [one["population_error_low"] for one in plain["brackets"]]
        high = [one["population_error"] for one in plain["brackets"]]
        curves["without noise: at least to at most"] = Curve(places, high, low, high)
    return Panel(name, "√ρ, in pixels from black to white", "mean error, at most", curves)
