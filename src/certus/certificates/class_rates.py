"""Brackets of recalls, false-positive rates, balanced errors and costs of confusion under shift.

A shift within ρ may spend all of ρ on the rows of one class. *Proven*: ``certus.kernel.error_rates`` bounds
the rate at any γ; here the best γ is proposed, by a knapsack where a rate weighs all errors of a row alike,
else by bisection. *Attained*: the knapsack of the errors found, with their predictions: samples with the
largest increase per cost are moved first.

Population: given the labels, the rows of a class are independent draws, and its share is bounded from below
by Clopper and Pearson. All rates of all labels hold jointly with the confidence of the certificate. Together
with its bounds on the loss and the error rate, the failure probability is 2δ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from certus.certificates.confidence import first_proven, success_claims
from certus.certificates.consistency import check_rate
from certus.certificates.error_costs import proposed_gamma
from certus.errors import ArgumentError, UnsupportedError, require
from certus.kernel import binomial
from certus.kernel.error_rates import ClassCosts, complement
from certus.kernel.passes import Refused
from certus.kernel.rounding import SOME, slack, up

if TYPE_CHECKING:
    from certus.certificates.certificate import Certificate

RATES = ("recall", "fpr", "balanced_error")
_BEYOND = 1e-9  # the last cost that a rate pays for stays below its limit
MOST_LISTED = 20  # classes, whose rates are listed in files, tables and reports


@dataclass(frozen=True)
class RateBracket:
    """Bracket of a rate at one ρ. A recall is proven from below, all other rates from above.

    Attributes:
        name: "recall", "fpr", "balanced_error" or "expected_cost"; label: of the first two.
        low, high: within ρ of the sample, at least and at most.
        population: the proven side for the population, with the confidence of the certificate for all rates
            of all labels together; None without a confidence.
        gamma, population_gamma, claims: proposals that prove both.
    """

    name: str
    label: int | None
    rho: float
    low: float
    high: float
    gamma: float
    population: float | None = None
    population_gamma: float | None = None
    claims: tuple[float, ...] = ()

    @property
    def proven(self) -> float:
        """The proven side of the bracket."""
        return self.low if self.name == "recall" else self.high


def class_costs(certificate: Certificate) -> ClassCosts:
    """Return the costs of predictions; raises ``UnsupportedError`` for a certificate without them."""
    costs = certificate.statement.by_class
    if certificate.labels == "predicted":
        raise UnsupportedError("Rates by class need given labels: these are the model's own predictions.")
    if costs is not None and certificate.attained_error_cost is not None:
        return costs
    if certificate.classes is None:
        raise UnsupportedError("A regression has no rates by class: without classes there are no errors.")
    raise UnsupportedError(
        "Rates by class need labels that do not change: certify without a label cost. A certificate that an "
        "earlier version wrote has no labels: certify again."
    )


def label_index(certificate: Certificate, label: int | str) -> int:
    """Return the index of a class, given by its index or by its name in the run's data."""
    names, classes = class_names(certificate), class_costs(certificate).classes
    if isinstance(label, str):
        if label in names:
            return names.index(label)
        if not label.isdecimal() or not int(label) < classes:
            raise ArgumentError(f"`label` must be one of {', '.join(names)}; got {label!r}.")
        return int(label)
    rule = f"be an index below {classes}, or one of {', '.join(names)}"
    require(not isinstance(label, bool) and 0 <= label < classes, "label", rule, label)
    return int(label)


def class_names(certificate: Certificate) -> list[str]:
    """Return the names of the classes; their indices if there are no names."""
    names = certificate.about.get("class_names") or ()
    count = certificate.classes or 0
    return [str(name) for name in names] if len(names) == count else [str(index) for index in range(count)]


def rate_bracket(certificate: Certificate, name: str, label: int | None, rho: float) -> RateBracket:
    """Bracket the recall or false-positive rate of a label, or the balanced error."""
    costs, at = class_costs(certificate), 0 if label is None else label
    try:
        groups = costs.groups(name, at)
    except Refused:
        which = class_names(certificate)[at]
        raise UnsupportedError(f"The sample has no row that counts for the {name} of {which}.") from None
    gamma = _group_gamma(costs, name, at, groups, rho)
    matrix = costs.matrix(name, at)
    worst = costs.worst_rate(name, at, rho, gamma)
    least = attained_cost(
        certificate, costs, matrix * (1 - 4 * max(SOME, slack(4 * len(costs.targets)))), rho
    )
    population: dict[str, Any] = {}
    if certificate.population is not None:
        claims, best = _population_proposal(certificate, costs, name, at, groups, rho)
        most = certificate.statement.population_rate(name, at, rho, best, claims)
        population = {
            "population": complement(most) if name == "recall" else most,
            "population_gamma": best,
            "claims": tuple(claims),
        }
    low, high = (complement(worst), 1 - least) if name == "recall" else (least, worst)
    rate = RateBracket(name, label, rho, low, high, gamma, **population)
    check_rate(certificate, rate)
    return rate


