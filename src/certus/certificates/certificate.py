"""Certificates: brackets of the worst loss, the worst error rate and the certified accuracy.

For any budget ρ, the worst loss is at least attained, and at most proven:

    E_{P'} ℓ ≤ sup {E_P ℓ : W_c(P, P̂_n) ≤ ρ} ≤ min_γ γρ + E_n φ̄_γ       [eqn:certificate, eqn:certify-tests]

P' exists: the samples moved to T̂_γ, or by an attack in balls, or a mixture of two such distributions, of mean
cost at most ρ. Both sides belong to the *same* ρ: E ℓ(T̂_γ) is attained at ρ̂(γ), and does not compare with the
bound at another ρ.

Certified accuracy is about single samples. With r the distance of a sample's nearest error in the cost's
norm, 0 for an error,

    P_n(r > ε) ≥ P_n(r̲ > ε) = certified,        P_n(r > ε) ≤ P_n(attained r > ε) = attacked,

and r = √(τ/g), τ the least cost of an error (``error_costs``), g the unit cost. For the population both
shares are distribution functions of one number per sample. DKW bounds them for all ε at once, within the
confidence of the whole certificate; Clopper and Pearson's bounds are tighter, for one ε fixed beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from certus._render import Renderable
from certus.certificates.alarm import check_accuracy, check_bracket, check_certificate
from certus.certificates.confidence import clopper_pearson, first_proven, success_claims
from certus.certificates.dual_values import AttackAggregate, DualAggregate, DualValues
from certus.certificates.error_costs import proposed_gamma, worst_error
from certus.certificates.population import Population
from certus.data import DataLike, Samples
from certus.errors import ArgumentError, UnsupportedError, require_number
from certus.kernel import problem as trusted
from certus.kernel.evidence import Evidence
from certus.kernel.rounding import SOME, down, slack, up
from certus.kernel.statement import Statement


@dataclass(frozen=True)
class AccuracyBracket:
    """The share of samples that no move of length ε misleads; None where a quantity does not apply.

    Attributes:
        certified, attacked: at least (proven), and at most (attained: the others were misled).
        population_certified, population_attacked: the same for the population. They hold for all ε and all
            other statements of the certificate at once, with its confidence.
        fixed_certified, fixed_attacked: tighter bounds for the population at this ε alone. They hold with the
            same confidence if ε was chosen beforehand and no other statement is used.
    """

    epsilon: float
    certified: float
    attacked: float
    population_certified: float | None = None
    population_attacked: float | None = None
    fixed_certified: float | None = None
    fixed_attacked: float | None = None


class SampleMover(Protocol):
    """The source of a certificate, which has the samples and can move them again."""

    def transported(self, gamma: float | None) -> Samples: ...

    def attacked(self, rho: float) -> Samples: ...

    def nearest_errors(self, rhos: Sequence[float]) -> tuple[Tensor, Samples]: ...

    def evaluate(self, data: Samples) -> tuple[float, float | None]: ...

    def witnesses(self, gammas: Sequence[float]) -> tuple[trusted.Problem, dict[str, Tensor]]: ...


class AttainedDistribution(NamedTuple):
    """The samples moved to T̂_γ, or by an attack within ρ of each; or as they are.

    Attributes:
        mean_cost: rounded up; loss: its mean, rounded down; origin: how it was found, in words.
    """

    mean_cost: float
    loss: float
    origin: str
    gamma: float | None = None
    attacked: float | None = None


@dataclass(frozen=True)
class Bracket:
    """Everything at one ρ; see ``Certificate``. None where a quantity does not apply.

    Attributes:
        distance: √(ρ/g), g the unit price: ρ as a distance, since ρ is a mean *squared* one.
        loss_low, loss_high, gamma: attained, proven, and the γ that proves it.
        loss_estimate: min_γ γρ + E f(T̂_γ), the paper's recipe: no bound, wherever the ascent is local.
        error_low, error_high: the same for the error rate.
        population_loss, population_error: at most, for the population, with the confidence asked for;
            population_loss_low, population_error_low: at least.
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
    population_loss_low: float | None = None
    population_loss: float | None = None
    population_error_low: float | None = None
    population_error: float | None = None


@dataclass(frozen=True)
class AttainedBudget:
    """ρ̂_n at one γ: how far T̂_γ moves the data, the loss there, and the bound proven at that very ρ
    (tight if equal)."""

    gamma: float
    rho_hat: float
    loss: float
    bound: float


