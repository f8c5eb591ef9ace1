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

The error rate is bounded from above as ``confidence`` says, and from below by the knapsack of the errors that
were found, less the margin of the mirror image of Dvoretzky, Kiefer, Wolfowitz and Massart.

All of it is right for independent draws, stored in an order that does not depend on them. A file may be
sorted, or have its harder half first. So the samples are put into the random order of a seed first:
independent draws in any order at all are independent again after that, with the probability over the seed,
too. A seed that was chosen for its result proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.certificates.confidence import INEQUALITIES, dkw, error_gammas, error_means
from certus.certificates.dual_values import DualValues
from certus.certificates.error_costs import worst_error
from certus.certificates.local_bounds import SampleValues
from certus.data import random_order
from certus.errors import require, require_confidence
from certus.kernel.rounding import SOME, slack, up
from certus.kernel.statement import PopulationBounds, failure_shares

_FAR = 16.0  # C of the lower side, in units of the largest ρ


@dataclass(frozen=True)
class Move:
    """T'_γ of the population: its mean cost is at most ``cost``, and its mean loss at least ``loss``."""

    cost: float
    loss: float


@dataclass(frozen=True, eq=False)
class Population:
    """What holds for the distribution that the data were drawn from, with a confidence.

    Attributes:
        upper: upper sides, proven by the kernel. Of δ, 2δ/5 each are for the upper sides of loss and error,
            and δ/10 for each lower side (4δ/5 and δ/5 for a regression), split further among all γ.
        clean_loss: lower bound on E min(ℓ, B); moves: γ → T'_γ.
        error_margin_low: how far the knapsack of the errors that were found moves down; None for regression.
        attained_error_cost: (n,) the costs of errors that were found by searches fixed beforehand.
        repeats: rows that are equal to an earlier one, with its target: none of independent draws, as a rule.
    """

    upper: PopulationBounds
    clean_loss: float
    moves: dict[float, Move]
    error_margin_low: float | None = None
    attained_error_cost: Tensor | None = None
    repeats: int = 0

    @staticmethod
    def of(
        levels: Sequence[DualValues],
        values: SampleValues,
        attained_error_cost: Tensor | None = None,
        *,
        confidence: float,
        clip: float,
        inequality: str,
        rhos: tuple[float, float],
        seed: int,
    ) -> Population:
        """From the levels of the grid Γ, and values at the samples.

        Args:
            attained_error_cost: (n,) costs of errors that were found; None for regression.
            rhos: the smallest and the largest positive ρ of interest.
        """
        require_confidence(confidence)
        require(
            inequality in INEQUALITIES, "inequality", f"be one of {', '.join(INEQUALITIES)}", repr(inequality)
        )
        bound, start, costs = INEQUALITIES[inequality], values.start, values.bounds.error_cost
        above, below = failure_shares(confidence, costs is not None)
        each, far = below / (2 * len(levels) + 1), _FAR * rhos[1]
        order = random_order(len(start), seed)

        def most(samples: Tensor, ceiling: float, failure: float) -> float:
            return bound(samples[order], ceiling, failure)

        def least(samples: Tensor) -> float:
            return clip - up(most(clip - samples.clamp(0, clip), clip, each), SOME)

        moves = {}
        for level in levels:
            within = level.transport_cost <= far
            spent = torch.where(within, level.transport_cost, 0.0)
            moves[level.gamma] = Move(most(spent, far, each), least(torch.where(within, level.loss, start)))
        bounds = [level.bounds for level in levels]
        gammas = () if costs is None else error_gammas(rhos, len(start))
        upper = PopulationBounds.of(
            values.bounds,
            bounds,
            confidence=confidence,
            seed=seed,
            clip=clip,
            inequality=inequality,
            claims={one.gamma: most(one.bound.clamp(0, clip), clip, above / len(levels)) for one in bounds},
            error_claims={} if costs is None else error_means(costs[order], gammas, above / 2),
        )
        margin = None if costs is None else dkw(len(start), below)
        return Population(upper, least(start), moves, margin, attained_error_cost)

    @property
    def confidence(self) -> float:
        """1 − δ, for everything here together."""
        return self.upper.confidence

    @property
    def clip(self) -> float:
        """B; the statement is about min(ℓ, B)."""
        return self.upper.clip

    @property
    def inequality(self) -> str:
        """The concentration inequality: "betting", "bernstein" or "hoeffding"."""
        return self.upper.inequality

    def loss(self, rho: float) -> float:
        """Upper bound on the worst expected min(ℓ, B) within ρ of the population."""
        return self.upper.loss(rho)

    def loss_low(self, rho: float) -> float:
        """Lower bound on the same."""
        losses = [self.clean_loss]
        for move in self.moves.values():
            share = min(1.0, rho / move.cost) if move.cost > 0 else 1.0
            losses.append((1 - share) * self.clean_loss + share * move.loss)
        return max(0.0, max(losses) - SOME)

    def error_low(self, rho: float) -> float | None:
        """Lower bound on the worst error rate."""
        if self.attained_error_cost is None or self.error_margin_low is None:
            return None
        error = worst_error(self.attained_error_cost, [rho])[0]
        return max(0.0, error - self.error_margin_low - slack(len(self.attained_error_cost)))
