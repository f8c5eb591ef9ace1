"""Means over the samples: bounds and attained losses of one γ, or of one attack."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from certus.certificates.dual_values import DualValues
from certus.certificates.proven.duality_gap import Rule
from certus.data import Samples
from certus.rounding import mean_down, mean_up


class SampleMover(Protocol):
    """What still has the samples, and can move them again."""

    def transported(self, gamma: float | None) -> Samples: ...

    def attacked(self, rho: float) -> Samples: ...

    def nearest_errors(self, rhos: Sequence[float]) -> tuple[Tensor, Samples]: ...

    def evaluate(self, data: Samples) -> tuple[float, float | None]: ...


class AttainedDistribution(ABC):
    """A distribution that was found: the samples, moved."""

    loss: float
    """Its mean, rounded down."""

    @property
    @abstractmethod
    def mean_cost(self) -> float:
        """Of moving the samples, rounded up."""

    @property
    @abstractmethod
    def origin(self) -> str:
        """How it was found, in words."""

    @abstractmethod
    def points(self, source: SampleMover) -> Samples:
        """The moved samples."""


@dataclass(frozen=True)
class Unmoved(AttainedDistribution):
    """The samples as they are."""

    loss: float

    @property
    def mean_cost(self) -> float:
        return 0.0

    @property
    def origin(self) -> str:
        return "the sample itself"

    def points(self, source: SampleMover) -> Samples:
        return source.transported(None)


@dataclass(frozen=True)
class DualAggregate(AttainedDistribution):
    """What one γ says of all ρ: the worst case is at most γρ + ``bound``, and at ρ̂ at least ``loss``.

    Attributes:
        bound: E φ̄_γ; rules: shares of the samples by the rule that proves their part.
        rho_hat, loss: E c(T̂_γ), rounded up, and E ℓ(T̂_γ), rounded down (eqn:tol-n).
    """

    gamma: float
    bound: float
    rho_hat: float
    loss: float
    rules: dict[str, float]

    @staticmethod
    def of(level: DualValues, weights: Tensor | None = None) -> DualAggregate:
        counts = torch.bincount(level.rule.long(), minlength=len(Rule)) / len(level.rule)
        return DualAggregate(
            level.gamma,
            mean_up(level.bound, weights),
            mean_up(level.transport_cost, weights),
            mean_down(level.loss, weights),
            {rule.name.lower(): round(float(counts[rule]), 6) for rule in Rule if counts[rule] > 0},
        )

    @property
    def mean_cost(self) -> float:
        return self.rho_hat

    @property
    def origin(self) -> str:
        return f"T at gamma = {self.gamma:.6g}"

    def points(self, source: SampleMover) -> Samples:
        return source.transported(self.gamma)


@dataclass(frozen=True)
class AttackAggregate(AttainedDistribution):
    """The samples moved by an attack that keeps each within cost ρ (eqn:certify-tests, left side).

    Attributes:
        transport_cost, loss: means, of the cost rounded up and of the loss rounded down.
    """

    rho: float
    transport_cost: float
    loss: float

    @property
    def mean_cost(self) -> float:
        return self.transport_cost

    @property
    def origin(self) -> str:
        return "an attack in balls"

    def points(self, source: SampleMover) -> Samples:
        return source.attacked(self.rho)
