"""Certified accuracy: a row for every ε, and the words that go with it."""

from __future__ import annotations

from rich.table import Table

from certus.certificates.certificate import Certificate
from certus.decimals import at_least, at_most
from certus.evidence import Evidence
from certus.texts.plain_text import make_table


def accuracy_tables(certificate: Certificate) -> list[Table]:
    """What is certified within each ε that was asked for, and what attacks left; the same of a population."""
    sample = make_table("epsilon", "accuracy at least", "at most")
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
    norm = (
        "of the cost, which is its root" if cost is None else f"of the cost {cost['type']}, which is its root"
    )
    words = (
        "Accuracy: the share of the samples that are classified rightly whatever moves each by at most "
        f"epsilon in the norm {norm}. "
        f"At least: {Evidence.resting_on(certificate.assumptions)}; at most: the others were misled by "
        "points that were found."
    )
    people = certificate.population
    if people is None:
        return words
    return (
        f"{words} Of the population, with confidence {people.confidence:g}: the wider bounds hold for all "
        "epsilon at once (DKW). The closer ones hold for one epsilon that you chose beforehand (Clopper and "
        "Pearson)."
    )
