"""Does robustness on the sample carry over? theorem:dist-concentration and theorem:robustness in numbers.

The class is the linear softmax of two classes on points of the plane with ‖x‖ ≤ 4 (the rings, without the
few points beyond), Θ = {W : ‖W‖_F ≤ 1}, γ = 2. All constants of the theorems are then known:

    ‖∇_x ℓ‖ ≤ √2‖W‖ =: G,   T_γ moves by at most r = G/2γ,   c(T, x) ≤ r²,   ℓ ≤ M_ℓ = ln(1 + e^(√2·(4 + r)))
    L⁺ = ½,   μ = 2γ − ½,   L_xθ = (4 + r)/2 + √2,   d = 4,   diam Θ = 2

Measured is |ρ̂_n(θ) − ρ̂(θ)| for many θ of Θ; ρ̂(θ) is taken over a sample that is far larger. Beside it stand
the paper's bound, which holds for all θ at once, and a bound for one θ that was fixed before the sample was
drawn: Hoeffding's, r²√(ln(2/δ)/2n), since 0 ≤ c(T, X) ≤ r².
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from certus.certificates.paper_terms import level_error, lipschitz_error
from certus.data.rings import rings
from certus.evidence import Evidence
from certus.figures.canvas import COLOURS, new_figure, subscripted
from certus.losses import CrossEntropy, ModelLoss
from certus.reproduce.page import markdown_table
from certus.reproduce.reproduction import Comparison, Extent, Measured, Part, Picture, Reproduction
from certus.reproduce.workshop import Workshop
from certus.split import Split
from certus.surrogate import WRM, BarzilaiBorwein

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL_GAMMA, RADIUS, FAILURE = 2.0, 4.0, 0.05
SLOPE = math.sqrt(2)
REACH = SLOPE / (2 * LEVEL_GAMMA)
LARGEST_LOSS = math.log1p(math.exp(SLOPE * (RADIUS + REACH)))
MODULUS = 2 * LEVEL_GAMMA - 0.5
CROSS = (RADIUS + REACH) / 2 + math.sqrt(2)
DIMENSION, DIAMETER = 4, 2.0


def uniform_bound(count: int) -> float:
    """theorem:dist-concentration, case (ii): for all θ ∈ Θ at once, with probability 1 − δ."""
    return level_error(
        count,
        FAILURE,
        lambda width: DIMENSION * math.log1p(DIAMETER / width),
        ceiling=LARGEST_LOSS / LEVEL_GAMMA,
        slope=SLOPE / LEVEL_GAMMA,
        cross_smoothness=CROSS,
        modulus=MODULUS,
    )


def fixed_bound(count: int) -> float:
    """Hoeffding's, for one θ that was fixed beforehand, with the same probability."""
    return REACH**2 * math.sqrt(math.log(2 / FAILURE) / (2 * count))


def random_weights(count: int, generator: torch.Generator) -> Tensor:
    """(count, 2, 2) points of Θ, half of them on its boundary."""
    drawn = torch.randn(count, 2, 2, generator=generator, dtype=torch.float64)
    drawn /= torch.linalg.matrix_norm(drawn)[:, None, None]
    drawn[::2] *= torch.rand(len(drawn[::2]), 1, 1, generator=generator, dtype=torch.float64).sqrt()
    return drawn


def _sample(count: int, seed: int) -> Split:
    drawn = rings(train=int(1.02 * count) + 20, calibration=1, test=1, seed=seed).train
    inside = drawn.inputs.norm(dim=1) <= RADIUS
    return Split(drawn.inputs[inside][:count].double(), drawn.targets[inside][:count])


def moved_costs(weights: Tensor, data: Split) -> Tensor:
    """(n,) c(T_γ(θ; z), z)."""
    model = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(weights)
    loss = ModelLoss(model, CrossEntropy())
    solved = WRM(LEVEL_GAMMA, maximizer=BarzilaiBorwein(1e-10, 100)).solve(loss, data.inputs, data.targets)
    return solved.transport_cost


