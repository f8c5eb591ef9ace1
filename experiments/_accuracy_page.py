"""The page of ``experiments.certified_accuracy``: our figures beside those that were published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from certus.decimals import at_least
from certus.figures.attack_curves import Curve, Panel, draw_sweeps

PUBLISHED: dict[str, dict[float, float]] = {
    "GloRo": {0.3: 95.7, 1.58: 62.8},
    "CRT (curvature bounds)": {1.58: 69.8},
    "nearest prototypes": {1.58: 73.0},
    "BCP": {1.58: 48.2},
}
"""Per cent of MNIST's test images, deterministic L2 certificates."""

_CLEAN = {"BCP": "92.5"}
"""Clean accuracy of the same networks, where it is at hand."""

_HEAD = """# Certified accuracy

The share of MNIST's 10,000 test images that are *proven* to be classified rightly whatever moves them by at
most ε in L2, in all of space (not only in [0, 1]); and the share that is left by errors that were found. Made
by

    python -m experiments.certified_accuracy

| per cent of the test images | clean | {head} |
|---|---|{rules}
{rows}

Certified – attacked, both exact counts of images. Ours are of one hidden layer of 1,024 log cosh units on 100
principal components, one network each, after {epochs} epochs. The others are as published, from networks of
other kinds; a dash where no figure is at hand.
"""

_TAIL = """
Both networks come from certified training (the curvature of cross-entropy is at most 2γ at every input), on
images that two steps of PGM moved by ε in L2: {plans}.

The certified radius of an image is that of a parabola that touches the margin where it is largest on a sphere
([how](../../docs/mathematics.md#how-far-the-nearest-error-is)). Of the images that are classified rightly, a
share of at least {same} has a radius within 1% of the distance of an error that was found. Where both counts
of a cell agree no better proof is possible, only a better network.

{choice}

![certified and attacked accuracy](accuracy.png)
"""

_NAMES = {"near": "certus, for small distances", "far": "certus, for large distances"}
"""Networks as the table names them."""


def write_page(output: Path, content: dict[str, Any]) -> None:
    """``README.md``, ``table.json`` and ``accuracy.png``."""
    output.mkdir(parents=True, exist_ok=True)
    networks = content["networks"]
    (output / "table.json").write_text(json.dumps(content, indent=1) + "\n")
    epsilons = [one["epsilon"] for one in next(iter(networks.values()))["within"]]
    rows = [
        " | ".join(
            [
                f"| {_NAMES[name]} (γ = {row['settings']['gamma']:g})",
                _per_cent(row["clean"]),
                *(f"{_per_cent(one['certified'])} – {_per_cent(one['attacked'])}" for one in row["within"]),
            ]
        )
        for name, row in networks.items()
    ]
    for name, known in PUBLISHED.items():
        cells = (f"{known[epsilon]}" if epsilon in known else "–" for epsilon in epsilons)
        rows.append(" | ".join([f"| {name}", _CLEAN.get(name, "–"), *cells]))
    first = next(iter(networks.values()))
    head = _HEAD.format(
        head=" | ".join(f"ε = {epsilon:g}" for epsilon in epsilons),
        rules="---|" * len(epsilons),
        rows="\n".join(f"{row} |" for row in rows),
        epochs=first["settings"]["epochs"],
    )
    plans = "; ".join(
        f"γ = {row['settings']['gamma']:g}, temperature {row['settings']['temperature']:g}, ε = "
        f"{row['settings']['epsilon']}"
        for row in networks.values()
    )
    same = at_least(min(row["close"] for row in networks.values()), 3)
    (output / "README.md").write_text(head + _TAIL.format(plans=plans, same=same, choice=_choice(output)))
    curves = {
        _NAMES[name]: Curve(
            [one["epsilon"] for one in row["curve"]],
            [one["certified"] for one in row["curve"]],
            [one["certified"] for one in row["curve"]],
            [one["attacked"] for one in row["curve"]],
        )
        for name, row in networks.items()
    }
    panel = Panel("MNIST, all test images", "ε in L2", "accuracy within ε", curves)
    draw_sweeps([panel], output / "accuracy.png", "Certified (line) and attacked (upper end of the band)")


def _per_cent(share: float, digits: int = 2) -> str:
    """Shares of 10,000 images have four decimals, shares of 500 three: nothing is rounded away."""
    return f"{100 * share:.{digits}f}"


def _choice(output: Path) -> str:
    """What the settings were chosen from, if that was measured."""
    file = output / "choice.json"
    if not file.exists():
        return ""
    rows = json.loads(file.read_text())
    first = next(iter(rows.values()))
    epsilons = [one["epsilon"] for one in first["within"]]
    names = ("gamma", "temperature", "epsilon", "margin")
    lines = [
        f"Settings were compared on {first['images']} images of the calibration split of seed 0, after two "
        "epochs (`python -m experiments.accuracy_choice`); per cent certified:",
        "",
        "| γ | temperature | ε of PGM | margin | clean | "
        + " | ".join(f"ε = {each:g}" for each in epsilons)
        + " |",
        "|---" * (5 + len(epsilons)) + "|",
    ]
    for row in rows.values():
        given = dict(zip(row["options"], [*row["options"][1:], ""], strict=True))
        cells = [given.get(f"--{name}", "0") for name in names]
        shares = [row["clean"], *(one["certified"] for one in row["within"])]
        cells += [_per_cent(share, 1) for share in shares]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
