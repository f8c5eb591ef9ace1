"""thm:convergence in numbers: its step, its rate, and what Algorithm 1 does beside it.

What is run, and which constants are proven, is told in ``convergence_runs.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from certus.figures.canvas import COLOURS, new_figure
from certus.reproduce.convergence_runs import (
    NORM_BOUND,
    STEP_GAMMA,
    measure_best,
    measure_deeper,
    measure_run,
    softmax_constants,
)
from certus.reproduce.page import markdown_table
from certus.reproduce.reproduction import Comparison, Extent, Measured, Part, Picture, Reproduction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ASCENTS = {1: "no step", 2: "one step", 3: "two steps", 50: "exact"}  # the first gradient is at the sample


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


def _statements(measured: Measured) -> list[Comparison]:
    exact, rough = _runs(measured, "exact"), _runs(measured, "rough")
    held = all(one["mean_square"] <= one["bound"] for one in (*exact, *rough))
    inside = max(one["largest_norm"] for one in (*exact, *rough))
    last = exact[-1]
    best = measured["best"]["value"]
    fall = _powers(exact, [one["mean_square"] for one in exact])
    gain = _powers(exact, [one["average_value"] - best for one in exact])
    worst = max(rough, key=lambda one: one["accuracy"])
    alike = abs(worst["mean_square"] - _at(exact, worst["steps"])["mean_square"])
    return [
        Comparison(
            "thm:convergence",
            "The mean of ‖∇F‖² over T steps is at most 4σ√(L_φΔ/T) + 4L_θz²ε/μ.",
            f"At T = {last['steps']:,}: {last['mean_square']:.2g} measured, {last['bound']:.2g} by "
            f"the theorem. "
            f"Below the bound at every T and ε that was tried; ‖W‖ reached {inside:.2f} of the "
            f"{NORM_BOUND:g} assumed.",
            held and inside <= NORM_BOUND,
            reason="" if inside <= NORM_BOUND else "‖W‖ left the ball that the constants are proven for.",
        ),
        Comparison(
            "thm:convergence",
            "So it is at most of the order of 1/√T.",
            _falls("It", exact, fall),
            None,
            reason="the theorem bounds it from above, and says nothing of how fast it falls below that.",
        ),
        Comparison(
            "thm:convergence",
            "The accuracy ε of the inner problem has a fixed effect, independent of T.",
            f"At T = {worst['steps']:,}, without any ascent (ε up to {worst['accuracy']:.2g}), the mean of "
            f"‖∇F‖² changes by {alike:.1g}; the theorem allows "
            f"{worst['bound'] - _at(exact, worst['steps'])['bound']:.2g}.",
            None,
            reason="one T was tried, and what the theorem allows is too wide to be a test.",
        ),
        Comparison(
            "sec:optimization",
            "In the convex case a stochastic variational inequality is solved at rate 1/√T.",
            _falls("F at the average iterate, less min F,", exact, gain),
            None,
            reason="that is said of other algorithms; this is Algorithm 1, and the theorem's step.",
        ),
        Comparison(
            "assumption:smoothness",
            "∇ℓ is Lipschitz in θ and z, with constants L_θθ, L_θz.",
            _deeper_words(measured["deeper"]["along"]),
            None,
            reason="the paper gives no number; of a deeper network none is proven here.",
        ),
    ]


def _powers(runs: list[Mapping[str, Any]], values: list[float]) -> list[float]:
    """p of T^−p between each run and the next longer one."""
    return [
        math.log(before / after) / math.log(longer["steps"] / shorter["steps"])
        for (shorter, longer), (before, after) in zip(pairwise(runs), pairwise(values), strict=True)
    ]


def _falls(what: str, runs: list[Mapping[str, Any]], powers: list[float]) -> str:
    steps = [one["steps"] for one in runs]
    return (
        f"{what} falls like T^−{powers[0]:.2f} from T = {steps[0]} to {steps[1]}, and like "
        f"T^−{powers[-1]:.2f} from {steps[-2]:,} to {steps[-1]:,}."
    )


def _at(runs: list[Mapping[str, Any]], steps: int) -> Mapping[str, Any]:
    return next(one for one in runs if one["steps"] == steps)


def _deeper_words(rows: list[Mapping[str, Any]]) -> str:
    most = {
        name: max(one[name] for one in rows)
        for name in ("parameter_smoothness", "cross_smoothness", "gradient")
    }
    return (
        f"Linear softmax: proven, in the table. The toy network with ELUs, at samples along a "
        f"training: L_θθ at least "
        f"{most['parameter_smoothness']:.3g}, L_θz at least {most['cross_smoothness']:.3g}, "
        f"‖∇_θ ℓ‖ up to {most['gradient']:.3g}."
    )


def _text(measured: Measured) -> str:
    constants = softmax_constants(1.0, 10)
    words = (
        f"Digits, pixels scaled to norm at most 1; γ = {STEP_GAMMA:g}, ‖W‖₂ ≤ {NORM_BOUND:g}. Proven: "
        f"L_θθ = {constants.parameter_smoothness:.3g}, L_θx = {constants.cross_smoothness:.3g}, "
        f"μ = {constants.modulus:.3g}, L_φ = {constants.smoothness:.3g}, σ = {constants.noise:.3g}, "
        f"Δ = {constants.initial_gap:.3g}. The bound on ‖W‖₂ was chosen after the longest run had left a "
        "smaller ball (3). That the iterates stay within this one is checked at every step. min F is "
        f"attained at ‖W‖₂ = {measured['best']['norm']:.2f}, outside: a longer run may leave it too."
    )
    rows = [
        [
            f"{one['steps']:,}",
            _ASCENTS[one["gradients"]],
            *(f"{one[name]:.2g}" for name in ("step_size", "accuracy", "mean_square", "bound")),
            f"{one['average_value'] - measured['best']['value']:.2g}",
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