@dataclass(frozen=True, eq=False)
class Certificate(Renderable):
    """Bounds for any ρ, made by ``certify`` or read by ``load``; ``print`` shows a table, ``plot`` draws it.

    Attributes:
        statement: all that is proven, made by the kernel; its ``samples``, ``unit_cost``, ``clip``,
            ``weights`` and ``assumptions`` are also those of the certificate.
        rhos, epsilons: the ρ and the ε asked for.
        aggregates: means at each γ, from the largest on; attacks: in balls.
        attained_clean_loss: mean loss of the sample as it is, rounded down.
        attained_error_cost: (n,) the cost of an error that was found for each sample; None for a regression.
        population: lower sides for the population, beside the upper ones of the statement.
        classes: number of labels.
        about: settings and digests, as JSON.
        no_proof: why nothing is proven of the model; then there are attained sides only, and bounds are ∞.
        dual_values: φ̄_γ and T̂_γ sample by sample; empty if read from a file.
        labels: "given", or "predicted" where the targets are the model's own predictions: an error is then a
            prediction that changes.
        class_weights: by which losses count, class by class; None if alike. Error rates count all alike.
        differing_predictions: the number of samples that the model, in its own precision, predicts otherwise
            than the certified network in float64.
        source: moves the points, for ``worst_case_data``; None if read from a file.
        file: where it was read from; None if it is fresh.
    """

    statement: Statement
    rhos: tuple[float, ...]
    aggregates: tuple[DualAggregate, ...]
    attained_clean_loss: float
    classes: int | None
    attacks: tuple[AttackAggregate, ...] = ()
    attained_error_cost: Tensor | None = None
    population: Population | None = None
    about: dict[str, Any] = field(default_factory=dict)
    no_proof: str | None = None
    epsilons: tuple[float, ...] = ()
    dual_values: tuple[DualValues, ...] = ()
    class_weights: tuple[float, ...] | None = None
    differing_predictions: int = 0
    labels: Literal["given", "predicted"] = "given"
    source: SampleMover | None = None
    file: Path | None = None

    def __post_init__(self) -> None:
        check_certificate(self)

    def __repr__(self) -> str:
        rhos = ", ".join(f"{rho:g}" for rho in self.rhos)
        own = ", labels predicted" if self.labels == "predicted" else ""
        return f"<Certificate of {self.samples} samples at rho {rhos}: {self.evidence}{own}>"

    @property
    def evidence(self) -> Evidence:
        """The evidence of the upper sides: "proven", "assumed" if they rest on ``assumptions``, or "stated"
        if they were read from a file. Without any, that of the lower sides: "attained"."""
        return self.statement.evidence if self.no_proof is None else Evidence.ATTAINED

    @property
    def lower_evidence(self) -> Evidence:
        """The evidence of the lower sides: "attained", or "stated" if they were read from a file."""
        return Evidence.ATTAINED if self.file is None else Evidence.STATED

    @property
    def samples(self) -> int:
        """n."""
        return self.statement.samples

    @property
    def unit_cost(self) -> float:
        """g, with c ≥ g‖x − x₀‖²."""
        return self.statement.unit_cost

    @property
    def clip(self) -> float | None:
        """B, if it is min(ℓ, B) that is bounded on the sample too."""
        return self.statement.clip

    @property
    def weights(self) -> Tensor | None:
        """(n,) with a mean of 1, of samples that count differently; None if all are alike."""
        return self.statement.weights

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Names of everything that the upper sides rest on without proof."""
        return self.statement.assumptions

    @property
    def clean_loss(self) -> tuple[float, float]:
        """Mean loss of the sample as it is, rounded down, and rounded up."""
        return self.attained_clean_loss, self.statement.clean_loss

    @property
    def proven_error_cost(self) -> Tensor | None:
        """(n,) no error of a sample costs less; None for a regression."""
        return self.statement.error_costs

    def save(self, path: str | Path, *, include_data: bool = False) -> None:
        """Write it as JSON for ``load``, and beside it the files that ``python -m certus.kernel`` checks it
        from: the network, and the witnesses of the bounds at ``rhos``.

        Args:
            include_data: write the rows, too, without which it can only be checked by those who have them.
        """
        from certus.certificates.files import write_certificate  # which is about certificates

        write_certificate(self, Path(path), include_data=include_data)

    @staticmethod
    def load(path: str | Path) -> Certificate:
        """Read what ``save`` or ``certus certify`` wrote. It answers for every ρ as it did then."""
        from certus.certificates.files import read_certificate  # which is about certificates

        return read_certificate(Path(path))

    def verify(self, data: DataLike | None = None) -> Certificate:
        """Check a loaded certificate by the kernel, and return it with what that proves in place of what the
        file states; lower sides stay as stated. Raises ``VerificationError`` where a number does not follow.

        Args:
            data: the certified samples, unless the file includes them.
        """
        from certus.certificates.files import verified_certificate  # which is about certificates

        return verified_certificate(self, data)

    @cached_property
    def attained(self) -> tuple[AttainedDistribution, ...]:
        """All distributions that were found."""
        return (
            AttainedDistribution(0.0, self.clean_loss[0], "the sample itself"),
            *(
                AttainedDistribution(line.rho_hat, line.loss, f"T at gamma = {line.gamma:.6g}", line.gamma)
                for line in self.aggregates
            ),
            *(
                AttainedDistribution(each.transport_cost, each.loss, "an attack in balls", attacked=each.rho)
                for each in self.attacks
            ),
        )

    def bound(self, rho: float) -> float:
        """The proven upper bound on the worst mean loss within ρ of the sample."""
        return self.statement.loss(checked_rho(rho))[0]

    def lower(self, rho: float) -> float:
        """The largest attained mean loss of a distribution within ρ of the sample."""
        return self._mixture(checked_rho(rho))[0]

    def estimate(self, rho: float) -> float:
        """The paper's recipe, min_γ γρ + E f(T̂_γ): an estimate, and no bound."""
        values = [line.gamma * (checked_rho(rho) - line.rho_hat) + line.loss for line in self.aggregates]
        return max(min(values, default=-math.inf), self.lower(rho))

    def error_bound(self, rho: float) -> float | None:
        """The proven upper bound on the worst error rate within ρ of the sample."""
        costs = self.proven_error_cost
        if costs is None:
            return None
        return self.statement.error(checked_rho(rho), proposed_gamma(costs, rho, self.weights))

    def error_lower(self, rho: float) -> float | None:
        """The largest attained error rate of a distribution within ρ of the sample."""
        if self.attained_error_cost is None:
            return None
        return max(
            0.0,
            worst_error(self.attained_error_cost, [checked_rho(rho)], self.weights)[0] - slack(self.samples),
        )

    def bracket(self, rho: float) -> Bracket:
        """All of it at one ρ; raises ``ContradictionError`` where an attained side exceeds a proven one."""
        high, gamma = self.statement.loss(checked_rho(rho))
        people, costs, population_error = self.population, self.proven_error_cost, None
        if people is not None and costs is not None:
            population_error = self.statement.population_error(rho, proposed_gamma(costs, rho))
        bracket = Bracket(
            rho=rho,
            distance=math.sqrt(rho / self.unit_cost),
            loss_low=self.lower(rho),
            loss_estimate=self.estimate(rho),
            loss_high=high,
            gamma=gamma,
            rules=self.rules_at(gamma),
            error_low=self.error_lower(rho),
            error_high=self.error_bound(rho),
            population_loss_low=None if people is None else people.loss_low(rho),
            population_loss=None if people is None else self.statement.population_loss(rho),
            population_error_low=None if people is None else people.error_low(rho),
            population_error=population_error,
        )
        check_bracket(self, bracket)
        return bracket

    def curve(self, rhos: Sequence[float] | None = None) -> list[Bracket]:
        """Brackets at several ρ; at those asked for by default."""
        return [self.bracket(rho) for rho in (self.rhos if rhos is None else rhos)]

    def certified_accuracy(self, epsilon: float) -> float:
        """The share of the samples that is proven to be classified rightly within ε of each, in the cost's
        norm."""
        return self.accuracy_bracket(epsilon).certified

    def attacked_accuracy(self, epsilon: float) -> float:
        """The share for which no error was found within ε: at least ``certified_accuracy``."""
        return self.accuracy_bracket(epsilon).attacked

    def accuracy_bracket(self, epsilon: float) -> AccuracyBracket:
        """Both, and what they say of the population; refused for a regression.

        Raises ``ContradictionError`` where an attained side is below a proven one.
        """
        price = down(require_number("epsilon", epsilon, zero=True) ** 2 * self.unit_cost, SOME)
        if self.attained_error_cost is None:
            raise UnsupportedError(
                "A regression has no certified accuracy: without classes there are no errors."
            )
        count, people, statement = self.samples, self.population, self.statement
        left = int((~(self.attained_error_cost <= price)).sum())
        bracket = AccuracyBracket(epsilon, statement.certified(epsilon), left / count)
        if people is not None:
            assert people.error_margin_low is not None
            assert people.attained_error_cost is not None
            # Only searches that were fixed beforehand count.
            left = int((~(people.attained_error_cost <= price)).sum())
            failure = (1 - people.confidence) / 2
            high = left / count + up(people.error_margin_low, SOME) + slack(count)
            claims = success_claims(statement.certified_samples(epsilon), count, failure)
            bracket = replace(
                bracket,
                population_certified=statement.population_certified(epsilon),
                population_attacked=min(1.0, high),
                fixed_certified=first_proven(partial(statement.fixed_certified, epsilon), claims) or 0.0,
                fixed_attacked=1 - clopper_pearson(count - left, count, failure),
            )
        check_accuracy(self, bracket)
        return bracket

    def accuracies(self, epsilons: Sequence[float] | None = None) -> list[AccuracyBracket]:
        """The same at several ε; at those asked for by default."""
        return [self.accuracy_bracket(one) for one in (self.epsilons if epsilons is None else epsilons)]

    @property
    def attained_budgets(self) -> list[AttainedBudget]:
        """ρ̂_n for each γ, from the largest γ on (eqn:tol-n)."""
        return [
            AttainedBudget(line.gamma, line.rho_hat, line.loss, self.statement.loss(line.rho_hat)[0])
            for line in self.aggregates
        ]

    @property
    def vacuous_loss(self) -> float | None:
        """ln K: a loss bound above it says less than guessing; None for regression, and where losses count
        by class."""
        return None if self.classes is None or self.class_weights is not None else math.log(self.classes)

    def worst_case_data(self, rho: float) -> tuple[Samples, Tensor]:
        """P*_n as data: moved samples and their weights (they sum to 1), of mean cost at most ρ and mean
        loss ``lower(rho)``."""
        source = self._points_source()
        moved, weights = [], []
        for part, share in self._mixture(checked_rho(rho))[1]:
            within = part.attacked
            points = source.transported(part.gamma) if within is None else source.attacked(within)
            moved.append(points)
            each = torch.ones(len(points), dtype=torch.float64) if self.weights is None else self.weights
            weights.append(each * (share / len(points)))
        return Samples.concatenate(moved), torch.cat(weights)

    def worst_error_data(self, rho: float) -> tuple[Samples, Tensor]:
        """The same for the error rate: the samples that are cheapest to turn into errors are moved, the last
        of them in part; of error rate ``error_lower(rho)``. For labels without a price."""
        source = self._points_source()
        costs, errors = source.nearest_errors([push.rho for push in self.attacks])
        samples, shares = source.transported(None), torch.zeros_like(costs)
        left = checked_rho(rho) * len(costs) * (1 - slack(len(costs)))
        weights = torch.ones_like(costs) if self.weights is None else self.weights
        for place in torch.argsort(costs).tolist():
            price = float(costs[place] * weights[place])
            shares[place] = 0.0 if costs[place] == math.inf else 1.0 if price <= left else left / price
            left -= price * float(shares[place]) if costs[place] < math.inf else 0.0
        mass = weights / len(costs)
        return Samples.concatenate([errors, samples]), torch.cat([mass * shares, mass * (1 - shares)])

    def _points_source(self) -> SampleMover:
        if self.no_proof is not None:
            raise ArgumentError("A certificate without a proof stores no points; attack the model instead.")
        if self.source is None:
            raise ArgumentError(
                "A certificate read from a file has no data; certify again for its worst case."
            )
        return self.source

    def rules_at(self, gamma: float) -> dict[str, float]:
        """Shares of the samples by the rule that proves their φ̄_γ, for a γ of the certificate."""
        return next((line.rules for line in self.aggregates if line.gamma == gamma), {})

    def _mixture(self, rho: float) -> tuple[float, list[tuple[AttainedDistribution, float]]]:
        """The largest mean loss of a mixture of two of ``attained`` whose mean cost is at most ρ, and their
        shares."""
        near = [one for one in self.attained if one.mean_cost <= rho]
        best = max(near, key=lambda one: one.loss)
        value, parts = best.loss, [(best, 1.0)]
        for left in near:
            for right in self.attained:
                if right.mean_cost > rho:
                    share = (rho - left.mean_cost) / (right.mean_cost - left.mean_cost) * (1 - SOME)
                    mixed = (1 - share) * left.loss + share * right.loss
                    if mixed > value:
                        value, parts = mixed, [(left, 1 - share), (right, share)]
        return value - SOME * (1 + abs(value)), parts


def checked_rho(rho: float) -> float:
    """ρ as a float; raises ``ArgumentError`` unless it is finite and not negative."""
    return require_number("rho", rho, zero=True)
