"""Does robustness on the sample carry over? theorem:dist-concentration and theorem:robustness in numbers.

What is measured, and for which class, is told in ``generalization_samples.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from certus.certificates.paper_terms import lipschitz_error
from certus.decimals import at_most_digits
from certus.evidence import Evidence
from certus.figures.canvas import COLOURS, new_figure, subscripted
from studies.generalization_samples import (
    DIAMETER,
    DIMENSION,
    FAILURE,
    LEVEL_GAMMA,
    RADIUS,
    REACH,
    SLOPE,
    TRIVIAL,
    measure_levels,
)
from studies.page import markdown_table, spoken_power
from studies.reproduction import Comparison, Extent, Measured, Part, Picture, Reproduction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SLOWEST, _FASTEST = 0.35, 0.65  # powers of 1/n that still count as 1/√n


def _parts(extent: Extent) -> list[Part]:
    quick = extent is Extent.QUICK
    counts = [100, 1000] if quick else [100, 300, 1000, 3000, 10_000, 30_000]
    settings = {
        "seed": 0,
        "networks": 10 if quick else 40,
        "repetitions": 3 if quick else 10,
        "population": 20_000 if quick else 300_000,
        "counts": counts,
    }
    return [Part("levels", settings, measure_levels)]


def _draw(measured: Measured) -> Figure:
    rows = measured["levels"]["rows"]
    figure = new_figure(5.8, 4.2)
    axes = figure.subplots()
    counts = [row["count"] for row in rows]
    axes.plot(
        counts, [row["uniform"] for row in rows], color=COLOURS[0], label="the paper's bound, all θ (proven)"
    )
    axes.axhline(TRIVIAL, color=COLOURS[4], linestyle="-.", label="r², trivial for all θ (proven)")
    axes.plot(counts, [row["fixed"] for row in rows], color=COLOURS[2], label="bound for one θ (proven)")
    largest = [max(row["largest"]) for row in rows]
    axes.plot(counts, largest, "o-", color=COLOURS[1], label="largest over θ and samples, measured")
    typical = [row["mean_deviation"] for row in rows]
    axes.plot(counts, typical, "s-", color=COLOURS[3], label="mean over θ, measured")
    line = [typical[0] * math.sqrt(counts[0] / count) for count in counts]
    axes.plot(counts, line, "--", color="#5f5f5f", label="1/√n")
    level = fmean(measured["levels"]["levels"])
    axes.axhline(level, color="#9a9a9a", linewidth=1, linestyle=":", label="ρ̂ itself, mean over θ")
    axes.set(xscale="log", yscale="log", xlabel="samples n", ylabel=subscripted("|ρ̂_n − ρ̂|"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _statements(measured: Measured) -> list[Comparison]:
    rows = measured["levels"]["rows"]
    return [
        _about_the_bound(rows, fmean(measured["levels"]["levels"])),
        _about_the_rate(rows),
        _about_one_network(rows),
        _about_covering_numbers(rows[-1]["count"]),
    ]


def _about_the_bound(rows: Sequence[Mapping[str, Any]], level: float) -> Comparison:
    """A bound that is not below c ≤ r² cannot be exceeded, and so is not tested."""
    last = rows[-1]
    exceeded = [f"{row['count']:,}" for row in rows if max(row["largest"]) > row["uniform"]]
    telling = [f"{row['count']:,}" for row in rows if row["uniform"] < TRIVIAL]
    tested = last["uniform"] < TRIVIAL
    held = f"Exceeded at n = {', '.join(exceeded)}" if exceeded else "Never exceeded"
    where = f"only from n = {telling[0]} on" if telling else "at no n"
    reason = "" if tested else f"no sample can exceed {TRIVIAL:g}, so a bound above it is not tested."
    if exceeded:
        reason = "the bound is wrong, or its constants are."
    return Comparison(
        "theorem:dist-concentration",
        "sup_θ |ρ̂_n − ρ̂| is bounded, at the rate √(d/n).",
        f"n = {last['count']:,}: at most {at_most_digits(last['uniform'], 3)} proven, "
        f"{max(last['largest']):.2g} found; ρ̂ itself is {level:.2g}. {held}. The bound is below the trivial "
        f"one, |ρ̂_n − ρ̂| ≤ r² = {TRIVIAL:g}, {where}.",
        False if exceeded else True if tested else None,
        reason,
        Evidence.PROVEN,
    )


def _about_the_rate(rows: Sequence[Mapping[str, Any]]) -> Comparison:
    first, last = rows[0], rows[-1]
    fall = math.log(first["mean_deviation"] / last["mean_deviation"])
    power = fall / math.log(last["count"] / first["count"])
    holds = _SLOWEST < power < _FASTEST
    return Comparison(
        "theorem:dist-concentration",
        "The level of robustness on the training set generalises, like 1/√n.",
        f"The mean deviation goes like n^{spoken_power(-power)} from n = {first['count']:,} to "
        f"{last['count']:,}.",
        holds,
        "" if holds else f"not known; {len(last['largest'])} samples of each size.",
    )


def _about_one_network(rows: Sequence[Mapping[str, Any]]) -> Comparison:
    last, missed = rows[-1], max(row["missed"] for row in rows)
    too_often = missed > FAILURE
    return Comparison(
        "theorem:dist-concentration",
        "(The bound is uniform in θ.)",
        f"For one θ, fixed beforehand, {at_most_digits(last['fixed'])} is proven: "
        f"{last['uniform'] / last['fixed']:.0f} times less. It failed in at most {missed:.1%} of the trials "
        f"of any n, allowed are {FAILURE:.0%}.",
        False if too_often else None,
        "our bound failed more often than it may." if too_often else "ours, for comparison.",
        Evidence.PROVEN,
    )


def _about_covering_numbers(count: int) -> Comparison:
    """Of the paper's formula alone: nothing that was measured enters."""
    deep = lipschitz_error(
        60_000, 710_218, 3.0, lipschitz=1.0, diameter=1.0, start_bound=math.log(10), b1=1.0, b2=1.0
    )
    small = lipschitz_error(
        count,
        DIMENSION,
        3.0,
        lipschitz=SLOPE * (RADIUS + REACH),
        diameter=DIAMETER,
        start_bound=math.log(2),
        b1=1.0,
        b2=1.0,
    )
    return Comparison(
        "theorem:robustness",
        "Through covering numbers the bounds can become prohibitively large for deep networks.",
        f"ε_n = {at_most_digits(small)} for this class of {DIMENSION} weights at n = {count:,}; for the "
        f"710,218 weights of the MNIST network at n = 60,000, with L·diam Θ = 1, it is "
        f"{at_most_digits(deep, 3)}, where guessing loses {math.log(10):.1f}. b₁ = b₂ = 1.",
        None,
        "the formula with constants that are assumed; nothing of it was measured.",
        Evidence.ASSUMED,
    )


