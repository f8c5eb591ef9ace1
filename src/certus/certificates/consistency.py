"""Consistency checks: an attained value must not exceed a proven bound.

Attained sides are rounded down and proven ones up, so that every comparison here is exact. Sample by sample,

    ℓ(x) − γ c(x, x₀) ≤ φ̄_γ(x₀)        for every attained point x and every γ with a bound,

and the cost of an attained error is at least the certified one. Means then follow for every ρ at once:
attained values are mixtures of points (mean cost, mean loss), and the proven bound is a concave function of
ρ, so that comparing at the points is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from certus.errors import contradiction
from certus.kernel.rounding import FARTHEST, SOME
from certus.kernel.rules import DualBounds, Rule

if TYPE_CHECKING:
    from certus.certificates.certificate import AccuracyBracket, Bracket, Certificate
    from certus.certificates.class_rates import RateBracket


def check_dual_values(values: DualBounds, costs: Tensor, losses: Tensor, origin: str, first: int = 0) -> None:
    """Raise ``ContradictionError`` unless ℓ − γc ≤ φ̄_γ at each of n attained points.

    Args:
        costs, losses: (n,) of the points, one for each sample; rounded up, and down.
        origin: how the points were found, and first: the number of the first sample; both for the message.
    """
    attained = losses - values.gamma * costs
    sample = _first(~(attained <= values.bound))
    if sample is None:
        return
    rule = Rule(int(values.rule[sample])).name.lower()
    raise contradiction(
        f"at sample {first + sample} and gamma = {values.gamma:.6g}, "
        f"a point of cost {float(costs[sample]):.6g} found by {origin} has a loss less its price, ℓ − γc, "
        f"of {float(attained[sample])!r}, but at most {float(values.bound[sample])!r}",
        (f"the {rule} rule",),
        values,
    )


def check_certificate(certificate: Certificate) -> None:
    """Raise ``ContradictionError`` if a certificate contradicts itself at any ρ."""
    _check_errors(certificate)
    low, high = certificate.clean_loss
    if not low <= high:
        raise contradiction(f"the loss of the sample itself is at least {low!r} and at most {high!r}")
    for distribution in certificate.attained:
        cost = distribution.mean_cost
        if cost > FARTHEST:  # nothing is proven there
            continue
        lowered = distribution.loss - SOME * (
            1 + abs(distribution.loss)
        )  # for the rounding of its mean, as ``lower`` has it
        most, gamma = certificate.statement.loss(cost)
        if cost == 0:  # nothing but the sample is at 0, but no line may start below it
            most = min([most, *certificate.statement.means.values()])
        if not lowered <= most:
            raise contradiction(
                f"at rho = {cost:.6g} the worst loss is at least {lowered!r} ({distribution.origin}) "
                f"and at most {most!r}",
                _rules(certificate.rules_at(gamma)),
                certificate.statement,
            )


def _check_errors(certificate: Certificate) -> None:
    floor, attained = certificate.proven_error_cost, certificate.attained_error_cost
    if floor is None or attained is None:
        return
    sample = _first(~(attained >= floor))
    if sample is not None:
        raise contradiction(
            f"at sample {sample} an error was found at the cost {float(attained[sample])!r}, "
            f"but none costs less than {float(floor[sample])!r}",
            ("its certified radius",),
            certificate.statement,
        )


def check_bracket(certificate: Certificate, bracket: Bracket) -> None:
    """Raise ``ContradictionError`` if an attained side exceeds a proven one, for the sample or the
    population."""
    rules, population = _rules(bracket.rules), certificate.population
    at = f"at rho = {bracket.rho:.6g} the"
    _compare(certificate, f"{at} worst loss", bracket.loss_low, bracket.loss_high, rules)
    _compare(
        certificate, f"{at} worst error rate", bracket.error_low, bracket.error_high, ("certified radii",)
    )
    if population is None:
        return
    rest = (
        f", with confidence {population.confidence:g}: the confidence failed, or the samples were not drawn "
        "independently, in an order that does not depend on them"
    )
    rules = (f"the inequality {population.inequality}", *rules)
    at = f"{at} population's"
    loss, error = bracket.population_loss, bracket.population_error
    _compare(certificate, f"{at} worst loss", bracket.population_loss_low, loss, rules, rest)
    _compare(certificate, f"{at} worst error rate", bracket.population_error_low, error, rules, rest)


def _compare(
    certificate: Certificate,
    name: str,
    low: float | None,
    high: float | None,
    grounds: tuple[str, ...],
    rest: str = "",
) -> None:
    if low is not None and high is not None and not low <= high:
        text = f"{name} is at least {low!r} and at most {high!r}{rest}"
        raise contradiction(text, grounds, certificate.statement)


def check_rate(certificate: Certificate, rate: RateBracket) -> None:
    """Raise where an attained side of a rate exceeds its proven one."""
    text = f"at rho = {rate.rho:.6g} the worst {rate.name}"
    _compare(certificate, text, rate.low, rate.high, ("costs of predictions",))


def check_accuracy(certificate: Certificate, accuracy: AccuracyBracket) -> None:
    """Raise ``ContradictionError`` if the certified accuracy exceeds that under attack."""
    population = certificate.population
    at = f"within epsilon = {accuracy.epsilon:.6g} the"
    _compare(certificate, f"{at} accuracy", accuracy.certified, accuracy.attacked, ("certified radii",))
    if population is None:
        return
    rest = (
        f", with confidence {population.confidence:g}: the confidence failed, or the samples were not drawn "
        "independently"
    )
    pairs = (
        ("DKW", accuracy.population_certified, accuracy.population_attacked),
        ("Clopper and Pearson", accuracy.fixed_certified, accuracy.fixed_attacked),
    )
    for name, low, high in pairs:
        grounds = (f"certified radii, and {name}",)
        _compare(certificate, f"{at} population's accuracy", low, high, grounds, rest)


def check_observed(certificate: Certificate, rho: float, loss: float, error: float | None, name: str) -> None:
    """Raise ``ContradictionError`` if data within ρ of the certified ones exceed a proven bound."""
    bracket = certificate.bracket(rho)
    pairs = (("a loss", loss, bracket.loss_high), ("an error rate", error, bracket.error_high))
    for what, value, most in pairs:
        if value is not None and most is not None and not value <= most:
            raise contradiction(
                f"{name}, within rho = {rho:.6g}, has {what} of {value!r}; the worst has at most {most!r}",
                _rules(bracket.rules),
                certificate.statement,
            )


def _first(wrong: Tensor) -> int | None:
    return int(wrong.nonzero()[0]) if bool(wrong.any()) else None


def _rules(shares: dict[str, float]) -> tuple[str, ...]:
    return tuple(f"the {name} rule ({share:.0%} of the samples)" for name, share in shares.items())
