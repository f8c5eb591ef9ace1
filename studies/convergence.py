"""thm:convergence in numbers: its step, its rate, and what Algorithm 1 does beside it.

What is run, and which constants are proven, is told in ``convergence_runs.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from certus.decimals import at_least, at_most, at_most_digits
from certus.figures.canvas import COLOURS, new_figure
from studies.convergence_runs import (
    LOOKS,
    NORM_BOUND,
    STEP_GAMMA,
    measure_best,
    measure_deeper,
    measure_run,
    softmax_constants,
)
from studies.page import markdown_table, spoken_power
from studies.reproduction import Comparison, Extent, Measured, Part, Picture, Reproduction

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


def _statements(measured: Measured) -> list[Comparison]:
    exact, rough = _runs(measured, "exact"), _runs(measured, "rough")
    best = measured["best"]["value"]
    return [
        _about_the_bound([*exact, *rough], exact[-1]),
        Comparison(
            "thm:convergence",
            "So it is at most of the order of 1/√T.",
            _goes("It", exact, [one["mean_square"] for one in exact]),
            None,
            reason="the theorem bounds it from above, and says nothing of how fast it falls below that.",
        ),
        _about_accuracy(exact, rough),
        Comparison(
            "sec:optimization",
            "In the convex case a stochastic variational inequality is solved at rate 1/√T.",
            _goes(
                "F at the average iterate, less min F,", exact, [one["average_value"] - best for one in exact]
            ),
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


def _about_the_bound(runs: list[Mapping[str, Any]], last: Mapping[str, Any]) -> Comparison:
    """The constants are proven within a ball: of a run that left it, the theorem says nothing."""
    above = [one for one in runs if one["mean_square"] > one["bound"]]
    left = [one for one in runs if one["largest_norm"] > NORM_BOUND]
    broken = [one for one in above if one not in left]
    ratios = sorted(one["bound"] / one["mean_square"] for one in runs)
    most, least = max(one["mean_square"] for one in runs), min(one["bound"] for one in runs)
    held = f"above the bound in {len(above)} of" if above else "below the bound in all"
    loose = (
        f", and even the smallest bound is above every run's mean, {most:.2g} at most: far from a tight test"
    )
    reason = "‖W‖ left the ball that the constants are proven for." if left else ""
    if broken:
        reason = "not known; the theorem bounds a mean over seeds, and this is one."
    return Comparison(
        "thm:convergence",
        "The mean of ‖∇F‖² over T steps is at most 4σ√(L_φΔ/T) + 4L_θz²ε/μ.",
        f"At T = {last['steps']:,}: {last['mean_square']:.2g} measured, at most "
        f"{at_most_digits(last['bound'])} by the theorem. It is {held} {len(runs)} runs (one seed; ∇F at "
        f"{LOOKS} iterates of each). The bound is {_spoken(ratios[0])} to {_spoken(ratios[-1])} times as "
        f"large{loose if most < least else ''}. ‖W‖ reached {max(one['largest_norm'] for one in runs):.2f} "
        f"of the {NORM_BOUND:g} assumed.",
        False if broken else None if left else True,
        reason,
    )


def _spoken(ratio: float) -> str:
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2g}"


def _about_accuracy(exact: list[Mapping[str, Any]], rough: list[Mapping[str, Any]]) -> Comparison:
    worst = max(rough, key=lambda one: float(one["accuracy"]))
    same = next(one for one in exact if one["steps"] == worst["steps"])
    changed, allowed = abs(worst["mean_square"] - same["mean_square"]), worst["bound"] - same["bound"]
    wide = f", and the theorem allows more than the whole mean, {same['mean_square']:.2g}"
    return Comparison(
        "thm:convergence",
        "The accuracy ε of the inner problem has a fixed effect, independent of T.",
        f"At T = {worst['steps']:,}, with {_ASCENTS[worst['gradients']]} of ascent (ε up to "
        f"{at_most_digits(worst['accuracy'])}), the mean of ‖∇F‖² changes by {changed:.1g}; the "
        f"theorem allows {allowed:.2g}.",
        None,
        f"one T was tried{wide if allowed > same['mean_square'] else ''}.",
    )


def _goes(what: str, runs: list[Mapping[str, Any]], values: list[float]) -> str:
    """p of T^p between each run and the next longer one: the first and the last."""
    steps = [one["steps"] for one in runs]
    powers = [
        math.log(after / before) / math.log(longer / shorter)
        for (shorter, longer), (before, after) in zip(pairwise(steps), pairwise(values), strict=True)
    ]
    return (
        f"{what} goes like T^{spoken_power(powers[0])} from T = {steps[0]:,} to {steps[1]:,}, and like "
        f"T^{spoken_power(powers[-1])} from {steps[-2]:,} to {steps[-1]:,}."
    )


def _deeper_words(rows: list[Mapping[str, Any]]) -> str:
    most = {
        name: max(one[name] for one in rows)
        for name in ("parameter_smoothness", "cross_smoothness", "gradient")
    }
    return (
        f"Linear softmax: L_θθ at most {at_most(_KNOWN.parameter_smoothness, 2)} and L_θz at most "
        f"{at_most(_KNOWN.cross_smoothness, 2)}, proven. The toy network with ELUs, at samples along a "
        f"training: L_θθ at least {at_least(most['parameter_smoothness'], 1)}, L_θz at least "
        f"{at_least(most['cross_smoothness'], 1)}, ‖∇_θ ℓ‖ up to {most['gradient']:.3g}."
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
    outside = ", outside: a longer run may leave it too" if best["norm"] > NORM_BOUND else ""
    words = (
        f"Digits, pixels scaled to norm at most 1; γ = {STEP_GAMMA:g}, ‖W‖₂ ≤ {NORM_BOUND:g}. Proven: "
        f"{', '.join(f'{name} ≤ {at_most(value, 2)}' for name, value in upper.items())}, "
        f"μ ≥ {at_least(_KNOWN.modulus, 2)}. The bound on ‖W‖₂ was chosen after the longest run had left a "
        "smaller ball (3). That the iterates stay within this one is checked at every step. min F is "
        f"attained at ‖W‖₂ = {best['norm']:.2f}{outside}. Bounds and ε are rounded up."
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
