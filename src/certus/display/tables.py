"""Certificates and trainings as text tables.

Certified accuracy: a row for every ε, and the words that go with it.

A certificate as tables, and in words: what ``certus certify`` and ``print(certificate)`` show.

A certificate by smoothing as tables, and in words.

Training as a table of its last epochs, and what was reached in the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from certus._format import at_least, at_most
from certus.bounds.smoothness import format_assumptions
from certus.certificates.batching import repeat_words
from certus.certificates.certificate import Bracket, Certificate
from certus.certificates.files import OWN_LABELS
from certus.display.text import Shown, cells_of, make_table, number
from certus.evidence import Evidence
from certus.smoothing.certificate import SmoothedCertificate
from certus.training._fit import Fit


def accuracy_tables(certificate: Certificate) -> list[Table]:
    """What is certified within each ε that was asked for, and what attacks left; the same of a population."""
    share = "accuracy" if certificate.labels == "given" else "unchanged"
    sample = make_table("epsilon", f"{share} at least", "at most")
    people = make_table(
        "epsilon", "population: at least", "at most", "this epsilon alone: at least", "at most"
    )
    for one in certificate.accuracies():
        sample.add_row(f"{one.epsilon:g}", *_accuracy_sides(one.certified, one.attacked))
        joint = _accuracy_sides(one.population_certified, one.population_attacked)
        people.add_row(f"{one.epsilon:g}", *joint, *_accuracy_sides(one.fixed_certified, one.fixed_attacked))
    return [sample] if certificate.population is None else [sample, people]


def _accuracy_sides(low: float | None, high: float | None) -> tuple[str, str]:
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
        parts.append(format_assumptions(certificate.assumptions))
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
        parts.append(format_assumptions(certificate.assumptions))
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


def smoothed_parts(certificate: SmoothedCertificate) -> list[Shown]:
    """A table for each quantity; raises where sides contradict each other."""
    parts: list[Shown] = []
    certificate.curve()
    for one in certificate.quantities:
        ideal = one.name == "ideal_vote"
        sides = ("ideal vote at most",) if ideal else (f"{one.name} at least", "at most")
        table = make_table("rho", "distance", *sides)
        for rho in certificate.rhos:
            high = at_most(one.high(rho)) + (" vacuous" if one.high(rho) >= one.ceiling else "")
            cells = (high,) if ideal else (at_least(one.low(rho)), high)
            table.add_row(f"{rho:g}", f"{rho**0.5:.3g}", *cells)
        parts.append(table)
    parts.append(
        f"{about_words(certificate.about, certificate.samples)} "
        f"At least: attained by moves that were found, measured with fresh noise; at most: "
        f"{certificate.evidence}. {certificate.statement}"
    )
    told = (
        f"{certificate.draws} noisy copies of each sample were drawn; {certificate.calibrated} other samples "
        "were used to choose the grid of gamma and the weights of the bound."
    )
    names = {one.name for one in certificate.quantities}
    if "vote" in names:
        told = (
            f"Error: error rate of one noisy prediction. Vote: error rate of a majority vote of "
            f"{certificate.votes} noisy predictions that abstains at level {certificate.abstain}; "
            f"abstentions count as errors. Ideal vote: a vote of infinitely many. {told}"
        )
    return [*parts, told]


_EPOCHS = 10
_COLUMNS = {
    "calibration_accuracy": "held-out accuracy",
    "calibration_loss": "held-out loss",
    "loss": "loss, moved",
    "accuracy": "accuracy, moved",
    "phi": "robust loss",
    "rho_running": "rho",
    "gamma": "gamma",
    "gradients": "gradients",
}


_MET = {
    "fixed": "",
    "reached": "That is the requested rho, within 5%.",
    "floor": "The requested rho was not reached: that would take a gamma below the smallest allowed one.",
    "missed": "The requested rho was not met: this is the nearest rho that was found.",
}
"""How a wanted ρ was met (``RobustnessStatus``), in words."""


def epoch_table(history: Sequence[Mapping[str, Any]]) -> Table:
    """The last ten epochs; the held-out column is about data as they are. What was not measured has no
    column."""
    last = history[-1]
    names = [name for name in _COLUMNS if last[name] is not None]
    if "calibration_accuracy" in names:
        names.remove("calibration_loss")
    heads = dict(_COLUMNS)
    if last["rho_running"] is None:  # nothing is moved
        heads |= {"loss": "training loss", "accuracy": "training accuracy"}
    shown = make_table("epoch", *(heads[name] for name in names), "seconds")
    for entry in history[-_EPOCHS:]:
        cells = [number(entry[name]) for name in names]
        shown.add_row(str(entry["epoch"]), *cells, number(entry["seconds"], 3))
    return shown


def epoch_parts(history: Sequence[Mapping[str, Any]]) -> list[Shown]:
    """The table, and what its columns are; nothing where no epoch was trained."""
    if not history:
        return []
    parts: list[Shown] = [epoch_table(history)]
    if len(history) > _EPOCHS:
        parts.append(f"These are the last {_EPOCHS} of {len(history)} epochs.")
    last = history[-1]
    if last["rho_running"] is not None:
        parts.append(
            "Held out: on unmoved calibration data. Moved: on training inputs where training moved them, "
            "which is harder."
        )
    if last["phi"] is not None:
        parts.append("Robust loss: the moved loss minus gamma times rho (phi), which training minimises.")
        parts.append("Rho: the mean transport cost of the moves, by default their mean squared distance.")
        if len({entry["gamma"] for entry in history}) > 1:
            parts.append("Gamma is adjusted to the requested rho during training, and once more at the end.")
    if last["gradients"] is not None:
        parts.append("Gradients: gradient evaluations per sample to find its move.")
    return parts


def reached_words(level: Mapping[str, Any]) -> str:
    """ρ̂ at the final weights, how far that is in the data's units if they are known, and whether it was
    asked for."""
    rho, gamma = level["rho_hat"], level["gamma"]
    found = f"Robustness reached on the training data ({level['evidence']}): "
    found += f"rho_hat {rho:.4g} at gamma {gamma:.4g}."
    if "distance" in level:
        away = f"a root mean square distance of {level['distance']:.3g} ({level['units']})"
        found += f" The worst case at this gamma moves the training inputs by {away}."
    return f"{found} {_MET[level['status']]}".rstrip()


def fit_parts(fit: Fit) -> list[Shown]:
    """The epochs, ρ̂ at the final weights, and what is proven of them."""
    parts = epoch_parts([asdict(entry) for entry in fit.history])
    if fit.robustness is not None:
        told = {"gamma": fit.robustness.gamma, "rho_hat": fit.robustness.rho_hat}
        parts.append(reached_words(told | {"evidence": "estimated", "status": fit.robustness.status.value}))
    if fit.proof is not None:
        parts.append(
            f"Certified training ({fit.proof.evidence}): at the final weights the curvature of the loss is "
            f"at most {at_most(fit.proof.curvature, 5)} at every input, so that the inner problem is concave "
            f"for every gamma above {at_most(fit.proof.gamma, 5)}."
        )
    return parts
