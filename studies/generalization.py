"""Does robustness on the sample carry over? theorem:dist-concentration and theorem:robustness in numbers.

What is measured, and for which class, is told in ``generalization_samples.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from certus._format import at_most_digits
from certus.certificates.paper_terms import lipschitz_error
from certus.display.canvas import COLOURS, new_figure, subscripted
from certus.evidence import Evidence
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


def _statements(measured: Measured) -> list[Verdict]:
    rows = measured["levels"]["rows"]
    return [
        _about_the_bound(rows, fmean(measured["levels"]["levels"])),
        _about_the_rate(rows),
        _about_one_network(rows),
        _about_covering_numbers(rows[-1]["count"]),
    ]


def _about_the_bound(rows: Sequence[Mapping[str, Any]], level: float) -> Verdict:
    """A bound that is not below c ≤ r² cannot be exceeded, and so is not tested."""
    last = rows[-1]
    exceeded = sum(max(row["largest"]) > row["uniform"] for row in rows)
    telling = [row["count"] for row in rows if row["uniform"] < TRIVIAL]
    return Verdict(
        name="bound",
        label="theorem:dist-concentration",
        claim="sup_θ |ρ̂_n − ρ̂| is bounded, at the rate √(d/n).",
        rule=f"a bound exceeded at no n, and at the largest n below the trivial one, r² = {TRIVIAL:g}, which "
        "no sample can exceed; else not comparable",
        outcome=outcome_of(False if exceeded else True if last["uniform"] < TRIVIAL else None),
        ours={
            "n": Quantity(last["count"], places=0),
            "proven": Quantity(last["uniform"], side="at most", places=3),
            "largest found": Quantity(max(last["largest"])),
            "ρ̂ itself": Quantity(level),
            "sizes n at which it is exceeded": Quantity(exceeded, places=0),
            "smallest n at which it is below r²": Quantity(telling[0] if telling else None, places=0),
        },
        evidence=Evidence.PROVEN,
    )


def _about_the_rate(rows: Sequence[Mapping[str, Any]]) -> Verdict:
    first, last = rows[0], rows[-1]
    rise = math.log(last["mean_deviation"] / first["mean_deviation"])
    power = rise / math.log(last["count"] / first["count"])
    return Verdict(
        name="rate",
        label="theorem:dist-concentration",
        claim="The level of robustness on the training set generalises, like 1/√n.",
        rule=f"a mean deviation that goes like n^p from the smallest to the largest n, p between "
        f"{-_FASTEST:g} and {-_SLOWEST:g}",
        outcome=outcome_of(_SLOWEST < -power < _FASTEST),
        ours={"p": Quantity(power, places=2)},
        paper={"p": -0.5},
    )


def _about_one_network(rows: Sequence[Mapping[str, Any]]) -> Verdict:
    last, missed = rows[-1], max(row["missed"] for row in rows)
    return Verdict(
        name="one network",
        label="theorem:dist-concentration",
        claim="The bound is uniform in θ.",
        rule=f"nothing: it is our bound for one θ, fixed beforehand; *no* where it fails in more than "
        f"{FAILURE:.0%} of the trials of an n",
        outcome=outcome_of(False if missed > FAILURE else None),
        ours={
            "proven": Quantity(last["fixed"], side="at most"),
            "the uniform bound divided by it": Quantity(last["uniform"] / last["fixed"], places=0),
            "largest share of trials that fail": Quantity(missed, places=1, percent=True),
        },
        evidence=Evidence.PROVEN,
    )


def _about_covering_numbers(count: int) -> Verdict:
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
    return Verdict(
        name="covering numbers",
        label="theorem:robustness",
        claim="Through covering numbers the bounds can become prohibitively large for deep networks.",
        rule="",
        outcome=Outcome.NOT_COMPARABLE,
        ours={
            "ε_n of this class": Quantity(small, side="at most"),
            "ε_n of the MNIST network": Quantity(deep, side="at most", places=1),
            "loss of guessing": Quantity(math.log(10), places=1),
        },
        evidence=Evidence.ASSUMED,
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
