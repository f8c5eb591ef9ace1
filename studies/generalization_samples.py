"""Levels of robustness of samples and of the population, for a class whose constants are all known.

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
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from certus.certificates.paper_terms import level_error
from certus.data import Split
from certus.datasets.bundled import rings
from certus.inner import WRM, BarzilaiBorwein
from certus.losses import CrossEntropy, ModelLoss
from studies.workshop import Workshop

LEVEL_GAMMA, RADIUS, FAILURE = 2.0, 4.0, 0.05
SLOPE = math.sqrt(2)
REACH = SLOPE / (2 * LEVEL_GAMMA)
TRIVIAL = 2 / (2 * LEVEL_GAMMA) ** 2  # r², exactly
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


def measure_levels(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
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
                "mean_deviation": fmean([abs(one) for row in rows for one in row]),
                "largest": [max(abs(one) for one in row) for row in rows],
                "uniform": uniform_bound(count),
                "fixed": fixed_bound(count),
                "missed": fmean([float(abs(one) > fixed_bound(count)) for row in rows for one in row]),
            }
            for count, rows in deviations.items()
        ],
    }
