"""Statements: the proven half of a certificate, from bounds at samples and at each γ (eqn:certificate).

For every ρ ≥ 0 and every γ, sup {E_P min(wℓ, B) : W_c(P, P̂_n) ≤ ρ} ≤ γρ + E_n φ̄_γ; within ρ = 0 there is the
sample alone. The worst error rate is bounded by the knapsack at any γ (``error_rates``). No sample has an
error within ε if its errors cost more than gε².

*Population.* For independent samples and a grid Γ fixed beforehand, with probability at least 1 − δ for all ρ
at once, the same around the distribution that they were drawn from is at most min_{γ ∈ Γ} γρ + U_n(φ̄_γ), each
U_n with a share of δ (a union bound). The error rate is at most the smaller of the sample's, raised by DKW's
margin, and of min_γ γρ + U_n((1 − γτ)₊) over a second grid. The samples are taken in the random order of a
seed, since betting depends on it, and a stored order may depend on them.

*Parts.* A distribution within ρ of the union of disjoint samples may spend all of ρ in one part, so bounds of
the parts at their best γ say nothing of it. At one γ, E_n φ̄_γ = Σ (n_i/n) E_i φ̄_γ; the knapsack is over all
costs. For the population, ψ = min(φ̄_γ, B) ≤ φ̄_γ, since φ̄_γ ≥ ℓ ≥ 0: E ψ is at most Σ (n_i/n) E_i φ̄_γ and
Hoeffding's margin for n rows; DKW and betting take all costs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from certus.kernel.binomial import clopper_pearson
from certus.kernel.concentration import betting, dkw, hoeffding_margin, mean_at_most, random_order
from certus.kernel.error_rates import ClassCosts, dual_bound, error_gains, worst_error_rate
from certus.kernel.evidence import Result, mark
from certus.kernel.losses import margins_above
from certus.kernel.passes import Refused
from certus.kernel.problem import Problem
from certus.kernel.rounding import FARTHEST, FEW, SOME, mean_up, slack, up
from certus.kernel.rules import DualBounds, SampleBounds

_ABOVE = 0.8  # the share of δ that upper sides have


@dataclass(frozen=True)
class ChangeBounds(Result):
    """Upper bounds on mean loss and error rate (None without classes), where rows change values."""

    loss: float
    error: float | None
    assumptions: tuple[str, ...] = ()

    @staticmethod
    def of(problem: Problem, variants: Sequence[Tensor], changed: float) -> ChangeBounds:
        """Rows of a mass of at most ``changed``, of n in all, may each become any of (n, *shape) variants.

        A row that changes has at most its largest loss over all variants, so that the mean rises by at most
        the ``changed`` largest gains, over n. A row is no error where all its margins are surely below 0.
        """
        problem.smoothness.check_scales()
        if problem.precision is not None:
            raise Refused("changes of rows are about real arithmetic")
        if not (0 <= changed < math.inf and len(problem) > 0):
            raise Refused(f"samples are needed, and a mass of changed rows of at least 0; got {changed}")
        losses, wrong = zip(*(_at(problem, rows) for rows in (problem.inputs, *variants)), strict=True)
        count, highest = len(problem), torch.stack(losses).amax(0)
        gains = (highest - losses[0]).sort(descending=True).values
        shares = (changed - torch.arange(count, dtype=torch.float64)).clamp(0, 1)
        loss = mean_up(losses[0]) + mean_up(gains * shares)
        error: float | None = None
        if problem.classes is not None:
            now, some = int(wrong[0].sum()), int(torch.stack(wrong).any(0).sum())
            error = min(1.0, up((now + min(changed, some - now)) / count, FEW))
        return mark(ChangeBounds(loss + SOME * (1 + abs(loss)), error, problem.assumptions))


def _at(problem: Problem, rows: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) losses of other rows with the same targets, rounded up, and whether each may be an error."""
    problem = problem.about(rows, problem.targets)
    outputs, targets = problem.outputs(rows), problem.targets
    losses = problem.loss.values(outputs, targets)
    raised, wrong = losses + problem.slack(losses, problem.rounding), torch.zeros_like(losses).bool()
    if problem.classes is not None:
        margins = margins_above(outputs, targets, problem.rounding)
        wrong = ~(torch.where(problem.own, -math.inf, margins).amax(1) < 0)
    if not bool(torch.isfinite(raised).all()):
        raise Refused("the network overflows float64 at some samples")
    return raised, wrong


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
        error_margin: how far the population's error rate may exceed the sample's (DKW); None without classes.
        samples: the sample bounds that these were computed from; a statement about other samples refuses
            them. None if it was read from a file.
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
        error_grid: int = 0,
    ) -> PopulationBounds:
        """Construct population bounds from claimed means, which are checked.

        Args:
            levels: φ̄_γ for each γ of Γ, or for some of them.
            grid, error_grid: the number of all γ of Γ, and of the second grid, if it is larger; each γ has
                the same share of δ.
            claims, error_claims: γ → the mean that betting proves of φ̄_γ, and of (1 − γτ)₊.
        """
        parts: tuple[SampleBounds | DualBounds, ...] = (samples, *levels)
        costs, count = samples.error_cost, len(samples.loss)
        fits = len(parts) > 1 and all(part.marked and samples.fits(part) for part in parts)
        # φ̄_γ of min(wℓ, B') bounds min(wℓ, B) for B ≤ B' alone.
        fits = fits and all(level.clip is None or level.clip >= clip for level in levels)
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
            share = above / (2 * max(1, error_grid, len(error_claims)))
            gains = {gamma: error_gains(costs[order], gamma) for gamma in error_claims}
            errors = {
                gamma: betting(gains[gamma], 1.0, share, claim) for gamma, claim in error_claims.items()
            }
        margin = None if costs is None else dkw(count, above / 2)
        about = confidence, seed, clip, inequality
        return mark(PopulationBounds(*about, means, errors, margin, names, samples))

    @staticmethod
    def merged(
        parts: Sequence[Statement], error_claims: Mapping[float, float], grid: int
    ) -> PopulationBounds:
        """Merge statements about disjoint rows of one population, each with its own population bounds.

        Args:
            grid: the number of all γ of Γ, fixed beforehand; error_claims: as for ``of``, in the order of the
                seed over all rows, part after part.
        """
        people = [part.population for part in parts if part.population is not None]
        first, costs = people[0] if people else None, _joined_costs(parts)
        if first is None or len(people) < len(parts) or any(part.weights is not None for part in parts):
            raise Refused("every part needs population bounds, of rows that count alike")
        about = first.confidence, first.seed, first.clip
        if any((each.confidence, each.seed, each.clip) != about for each in people):
            raise Refused("the parts have different confidences, seeds or clips")
        if any(part.clip is not None and not part.clip >= first.clip for part in parts):
            raise Refused("the losses of the parts are clipped below the clip of the population")
        count, shared = sum(part.samples for part in parts), _shared_gammas(people)
        if not 0 < first.confidence < 1 or grid < max(1, *(len(each.means) for each in people)):
            raise Refused(f"a confidence, and the number of all values of gamma; got {grid}")
        above, clip = failure_shares(first.confidence, costs is not None)[0], first.clip
        margin = hoeffding_margin(count, clip, above / grid)
        means = {
            gamma: min(clip, up(_mean(parts, [part.means[gamma] for part in parts]) + margin, SOME))
            for gamma in shared
            if all(gamma in part.means for part in parts)
        }
        share, order = above / (2 * max(1, len(error_claims))), random_order(count, first.seed)
        errors = {
            gamma: betting(error_gains(costs[order], gamma), 1.0, share, claim)
            for gamma, claim in error_claims.items()
            if costs is not None
        }
        names = tuple(dict.fromkeys(name for each in people for name in each.assumptions))
        bounds = PopulationBounds(
            *(*about, "hoeffding", means, errors, None if costs is None else dkw(count, above / 2), names)
        )
        return mark(bounds) if all(each.marked for each in (*people, *parts)) else bounds

    def loss(self, rho: float) -> float:
        """Return an upper bound on the worst expected min(ℓ, B) within ρ."""
        return min(self.clip, dual_bound(self.means, rho))

    def error(self, rho: float, sample: float) -> float:
        """Return an upper bound on the worst error rate within ρ, also from that of the sample."""
        raised = math.inf if self.error_margin is None else up(sample + self.error_margin, SOME)
        return min(1.0, raised, dual_bound(self.error_means, rho))


