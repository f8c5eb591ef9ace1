"""WRM models of many γ under one fixed WRM adversary, γ_adv = 0.04 C₂ (fig:mnist4).

The paper's panel (a) has ρ̂_n, the mean transport cost on training data; here it is ρ̂_test, on test images.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from certus.display.canvas import COLOURS, new_figure
from certus.kernel.evidence import Evidence
from studies.mnist.families import FEWER_EPOCHS
from studies.mnist.networks import MEAN_LENGTH, SMALL_BUDGET, mnist_training, recipe
from studies.mnist.surface import surface_part
from studies.page import markdown_table
from studies.study import (
    Measured,
    Outcome,
    Part,
    Picture,
    Quantity,
    Scale,
    Study,
    Verdict,
    outcome_of,
    subscripted,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ADVERSARY = 0.04
_SMOOTH = 2.0  # the steepest step, in units of the mean steepness
_SHARES = (0.02, 0.04, 0.16, 0.08, 0.03, 0.06, 0.015, 0.01)  # of C₂; those that other results need come first


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
    return [
        surface_part(
            f"gamma-{share:g}",
            recipe(scale, "wrm", FEWER_EPOCHS, gamma=share * MEAN_LENGTH),
            [_ADVERSARY],
            50 if quick else 1000,
        )
        for share in (_SHARES[:3] if quick else _SHARES)
    ]


def _rows(measured: Measured) -> list[Mapping[str, Any]]:
    """Return the measurements by falling γ, from the weakest training to the strongest."""
    return sorted(measured.values(), key=lambda entry: -float(entry["gamma"]))


def _draw(measured: Measured) -> Figure:
    rows = _rows(measured)
    across = [MEAN_LENGTH / row["gamma"] for row in rows]
    figure = new_figure(9.4, 3.9)
    left, right = figure.subplots(1, 2)
    left.plot(across, [row["rows"][0]["rho_test"] for row in rows], "o-", color=COLOURS[0])
    left.set(title="(a) ρ̂ on test images, under the adversary", ylabel=subscripted("ρ̂_test"), yscale="log")
    errors = [row["rows"][0] for row in rows]
    right.plot(across, [row["error"] for row in errors], "o-", color=COLOURS[0], label="under the adversary")
    right.fill_between(
        across, [row["low"] for row in errors], [row["high"] for row in errors], color=COLOURS[0], alpha=0.15
    )
    right.plot(across, [row["clean_error"] for row in rows], "s--", color=COLOURS[1], label="clean")
    right.set(title="(b) test error", ylabel="test error")
    right.set_ylim(bottom=0)
    for axes in (left, right):
        axes.axvline(MEAN_LENGTH / SMALL_BUDGET, color="#5f5f5f", linestyle=":", label=subscripted("γ_adv"))
        axes.set_xlabel("C₂ / γ of training")
        axes.spines[["top", "right"]].set_visible(False)
    right.legend(frameon=False, fontsize="small")
    return figure


def _verdicts(measured: Measured) -> list[Verdict]:
    rows = _rows(measured)
    errors = [row["rows"][0]["error"] for row in rows]
    levels = [row["rows"][0]["rho_test"] for row in rows]
    early, late = _gains(rows, errors)
    return [
        Verdict(
            name="stability",
            label="fig:mnist4",
            claim="(a) Stability: ρ̂_n against 1/γ.",
            rule="",
            outcome=Outcome.NOT_COMPARABLE,
            ours={
                "ρ̂_test at γ_adv, largest γ": Quantity(levels[0]),
                "smallest": Quantity(min(levels)),
                "steps": Quantity(len(levels) - 1, places=0),
                "at which it falls": Quantity(
                    sum(after < before for before, after in pairwise(levels)), places=0
                ),
            },
            evidence=Evidence.ATTAINED,
        ),
        _about_smoothness([row for row in rows if row["gamma"] >= SMALL_BUDGET]),
        Verdict(
            name="gains",
            label="fig:mnist4",
            claim="(b) Gains diminish as γ falls.",
            rule="fewer points of error for each unit of C₂/γ in the second half of the steps than in "
            "the first",
            outcome=outcome_of(late < early),
            ours={"first half": Quantity(early, places=2), "second half": Quantity(late, places=2)},
            evidence=Evidence.ATTAINED,
        ),
    ]


def _about_smoothness(rows: list[Mapping[str, Any]]) -> Verdict:
    """Judge whether the error jumps between networks trained with at most the adversary's budget."""
    across = [MEAN_LENGTH / float(row["gamma"]) for row in rows]
    times = steepness_of_steps(across, [row["rows"][0]["error"] for row in rows])
    return Verdict(
        name="smooth",
        label="fig:mnist4",
        claim="(b) Degradation is smooth where the adversary has more budget than training had.",
        rule=f"no step of the error over C₂/γ more than {_SMOOTH:g} times as steep as the whole way; a "
        "single step is not comparable",
        outcome=outcome_of(None if times is None else times <= _SMOOTH),
        ours={"steepest step, times the whole way": Quantity(times, places=1)},
        evidence=Evidence.ATTAINED,
    )


def steepness_of_steps(across: list[float], heights: list[float]) -> float | None:
    """Return the steepness of the steepest step relative to that of the whole way; None of a single step.

    >>> steepness_of_steps([0.0, 1.0, 4.0], [8.0, 5.0, 4.0])
    3.0
    """
    if len(across) < 3:
        return None
    climbs = [abs(last - first) for first, last in pairwise(heights)]
    whole = sum(climbs) / (across[-1] - across[0])
    slopes = [climb / (last - first) for climb, (first, last) in zip(climbs, pairwise(across), strict=True)]
    return max(slopes) / whole if whole else 1.0


def _gains(rows: list[Mapping[str, Any]], errors: list[float]) -> tuple[float, float]:
    """Return the fall of the error in points per unit of C₂/γ, in the first half of the steps and after."""
    middle, across = len(rows) // 2, [MEAN_LENGTH / float(row["gamma"]) for row in rows]

    def gain(first: int, last: int) -> float:
        return 100 * (errors[first] - errors[last]) / (across[last] - across[first])

    return gain(0, middle), gain(middle, len(rows) - 1)


def _text(measured: Measured) -> str:
    rows = [
        [
            f"{row['gamma'] / MEAN_LENGTH:g} C₂ = {row['gamma']:.4g}",
            f"{row['rho_hat']:.3g}",
            f"{row['clean_error']:.2%}",
            f"{row['rows'][0]['rho_test']:.3g}",
            f"{row['rows'][0]['error']:.1%}",
        ]
        for row in _rows(measured)
    ]
    return markdown_table(
        ["γ of training", "ρ̂_n at it", "clean error", "ρ̂_test at γ_adv", "error at γ_adv"], rows
    )


STUDY = Study(
    name="mnist-gamma",
    title="MNIST: WRM of many γ against one adversary",
    labels=("fig:mnist4",),
    minutes={Scale.QUICK: 0.7, Scale.FULL: 65},
    parts=_parts,
    pictures=(
        Picture(
            "gammas",
            "Stability and test error against 1/γ; the bar is γ_adv (fig:mnist4). (a) shows ρ̂_test, of test "
            "images; the paper's has ρ̂_n, of training data.",
            _draw,
        ),
    ),
    verdicts=_verdicts,
    text=_text,
    scope={
        Scale.QUICK: "Three models, 800 training images, 2 epochs; 50 test images.",
        Scale.FULL: "Eight models of 4 epochs, one seed; 1,000 random test images, not clipped.",
    },
    datasets=("mnist",),
    training=mnist_training,
)