def cost_bracket(certificate: Certificate, matrix: Any, rho: float) -> RateBracket:
    """Bracket the expected cost of confusions."""
    costs = class_costs(certificate)
    prices = checked_matrix(matrix, costs.classes)
    gamma = _matrix_gamma(costs, prices, rho)
    high = costs.worst_cost(prices, rho, gamma)
    rate = RateBracket(
        "expected_cost", None, rho, attained_cost(certificate, costs, prices, rho), high, gamma
    )
    check_rate(certificate, rate)
    return rate


def checked_matrix(matrix: Any, classes: int) -> Tensor:
    """Return (classes, classes) costs of confusions as float64, rows by true label, checked."""
    try:
        prices = torch.as_tensor(matrix, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        prices = torch.empty(0)
    rule = f"be {classes} rows of {classes} finite numbers, one row for each true label"
    fits = prices.shape == (classes, classes) and bool((prices.abs() <= 1e15).all())
    require(fits, "matrix", rule, matrix)
    rule = "have the smallest cost of each row on its diagonal"
    require(bool((prices >= prices.diagonal()[:, None]).all()), "matrix", rule, prices.tolist())
    return prices


def attained_cost(certificate: Certificate, costs: ClassCosts, matrix: Tensor, rho: float) -> float:
    """Return the largest mean cost of a distribution found within ρ of the sample, rounded down."""
    errors, labels = certificate.attained_error_cost, certificate.attained_label
    assert errors is not None
    rows, own = matrix[costs.targets], matrix.diagonal()[costs.targets]
    if labels is None or costs.classes == 2:
        labels = torch.full_like(costs.targets, -1)
    least = rows.scatter(1, costs.targets[:, None], math.inf).amin(1)  # of an unknown prediction
    predicted = rows.gather(1, labels.clamp_min(0)[:, None])[:, 0]
    gains = torch.where(labels >= 0, predicted, least) - own
    masses = _masses(costs) / len(own)
    possible = torch.isfinite(errors) & (gains > 0)
    prices, gains, shares = errors[possible], gains[possible], masses[possible]
    order = (prices / gains).argsort()
    prices, gains, shares = prices[order], gains[order], shares[order]
    spent = (prices * shares).cumsum(0)
    whole = int((spent <= rho).sum())
    total = float((own * masses).sum()) + float((gains * shares)[:whole].sum())
    if whole < len(prices):
        left = max(0.0, rho - (float(spent[whole - 1]) if whole else 0.0))
        total += float(gains[whole]) * min(left / float(prices[whole]), float(shares[whole]))
    largest = float(matrix.abs().max())
    return total - (slack(4 * len(own)) + SOME) * largest if total else 0.0


def _masses(costs: ClassCosts) -> Tensor:
    """Return (n,) weights of the samples, with mean 1."""
    return torch.ones(len(costs.targets)).double() if costs.weights is None else costs.weights


def _group_gamma(costs: ClassCosts, name: str, label: int, groups: Sequence[Tensor], rho: float) -> float:
    """Return the γ of the smallest bound on a rate whose groups of rows count alike."""
    masses = _masses(costs)
    scale = [float(masses[rows].sum()) / len(masses) * len(groups) for rows in groups]
    parts = [
        error_price(costs, name, label, rows) * factor for rows, factor in zip(groups, scale, strict=True)
    ]
    mean = [masses[rows] / factor for rows, factor in zip(groups, scale, strict=True)]
    count = sum(len(part) for part in parts)
    return proposed_gamma(torch.cat(parts), rho, torch.cat(mean) * (count / len(masses)))


def error_price(costs: ClassCosts, name: str, label: int, rows: Tensor) -> Tensor:
    """Return (rows,) least costs κ of the event that a rate counts."""
    paid = costs.costs[rows]
    own = costs.targets[rows][:, None]
    return paid[:, label] if name == "fpr" else paid.scatter(1, own, math.inf).amin(1)


def _population_proposal(
    certificate: Certificate, costs: ClassCosts, name: str, label: int, groups: Sequence[Tensor], rho: float
) -> tuple[list[float], float]:
    """Propose lower bounds on the shares of the groups, and γ."""
    assert certificate.population is not None
    count, failure = len(costs.targets), costs.failure_share(1 - certificate.population.confidence)
    claims = []
    for rows in groups:
        hits = int(rows.sum())
        check = partial(binomial.clopper_pearson, hits, count, failure)
        claims.append(first_proven(check, success_claims(hits, count, failure)) or 0.0)
    parts = [
        error_price(costs, name, label, rows) * (claim * len(groups))
        for rows, claim in zip(groups, claims, strict=True)
    ]
    total = sum(len(part) for part in parts)
    mean = [torch.full_like(part, total / (len(groups) * len(part))) for part in parts]
    return claims, proposed_gamma(torch.cat(parts), rho, torch.cat(mean))


def _matrix_gamma(costs: ClassCosts, matrix: Tensor, rho: float) -> float:
    """Return the γ of the smallest bound on an expected cost, at which the mean cost of the best moves is
    ρ."""
    rises = matrix[costs.targets] - matrix.diagonal()[costs.targets][:, None]
    paid = torch.where(costs.costs > 0, costs.costs, math.inf)
    steepest = float((rises / paid).max())
    if not steepest > 0:
        return 0.0
    masses = _masses(costs)

    def spent(gamma: float) -> float:
        finite = torch.where(torch.isfinite(costs.costs), costs.costs, 0.0)
        gains = torch.where(torch.isfinite(costs.costs), rises - gamma * finite, -math.inf)
        return float((finite.gather(1, gains.argmax(1)[:, None])[:, 0] * masses).mean())

    steepest = min(up(steepest), 1e300)
    if spent(0.0) <= rho:
        return 0.0
    low, high = math.log(steepest) - 80, math.log(steepest)
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(math.exp(middle)) > rho else (low, middle)
    ends = [math.exp(low), math.exp(high)]
    return min(ends, key=lambda gamma: costs.worst_cost(matrix, rho, gamma))


def rates_of(certificate: Certificate) -> list[RateBracket]:
    """Return all rates at the requested ρ: of each label that occurs, and the balanced error; empty
    without rates by class, or for too many classes."""
    costs = certificate.statement.by_class
    listed = costs is not None and certificate.labels == "given" and costs.classes <= MOST_LISTED
    if costs is None or not listed or certificate.attained_error_cost is None:
        return []
    present = (costs.shares > 0).nonzero()[:, 0].tolist()
    return [
        rate_bracket(certificate, name, label, rho)
        for rho in certificate.rhos
        for name in RATES
        for label in ([None] if name == "balanced_error" else _counted(name, present, costs.classes))
    ]


def cost_limits(certificate: Certificate) -> Tensor:
    """(classes,) costs of predictions beyond which no rate of ``Certificate.rates`` depends on them."""
    costs = certificate.statement.by_class
    limits = torch.zeros(0 if costs is None else costs.classes, dtype=torch.float64)
    for rate in certificate.rates:
        if costs is None or rate.name != "fpr" or rate.label is None:
            continue
        paid = [rate.gamma * float(costs.shares[torch.arange(costs.classes) != rate.label].sum())]
        if rate.population_gamma is not None:
            paid.append(rate.population_gamma * rate.claims[0])
        farthest = max(1 / slope if slope > 0 else math.inf for slope in paid)
        limits[rate.label] = max(float(limits[rate.label]), farthest * (1 + _BEYOND))
    return limits


def stored_costs(certificate: Certificate) -> Tensor | None:
    """(n, classes) costs of predictions as files have them, up to ``cost_limits``; None for two classes, and
    where no rates are listed."""
    costs, errors = certificate.statement.by_class, certificate.statement.error_costs
    if costs is None or errors is None or costs.classes == 2 or not certificate.rates:
        return None
    own = torch.arange(costs.classes) == costs.targets[:, None]
    kept = torch.maximum(torch.minimum(costs.costs, cost_limits(certificate)), errors[:, None])
    return torch.where(own, 0.0, kept)


def _counted(name: str, present: list[int], classes: int) -> list[int]:
    """Return the labels whose rate counts a row."""
    if name == "recall":
        return present
    return [label for label in range(classes) if present != [label]]