@dataclass(frozen=True, eq=False)
class Statement(Result):
    """Upper bounds for any ρ and ε; proven, or assumed under names, if made by ``Statement.of``.

    Attributes:
        samples: n; unit_cost: g, with c ≥ g‖x − x₀‖².
        clean_loss: upper bound on E_n ℓ; means: γ → upper bound on E_n φ̄_γ, empty without a loss.
        error_costs: (n,) no error of a sample costs less; None without classes.
        weights: (n,) with mean 1, of samples that count differently; None if all are alike.
        clip: B, if it is min(ℓ, B) that is bounded.
        by_class: costs of predictions, for rates by class; None without classes, or if labels may change.
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
    by_class: ClassCosts | None = None

    @staticmethod
    def of(
        bounds: SampleBounds,
        levels: Sequence[DualBounds] = (),
        *,
        weights: Tensor | None = None,
        clip: float | None = None,
        population: PopulationBounds | None = None,
    ) -> Statement:
        """Construct a statement from bounds at n samples and at some γ; without γ it bounds no loss."""
        count, parts = len(bounds.loss), (bounds, *levels, *(() if population is None else (population,)))
        fits = all(bounds.fits(level) and (len(level.bound), level.clip) == (count, clip) for level in levels)
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
        clean, by_class = bounds.loss if clip is None else bounds.loss.clamp_max(clip), None
        if bounds.targets is not None and bounds.error_cost is not None:
            costs = bounds.class_costs
            classes = 2 if costs is None else costs.shape[1]
            by_class = ClassCosts.of(bounds.targets, bounds.error_cost, classes, costs, weights)
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
                by_class=by_class,
            )
        )

    @staticmethod
    def merged(
        parts: Sequence[Statement], error_claims: Mapping[float, float] | None = None, grid: int = 0
    ) -> Statement:
        """About the union of disjoint samples, at the γ that all parts have; stated only, if a part is.

        Args:
            error_claims, grid: of the population, if it is bounded (``PopulationBounds.merged``).
        """
        first, population = parts[0] if parts else Statement(0, 1.0), None
        alike = all((part.unit_cost, part.clip) == (first.unit_cost, first.clip) for part in parts)
        if not alike or any(part.weights is not None or part.samples < 1 for part in parts) or not parts:
            raise Refused("the parts must be about one cost and one clip, and samples that count alike")
        if error_claims is not None:
            population = PopulationBounds.merged(parts, error_claims, grid)
        gammas = _shared_gammas(parts)
        statement = Statement(
            samples=sum(part.samples for part in parts),
            unit_cost=first.unit_cost,
            clean_loss=_mean(parts, [part.clean_loss for part in parts]),
            means={gamma: _mean(parts, [part.means[gamma] for part in parts]) for gamma in gammas},
            error_costs=_joined_costs(parts),
            clip=first.clip,
            population=population,
            assumptions=tuple(dict.fromkeys(name for part in parts for name in part.assumptions)),
            by_class=ClassCosts.joined([part.by_class for part in parts]),
        )
        return mark(statement) if all(part.marked for part in parts) else statement

    def loss(self, rho: float) -> tuple[float, float]:
        """Return a bound on the worst mean loss within ρ, and the γ that proves it; ∞ and NaN without one."""
        if not rho >= 0:
            raise Refused(f"rho must be at least 0; got {rho}")
        if not self.means:
            return math.inf, math.nan
        gamma = min(self.means, key=lambda gamma: gamma * rho + self.means[gamma])
        value = dual_bound({gamma: self.means[gamma]}, rho) if rho > 0 else self.clean_loss
        return (value if self.clip is None else min(value, self.clip)), gamma

    def error(self, rho: float, gamma: float) -> float:
        """Return an upper bound on the worst error rate within ρ, by any γ ≥ 0."""
        return (
            1.0 if self.error_costs is None else worst_error_rate(self.error_costs, rho, gamma, self.weights)
        )

    def population_loss(self, rho: float) -> float:
        """Return an upper bound on the population's worst loss within ρ."""
        return math.inf if self.population is None else self.population.loss(rho)

    def population_error(self, rho: float, gamma: float) -> float:
        """Return an upper bound on the population's worst error rate within ρ."""
        return 1.0 if self.population is None else self.population.error(rho, self.error(rho, gamma))

    def population_rate(self, name: str, label: int, rho: float, gamma: float, claims: list[float]) -> float:
        """At least a rate of ``ClassCosts`` for the population, with its confidence for all of them together,
        apart from its other bounds."""
        if self.population is None or self.by_class is None:
            return 1.0
        failure = 1 - self.population.confidence
        return self.by_class.population_rate(name, label, rho, gamma, claims, failure)

    def certified_samples(self, epsilon: float) -> int:
        """The number of samples without an error within ε, in the cost's norm, at least."""
        if self.error_costs is None or not 0 <= epsilon <= math.sqrt(FARTHEST):
            return 0
        return int((self.error_costs > up(epsilon**2 * self.unit_cost, SOME)).sum())

    def certified(self, epsilon: float) -> float:
        """Return the share of these samples."""
        return self.certified_samples(epsilon) / self.samples

    def population_certified(self, epsilon: float) -> float:
        """Bound the population's share without an error within ε from below, for all ε at once (DKW)."""
        if self.population is None or self.population.error_margin is None or self.weights is not None:
            return 0.0
        margin = up(self.population.error_margin, SOME) + slack(self.samples)
        return max(0.0, self.certified(epsilon) - margin)

    def fixed_certified(self, epsilon: float, claim: float) -> float:
        """Return the claim, proven for one ε chosen beforehand, with half of δ (Clopper and Pearson)."""
        failure = 0.0 if self.population is None else (1 - self.population.confidence) / 2
        return clopper_pearson(self.certified_samples(epsilon), self.samples, failure, claim)


def _mean(parts: Sequence[Statement], means: Sequence[float]) -> float:
    """Σ (n_i/n) m_i, at least."""
    count = sum(part.samples for part in parts)
    terms = [part.samples * mean for part, mean in zip(parts, means, strict=True)]
    return sum(terms) / count + slack(len(terms)) * sum(map(abs, terms)) / count


def _joined_costs(parts: Sequence[Statement]) -> Tensor | None:
    costs = [part.error_costs for part in parts if part.error_costs is not None]
    if len(costs) not in (0, len(parts)):
        raise Refused("the parts must all have costs of errors, or none")
    return torch.cat(costs) if costs else None


def _shared_gammas(bounds: Sequence[Statement | PopulationBounds]) -> list[float]:
    return [gamma for gamma in bounds[0].means if all(gamma in each.means for each in bounds)]
