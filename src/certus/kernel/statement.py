"""Statements: the proven half of a certificate, from bounds at samples and at each γ (eqn:certificate).

For every ρ ≥ 0 and every γ, sup {E_P min(wℓ, B) : W_c(P, P̂_n) ≤ ρ} ≤ γρ + E_n φ̄_γ; within ρ = 0 there is the
sample alone. The worst error rate is bounded by the knapsack at any γ (``knapsack``). No sample has an error
within ε if its errors cost more than gε².

*Population.* For independent samples and a grid Γ fixed beforehand, with probability at least 1 − δ for all ρ
at once, the same around the distribution that they were drawn from is at most min_{γ ∈ Γ} γρ + U_n(φ̄_γ), each
U_n with a share of δ (a union bound). The error rate is at most the smaller of the sample's, raised by DKW's
margin, and of min_γ γρ + U_n((1 − γτ)₊) over a second grid. The samples are taken in the random order of a
seed, since betting depends on it, and a stored order may depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from certus.kernel.binomial import clopper_pearson
from certus.kernel.concentration import betting, dkw, mean_at_most, random_order
from certus.kernel.evidence import Result, mark
from certus.kernel.knapsack import dual_bound, error_gains, worst_error_rate
from certus.kernel.passes import Refused
from certus.kernel.rounding import SOME, mean_up, slack, up
from certus.kernel.rules import DualBounds, SampleBounds

_ABOVE = 0.8  # the share of δ that upper sides have


def failure_shares(confidence: float, labelled: bool) -> tuple[float, float]:
    """Shares of δ for the upper and the lower side of the loss, and of the error rate if there is one."""
    failure, parts = 1 - confidence, 2 if labelled else 1
    return _ABOVE * failure / parts, (1 - _ABOVE) * failure / parts


@dataclass(frozen=True, eq=False)
class PopulationBounds(Result):
    """Upper bounds for the distribution that the samples were drawn from, with a confidence.

    Attributes:
        confidence: 1 − δ; seed: of the order of the samples; clip: B; inequality: of the loss.
        means: γ → at least E min(φ̄_γ, B); error_means: γ → at least E (1 − γτ)₊, empty without classes.
        error_margin: by DKW, for the sample's error rate; None without classes.
        samples: the bounds that all of this was computed from, so that no statement adds it to others; None
            if it was read from a file.
    """

    confidence: float
    seed: int
    clip: float
    inequality: str
    means: Mapping[float, float]
    error_means: Mapping[float, float] = field(default_factory=dict)
    error_margin: float | None = None
    assumptions: tuple[str, ...] = ()
    samples: SampleBounds | None = None

    @staticmethod
    def of(
        samples: SampleBounds,
        levels: Sequence[DualBounds],
        *,
        confidence: float,
        seed: int,
        clip: float,
        inequality: str,
        claims: Mapping[float, float],
        error_claims: Mapping[float, float],
        grid: int = 0,
    ) -> PopulationBounds:
        """Check claimed means.

        Args:
            levels: φ̄_γ for each γ of Γ, or for some of them.
            grid: the number of all γ of Γ, if it is larger; each has the same share of δ.
            claims, error_claims: γ → the mean that betting proves of φ̄_γ, and of (1 − γτ)₊.
        """
        parts, costs, count = (samples, *levels), samples.error_cost, len(samples.loss)
        fits = len(parts) > 1 and all(part.marked for part in parts)
        if not (fits and 0 < confidence < 1 and all(len(level.bound) == count for level in levels)):
            raise Refused(f"bounds of the kernel about the same samples, and a confidence; got {confidence}")
        above = failure_shares(confidence, costs is not None)[0]
        order = random_order(count, seed)
        means = {
            level.gamma: mean_at_most(
                *(inequality, level.bound.clamp(0, clip)[order], clip),
                *(above / max(grid, len(levels)), claims.get(level.gamma, math.inf)),
            )
            for level in levels
        }
        names = tuple(dict.fromkeys(name for part in parts for name in part.assumptions))
        errors: dict[float, float] = {}
        if costs is not None:
            share = above / (2 * max(1, len(error_claims)))
            gains = {gamma: error_gains(costs[order], gamma) for gamma in error_claims}
            errors = {
                gamma: betting(gains[gamma], 1.0, share, claim) for gamma, claim in error_claims.items()
            }
        margin = None if costs is None else dkw(count, above / 2)
        about = confidence, seed, clip, inequality
        return mark(PopulationBounds(*about, means, errors, margin, names, samples))

    def loss(self, rho: float) -> float:
        """At least the worst expected min(ℓ, B) within ρ."""
        return min(self.clip, dual_bound(self.means, rho))

    def error(self, rho: float, sample: float) -> float:
        """At least the worst error rate within ρ, also from a bound on that of the sample."""
        raised = math.inf if self.error_margin is None else up(sample + self.error_margin, SOME)
        return min(1.0, raised, dual_bound(self.error_means, rho))


@dataclass(frozen=True, eq=False)
class Statement(Result):
    """Upper bounds for any ρ and ε; proven, or assumed under names, if made by ``Statement.of``.

    Attributes:
        samples: n; unit_cost: g, with c ≥ g‖x − x₀‖².
        clean_loss: at least E_n ℓ; means: γ → at least E_n φ̄_γ, empty if nothing is said of the loss.
        error_costs: (n,) no error of a sample costs less; None without classes.
        weights: (n,) with mean 1, of samples that count differently; None if all are alike.
        clip: B, if it is min(ℓ, B) that is bounded.
    """

    samples: int
    unit_cost: float
    clean_loss: float = math.inf
    means: Mapping[float, float] = field(default_factory=dict)
    error_costs: Tensor | None = None
    weights: Tensor | None = None
    clip: float | None = None
    population: PopulationBounds | None = None
    assumptions: tuple[str, ...] = ()

    @staticmethod
    def of(
        bounds: SampleBounds,
        levels: Sequence[DualBounds] = (),
        *,
        weights: Tensor | None = None,
        clip: float | None = None,
        population: PopulationBounds | None = None,
    ) -> Statement:
        """From bounds at n samples and at some γ; without any γ it says nothing of the loss."""
        count, parts = len(bounds.loss), (bounds, *levels, *(() if population is None else (population,)))
        fits = all(len(level.bound) == count and level.clip == clip for level in levels)
        if population is not None:  # of the same samples: their losses are the same
            own = population.samples
            fits = fits and weights is None and own is not None and torch.equal(own.loss, bounds.loss)
        if not (fits and count > 0 and all(part.marked for part in parts)):
            raise Refused("bounds of the kernel about the same samples, clipped alike, are needed")
        if weights is not None and not (
            weights.shape == (count,)
            and bool((weights >= 0).all())
            and abs(float(weights.double().mean()) - 1) <= slack(count)
        ):
            raise Refused("weights must be at least 0, one for each sample, with mean 1")
        clean = bounds.loss if clip is None else bounds.loss.clamp_max(clip)
        return mark(
            Statement(
                samples=count,
                unit_cost=bounds.unit_cost,
                clean_loss=mean_up(clean, weights) if levels else math.inf,
                means={level.gamma: mean_up(level.bound, weights) for level in levels},
                error_costs=bounds.error_cost,
                weights=weights,
                clip=clip,
                population=population,
                assumptions=tuple(dict.fromkeys(name for part in parts for name in part.assumptions)),
            )
        )

    def loss(self, rho: float) -> tuple[float, float]:
        """At least the worst mean loss within ρ, and the γ that proves it; ∞ and NaN if there is none."""
        if not rho >= 0:
            raise Refused(f"rho must be at least 0; got {rho}")
        if not self.means:
            return math.inf, math.nan
        gamma = min(self.means, key=lambda gamma: gamma * rho + self.means[gamma])
        value = dual_bound({gamma: self.means[gamma]}, rho) if rho > 0 else self.clean_loss
        return (value if self.clip is None else min(value, self.clip)), gamma

    def error(self, rho: float, gamma: float) -> float:
        """At least the worst error rate within ρ, by any γ ≥ 0."""
        return (
            1.0 if self.error_costs is None else worst_error_rate(self.error_costs, rho, gamma, self.weights)
        )

    def population_loss(self, rho: float) -> float:
        """The same for the population's loss."""
        return math.inf if self.population is None else self.population.loss(rho)

    def population_error(self, rho: float, gamma: float) -> float:
        """The same for the population's error rate."""
        return 1.0 if self.population is None else self.population.error(rho, self.error(rho, gamma))

    def certified_samples(self, epsilon: float) -> int:
        """The number of samples without an error within ε, in the cost's norm, at least."""
        if self.error_costs is None or not epsilon >= 0:
            return 0
        return int((self.error_costs > up(epsilon**2 * self.unit_cost, SOME)).sum())

    def certified(self, epsilon: float) -> float:
        """Their share."""
        return self.certified_samples(epsilon) / self.samples

    def population_certified(self, epsilon: float) -> float:
        """At most the share of the population without an error within ε, for all ε at once (DKW)."""
        if self.population is None or self.population.error_margin is None or self.weights is not None:
            return 0.0
        margin = up(self.population.error_margin, SOME) + slack(self.samples)
        return max(0.0, self.certified(epsilon) - margin)

    def fixed_certified(self, epsilon: float, claim: float) -> float:
        """The claim, proven for one ε that was chosen beforehand, with half of δ (Clopper and Pearson)."""
        failure = 0.0 if self.population is None else (1 - self.population.confidence) / 2
        return clopper_pearson(self.certified_samples(epsilon), self.samples, failure, claim)
