"""The alarm: nothing that was attained may exceed what was proven.

Attained sides are rounded down and proven ones up, so that every comparison here is exact. Sample by sample,

    ℓ(x) − γ c(x, x₀) ≤ φ̄_γ(x₀)        for every point x that was found and every γ that was bounded,

and the cost of an error that was found is not below the certified one. Means then follow for every ρ at once:
what is attained is a mixture of points (mean cost, mean loss), what is proven is a concave function of ρ, so
that it is enough to compare at the points themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from certus.errors import contradiction
from certus.kernel.rounding import SOME
from certus.kernel.rules import DualBounds, Rule

if TYPE_CHECKING:
    from certus.certificates.certificate import AccuracyBracket, Bracket, Certificate


def check_dual_values(level: DualBounds, costs: Tensor, losses: Tensor, origin: str, first: int = 0) -> None:
    """Raise unless ℓ − γc ≤ φ̄_γ at each of n points that were found.

    Args:
        costs, losses: (n,) of the points, one for each sample of the level; rounded up, and down.
        origin: how they were found, for the message; first: the number of the first sample, for it too.
    """
    attained = losses - level.gamma * costs
    sample = _first(~(attained <= level.bound))
    if sample is None:
        return
    rule = Rule(int(level.rule[sample])).name.lower()
    raise contradiction(
        f"at sample {first + sample} and gamma = {level.gamma:.6g}, "
        f"a point of cost {float(costs[sample]):.6g} found by {origin} has a loss less its price, ℓ − γc, "
        f"of {float(attained[sample])!r}, but at most {float(level.bound[sample])!r}",
        (f"the {rule} rule",),
        level,
    )


def check_certificate(certificate: Certificate) -> None:
    """Raise where what a certificate holds contradicts itself at some ρ, asked for or not."""
    _check_errors(certificate)
    low, high = certificate.clean_loss
    if not low <= high:
        raise contradiction(f"the loss of the sample itself is at least {low!r} and at most {high!r}")
    for one in certificate.attained:
        cost = one.mean_cost
        lowered = one.loss - SOME * (1 + abs(one.loss))  # for the rounding of its mean, as ``lower`` has it
        most, gamma = certificate.statement.loss(cost)
        if cost == 0:  # nothing but the sample is at 0, but no line may start below it
            most = min([most, *certificate.statement.means.values()])
        if not lowered <= most:
            raise contradiction(
                f"at rho = {cost:.6g} the worst loss is at least {lowered!r} ({one.origin}) "
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
    """Raise where an attained side exceeds a proven one, of the sample or of the population."""
    one, rules, people = bracket, _rules(bracket.rules), certificate.population
    at = f"at rho = {one.rho:.6g} the"
    _compare(certificate, f"{at} worst loss", one.loss_low, one.loss_high, rules)
    _compare(certificate, f"{at} worst error rate", one.error_low, one.error_high, ("certified radii",))
    if people is None:
        return
    rest = (
        f", with confidence {people.confidence:g}: the confidence failed, or the samples were not drawn "
        "independently, in an order that means nothing"
    )
    rules = (f"the inequality {people.inequality}", *rules)
    at = f"{at} population's"
    loss, error = one.population_loss, one.population_error
    _compare(certificate, f"{at} worst loss", one.population_loss_low, loss, rules, rest)
    _compare(certificate, f"{at} worst error rate", one.population_error_low, error, rules, rest)


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


def check_accuracy(certificate: Certificate, accuracy: AccuracyBracket) -> None:
    """Raise where more samples are certified than attacks left, in the sample or in the population."""
    one, people = accuracy, certificate.population
    at = f"within epsilon = {one.epsilon:.6g} the"
    _compare(certificate, f"{at} accuracy", one.certified, one.attacked, ("certified radii",))
    if people is None:
        return
    rest = (
        f", with confidence {people.confidence:g}: the confidence failed, or the samples were not drawn "
        "independently"
    )
    pairs = (
        ("DKW", one.population_certified, one.population_attacked),
        ("Clopper and Pearson", one.fixed_certified, one.fixed_attacked),
    )
    for name, low, high in pairs:
        grounds = (f"certified radii, and {name}",)
        _compare(certificate, f"{at} population's accuracy", low, high, grounds, rest)


def check_observed(certificate: Certificate, rho: float, loss: float, error: float | None, name: str) -> None:
    """Raise if other data, which are within ρ of those that were certified, do worse than any may."""
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
