"""Test error under sup-norm PGM and L2 WRM attacks: the two panels of fig:dogs-theory and fig:dogs-hacky.

Strengths are scaled by C_p = E‖X‖_p as in all of the paper's figures: ε_adv/C_∞, and C₂/γ_adv. Moved inputs
are not clipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn

from certus.attacks.evaluate import Trial, sweep, typical_length
from certus.data import Split
from certus.display.attack_figures import Curve, Panel, Style, numbered_styles, sweep_figure
from certus.display.canvas import MARKERS, subscripted
from certus.losses import CrossEntropy, ModelLoss
from studies.mnist_networks import MNIST_METHODS
from studies.page import markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {"pgm": "(a) PGM attack, ‖·‖_∞", "wrm": "(b) WRM attack, ‖·‖₂"}
AXES = {"pgm": "ε_adv / C_∞", "wrm": "C₂ / γ_adv"}


def attacked(model: nn.Module, data: Split, train: Split, how: Mapping[str, Any]) -> dict[str, Any]:
    """Errors at rising strengths, the first without an attack.

    Args:
        train: decides C_p.
        how: pgm, wrm: strengths above 0 as the axes have them; steps of PGM.
    """
    loss = ModelLoss(model, CrossEntropy())
    sup, l2 = typical_length(train, float("inf")), typical_length(train, 2.0)
    trials = {"pgm": [Trial("pgm", float("inf"), 0.0, clipped=False)], "wrm": []}
    for share in how["pgm"]:
        trials["pgm"].append(Trial("pgm", float("inf"), share * sup, steps=how["steps"], clipped=False))
    for share in how["wrm"]:
        trials["wrm"].append(Trial("wrm", None, None, gamma=l2 / share, clipped=False))
    done = {name: sweep(loss, data, several) for name, several in trials.items()}
    done["wrm"].insert(0, done["pgm"][0])
    found: dict[str, Any] = {"C_inf": sup, "C_2": l2, "samples": len(data)}
    for name, outcomes in done.items():
        rows = []
        for share, (_, outcome) in zip((0.0, *how[name]), outcomes, strict=True):
            error = outcome.error()
            assert error is not None
            rows.append(
                {
                    "strength": share,
                    "error": error.value,
                    "low": error.low,
                    "high": error.high,
                    "moved": outcome.rho_test,
                }
            )
        found[name] = rows
    return found


def method_styles(names: Iterable[str], bold: str) -> dict[str, Style]:
    """A method has the colour that it has in the figures of MNIST; beside ``bold``, its others are dashed.

    Args:
        names: such as "WRM, γ = 1": the method stands before the comma.
    """
    known, found = numbered_styles(MNIST_METHODS.values()), {}
    for name in names:
        style, aside = known[name.partition(",")[0]], name != bold and name not in known
        found[name] = replace(style, marker=MARKERS[len(known)], line="--") if aside else style
    return found


def two_panels(
    sweeps: Mapping[str, Mapping[str, Any]], title: str, bold: str, mark: Mapping[str, float | None]
) -> Figure:
    """The paper's two panels.

    Args:
        sweeps: legend → what ``attacked`` found.
        bold: whose training the mark is about.
        mark: attack → the strength that training was for, if any.
    """
    panels = [
        Panel(
            subscripted(TITLES[attack]),
            subscripted(AXES[attack]),
            "test error",
            {name: _curve(found[attack]) for name, found in sweeps.items()},
            mark.get(attack),
        )
        for attack in TITLES
    ]
    styles = method_styles(sweeps, bold)
    return sweep_figure(panels, f"{title}: CIFAR-10 in place of Stanford Dogs", styles=styles)


def _curve(rows: Sequence[Mapping[str, float]]) -> Curve:
    strengths, values, low, high = (
        [row[what] for row in rows] for what in ("strength", "error", "low", "high")
    )
    return Curve(strengths, values, low, high)


def table_of_errors(sweeps: Mapping[str, Mapping[str, Any]]) -> str:
    """Errors in percent, a table for each attack."""
    tables = []
    for attack in TITLES:
        first = next(iter(sweeps.values()))[attack]
        head = [f"{TITLES[attack]}: {AXES[attack]} =", *(f"{row['strength']:g}" for row in first)]
        rows = [
            [name, *(f"{100 * row['error']:.1f}" for row in found[attack])] for name, found in sweeps.items()
        ]
        tables.append(markdown_table(head, rows))
    return "\n\n".join(tables)


def farthest_behind(sweeps: Mapping[str, Mapping[str, Any]], name: str) -> float:
    """By how much one network errs more than the best other one, at the worst of all strengths."""
    behind: list[float] = [
        row["error"] - min(found[attack][place]["error"] for other, found in sweeps.items() if other != name)
        for attack in TITLES
        for place, row in enumerate(sweeps[name][attack])
    ]
    return max(behind)
