"""The page of ``experiments.smoothing``: three bounds beside each other, and the deterministic bracket."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from certus.decimals import at_least, at_most
from certus.figures.attack_curves import Curve, Panel, draw_sweeps

NAMES = {
    "ours": "ours",
    "clopper": "Clopper–Pearson per sample",
    "affine": "concave majorant of the mean",
}
_HEAD = """# Certificates by smoothing, beside two rivals

Networks that were trained with Gaussian noise of σ = {sigma:g} on their inputs: how often they err in that
noise at most, on any distribution within √ρ of the population of the test images. Made by

    python -m experiments.smoothing

All bounds of one network rest on the same {draws} predictions of each image, and each number has the
confidence 0.95 by itself ([what is certified, and why](../../docs/smoothing.md)). The least of the three is
in bold. The last row is about the network without noise: at least (attained) – at most (proven), for the
population, with the same confidence.
"""
_PICTURE = """
![upper bounds on the mean error](bounds.png)
"""


def write_page(output: Path, content: dict[str, Any], distances: Sequence[float]) -> None:
    """``README.md``, ``table.json`` and ``bounds.png``."""
    output.mkdir(parents=True, exist_ok=True)
    (output / "table.json").write_text(json.dumps(content, indent=1) + "\n")
    options = content["measured"]["options"]
    parts = [_HEAD.format(sigma=options["sigma"], draws=options["draws"])]
    parts += [_section(name, entry, distances) for name, entry in content["entries"].items()]
    (output / "README.md").write_text("".join([*parts, _PICTURE]))
    panels = [_panel(name, entry) for name, entry in content["entries"].items()]
    draw_sweeps(panels, output / "bounds.png", "Mean error in noise, at most, with confidence 0.95 each")


def _section(name: str, entry: dict[str, Any], distances: Sequence[float]) -> str:
    noisy = entry["noisy"]
    lines = [
        f"\n## {name}\n",
        f"`{noisy['model']}`, {noisy['parameters']:,} weights, {noisy['epochs']} epochs "
        f"({noisy['seconds of training'] / 60:.1f} minutes by the wall clock, on one shared core). "
        f"Mean error in noise, on {noisy['rows']['test']['words']}: {noisy['mean error in noise']:.3f}. "
        f"{noisy['rows']['calibration']['words'].capitalize()} chose the plan.\n",
        f"| within √ρ = | {' | '.join(f'{one:g}' for one in distances)} |",
        "|---" * (1 + len(distances)) + "|",
    ]
    for kind in dict.fromkeys(row["kind"] for row in noisy["bounds"]):
        rows = [row for row in noisy["bounds"] if row["kind"] == kind]
        lines += [f"| {kind}: {words} | {_cells(rows, which)} |" for which, words in NAMES.items()]
    if "plain" in entry:
        lines.append(_plain(entry["plain"]))
    return "\n".join([*lines, "", _summary(noisy)]) + "\n"


def _cells(rows: list[dict[str, Any]], which: str) -> str:
    cells = []
    for row in rows:
        high = at_most(row[which], 3)
        least = row[which] < 1 and row[which] <= min(row[other] for other in NAMES)
        cells.append(f"**{high}**" if least else high)
    return " | ".join(cells)


def _plain(plain: dict[str, Any]) -> str:
    """The row of the network itself."""
    cells = []
    for one in plain["brackets"]:
        vacuous = " (vacuous)" if one["population_error"] >= 1 else ""
        low, high = at_least(one["population_error_low"], 3), at_most(one["population_error"], 3)
        cells.append(f"{low} – {high}{vacuous}")
    return f"| without noise, by its layers ({plain['rows']['words']}) | {' | '.join(cells)} |"


def _summary(noisy: dict[str, Any]) -> str:
    rows = [row for row in noisy["bounds"] if row["ours"] < 1]
    behind = [row for row in rows if row["ours"] >= min(row["clopper"], row["affine"])]
    told = "Ours is below both wherever it is below 1."
    if behind:
        places = ", ".join(f"{row['kind']} at {row['distance']:g}" for row in behind)
        told = f"Ours is below both, but for {places}."
    return (
        f"{told} {noisy['predictions per second']:,} predictions a second of the processor's time, from "
        f"copies that take at most {noisy['megabytes of noisy copies']:g} MB at once; plans took "
        f"{noisy['seconds of planning']:g} s, {noisy['share of planning']:.1%} of the time of both."
    )


def _panel(name: str, entry: dict[str, Any]) -> Panel:
    rows = [row for row in entry["noisy"]["bounds"] if row["kind"] == "error"]
    places = [row["distance"] for row in rows]
    curves = {}
    for which, words in NAMES.items():
        values = [row[which] for row in rows]
        curves[words] = Curve(places, values, values, values)
    if plain := entry.get("plain"):
        low = [one["population_error_low"] for one in plain["brackets"]]
        high = [one["population_error"] for one in plain["brackets"]]
        curves["without noise: at least to at most"] = Curve(places, high, low, high)
    return Panel(name, "√ρ, in pixels from black to white", "mean error, at most", curves)
