"""A certificate as tables, and in words."""

from __future__ import annotations

from certus.certificates.certificate import Bracket, Certificate
from certus.cli.accuracies import accuracy_tables, accuracy_words
from certus.cli.output import console, make_table
from certus.decimals import at_least, at_most
from certus.smoothness.results import assumed_words


def show_certificate(certificate: Certificate, units: str) -> None:
    """Every number with its evidence; ``units`` are those of distances."""
    if certificate.no_proof is not None:
        _show_attained(certificate, units)
        return
    people, limit, both = certificate.population, certificate.vacuous_loss, certificate.classes is not None
    loss = make_table("rho", "distance", "loss at least", "at most", f"{certificate.evidence} how")
    rate = make_table("rho", "distance", "error at least", "at most")
    everyone = make_table(
        "rho", "population: loss at least", "at most", *(("error at least", "at most") if both else ())
    )
    for one in certificate.curve():
        loss.add_row(*_where(one), *_sides(one.loss_low, one.loss_high, limit), _how(one))
        rate.add_row(*_where(one), *_sides(one.error_low, one.error_high, 1.0))
        rates = _sides(one.population_error_low, one.population_error, 1.0) if both else ()
        everyone.add_row(f"{one.rho:g}", *_sides(one.population_loss_low, one.population_loss, limit), *rates)
    console.print(loss)
    if both:
        console.print(rate)
    if people is not None:
        console.print(everyone)
    if certificate.epsilons:
        for table in accuracy_tables(certificate):
            console.print(table)
    console.print(
        f"About {certificate.about['rows']['words']}. Distance: the root of rho, in {units}. "
        f"At least: attained by a distribution that was found; at most: {certificate.evidence}."
    )
    if certificate.epsilons:
        console.print(accuracy_words(certificate))
    if certificate.assumptions:
        console.print(assumed_words(certificate.assumptions))
    if people is not None:
        console.print(
            f"Population: with confidence {people.confidence:g} over independent draws of such rows, for the "
            f"loss, clipped at {people.clip:.4g},{' and the error rate together,' if both else ''} for both "
            f"sides and all rho; the loss by {people.inequality}"
            f"{', the error rate by DKW or betting' if both else ''}, in the order of seed {people.seed}."
        )
    if limit is not None:
        console.print(f"Vacuous: above ln K = {limit:.4g}, or at 1, a bound says no more than guessing does.")


def _show_attained(certificate: Certificate, units: str) -> None:
    """What was found with a model that nothing is proven of."""
    shown = make_table("rho", "distance", "loss at least", "error at least", "at most")
    for one in certificate.curve():
        low = (at_least(one.loss_low), "–" if one.error_low is None else at_least(one.error_low))
        shown.add_row(*_where(one), *low, "no proof")
    console.print(shown)
    console.print(
        f"About {certificate.about['rows']['words']}. Distance: the root of rho, in {units}. "
        "At least: attained by points that attacks found, as the model computes them."
    )
    console.print(f"No proof: {certificate.no_proof}", highlight=False, markup=False)


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
