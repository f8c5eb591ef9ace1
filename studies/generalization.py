"""theorem:dist-concentration and theorem:robustness in numbers: does robustness on a sample carry over?

The class is the linear softmax of two classes on points of the plane with ‖x‖ ≤ 4 (the rings, without the
few points beyond), Θ = {W : ‖W‖_F ≤ 1}, γ = 2. All constants of the theorems are then known:

    ‖∇_x ℓ‖ ≤ √2‖W‖ =: G,   T_γ moves by at most r = G/2γ,   c(T, x) ≤ r²,   ℓ ≤ M_ℓ = ln(1 + e^(√2·(4 + r)))
    L⁺ = ½,   μ = 2γ − ½,   L_xθ = (4 + r)/2 + √2,   d = 4,   diam Θ = 2

Measured is |ρ̂_n(θ) − ρ̂(θ)| for many θ of Θ; ρ̂(θ) is taken over a sample that is far larger. Beside it stand
the paper's bound, which holds for all θ at once, and a bound for one θ that was fixed before the sample was
drawn: Hoeffding's, r²√(ln(2/δ)/2n), since 0 ≤ c(T, X) ≤ r². For the same reason |ρ̂_n − ρ̂| ≤ r² without any
theorem: where the paper's bound is not below that, it says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from certus.certificates.covering_number_bounds import attained_budget_error, lipschitz_error
from certus.data import Samples
from certus.datasets.bundled import rings
from certus.display.canvas import COLOURS, new_figure
from certus.inner import WRM, BarzilaiBorwein
from certus.kernel.evidence import Evidence
from certus.losses import CrossEntropy, ModelLoss
from studies.page import at_most_digits, markdown_table
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
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL_GAMMA, RADIUS, FAILURE = 2.0, 4.0, 0.05
SLOPE = math.sqrt(2)
REACH = SLOPE / (2 * LEVEL_GAMMA)
TRIVIAL = 2 / (2 * LEVEL_GAMMA) ** 2  # r², exactly
LARGEST_LOSS = math.log1p(math.exp(SLOPE * (RADIUS + REACH)))
MODULUS = 2 * LEVEL_GAMMA - 0.5
CROSS = (RADIUS + REACH) / 2 + math.sqrt(2)
DIMENSION, DIAMETER = 4, 2.0


def uniform_bound(count: int) -> float:
    """Return the bound of theorem:dist-concentration (ii), for all θ ∈ Θ at once, with probability 1 − δ."""
    return attained_budget_error(
        count,
        FAILURE,
        lambda width: DIMENSION * math.log1p(DIAMETER / width),
        ceiling=LARGEST_LOSS / LEVEL_GAMMA,
        slope=SLOPE / LEVEL_GAMMA,
        cross_smoothness=CROSS,
        modulus=MODULUS,
    )


def fixed_bound(count: int) -> float:
    """Return Hoeffding's bound for one θ that was fixed beforehand, with the same probability."""
    return REACH**2 * math.sqrt(math.log(2 / FAILURE) / (2 * count))


def random_weights(count: int, generator: torch.Generator) -> Tensor:
    """Draw (count, 2, 2) points of Θ, half of them on its boundary."""
    drawn = torch.randn(count, 2, 2, generator=generator, dtype=torch.float64)
    drawn /= torch.linalg.matrix_norm(drawn)[:, None, None]
    drawn[::2] *= torch.rand(len(drawn[::2]), 1, 1, generator=generator, dtype=torch.float64).sqrt()
    return drawn


def _sample(count: int, seed: int) -> Samples:
    drawn = rings(train=int(1.02 * count) + 20, calibration=1, test=1, seed=seed).train
    inside = drawn.inputs.norm(dim=1) <= RADIUS
    return Samples(drawn.inputs[inside][:count].double(), drawn.targets[inside][:count])


def moved_costs(weights: Tensor, data: Samples) -> Tensor:
    """Return (n,) c(T_γ(θ; z), z)."""
    model = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(weights)
    loss = ModelLoss(model, CrossEntropy())
    solved = WRM(LEVEL_GAMMA, maximizer=BarzilaiBorwein(1e-10, 100)).solve(loss, data.inputs, data.targets)
    return solved.transport_cost


def measure_levels(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the population's ρ̂ for each θ, and its deviations on samples of each size."""
    weights = random_weights(settings["networks"], torch.Generator().manual_seed(settings["seed"]))
    everyone = _sample(settings["population"], seed=1)
    deviations: dict[int, list[list[float]]] = {count: [] for count in settings["counts"]}
    levels = []
    for theta in weights:
        levels.append(moved_costs(theta, everyone).mean().item())
    for count in settings["counts"]:
        for repetition in range(settings["repetitions"]):
            data = _sample(count, seed=1000 + repetition)
            differences = [
                moved_costs(theta, data).mean().item() - level
                for theta, level in zip(weights, levels, strict=True)
            ]
            deviations[count].append(differences)
    return {
        "levels": levels,
        "rows": [
            {
                "count": count,
                "mean_deviation": fmean([abs(entry) for row in rows for entry in row]),
                "largest": [max(abs(entry) for entry in row) for row in rows],
                "uniform": uniform_bound(count),
                "fixed": fixed_bound(count),
                "missed": fmean([float(abs(entry) > fixed_bound(count)) for row in rows for entry in row]),
            }
            for count, rows in deviations.items()
        ],
    }


_SLOWEST, _FASTEST = 0.35, 0.65  # powers of 1/n that still count as 1/√n


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
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


def _verdicts(measured: Measured) -> list[Verdict]:
    rows = measured["levels"]["rows"]
    return [
        _about_the_bound(rows, fmean(measured["levels"]["levels"])),
        _about_the_rate(rows),
        _about_one_network(rows),
        _about_covering_numbers(rows[-1]["count"]),
    ]


def _about_the_bound(rows: Sequence[Mapping[str, Any]], level: float) -> Verdict:
    """Judge the bound; one that is not below c ≤ r² cannot be exceeded, and is not tested."""
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
        evidence=Evidence.STATED,
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
        evidence=Evidence.STATED,
    )


def _about_covering_numbers(count: int) -> Verdict:
    """Evaluate the paper's formula; no measurement enters."""
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
        f"{LEVEL_GAMMA:g}. {len(measured['levels']['levels'])} values of θ were drawn, and "
        f"{len(measured['levels']['rows'][0]['largest'])} samples of each size; ρ̂ is computed on a far "
        f"larger sample. No point moves by more than r, so |ρ̂_n − ρ̂| ≤ r² = {TRIVIAL:g} holds trivially "
        "for every n and θ. Bounds are rounded up."
    )
    return f"{words}\n\n{table}"


STUDY = Study(
    name="generalization",
    title="Generalisation of the level of robustness",
    labels=("theorem:dist-concentration", "theorem:robustness"),
    minutes={Scale.QUICK: 0.2, Scale.FULL: 5},
    parts=_parts,
    pictures=(
        Picture("deviations", "Deviation of ρ̂ of a sample from the population's, and three bounds.", _draw),
    ),
    verdicts=_verdicts,
    text=_text,
    scope={Scale.QUICK: "10 networks, 3 repetitions, samples of at most 1,000."},
)
