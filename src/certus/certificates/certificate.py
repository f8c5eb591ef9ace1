"""Certificates: brackets of the worst loss, the worst error rate and the certified accuracy.

For any budget ρ, the worst loss is at least attained, and at most proven:

    E_{P'} ℓ ≤ sup {E_P ℓ : W_c(P, P̂_n) ≤ ρ} ≤ min_γ γρ + E_n φ̄_γ       [eqn:certificate, eqn:certify-tests]

P' is a distribution of mean cost at most ρ that was found: the samples moved to T̂_γ, or by an attack in
balls, or a mixture of two of these. Both sides belong to the *same* ρ: E ℓ(T̂_γ) is attained at ρ̂(γ), and
must not be compared with the bound at another ρ.

Certified accuracy is a statement about single samples. With r the distance from a sample to its nearest error
in the cost's norm, 0 for a misclassified sample,

    P_n(r > ε) ≥ P_n(r̲ > ε) = certified,        P_n(r > ε) ≤ P_n(attained r > ε) = attacked,

and r = √(τ/g), τ the least cost of an error (``error_costs``), g the unit cost. For the population both
shares are distribution functions of one number per sample. DKW bounds them for all ε at once, within the
confidence of the whole certificate; Clopper and Pearson's bounds are tighter, for one ε fixed beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from certus._render import Renderable
from certus.certificates.class_rates import RateBracket, cost_bracket, label_index, rate_bracket, rates_of
from certus.certificates.confidence import clopper_pearson, first_proven, success_claims
from certus.certificates.consistency import check_accuracy, check_bracket, check_certificate
from certus.certificates.dual_values import AttackAggregate, DualAggregate, DualValues
from certus.certificates.error_costs import proposed_gamma, worst_error
from certus.certificates.gate import certificate_gate
from certus.certificates.population import Population
from certus.data import DataLike, Samples
from certus.errors import ArgumentError, UnsupportedError, require_number
from certus.kernel import problem as trusted
from certus.kernel.costs import Cost as KernelCost
from certus.kernel.costs import Domain as KernelDomain
from certus.kernel.evidence import Evidence
from certus.kernel.rounding import SOME, down, slack, up
from certus.kernel.statement import Statement
from certus.kernel.tree_profiles import TreeProblem
from certus.requirements import GateResult, Requirement


@dataclass(frozen=True)
class AccuracyBracket:
    """Bracket of the share of samples that stay correct under every move of length ε; None where not
    applicable.

    Attributes:
        certified, attacked: proven lower bound, and attained upper bound: all other samples were misled.
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
    """Source of a certificate: holds the samples and their witnesses, and moves the samples again; a subclass
    need not move them."""

    def witnesses(
        self, gammas: Sequence[float], limits: Tensor | None = None
    ) -> tuple[trusted.Problem | TreeProblem, dict[str, Tensor]]: ...

    def transported(self, gamma: float | None) -> Samples:
        raise UnsupportedError(_NO_POINTS)

    def attacked(self, rho: float) -> Samples:
        raise UnsupportedError(_NO_POINTS)

    def nearest_errors(self, rhos: Sequence[float]) -> tuple[Tensor, Samples]:
        raise UnsupportedError(_NO_POINTS)

    def evaluate(self, data: Samples) -> tuple[float, float | None]:
        raise UnsupportedError(_NO_POINTS)

    def geometry(self) -> tuple[KernelCost, KernelDomain, tuple[tuple[int, ...], ...]]:
        raise UnsupportedError(_NO_POINTS)


_NO_POINTS = "A merged certificate has no points: ask its parts for theirs."


class AttainedDistribution(NamedTuple):
    """A distribution that was found: the samples moved to T̂_γ or by an attack, or unmoved.

    Attributes:
        mean_cost: mean transport cost, rounded up; loss: mean loss, rounded down; origin: how it was found.
    """

    mean_cost: float
    loss: float
    origin: str
    gamma: float | None = None
    attacked: float | None = None


@dataclass(frozen=True)
class ConstantAnswer:
    """The best answers that are the same for every input: the most frequent label, and probabilities.

    Attributes:
        label: the most frequent one; error: its error rate.
        loss: cross-entropy of the probabilities that fit best, with the weights of the classes.
    """

    label: int
    error: float
    loss: float

    @staticmethod
    def of(shares: Tensor, weights: Sequence[float] | None) -> ConstantAnswer:
        """Construct from (classes,) shares of the labels, and class weights of the losses."""
        counted = shares if weights is None else shares * torch.tensor(weights, dtype=torch.float64)
        logs = (counted / counted.sum()).log().where(counted > 0, 0.0)
        return ConstantAnswer(int(shares.argmax()), float(1 - shares.max()), float(-(counted * logs).sum()))