def _text(measured: Measured) -> str:
    rows = [
        [
            f"{row['count']:,}",
            *(f"{value:.2g}" for value in (row["mean_deviation"], max(row["largest"]))),
            at_most_digits(row["fixed"]),
            at_most_digits(row["uniform"], 3),
        ]
        for row in measured["levels"]["rows"]
    ]
    table = markdown_table(
        ["n", "mean |ρ̂_n − ρ̂|", "largest found", "bound for one θ", "the paper's bound"], rows
    )
    words = (
        "The class is linear softmax on the rings, θ a 2 × 2 matrix with ‖θ‖_F ≤ 1, and γ = "
        f"{LEVEL_GAMMA:g}. Of it {len(measured['levels']['levels'])} θ were drawn, and "
        f"{len(measured['levels']['rows'][0]['largest'])} samples of each size; ρ̂ is that of a sample far "
        f"larger than all. No point moves by more than r, so |ρ̂_n − ρ̂| ≤ r² = {TRIVIAL:g} for every n and θ, "
        "whatever a theorem says. Bounds are rounded up."
    )
    return f"{words}\n\n{table}"


REPRODUCTION = Reproduction(
    name="generalization",
    title="Generalisation of the level of robustness",
    shows=("theorem:dist-concentration", "theorem:robustness"),
    minutes={Extent.QUICK: 0.2, Extent.PAPER: 5},
    parts=_parts,
    pictures=(
        Picture("deviations", "How far ρ̂ of a sample is from the population's, beside three bounds.", _draw),
    ),
    statements=_statements,
    text=_text,
    smaller={Extent.QUICK: "10 networks, 3 repetitions, samples of at most 1,000."},
)
