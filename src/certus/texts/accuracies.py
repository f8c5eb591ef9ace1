"""Certified accuracy: a row for every ε, and the words that go with it."""

from __future__ import annotations

from rich.table import Table

from certus.certificates.certificate import Certificate
from certus.decimals import at_least, at_most
from certus.evidence import Evidence
from certus.texts.plain_text import make_table


def accuracy_tables(certificate: Certificate) -> list[Table]:
    """What is certified within each ε that was asked for, and what attacks left; the same of a population."""
    share = "accuracy" if certificate.labels == "given" else "unchanged"
    sample = make_table("epsilon", f"{share} at least", "at most")
    people = make_table(
        "epsilon", "population: at least", "at most", "this epsilon alone: at least", "at most"
    )
    for one in certificate.accuracies():
        sample.add_row(f"{one.epsilon:g}", *_sides(one.certified, one.attacked))
        joint = _sides(one.population_certified, one.population_attacked)
        people.add_row(f"{one.epsilon:g}", *joint, *_sides(one.fixed_certified, one.fixed_attacked))
    return [sample] if certificate.population is None else [sample, people]


def _sides(low: float | None, high: float | None) -> tuple[str, str]:
    return "–" if low is None else at_least(low), "–" if high is None else at_most(high)


def accuracy_words(certificate: Certificate) -> str:
    """What the table says, and on what evidence."""
    cost = certificate.about.get("cost")
    norm = "the norm of the cost" if cost is None else f"the norm of the cost {cost['type']}"
    share = "Accuracy: the share of the samples that stay classified correctly"
    if certificate.labels == "predicted":
        share = "Unchanged: the share of the samples that keep their prediction"
    words = (
        f"{share} wherever each of them moves by at most epsilon, in {norm}. "
        f"At least: {Evidence.resting_on(certificate.assumptions)}; at most: for all others, a point within "
        "epsilon was found that is classified otherwise. Epsilon limits every single sample; the distance of "
        "the rows above is a root mean square over all samples, so that some may move farther."
    )
    people = certificate.population
    if people is None:
        return words
    return (
        f"{words} Of the population, with confidence {people.confidence:g}: the wider bounds hold for all "
        "epsilon at once (DKW). Those for this epsilon alone hold only if you chose it before seeing the "
        "data (Clopper and Pearson)."
    )
