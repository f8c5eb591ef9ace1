"""Confidence bounds from n independent samples that nothing was tuned on.

With θ and a finite grid Γ fixed beforehand and ψ_γ = min(φ̄_γ, B) ∈ [0, B], with probability at least 1 − δ,
for all ρ ≥ 0:

    sup {E_P min(ℓ, B) : W_c(P, P₀) ≤ ρ} ≤ min_{γ ∈ Γ} γρ + U_n(ψ_γ; δ/|Γ|),

since E_P min(ℓ, B) ≤ γρ + E ψ_γ for every γ, and U_n bounds E ψ_γ for all γ of the grid at once (a union
bound). It takes no covering numbers: the network is fixed. From below, T̂_γ is a map that was fixed
beforehand too, whatever it maximises. Let T'_γ be the same where it costs at most C, and stay put elsewhere.
Moving a share s = min(1, ρ/U_n(c(T'_γ))) of the population by T'_γ costs at most ρ, so that the supremum is
at least

    (1 − s)·L_n(min(ℓ, B)) + s·L_n(min(ℓ∘T'_γ, B)),                    L_n(v) = B − U_n(B − v).

For the error rate, (1 − γτ)₊ is an average of indicators 1{τ ≤ t}, so that the one-sided inequality of
Dvoretzky, Kiefer, Wolfowitz and Massart, P₀(τ ≤ t) ≤ P_n(τ ≤ t) + √(ln(1/δ)/2n) for all t, moves every
knapsack up by that much, for all ρ and γ at once; its mirror image moves the knapsack of the errors that
were found down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from certus.certificates.knapsack import worst_error
from certus.certificates.levels import Level
from certus.errors import require
from certus.smoothness.spectral import slack

_MOST = 0.9  # the largest share of its wealth that a bet may risk
_FAR = 16.0  # C of the lower side, in units of the largest ρ
_ABOVE = 0.8  # the share of δ that the upper sides have
_UP = 1 + 1e-12  # for the rounding of means


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
    holds, so it reaches 1/δ with probability at most δ (Ville). The bets λ_t ∈ [0, 0.9] depend on the past
    alone, and not on m: the wealth falls as m grows, and bisection finds the largest m that is refuted. The
    order of the samples is part of the procedure.
    """
    gains = (1 - _scaled(values, ceiling, failure)).numpy()
    count, goal = len(gains), math.log(1 / failure)
    times = np.arange(2, count + 2)
    means = (gains.cumsum() + 0.5) / times
    spread = (((gains - means) ** 2).cumsum() + 0.25) / times
    before = np.concatenate([[0.25], spread[:-1]])
    bets = np.minimum(np.sqrt(2 * goal / (count * before)), _MOST)
    low, width = 0.0, 1.0
    while width > 1e-10:
        # Seventeen claims at a time: those that are refuted come first.
        claims = low + width * np.arange(17) / 16
        wealth = np.log1p(bets * (gains - claims[:, None])).cumsum(1).max(1)
        refuted = int((wealth >= goal * (1 + 1e-12)).sum())
        if refuted == 0:
            break
        low, width = float(claims[refuted - 1]), width / 16
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


@dataclass(frozen=True)
class Move:
    """T'_γ of the population: its mean cost is at most ``cost``, and its mean loss at least ``loss``."""

    cost: float
    loss: float


@dataclass(frozen=True, eq=False)
class Population:
    """What holds for the distribution that the data were drawn from, with a confidence.

    Attributes:
        confidence: 1 − δ, for everything here together: 2δ/5 each for the upper sides of loss and error,
            δ/10 for each lower side (4δ/5 and δ/5 for a regression), split further among all γ.
        clip: B; the statement is about min(ℓ, B).
        method: "betting", "bernstein" or "hoeffding".
        means: γ → upper bound on E min(φ̄_γ, B).
        start: lower bound on E min(ℓ, B); moves: γ → T'_γ.
        error_margin, error_margin_low: how far the knapsacks of the sample move up, and down; None for
            regression.
        error_found: (n,) the costs of errors that were found by searches fixed beforehand.
    """

    confidence: float
    clip: float
    method: str
    means: dict[float, float]
    start: float
    moves: dict[float, Move]
    error_margin: float | None
    error_margin_low: float | None
    error_found: Tensor | None

    @staticmethod
    def of(
        levels: Sequence[Level],
        start: Tensor,
        errors: Tensor | None,
        *,
        confidence: float,
        clip: float,
        method: str,
        largest: float,
    ) -> Population:
        """From the levels of the grid Γ.

        Args:
            start: (n,) ℓ at the samples, rounded down.
            errors: (n,) costs of errors that were found; None for regression.
            largest: the largest ρ of interest.
        """
        require(0.5 <= confidence < 1, "confidence", "lie in [0.5, 1)", confidence)
        require(method in METHODS, "method", f"be one of {', '.join(METHODS)}", repr(method))
        failure, bound, count = 1 - confidence, METHODS[method], len(start)
        parts = 1 if errors is None else 2
        above, below = _ABOVE * failure / parts, (1 - _ABOVE) * failure / parts
        each, far = below / (2 * len(levels) + 1), _FAR * largest

        def least(values: Tensor) -> float:
            return clip - bound(clip - values.clamp(0, clip), clip, each) * _UP

        moves = {}
        for level in levels:
            kept = level.transport_cost <= far
            costs = torch.where(kept, level.transport_cost, 0.0)
            moves[level.gamma] = Move(
                bound(costs, far, each) * _UP, least(torch.where(kept, level.loss, start))
            )
        means = {
            level.gamma: bound(level.bound.clamp(0, clip), clip, above / len(levels)) * _UP
            for level in levels
        }
        up, down = (None, None) if errors is None else (dkw(count, above), dkw(count, below))
        return Population(confidence, clip, method, means, least(start), moves, up, down, errors)

    def loss(self, rho: float) -> float:
        """Upper bound on the worst expected min(ℓ, B) within ρ of the population."""
        return min(self.clip, *(gamma * rho + mean for gamma, mean in self.means.items()))

    def loss_low(self, rho: float) -> float:
        """Lower bound on the same."""
        found = [self.start]
        for move in self.moves.values():
            share = min(1.0, rho / move.cost) if move.cost > 0 else 1.0
            found.append((1 - share) * self.start + share * move.loss)
        return max(0.0, max(found) - 1e-12)

    def error(self, sample: float | None) -> float | None:
        """Upper bound on the worst error rate, from that of the sample at the same ρ."""
        if sample is None or self.error_margin is None:
            return None
        return min(1.0, sample + self.error_margin)

    def error_low(self, rho: float) -> float | None:
        """Lower bound on the same."""
        if self.error_found is None or self.error_margin_low is None:
            return None
        found = worst_error(self.error_found, [rho])[0]
        return max(0.0, found - self.error_margin_low - slack(len(self.error_found)))