@dataclass(frozen=True)
class Bracket:
    """All brackets at one ρ; see ``Certificate``. None where a quantity does not apply.

    Attributes:
        distance: √(ρ/g), g the unit cost: the root mean square distance.
        loss_low, loss_high, gamma: attained, proven, and the γ that proves it.
        loss_estimate: min_γ γρ + E f(T̂_γ), the paper's recipe: an estimate, not a bound.
        error_low, error_high: the same for the error rate.
        population_loss, population_error: upper bounds for the population, with the confidence of the
            certificate; population_loss_low, population_error_low: lower bounds.
        rules: share of the samples that each rule bounds best.
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
    """ρ̂_n at one γ: the mean cost of moving the data to T̂_γ, the mean loss there, and the bound proven at ρ
    = ρ̂_n; the bound is tight if both losses are equal."""

    gamma: float
    rho_hat: float
    loss: float
    bound: float


@dataclass(frozen=True, eq=False)
class Certificate(Renderable):
    """Brackets of the worst case for any ρ, from ``certify`` or ``load``; has a table (``print``) and a
    ``plot``.

    Attributes:
        statement: everything that is proven, made by the kernel; its ``samples``, ``unit_cost``, ``clip``,
            ``weights`` and ``assumptions`` are also attributes of the certificate.
        rhos, epsilons: the requested ρ and ε.
        aggregates: attained means at each γ, largest γ first; attacks: attained means of attacks in balls.
        attained_clean_loss: mean loss of the unmoved sample, rounded down.
        attained_error_cost: (n,) cost of the cheapest error found for each sample; None for a regression.
        attained_label: (n,) label predicted at these errors, −1 if unknown; None for a regression.
        population: lower bounds for the population; the upper bounds are in the statement.
        classes: number of labels.
        about: settings and digests, as JSON.
        no_proof: reason why no loss is bounded from above; lower sides remain, and upper bounds are ∞.
        dual_values: φ̄_γ and T̂_γ sample by sample; empty if read from a file.
        labels: "given", or "predicted" where the targets are the model's own predictions: an error is then a
            prediction that changes.
        class_weights: weight of the loss of each class; None if equal. Error rates are not weighted.
        over_rows: whether samples move to valid rows of a table only; discrete columns change as a whole.
        deployment: "float32" if upper sides are about the network in float32; None for real arithmetic.
        differing_predictions: number of samples whose prediction by the model, in its own precision, differs
            from that of the certified network in float64.
        source: moves the points, for ``worst_case_data``; None if read from a file.
        file: the file it was read from; None for a new certificate.
        lower_stated: whether it was merged from certificates of files, which state their lower sides.
    """

    statement: Statement
    rhos: tuple[float, ...]
    aggregates: tuple[DualAggregate, ...]
    attained_clean_loss: float
    classes: int | None
    attacks: tuple[AttackAggregate, ...] = ()
    attained_error_cost: Tensor | None = None
    attained_label: Tensor | None = None
    population: Population | None = None
    about: dict[str, Any] = field(default_factory=dict)
    no_proof: str | None = None
    epsilons: tuple[float, ...] = ()
    dual_values: tuple[DualValues, ...] = ()
    class_weights: tuple[float, ...] | None = None
    differing_predictions: int = 0
    over_rows: bool = False
    deployment: str | None = None
    labels: Literal["given", "predicted"] = "given"
    source: SampleMover | None = None
    file: Path | None = None
    lower_stated: bool = False

    def __post_init__(self) -> None:
        check_certificate(self)

    def __repr__(self) -> str:
        rhos = ", ".join(f"{rho:g}" for rho in self.rhos)
        own = ", labels predicted" if self.labels == "predicted" else ""
        return f"<Certificate of {self.samples} samples at rho {rhos}: {self.evidence}{own}>"

    @property
    def evidence(self) -> Evidence:
        """Evidence of the upper sides: proven, assumed if they rest on ``assumptions``, or stated if read
        from a file. A certificate without upper sides has the evidence of its lower sides."""
        return self.statement.evidence if self.no_proof is None else Evidence.ATTAINED

    @property
    def lower_evidence(self) -> Evidence:
        """Evidence of the lower sides: attained, or stated if they were read from a file."""
        return Evidence.STATED if self.file is not None or self.lower_stated else Evidence.ATTAINED

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
        """B if min(ℓ, B) is bounded on the sample; else None."""
        return self.statement.clip

    @property
    def weights(self) -> Tensor | None:
        """(n,) weights of the samples, with mean 1; None if equal."""
        return self.statement.weights

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Names of the assumptions of the upper sides."""
        return self.statement.assumptions

    @property
    def clean_loss(self) -> tuple[float, float]:
        """Mean loss of the unmoved sample, rounded down, and rounded up."""
        return self.attained_clean_loss, self.statement.clean_loss

    @property
    def proven_error_cost(self) -> Tensor | None:
        """(n,) proven lower bounds on the cost of an error of each sample; None for a regression."""
        return self.statement.error_costs

    def save(self, path: str | Path, *, include_data: bool = False) -> None:
        """Write the certificate as JSON, and beside it the network and the witnesses of the bounds at
        ``rhos``, from which ``python -m certus.kernel`` checks it.

        Args:
            include_data: also write the rows, so that readers without the data can check the certificate.
        """
        from certus.certificates.files import write_certificate  # which is about certificates

        write_certificate(self, Path(path), include_data=include_data)

    @staticmethod
    def load(path: str | Path) -> Certificate:
        """Read a certificate that ``save`` or ``certus certify`` wrote; it answers for every ρ."""
        from certus.certificates.files import read_certificate  # which is about certificates

        return read_certificate(Path(path))

    @staticmethod
    def merge(parts: Sequence[Certificate]) -> Certificate:
        """Merge certificates of disjoint samples into one of their union.

        The union is bounded at the γ that all parts share, and its errors by one knapsack: the mean of the
        parts' bounds is no bound, since a shift may spend all of ρ in one part. With a confidence, the parts
        must be independent draws from one population; their order of samples is that of the parts.

        Args:
            parts: fresh or loaded, about one model and question; at the same γ, as with the same ``rho`` and
                ``gamma_rounds=0``. Loaded parts with proofs must be verified (``verify``), or the merged
                certificate states what they state.

        >>> inputs, labels = torch.linspace(-2, 2, 40)[:, None], torch.arange(40) // 20
        >>> model = torch.nn.Linear(1, 2)
        >>> from certus import certify
        >>> ask = {"rho": 0.01, "gamma_rounds": 0, "progress": False}
        >>> parts = [certify(model, (inputs[i::2], labels[i::2]), **ask) for i in range(2)]
        >>> Certificate.merge(parts).samples
        40
        """
        from certus.certificates.merging import merge_certificates  # which is about certificates

        return merge_certificates(parts)

    def verify(self, data: DataLike | None = None) -> Certificate:
        """Let the kernel check a loaded certificate, and return it with proven upper sides; lower sides stay
        stated. Raises ``VerificationError`` if a number does not follow.

        Args:
            data: the certified samples, unless the file includes them.
        """
        from certus.certificates.files import verified_certificate  # which is about certificates

        return verified_certificate(self, data)

    @cached_property
    def attained(self) -> tuple[AttainedDistribution, ...]:
        """All attained distributions."""
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
        """Return all brackets at one ρ; raises ``ContradictionError`` if an attained side exceeds a proven
        one."""
        high, gamma = self.statement.loss(checked_rho(rho))
        population, costs, population_error = self.population, self.proven_error_cost, None
        if population is not None and costs is not None:
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
            population_loss_low=None if population is None else population.loss_low(rho),
            population_loss=None if population is None else self.statement.population_loss(rho),
            population_error_low=None if population is None else population.error_low(rho),
            population_error=population_error,
        )
        check_bracket(self, bracket)
        return bracket

    def curve(self, rhos: Sequence[float] | None = None) -> list[Bracket]:
        """Return the brackets at several ρ; by default at the requested ones."""
        return [self.bracket(rho) for rho in (self.rhos if rhos is None else rhos)]

    def certified_accuracy(self, epsilon: float) -> float:
        """Proven share of the samples that are classified correctly wherever each moves within ε, in the
        cost's norm."""
        return self.accuracy_bracket(epsilon).certified

    def attacked_accuracy(self, epsilon: float) -> float:
        """Share of the samples without a known error within ε; at least ``certified_accuracy``."""
        return self.accuracy_bracket(epsilon).attacked

    def accuracy_bracket(self, epsilon: float) -> AccuracyBracket:
        """Return both accuracies at ε, with bounds for the population; raises an error for a regression.

        Raises ``ContradictionError`` if the accuracy under attack is below the certified one.
        """
        price = down(require_number("epsilon", epsilon, zero=True) ** 2 * self.unit_cost, SOME)
        if self.attained_error_cost is None:
            raise UnsupportedError(
                "A regression has no certified accuracy: without classes there are no errors."
            )
        count, population, statement = self.samples, self.population, self.statement
        left = int((~(self.attained_error_cost <= price)).sum())
        bracket = AccuracyBracket(epsilon, statement.certified(epsilon), left / count)
        if population is not None:
            assert population.error_margin_low is not None
            assert population.attained_error_cost is not None
            # Only searches that were fixed beforehand count.
            left = int((~(population.attained_error_cost <= price)).sum())
            failure = (1 - population.confidence) / 2
            high = left / count + up(population.error_margin_low, SOME) + slack(count)
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

    def recall(self, label: int | str, rho: float) -> RateBracket:
        """The worst recall of a class, by its index or its name in the run's data, within ρ: the share of its
        rows that are predicted rightly. All of ρ may be spent on them."""
        return rate_bracket(self, "recall", label_index(self, label), checked_rho(rho))

    def false_positive_rate(self, label: int | str, rho: float) -> RateBracket:
        """The worst share, within ρ, of the rows of other classes that are predicted as this one."""
        return rate_bracket(self, "fpr", label_index(self, label), checked_rho(rho))

    def balanced_error(self, rho: float) -> RateBracket:
        """The worst mean of all classes' error rates within ρ, with one budget over all."""
        return rate_bracket(self, "balanced_error", None, checked_rho(rho))

    def expected_cost(self, matrix: Any, rho: float) -> RateBracket:
        """The worst expected cost within ρ.

        Args:
            matrix: (classes, classes) costs, row by row the true label, column by column the prediction; in
                each row the right prediction costs least.
        """
        return cost_bracket(self, matrix, checked_rho(rho))

    @cached_property
    def rates(self) -> list[RateBracket]:
        """Recalls, false-positive rates and balanced errors at the requested ρ; empty without classes, for
        more than 20 of them, and where labels may change or are predicted."""
        return rates_of(self)

    def check(self, requirements: str | Requirement | Iterable[str | Requirement]) -> GateResult:
        """Judge requirements, such as "error<=0.12@rho=0.01" (``certus.requirements``).

        >>> import certus
        >>> data = torch.ones(9, 1), torch.ones(9, dtype=torch.int64)
        >>> certus.certify(torch.nn.Linear(1, 2), data, rho=0.1).check("error<=100%").passed
        True
        """
        return certificate_gate(self, requirements)

    def passes(
        self,
        *requirements: str | Requirement,
        max_error: float | None = None,
        max_loss: float | None = None,
        rho: float | None = None,
        population: bool = False,
    ) -> bool:
        """Whether all requirements hold.

        Args:
            max_error, max_loss: limits of the worst error rate and loss.
            rho: where these limits apply; everywhere that was asked for by default.
            population: whether they apply to the population.
        """
        limits = {"error": max_error, "loss": max_loss}
        named = [
            Requirement(f"{name}<={limit:g}", name, limit, rho, population)
            for name, limit in limits.items()
            if limit is not None
        ]
        return self.check([*requirements, *named]).passed

    def accuracies(self, epsilons: Sequence[float] | None = None) -> list[AccuracyBracket]:
        """Return the accuracy brackets at several ε; by default at the requested ones."""
        return [
            self.accuracy_bracket(epsilon) for epsilon in (self.epsilons if epsilons is None else epsilons)
        ]

    @property
    def attained_budgets(self) -> list[AttainedBudget]:
        """ρ̂_n for each γ, largest γ first (eqn:tol-n)."""
        return [
            AttainedBudget(line.gamma, line.rho_hat, line.loss, self.statement.loss(line.rho_hat)[0])
            for line in self.aggregates
        ]

    @cached_property
    def constant_answer(self) -> ConstantAnswer | None:
        """The best answer that ignores the inputs; None for a regression, for predicted labels, which such an
        answer never changes, and without labels in the file."""
        costs = self.statement.by_class
        if costs is None or self.labels == "predicted":
            return None
        return ConstantAnswer.of(costs.shares, self.class_weights)

    @property
    def vacuous_loss(self) -> float | None:
        """A loss bound above it says no more than a constant answer: its loss, or ln K, that of guessing,
        without labels. None for regression, and without labels where losses count by class."""
        if self.constant_answer is not None:
            return self.constant_answer.loss
        return None if self.classes is None or self.class_weights is not None else math.log(self.classes)

    @property
    def vacuous_error(self) -> float:
        """Error rate of the best constant answer; 1 without one. A bound not below it is vacuous."""
        return 1.0 if self.constant_answer is None else self.constant_answer.error

    def worst_case_data(self, rho: float) -> tuple[Samples, Tensor]:
        """P*_n as data: moved samples and their weights, which sum to 1; of mean cost at most ρ and mean loss
        ``lower(rho)``."""
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
        """Worst case of the error rate as data, of error rate ``error_lower(rho)``: the samples whose errors
        cost least are moved, the last of them in part. Not with a label cost."""
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
        """Share of the samples that each rule bounds best at a γ of the certificate."""
        return next((line.rules for line in self.aggregates if line.gamma == gamma), {})

    def _mixture(self, rho: float) -> tuple[float, list[tuple[AttainedDistribution, float]]]:
        """Mix two of ``attained`` at mean cost at most ρ for the largest mean loss; return it with both
        shares."""
        near = [distribution for distribution in self.attained if distribution.mean_cost <= rho]
        best = max(near, key=lambda distribution: distribution.loss)
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
