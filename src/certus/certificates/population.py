"""Upper confidence bounds on a mean, from n independent samples that nothing was tuned on.

With θ and a finite grid Γ fixed beforehand and ψ_γ = min(φ̄_γ, B) ∈ [0, B], with probability at least 1 − δ,
for all ρ ≥ 0:

    sup {E_P min(ℓ, B) : W_c(P, P₀) ≤ ρ} ≤ min_{γ ∈ Γ} γρ + U_n(ψ_γ; δ/|Γ|),

since E_P min(ℓ, B) ≤ γρ + E ψ_γ for every γ, and U_n bounds E ψ_γ for all γ of the grid at once (a union
bound). It takes no
covering numbers: the network is fixed. For the error rate, (1 − γτ)₊ is an average of indicators 1{τ ≤ t},
    so that the
one-sided inequality of Dvoretzky, Kiefer, Wolfowitz and Massart, P₀(τ ≤ t) ≤ P_n(τ ≤ t) + √(ln(1/δ)/2n) for
all t, moves every
knapsack up by that much, for all ρ and γ at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from certus.errors import require

_MOST = 0.9  # the largest share of its wealth that a bet may risk


def hoeffding(values: Tensor, ceiling: float, failure: float) -> float:
    """mean + B√(ln(1/δ)/2n)."""
    scaled = _scaled(values, ceiling, failure)
    return ceiling * min(1.0, float(scaled.mean()) + math.sqrt(math.log(1 / failure) / (2 * len(scaled))))


def empirical_bernstein(values: Tensor, ceiling: float, failure: float) -> float:
    """mean + √(2V ln(2/δ)/n) + 7B ln(2/δ)/(3(n − 1)), V the sample variance (Maurer and Pontil)."""
    scaled = _scaled(values, ceiling, failure)
    count, log = len(scaled), math.log(2 / failure)
    if count < 2:
        return ceiling
    wide = math.sqrt(2 * float(scaled.var()) * log / count) + 7 * log / (3 * (count - 1))
    return ceiling * min(1.0, float(scaled.mean()) + wide)


def betting(values: Tensor, ceiling: float, failure: float) -> float:
    """The least mean that a bettor against larger ones has not refuted (Waudby-Smith and Ramdas).

    With w = 1 − ψ/B and a claim E w ≤ m, the wealth Π (1 + λ_t(w_t − m)) is a supermartingale if the claim
    holds, so it reaches
    1/δ with probability at most δ (Ville). The bets λ_t ∈ [0, 0.9] depend on the past alone, and not on m:
    the wealth falls as
    m grows, and bisection finds the largest m that is refuted. The order of the samples is part of the
    procedure.
    """
    gains = 1 - _scaled(values, ceiling, failure)
    count = len(gains)
    times = torch.arange(1, count + 1, dtype=torch.float64)
    means = (gains.cumsum(0) + 0.5) / (times + 1)
    spread = (((gains - means) ** 2).cumsum(0) + 0.25) / (times + 1)
    before = torch.cat([spread.new_tensor([0.25]), spread[:-1]])
    bets = (2 * math.log(1 / failure) / (count * before)).sqrt().clamp_max(_MOST)
    goal = math.log(1 / failure)

    def refuted(mean: float) -> bool:
        return float(torch.log1p(bets * (gains - mean)).cumsum(0).max()) >= goal * (1 + 1e-12)

    low, high = 0.0, 1.0  # refuted below, unless nothing is, and not above
    if not refuted(low):
        return ceiling
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return ceiling * (1 - low)


def dkw(count: int, failure: float) -> float:
    """√(ln(1/δ)/2n), for δ ≤ ½ (Massart)."""
    require(0 < failure <= 0.5, "failure", "lie in (0, 0.5]", failure)
    return math.sqrt(math.log(1 / failure) / (2 * count))


Method = Callable[[Tensor, float, float], float]
METHODS: dict[str, Method] = {
    "betting": betting,
    "bernstein": empirical_bernstein,
    "hoeffding": hoeffding,
}


def _scaled(values: Tensor, ceiling: float, failure: float) -> Tensor:
    """The values as shares of B, checked."""
    require(0 < ceiling < math.inf, "clip", "be positive and finite", ceiling)
    require(0 < failure < 1, "failure", "lie between 0 and 1", failure)
    require(len(values) > 0, "values", "not be empty", "none")
    inside = bool(((values >= 0) & (values <= ceiling)).all())
    require(
        inside, "values", f"lie between 0 and {ceiling}", f"{float(values.min())} to {float(values.max())}"
    )
    return values.double() / ceiling
