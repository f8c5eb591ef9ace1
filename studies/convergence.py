"""thm:convergence in numbers: its step, its rate, and what Algorithm 1 does beside it.

What is run, and which constants are proven, is told in ``convergence_runs.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from certus._format import at_least, at_most, at_most_digits
from certus.display.canvas import COLOURS, new_figure
from studies.convergence_runs import (
    NORM_BOUND,
    STEP_GAMMA,
    measure_best,
    measure_deeper,
    measure_run,
    softmax_constants,
)
from studies.page import markdown_table
from studies.reproduction import (
    Extent,
    Measured,
    Outcome,
    Part,
    Picture,
    Quantity,
    Reproduction,
    Verdict,
    outcome_of,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ASCENTS = {1: "no step", 2: "one step", 3: "two steps", 50: "exact"}  # the first gradient is at the sample
_KNOWN = softmax_constants(1.0, 10)  # of the digits: inputs of norm at most 1, 10 classes


def _parts(extent: Extent) -> list[Part]:
    lengths = [100, 300, 1000]
    if extent is Extent.PAPER:
        lengths += [3000, 10_000, 30_000, 100_000, 300_000]
    exact = [
        Part(
            f"exact-{steps}",
            {"steps": steps, "seed": 0, "gradients": 50, "tolerance": 1e-8},
            measure_run,
            effort=steps / 100 + 10,
        )
        for steps in lengths
    ]
    steps = lengths[-1] if extent is Extent.QUICK else 10_000
    rough = [
        Part(
            f"rough-{gradients}",
            {"steps": steps, "seed": 0, "gradients": gradients, "tolerance": 1e-12},
            measure_run,
            effort=steps / 100 + 10,
        )
        for gradients in (1, 2, 3)
    ]
    epochs = 3 if extent is Extent.QUICK else 20
    deeper = Part("deeper", {"seed": 0, "samples": 2000, "epochs": epochs}, measure_deeper, effort=5 * epochs)
    return [*exact, *rough, Part("best", {"iterations": 500}, measure_best, effort=20), deeper]


def _runs(measured: Measured, kind: str) -> list[Mapping[str, Any]]:
    found = [one for name, one in measured.items() if name.startswith(kind)]
    return sorted(found, key=lambda one: (one["steps"], one["gradients"]))


def _draw(measured: Measured) -> Figure:
    figure = new_figure(10.2, 4.0)
    rate, convex = figure.subplots(1, 2)
    exact, rough = _runs(measured, "exact"), _runs(measured, "rough")
    steps = [one["steps"] for one in exact]
    rate.plot(steps, [one["bound"] for one in exact], color=COLOURS[0], label="the theorem's bound (proven)")
    rate.plot(
        steps,
        [one["mean_square"] for one in exact],
        "o-",
        color=COLOURS[1],
        label="measured, exact ascent (estimated)",
    )
    for (marker, size), one in zip((("s", 12), ("D", 8), ("v", 4)), rough, strict=True):
        words = f"measured, {_ASCENTS[one['gradients']]}"
        rate.plot(
            one["steps"], one["mean_square"], marker, ms=size, mfc="none", color=COLOURS[2], label=words
        )
    rate.set(xscale="log", yscale="log", xlabel="steps T", ylabel="mean of ‖∇F‖² over the run")
    rate.set_title("Stationarity")
    best = measured["best"]["value"]
    gaps = [one["average_value"] - best for one in exact]
    convex.plot(steps, gaps, "o-", color=COLOURS[1], label="measured (estimated)")
    line = [gaps[0] * math.sqrt(steps[0] / one) for one in steps]
    convex.plot(steps, line, "--", color="#5f5f5f", label="a rate of 1/√T")
    convex.set(xscale="log", yscale="log", xlabel="steps T", ylabel="F at the average iterate, less min F")
    convex.set_title("The convex case")
    for axes in (rate, convex):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize="small")
    return figure


def _statements(measured: Measured) -> list[Verdict]:
    exact, rough = _runs(measured, "exact"), _runs(measured, "rough")
    best = measured["best"]["value"]
    return [
        _about_the_bound([*exact, *rough], exact[-1]),
        Verdict(
            name="order",
            label="thm:convergence",
            claim="So it is at most of the order of 1/√T.",
            rule="",
            outcome=Outcome.NOT_COMPARABLE,
            ours=_powers(exact, [one["mean_square"] for one in exact]),
            paper={"p of T^p, at most": -0.5},
        ),
        _about_accuracy(exact, rough),
        Verdict(
            name="convex case",
            label="sec:optimization",
            claim="In the convex case a stochastic variational inequality is solved at rate 1/√T.",
            rule="",
            outcome=Outcome.NOT_COMPARABLE,
            ours=_powers(exact, [one["average_value"] - best for one in exact]),
            paper={"p of T^p": -0.5},
        ),
        _about_smoothness(measured["deeper"]["along"]),
    ]


def _about_the_bound(runs: list[Mapping[str, Any]], last: Mapping[str, Any]) -> Verdict:
    """The constants are proven within a ball: of a run that left it, the theorem says nothing."""
    above = [one for one in runs if one["mean_square"] > one["bound"]]
    left = [one for one in runs if one["largest_norm"] > NORM_BOUND]
    broken = [one for one in above if one not in left]
    return Verdict(
        name="bound",
        label="thm:convergence",
        claim="The mean of ‖∇F‖² over T steps is at most 4σ√(L_φΔ/T) + 4L_θz²ε/μ.",
        rule="no run above its bound; not comparable where a run left the ball that the constants are proven "
        f"for, ‖W‖ ≤ {NORM_BOUND:g}",
        outcome=outcome_of(False if broken else None if left else True),
        ours={
            "T": Quantity(last["steps"], places=0),
            "mean of ‖∇F‖²": Quantity(last["mean_square"]),
            "the theorem's bound": Quantity(last["bound"], side="at most"),
            "runs": Quantity(len(runs), places=0),
            "above the bound": Quantity(len(above), places=0),
            "smallest ratio of bound to mean": Quantity(
                min(one["bound"] / one["mean_square"] for one in runs)
            ),
            "largest mean of all runs": Quantity(max(one["mean_square"] for one in runs)),
            "smallest bound": Quantity(min(one["bound"] for one in runs), side="at most"),
            "largest ‖W‖": Quantity(max(one["largest_norm"] for one in runs), places=2),
        },
    )


def _about_accuracy(exact: list[Mapping[str, Any]], rough: list[Mapping[str, Any]]) -> Verdict:
    worst = max(rough, key=lambda one: float(one["accuracy"]))
    same = next(one for one in exact if one["steps"] == worst["steps"])
    return Verdict(
        name="inner accuracy",
        label="thm:convergence",
        claim="The accuracy ε of the inner problem has a fixed effect, independent of T.",
        rule="",
        outcome=Outcome.NOT_COMPARABLE,
        ours={
            "T": Quantity(worst["steps"], places=0),
            "ε": Quantity(worst["accuracy"], side="at most"),
            "change of the mean of ‖∇F‖²": Quantity(abs(worst["mean_square"] - same["mean_square"])),
            "change that the theorem allows": Quantity(worst["bound"] - same["bound"]),
            "the mean itself": Quantity(same["mean_square"]),
        },
    )


def _powers(runs: list[Mapping[str, Any]], values: list[float]) -> dict[str, Quantity]:
    """p of T^p between each run and the next longer one: the first and the last."""
    steps = [one["steps"] for one in runs]
    powers = [
        math.log(after / before) / math.log(longer / shorter)
        for (shorter, longer), (before, after) in zip(pairwise(steps), pairwise(values), strict=True)
    ]
    return {
        f"p from T = {steps[0]:,} to {steps[1]:,}": Quantity(powers[0], places=2),
        f"from {steps[-2]:,} to {steps[-1]:,}": Quantity(powers[-1], places=2),
    }


def _about_smoothness(rows: list[Mapping[str, Any]]) -> Verdict:
    most = {
        name: max(one[name] for one in rows)
        for name in ("parameter_smoothness", "cross_smoothness", "gradient")
    }
    return Verdict(
        name="smoothness",
        label="assumption:smoothness",
        claim="∇ℓ is Lipschitz in θ and z, with constants L_θθ, L_θz.",
        rule="",
        outcome=Outcome.NOT_COMPARABLE,
        ours={
            "linear softmax, L_θθ (proven)": Quantity(_KNOWN.parameter_smoothness, places=2, side="at most"),
            "L_θz (proven)": Quantity(_KNOWN.cross_smoothness, places=2, side="at most"),
            "toy network, L_θθ": Quantity(most["parameter_smoothness"], places=1, side="at least"),
            "L_θz": Quantity(most["cross_smoothness"], places=1, side="at least"),
            "largest ‖∇_θ ℓ‖": Quantity(most["gradient"], places=2),
        },
    )


def _text(measured: Measured) -> str:
    upper = {
        "L_θθ": _KNOWN.parameter_smoothness,
        "L_θz": _KNOWN.cross_smoothness,
        "L_φ": _KNOWN.smoothness,
        "σ": _KNOWN.noise,
        "Δ": _KNOWN.initial_gap,
    }
    best = measured["best"]
    words = (
        f"Digits, pixels scaled to norm at most 1; γ = {STEP_GAMMA:g}, ‖W‖₂ ≤ {NORM_BOUND:g}. Proven: "
        f"{', '.join(f'{name} ≤ {at_most(value, 2)}' for name, value in upper.items())}, "
        f"μ ≥ {at_least(_KNOWN.modulus, 2)}. The bound on ‖W‖₂ was chosen after the longest run had left a "
        "smaller ball (3). That the iterates stay within this one is checked at every step. min F is "
        f"attained at ‖W‖₂ = {best['norm']:.2f}. Bounds and ε are rounded up."
    )
    rows = [
        [
            f"{one['steps']:,}",
            _ASCENTS[one["gradients"]],
            f"{one['step_size']:.2g}",
            at_most_digits(one["accuracy"]),
            f"{one['mean_square']:.2g}",
            at_most_digits(one["bound"]),
            f"{one['average_value'] - best['value']:.2g}",
        ]
        for one in (*_runs(measured, "exact"), *_runs(measured, "rough"))
    ]
    head = ["T", "ascent", "step", "ε, at most", "mean of ‖∇F‖²", "bound", "F at the average, less min F"]
    return f"{words}\n\n{markdown_table(head, rows)}"


REPRODUCTION = Reproduction(
    name="convergence",
    title="Convergence of Algorithm 1: the theorem's step and rate as numbers",
    shows=("thm:convergence", "sec:optimization", "assumption:smoothness"),
    minutes={Extent.QUICK: 0.5, Extent.PAPER: 20},
    parts=_parts,
    pictures=(
        Picture(
            "rates", "Left: ‖∇F‖² under the theorem's step, beside its bound. Right: the convex case.", _draw
        ),
    ),
    statements=_statements,
    text=_text,
    smaller={Extent.QUICK: "At most 1,000 steps."},
    revision=4,
)