def _measure(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """For each θ the population's ρ̂, and how far samples of each size are from it."""
    weights = random_weights(settings["networks"], torch.Generator().manual_seed(settings["seed"]))
    everyone = _sample(settings["population"], seed=1)
    deviations: dict[int, list[list[float]]] = {count: [] for count in settings["counts"]}
    levels = []
    for theta in weights:
        levels.append(moved_costs(theta, everyone).mean().item())
    for count in settings["counts"]:
        for repetition in range(settings["repetitions"]):
            data = _sample(count, seed=1000 + repetition)
            found = [
                moved_costs(theta, data).mean().item() - level
                for theta, level in zip(weights, levels, strict=True)
            ]
            deviations[count].append(found)
    return {
        "levels": levels,
        "rows": [
            {
                "count": count,
                "mean_deviation": _mean([abs(one) for row in rows for one in row]),
                "largest": [max(abs(one) for one in row) for row in rows],
                "uniform": uniform_bound(count),
                "fixed": fixed_bound(count),
                "missed": _mean([float(abs(one) > fixed_bound(count)) for row in rows for one in row]),
            }
            for count, rows in deviations.items()
        ],
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


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
    return [Part("levels", settings, _measure)]


def _draw(measured: Measured) -> Figure:
    rows = measured["levels"]["rows"]
    figure = new_figure(5.8, 4.2)
    axes = figure.subplots()
    counts = [row["count"] for row in rows]
    axes.plot(
        counts, [row["uniform"] for row in rows], color=COLOURS[0], label="the paper's bound, all θ (proven)"
    )
    axes.plot(counts, [row["fixed"] for row in rows], color=COLOURS[2], label="bound for one θ (proven)")
    largest = [max(row["largest"]) for row in rows]
    axes.plot(counts, largest, "o-", color=COLOURS[1], label="largest over θ and samples, measured")
    typical = [row["mean_deviation"] for row in rows]
    axes.plot(counts, typical, "s-", color=COLOURS[3], label="mean over θ, measured")
    line = [typical[0] * math.sqrt(counts[0] / count) for count in counts]
    axes.plot(counts, line, "--", color="#5f5f5f", label="1/√n")
    level = _mean(measured["levels"]["levels"])
    axes.axhline(level, color="#9a9a9a", linewidth=1, linestyle=":", label="ρ̂ itself, mean over θ")
    axes.set(xscale="log", yscale="log", xlabel="samples n", ylabel=subscripted("|ρ̂_n − ρ̂|"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize="x-small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _statements(measured: Measured) -> list[Comparison]:
    rows = measured["levels"]["rows"]
    first, last = rows[0], rows[-1]
    power = math.log(first["mean_deviation"] / last["mean_deviation"]) / math.log(
        last["count"] / first["count"]
    )
    held = all(max(row["largest"]) <= row["uniform"] for row in rows)
    level = _mean(measured["levels"]["levels"])
    deep = lipschitz_error(
        60_000, 710_218, 3.0, lipschitz=1.0, diameter=1.0, start_bound=math.log(10), b1=1.0, b2=1.0
    )
    small = lipschitz_error(
        last["count"],
        DIMENSION,
        3.0,
        lipschitz=SLOPE * (RADIUS + REACH),
        diameter=DIAMETER,
        start_bound=math.log(2),
        b1=1.0,
        b2=1.0,
    )
    return [
        Comparison(
            "theorem:dist-concentration",
            "sup_θ |ρ̂_n − ρ̂| is bounded, at the rate √(d/n).",
            f"n = {last['count']:,}: at most {last['uniform']:.2g} proven, "
            f"{max(last['largest']):.2g} found; ρ̂ itself "
            f"is {level:.2g}. {'Never exceeded' if held else 'Exceeded'}.",
            held,
            reason="" if held else "the bound is wrong, or its constants are.",
            evidence=Evidence.PROVEN,
        ),
        Comparison(
            "theorem:dist-concentration",
            "The level of robustness on the training set generalises, like 1/√n.",
            f"The mean deviation falls like n^−{power:.2f}.",
            0.35 < power < 0.65,
        ),
        Comparison(
            "theorem:dist-concentration",
            "(The bound is uniform in θ.)",
            f"For one θ, fixed beforehand, {last['fixed']:.2g} is proven: "
            f"{last['uniform'] / last['fixed']:.0f} times "
            f"less. It failed in {max(row['missed'] for row in rows):.1%} of the trials, allowed "
            f"are {FAILURE:.0%}.",
            None,
            reason="ours, for comparison.",
            evidence=Evidence.PROVEN,
        ),
        Comparison(
            "theorem:robustness",
            "Through covering numbers the bounds can become prohibitively large for deep networks.",
            f"ε_n = {small:.2g} for this class of 4 weights at n = {last['count']:,}; for the "
            f"710,218 weights of the MNIST "
            f"network at n = 60,000, with L·diam Θ = 1, it is {deep:.3g}, where guessing loses 2.3. "
            f"b₁ = b₂ = 1.",
            deep > math.log(10),
            reason="" if deep > math.log(10) else "with these constants the bound is of use.",
            evidence=Evidence.ASSUMED,
        ),
    ]


def _text(measured: Measured) -> str:
    rows = [
        [
            f"{row['count']:,}",
            *(
                f"{value:.2g}"
                for value in (row["mean_deviation"], max(row["largest"]), row["fixed"], row["uniform"])
            ),
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
        "larger than all."
    )
    return f"{words}\n\n{table}"


REPRODUCTION = Reproduction(
    name="generalization",
    title="Generalisation of the level of robustness",
    shows=("theorem:dist-concentration", "theorem:robustness"),
    minutes={Extent.QUICK: 0.2, Extent.PAPER: 5},
    parts=_parts,
    pictures=(
        Picture("deviations", "How far ρ̂ of a sample is from the population's, beside two bounds.", _draw),
    ),
    statements=_statements,
    text=_text,
    smaller={Extent.QUICK: "10 networks, 3 repetitions, samples of at most 1,000."},
)
