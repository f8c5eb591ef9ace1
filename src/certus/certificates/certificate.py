"""A certificate: for any ρ, what the worst case is at least (attained) and at most (proven).

    E_{P'} ℓ ≤ sup {E_P ℓ : W_c(P, P̂_n) ≤ ρ} ≤ min_γ γρ + E_n φ̄_γ                    [eqn:certificate,
    eqn:certify-tests]

The left side is a distribution that exists: the samples moved to T̂_γ, or a mixture of two such, of mean
    cost at most ρ.
Both sides are at the *same* ρ; to set E ℓ(T̂_γ) against the bound at another one is the mistake in the
paper's figure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from certus.certificates.knapsack import worst_error
from certus.certificates.levels import Level, Rule
from certus.certificates.population import METHODS, dkw
from certus.data import Split
from certus.errors import ArgumentError, require

_UP = 1 + 1e-12  # for the rounding of means


@dataclass(frozen=True)
class Population:
    """What holds for the distribution that the data were drawn from, with a confidence.

    Attributes:
        confidence: 1 − δ, for loss and error together: each has δ/2, and the loss δ/(2|Γ|) for each γ.
        clip: B; the statement is about min(ℓ, B).
        method: "betting", "bernstein" or "hoeffding".
        means: γ → upper bound on E min(φ̄_γ, B).
        error_margin: what the error rate of the sample rises by; None for regression.
    """

    confidence: float
    clip: float
    method: str
    means: dict[float, float]
    error_margin: float | None

    @staticmethod
    def of(
        levels: Sequence[Level], confidence: float, clip: float, method: str, classify: bool
    ) -> Population:
        require(0.5 <= confidence < 1, "confidence", "lie in [0.5, 1)", confidence)
        require(method in METHODS, "method", f"be one of {', '.join(METHODS)}", repr(method))
        share = (1 - confidence) / 2 if classify else 1 - confidence
        bound = METHODS[method]
        means = {
            level.gamma: bound(level.bound.clamp(0, clip), clip, share / len(levels)) * _UP
            for level in levels
        }
        return Population(
            confidence, clip, method, means, dkw(len(levels[0].bound), share) if classify else None
        )

    def loss(self, rho: float) -> float:
        """Upper bound on the worst expected min(ℓ, B) within ρ of the population."""
        return min(self.clip, *(gamma * rho + mean for gamma, mean in self.means.items()))


@dataclass(frozen=True)
class Bracket:
    """Everything at one ρ; see ``Certificate``. None where a quantity does not apply.

    Attributes:
        distance: √(ρ/g), g the cost's growth: ρ as a distance, since ρ is a mean *squared* one.
        loss_low, loss_high, gamma: attained, proven, and the γ that proves it.
        loss_estimate: min_γ γρ + E f(T̂_γ), the paper's recipe: no bound, wherever the ascent is local.
        error_low, error_high: the same for the error rate.
        population_loss, population_error: with the confidence asked for.
        rules: shares of the samples by the rule that proves their part.
    """

    rho: float
    distance: float
    loss_low: float
    loss_estimate: float
    loss_high: float
    gamma: float
    rules: dict[str, float]
    error_low: float | None = None
    error_high: float | None = None
    population_loss: float | None = None
    population_error: float | None = None


@dataclass(frozen=True)
class Reached:
    """ρ̂_n at one γ: how far T̂_γ moves the data, the loss there, and the bound proven at that very ρ
    (tight if equal)."""

    gamma: float
    rho_hat: float
    loss: float
    bound: float


@dataclass(frozen=True, eq=False)
class Certificate:
    """Bounds for any ρ, made by ``certify``.

    Attributes:
        rhos: the ρ asked for.
        levels: all γ that were looked at; refined: those added after seeing the sample.
        start: mean loss of the sample as it is, rounded down.
        error_floor, error_found: (n,) lower bounds on the cost of an error, and costs at which one was
            found; None for regression.
        classes: number of labels; growth: g; evidence: "proven", or "assumed"
            if it rests on a claim of yours.
        clip: B, if it is min(ℓ, B) that is bounded on the sample too.
        about: settings and digests, as JSON.
    """

    rhos: tuple[float, ...]
    levels: tuple[Level, ...]
    start: float
    error_floor: Tensor | None
    error_found: Tensor | None
    population: Population | None
    classes: int | None
    growth: float
    evidence: str
    clip: float | None
    about: dict[str, Any]
    source: Any = None  # the engine, for worst_case_data

    def bound(self, rho: float) -> float:
        """The proven upper bound on the worst mean loss within ρ of the sample."""
        return self._best(rho)[0]

    def lower(self, rho: float) -> float:
        """The largest mean loss attained by a distribution within ρ of the sample that was found."""
        return self._mixture(rho)[0]

    def estimate(self, rho: float) -> float:
        """The paper's recipe, min_γ γρ + E f(T̂_γ): an estimate, and no bound."""
        values = [
            level.gamma * rho + float((level.loss - level.gamma * level.transport_cost).mean())
            for level in self.levels
        ]
        return max(min(values), self.lower(rho))

    def error_bound(self, rho: float) -> float | None:
        """The proven upper bound on the worst error rate within ρ of the sample."""
        if self.error_floor is None:
            return None
        return min(1.0, worst_error(self.error_floor, [_checked(rho)])[0] * _UP)

    def error_lower(self, rho: float) -> float | None:
        """The largest error rate attained by a distribution within ρ of the sample that was found."""
        if self.error_found is None:
            return None
        return worst_error(self.error_found, [_checked(rho)])[0] / _UP

    def bracket(self, rho: float) -> Bracket:
        """All of it at one ρ."""
        high, level = self._best(rho)
        error_high, margin, people = self.error_bound(rho), None, self.population
        if people is not None and people.error_margin is not None and error_high is not None:
            margin = min(1.0, error_high + people.error_margin)
        counts = torch.bincount(level.rule.long(), minlength=len(Rule)) / len(level.rule)
        return Bracket(
            rho=rho,
            distance=math.sqrt(rho / self.growth),
            loss_low=self.lower(rho),
            loss_estimate=self.estimate(rho),
            loss_high=high,
            gamma=level.gamma,
            rules={rule.name.lower(): round(float(counts[rule]), 6) for rule in Rule if counts[rule] > 0},
            error_low=self.error_lower(rho),
            error_high=error_high,
            population_loss=None if people is None else people.loss(rho),
            population_error=margin,
        )

    def curve(self, rhos: Sequence[float] | None = None) -> list[Bracket]:
        """Brackets at several ρ; at those asked for by default."""
        return [self.bracket(rho) for rho in (self.rhos if rhos is None else rhos)]

    @property
    def reached(self) -> list[Reached]:
        """ρ̂_n for each γ, from the largest γ on (eqn:tol-n)."""
        found = []
        for level in self.levels:
            rho = float(level.transport_cost.mean())
            found.append(Reached(level.gamma, rho, float(level.loss.mean()), self.bound(rho)))
        return found

    @property
    def vacuous_loss(self) -> float | None:
        """ln K: a loss bound above it says less than guessing; None for regression."""
        return None if self.classes is None else math.log(self.classes)

    def worst_case_data(self, rho: float) -> tuple[Split, Tensor]:
        """P*_n as data: moved samples and their weights (they sum to 1), of mean cost at most ρ and mean
        loss ``lower(rho)``."""
        if self.source is None:
            raise ArgumentError(
                "A certificate read from a file has no data; certify again for its worst case."
            )
        _, parts = self._mixture(rho)
        moved, weights = [], []
        for level, share in parts:
            split = self.source.moved(None if level is None else level.gamma)
            moved.append(split)
            weights.append(torch.full((len(split),), share / len(split), dtype=torch.float64))
        together = Split(
            torch.cat([part.inputs for part in moved]), torch.cat([part.targets for part in moved])
        )
        return together, torch.cat(weights)

    def _best(self, rho: float) -> tuple[float, Level]:
        _checked(rho)
        values = [level.gamma * rho + float(level.bound.mean()) for level in self.levels]
        best = min(range(len(values)), key=values.__getitem__)
        value = values[best] * _UP + 1e-13
        return (value if self.clip is None else min(value, self.clip)), self.levels[best]

    def _mixture(self, rho: float) -> tuple[float, list[tuple[Level | None, float]]]:
        """The best mixture of two points (ρ̂, loss) whose mean cost is at most ρ."""
        _checked(rho)
        points: list[tuple[float, float, Level | None]] = [(0.0, self.start, None)]
        points += [
            (float(level.transport_cost.mean()) * _UP, float(level.loss.mean()), level)
            for level in self.levels
        ]
        near = [point for point in points if point[0] <= rho]
        best = max(near, key=lambda point: point[1])
        value, parts = best[1], [(best[2], 1.0)]
        for left in near:
            for right in points:
                if right[0] > rho:
                    share = (rho - left[0]) / (right[0] - left[0]) * (1 - 1e-12)
                    mixed = (1 - share) * left[1] + share * right[1]
                    if mixed > value:
                        value, parts = mixed, [(left[2], 1 - share), (right[2], share)]
        return value - 1e-12 * (1 + abs(value)), parts


def _checked(rho: float) -> float:
    valid = isinstance(rho, int | float) and not isinstance(rho, bool) and 0 <= rho < math.inf
    require(valid, "rho", "be finite and not negative", rho)
    return float(rho)
