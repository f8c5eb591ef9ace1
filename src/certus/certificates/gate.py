"""Judge requirements (``certus.requirements``) by the bounds of a certificate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, cast

from certus.certificates.class_rates import class_names, label_index
from certus.errors import ArgumentError, UnsupportedError
from certus.kernel.evidence import Evidence
from certus.requirements import GateResult, Outcome, Requirement, parsed

if TYPE_CHECKING:
    from certus.certificates.certificate import Certificate

NOT_CHECKED = (
    "The certificate was read from a file and is not re-checked: `verify()` lets the kernel check it, and "
    "`certus gate` does so by itself."
)


def outcome(
    requirement: Requirement, rho: float | None, value: float | None, evidence: str, about: str = ""
) -> Outcome:
    """Judge a requirement by a bound; None or an infinite bound fails."""
    finite = value if value is not None and math.isfinite(value) else None
    side = cast(Literal["<=", ">="], requirement.side)
    return Outcome(
        requirement.text, rho, finite, side, requirement.limit, requirement.holds(finite), evidence, about
    )


def certificate_gate(
    certificate: Certificate, requirements: str | Requirement | Iterable[str | Requirement]
) -> GateResult:
    """Judge requirements on a certificate, each at its own ρ or at all ρ of the certificate."""
    outcomes = [each for requirement in parsed(requirements) for each in _judged(certificate, requirement)]
    remarks = [NOT_CHECKED] if certificate.file is not None and _stated(certificate) else []
    rows = certificate.about.get("rows")
    if rows:
        remarks.append(f"About {rows['words']}.")
    return GateResult(tuple(outcomes), tuple(remarks))


def _stated(certificate: Certificate) -> bool:
    return certificate.no_proof is None and certificate.statement.evidence is Evidence.STATED


def _judged(certificate: Certificate, requirement: Requirement) -> list[Outcome]:
    evidence = str(certificate.statement.evidence)
    if requirement.population:
        if certificate.population is None:
            raise ArgumentError(
                f"`require` {requirement.text!r} needs a bound for the population: certify with a confidence."
            )
        evidence += f", confidence {certificate.population.confidence:g}"
    if certificate.labels == "predicted":
        evidence += ", about changes of its own predictions"
    clip = certificate.clip
    if requirement.population and certificate.population is not None:
        clip = certificate.population.clip
    if requirement.quantity == "loss" and clip is not None:
        evidence += f", clipped at {clip:.4g}"
    if requirement.attack is not None:
        return [_accuracy(certificate, requirement, evidence)]
    value = _bound(certificate, requirement)
    judged = []
    for rho in certificate.rhos if requirement.rho is None else [requirement.rho]:
        bound = value(rho)
        judged.append(outcome(requirement, rho, bound, evidence, _about(certificate, requirement, bound)))
    return judged


def _bound(certificate: Certificate, requirement: Requirement) -> Callable[[float], float | None]:
    """Return the bound that a requirement judges, as a function of ρ."""
    population, quantity = requirement.population, requirement.quantity
    if quantity == "loss":
        if certificate.no_proof is not None:
            return lambda rho: None
        return lambda rho: certificate.bracket(rho).population_loss if population else certificate.bound(rho)
    if quantity == "vote":
        raise UnsupportedError(
            f"`require` {requirement.text!r} is about a vote, which smoothing has: --smoothing."
        )
    if certificate.classes is None:
        raise UnsupportedError(
            f"`require` {requirement.text!r} needs classes; a regression has a loss alone."
        )
    if quantity == "error":
        return lambda rho: (
            certificate.bracket(rho).population_error if population else certificate.error_bound(rho)
        )
    if quantity == "expected_cost":
        if population:
            raise UnsupportedError(
                f"`require` {requirement.text!r}: an expected cost is bounded for the sample alone; leave "
                "out `population:`, or limit recalls and false-positive rates."
            )
        return lambda rho: certificate.expected_cost(requirement.matrix, rho).proven
    label = None if requirement.label is None else _label(certificate, requirement)
    rate = {
        "recall": lambda rho: certificate.recall(cast(int, label), rho),
        "fpr": lambda rho: certificate.false_positive_rate(cast(int, label), rho),
        "balanced_error": certificate.balanced_error,
    }[quantity]
    return lambda rho: rate(rho).population if population else rate(rho).proven


def _label(certificate: Certificate, requirement: Requirement) -> int:
    assert requirement.label is not None
    try:
        return label_index(certificate, requirement.label)
    except ArgumentError:
        names = ", ".join(class_names(certificate))
        raise ArgumentError(f"`require` must name a class of {names}; got {requirement.text!r}.") from None


def _accuracy(certificate: Certificate, requirement: Requirement, evidence: str) -> Outcome:
    attack = requirement.attack
    assert attack is not None
    if attack.name != "certified":
        raise ArgumentError(
            f"`require` {requirement.text!r} needs the model, which a certificate does not hold: use certus "
            "gate, or certus.evaluate."
        )
    bracket = certificate.accuracy_bracket(attack.epsilon)
    share = bracket.population_certified if requirement.population else bracket.certified
    return outcome(requirement, None, share, evidence)


def _about(certificate: Certificate, requirement: Requirement, value: float | None) -> str:
    """Return a remark: why there is no bound, or that the bound is vacuous."""
    if value is None or not math.isfinite(value):
        return certificate.no_proof or ""
    limits = {"loss": certificate.vacuous_loss, "error": certificate.vacuous_error}
    limit = limits.get(requirement.quantity)
    answer = certificate.constant_answer
    if limit is None or value < limit or answer is None:
        return ""
    return f"no better than always saying {class_names(certificate)[answer.label]}"
