"""A certificate as tables, and in words: what ``certus certify`` and ``print(certificate)`` show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from certus.bounds.smoothness import assumed_words
from certus.certificates.batching import repeat_words
from certus.certificates.certificate import Bracket, Certificate
from certus.certificates.files import OWN_LABELS
from certus.decimals import at_least, at_most
from certus.evidence import Evidence
from certus.texts.accuracies import accuracy_tables, accuracy_words
from certus.texts.plain_text import Shown, cells_of, make_table

_WORST = (
    "A row bounds the worst case over all ways to move the samples by a mean transport cost of at most rho."
)


_RULES = "{} by: the rules that bound the loss, each with the share of the samples for which it is best."


def certificate_parts(certificate: Certificate) -> list[Shown]:
    """Every number with its evidence, and what it is about."""
    if certificate.no_proof is not None:
        return _attained_parts(certificate)
    people, limit, both = certificate.population, certificate.vacuous_loss, certificate.classes is not None
    loss = make_table("rho", "distance", "loss at least", "at most", f"{certificate.evidence} by")
    error = "error" if certificate.labels == "given" else "changed"
    rate = make_table("rho", "distance", f"{error} at least", "at most")
    everyone = make_table(
        "rho", "population: loss at least", "at most", *((f"{error} at least", "at most") if both else ())
    )
    for one in certificate.curve():
        loss.add_row(*_where(one), *_sides(one.loss_low, one.loss_high, limit), _how(one))
        rate.add_row(*_where(one), *_sides(one.error_low, one.error_high, 1.0))
        rates = _sides(one.population_error_low, one.population_error, 1.0) if both else ()
        everyone.add_row(f"{one.rho:g}", *_sides(one.population_loss_low, one.population_loss, limit), *rates)
    parts: list[Shown] = [loss, *([rate] if both else []), *([everyone] if people is not None else [])]
    if certificate.epsilons:
        parts += accuracy_tables(certificate)
    about = about_words(certificate.about, certificate.samples)
    sides = f"At least: attained by a distribution that was found; at most: {certificate.evidence}."
    parts.append(f"{about} {_WORST} {sides} {_RULES.format(str(certificate.evidence).capitalize())}")
    if certificate.labels == "predicted":
        parts.append(f"{OWN_LABELS} Changed: the share of the samples whose prediction changes.")
    if certificate.differing:
        parts.append(differing_words(certificate))
    if certificate.class_weights is not None:
        counts = ", ".join(f"{one:.4g}" for one in certificate.class_weights)
        parts.append(
            f"Losses are weighted by class, in the order of the labels: {counts}. Error rates are not "
            "weighted."
        )
    if certificate.epsilons:
        parts.append(accuracy_words(certificate))
    if certificate.assumptions:
        parts.append(assumed_words(certificate.assumptions))
    if people is not None:
        parts.append(
            f"Population: bounds for the distribution that the rows were drawn from. They hold with "
            f"confidence {people.confidence:g} for both sides and all rho at once"
            f"{', for loss and error rate together' if both else ''}, provided that the rows are independent "
            f"draws and that nothing was trained or tuned on them. The loss is clipped at {people.clip:.4g} "
            f"and bounded by {people.inequality}{'; the error rate by DKW or betting' if both else ''}. Rows "
            f"were taken in the order of seed {people.seed}."
            f"{repeat_words(people.repeats, certificate.samples)}"
        )
    tables = [part for part in parts if not isinstance(part, str)]
    if limit is not None and any(
        "vacuous" in cell for one in tables for row in cells_of(one)[1] for cell in row
    ):
        parts.append(
            f"Vacuous: a loss bound above ln K = {limit:.4g}, or an error bound of 1, says nothing: guessing "
            "does as well."
        )
    return parts


def _attained_parts(certificate: Certificate) -> list[Shown]:
    """What was found with a model that nothing is proven of."""
    known = certificate.error_floor is not None
    error = "error" if certificate.labels == "given" else "changed"
    rates = () if certificate.classes is None else (f"{error} at least", "at most")
    shown = make_table("rho", "distance", "loss at least", "loss at most", *rates)
    for one in certificate.curve():
        rate = () if one.error_low is None else (at_least(one.error_low), "no proof")
        if known:
            rate = _sides(one.error_low, one.error_high, 1.0)
        shown.add_row(*_where(one), at_least(one.loss_low), "no proof", *rate)
    found = "At least: attained by points that attacks found, as the model computes them."
    if known:
        found += f" At most: {Evidence.resting_on(certificate.assumptions)}."
    about = about_words(certificate.about, certificate.samples)
    own = [OWN_LABELS] if certificate.labels == "predicted" else []
    parts: list[Shown] = [shown, f"{about} {_WORST} {found}", *own, f"No proof: {certificate.no_proof}"]
    if known and certificate.epsilons:
        parts += [*accuracy_tables(certificate), accuracy_words(certificate)]
    if certificate.differing:
        parts.append(differing_words(certificate))
    if certificate.assumptions:
        parts.append(assumed_words(certificate.assumptions))
    return parts


def differing_words(certificate: Certificate) -> str:
    """How many samples the model in use predicts otherwise than the certified network; empty if none."""
    if not certificate.differing:
        return ""
    return (
        f"The model as handed in predicts {certificate.differing:,} of the {certificate.samples:,} samples "
        "otherwise than the certified network: the same weights in float64. These bounds say nothing of the "
        "rounding of its own precision; run it in float64, or scale its inputs."
    )


def about_words(about: Mapping[str, Any], samples: int) -> str:
    """Which samples, and in what distances are; a certificate that was made in Python has no names for
    them."""
    rows, units = about.get("rows"), about.get("units")
    which = f"{samples:,} samples" if rows is None else rows["words"]
    unit = units or "the norm of the cost"
    return f"About {which}. Distance: the root of rho, a root mean square distance, in {unit}."


def error_name(labels: str) -> str:
    """The share of errors by its name: against predicted labels an error is a change."""
    return "error rate" if labels == "given" else "share of changed predictions"


def _where(one: Bracket) -> tuple[str, str]:
    return f"{one.rho:g}", f"{one.distance:.3g}"


def _how(one: Bracket) -> str:
    if one.rho == 0:
        return "the data themselves"
    return ", ".join(
        f"{name} {share:.0%}" for name, share in sorted(one.rules.items(), key=lambda item: -item[1])
    )


def _sides(low: float | None, high: float | None, limit: float | None) -> tuple[str, str]:
    return "–" if low is None else at_least(low), _bound(high, limit)


def _bound(value: float | None, limit: float | None) -> str:
    if value is None:
        return "–"
    vacuous = limit is not None and value >= limit
    return at_most(value) + (" vacuous" if vacuous else "")
