"""Confidence bounds from n independent samples that nothing was tuned on.

With θ and a finite grid Γ fixed beforehand and ψ_γ = min(φ̄_γ, B) ∈ [0, B], with probability at least 1 − δ,
for all ρ ≥ 0:

    sup {E_P min(ℓ, B) : W_c(P, P₀) ≤ ρ} ≤ min_{γ ∈ Γ} γρ + U_n(ψ_γ; δ/|Γ|),

since E_P min(ℓ, B) ≤ γρ + E ψ_γ for every γ, and U_n bounds E ψ_γ for all γ of the grid at once (a union
bound). No covering numbers are needed, since the network is fixed. For the lower bound, T̂_γ is also a map
fixed beforehand. Let T'_γ equal it where the cost is at most C, and the identity elsewhere.
Moving a share s = min(1, ρ/U_n(c(T'_γ))) of the population by T'_γ costs at most ρ, so that the supremum is
at least

    (1 − s)·L_n(min(ℓ, B)) + s·L_n(min(ℓ∘T'_γ, B)),                    L_n(v) = B − U_n(B − v).

The upper bound on the error rate is derived in ``confidence``. The lower bound is the knapsack of the errors
that were found, less the DKW margin.

Betting requires independent draws in an order that does not depend on them, but a file may be sorted. So the
samples are first put into the random order of a seed, after which they are independent draws in random order;
the probability is then over the seed, too. A seed that was chosen for its result proves nothing.
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
    """T'_γ of the population: upper bound on its mean cost, and lower bound on its mean loss."""

    cost: float
    loss: float


@dataclass(frozen=True, eq=False)
class Population:
    """Bounds for the distribution that the data were drawn from, with a confidence.

    Attributes:
        upper: upper bounds, proven by the kernel. The upper bounds of loss and error use 2δ/5 each, and each
            lower bound δ/10 (4δ/5 and δ/5 for a regression), split further among all γ.
        clean_loss: lower bound on E min(ℓ, B); moves: γ → T'_γ.
        error_margin_low: margin below the knapsack of the errors that were found; None for regression.
        attained_error_cost: (n,) costs of errors found by searches that were fixed beforehand.
        repeats: number of rows that equal an earlier row and its target; independent draws rarely have any.
    """

    upper: PopulationBounds
    clean_loss: float
    moves: dict[float, Move]
    error_margin_low: float | None = None
    attained_error_cost: Tensor | None = None
    repeats: int = 0

    @staticmethod
    def of(
        dual_values: Sequence[DualValues],
        values: SampleValues,
        attained_error_cost: Tensor | None = None,
        *,
        confidence: float,
        clip: float,
        inequality: str,
        rhos: tuple[float, float],
        seed: int,
    ) -> Population:
        """Compute the bounds from the dual values on the grid Γ, and from losses and error costs of the
        samples.

        Args:
            attained_error_cost: (n,) costs of errors found; None for regression.
            rhos: the smallest and the largest positive ρ of interest.
        """
        require_confidence(confidence)
        require(
            inequality in INEQUALITIES, "inequality", f"be one of {', '.join(INEQUALITIES)}", repr(inequality)
        )
        bound, start, costs = INEQUALITIES[inequality], values.start, values.bounds.error_cost
        above, below = failure_shares(confidence, costs is not None)
        each, far = below / (2 * len(dual_values) + 1), _FAR * rhos[1]
        order = random_order(len(start), seed)

        def most(samples: Tensor, ceiling: float, failure: float) -> float:
            return bound(samples[order], ceiling, failure)

        def least(samples: Tensor) -> float:
            return clip - up(most(clip - samples.clamp(0, clip), clip, each), SOME)

        moves = {}
        for solved in dual_values:
            within = solved.transport_cost <= far
            spent = torch.where(within, solved.transport_cost, 0.0)
            moves[solved.gamma] = Move(most(spent, far, each), least(torch.where(within, solved.loss, start)))
        bounds = [solved.bounds for solved in dual_values]
        gammas = () if costs is None else error_gammas(rhos, len(start))
        upper = PopulationBounds.of(
            values.bounds,
            bounds,
            confidence=confidence,
            seed=seed,
            clip=clip,
            inequality=inequality,
            claims={
                solved.gamma: most(solved.bound.clamp(0, clip), clip, above / len(dual_values))
                for solved in bounds
            },
            error_claims={} if costs is None else error_means(costs[order], gammas, above / 2),
        )
        margin = None if costs is None else dkw(len(start), below)
        return Population(upper, least(start), moves, margin, attained_error_cost)

    @property
    def confidence(self) -> float:
        """1 − δ, for all bounds together."""
        return self.upper.confidence

    @property
    def clip(self) -> float:
        """B of the bounded loss min(ℓ, B)."""
        return self.upper.clip

    @property
    def inequality(self) -> str:
        """The concentration inequality: "betting", "bernstein" or "hoeffding"."""
        return self.upper.inequality

    def loss(self, rho: float) -> float:
        """Upper bound on the worst expected min(ℓ, B) within ρ of the population."""
        return self.upper.loss(rho)

    def loss_low(self, rho: float) -> float:
        """Lower bound on the worst expected min(ℓ, B) within ρ of the population."""
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
