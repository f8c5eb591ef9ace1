"""The opening of a report, for readers who do not write code: a verdict, three numbers, what they do not
cover.

Numbers come from the certificate at its largest ρ. The best constant answer stands beside them: a bound
that is no better than always giving the same answer is called so.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from certus._format import at_least, at_most, plain
from certus.certificates.certificate import Bracket, Certificate
from certus.display.report.contents import RunReport, move_example, train_command
from certus.display.text import PlainTable, make_table
from certus.errors import CertusError
from certus.kernel.smoothing import PREMISES
from certus.requirements import Outcome, Requirement
from certus.smoothing.certificate import SmoothedCertificate

_MOST_CLASSES = 12  # of a confusion table

GLOSSARY = {
    "Error rate": "the share of wrong predictions.",
    "Recall": "of the rows that truly belong to a class, the share that is predicted as that class.",
    "Attained": "measured on data that exist. The worst case is at least this bad.",
    "Proven": "follows from a mathematical proof. Nothing within its conditions is worse.",
    "Assumed": "would be proven if a named claim is true, which certus has not checked.",
    "Estimated": "a measurement that may be too low or too high.",
    "Stated": "read from the file of the certificate, and not measured again here.",
    "Budget ρ": "how much the data may move in all: the mean of the squared distances of all rows. Its root "
    "√ρ is a distance in the units of the data. Some rows may move farther if others stay.",
    "Population": "the source that the rows were drawn from. A statement about it holds with a "
    "stated confidence.",
    "Alarm": "today's data differ from the certified data by more than chance, and are not covered.",
}


@dataclass(frozen=True)
class Purpose:
    """Statements of a report's author, empty if not given, and the requirements that the report judges."""

    date: str = ""
    author: str = ""
    purpose: str = ""
    requirements: tuple[str, ...] = ()


@dataclass(frozen=True)
class Number:
    """A number with its name, its evidence, and what it means in one sentence."""

    name: str
    value: str
    evidence: str
    sentence: str


@dataclass(frozen=True, eq=False)
class Subject:
    """What an opening is about: the run of a network, or of a tree model.

    Attributes:
        classes: number of classes; None for a regression. targets: (n,) of ``rows``.
        error, loss: on these rows as they are, if they are known; squared: whether the loss is a squared
            error; target_scale: its unit, in those of the source.
        example: a move that costs ρ in every row, in the units of the data; empty if there is none.
        training: function of ρ that returns the command that trains such a model with a certificate, if any.
        monitored: whether ``certus monitor`` takes the run; rounded: whether the proof covers the arithmetic
            of the model in use.
    """

    name: str
    certificate: Certificate | None
    smoothed: SmoothedCertificate | None
    classes: int | None
    class_names: Sequence[str] | None
    targets: Tensor
    rows: str
    error: float | None
    loss: float | None
    squared: bool
    target_scale: float | None
    units: str
    example: Callable[[float], str]
    training: Callable[[float], str] | None
    monitored: bool = True
    rounded: bool = False


def subject_of(report: RunReport) -> Subject:
    """Return the subject of the report of a network's run."""
    trained = report.trained
    data, result = trained.data, trained.run.result
    assert result is not None  # it was opened as a complete run
    test = result["test"]
    return Subject(
        name=report.name,
        certificate=report.certificate,
        smoothed=report.smoothed,
        classes=data.classes,
        class_names=data.class_names,
        targets=data.test.targets,
        rows=f"{len(data.test):,} test rows",
        error=1 - test["accuracy"] if "accuracy" in test else None,
        loss=test["loss"],
        squared=type(trained.certified_criterion).__name__ == "SquaredError",
        target_scale=None if data.target_scale is None else data.target_scale[1],
        units=data.units,
        example=lambda rho: move_example(rho, trained),
        training=lambda rho: _certified_training(report, rho),
    )


@dataclass(frozen=True)
class Opening:
    """The opening about one run.

    Attributes:
        name: of the run; outcome: "pass", "fail" or "none".
        verdict: in a few words; asked: what was asked, and the limit.
        numbers: today, in the worst case, and for the population.
        scale: what the budget means in the units of the data.
        gaps: what the numbers do not cover; steps: what to do next, as (words, command).
    """

    name: str
    outcome: str
    verdict: str
    asked: tuple[str, ...]
    numbers: tuple[Number, ...]
    scale: str
    gaps: tuple[str, ...]
    steps: tuple[tuple[str, str], ...]


def opening_of(subject: Subject, purpose: Purpose) -> Opening:
    """Return the opening about a run."""
    worst = worst_of(subject.certificate, purpose)
    constant, answer = _constant(subject)
    numbers = (
        _today(subject, constant, answer),
        _within(subject, worst, constant, answer),
        _population(subject, worst, constant),
    )
    outcome, verdict, asked = _verdict(subject, purpose.requirements)
    scale = "" if worst is None or worst.rho == 0 else _scale(subject, worst)
    return Opening(
        name=subject.name,
        outcome=outcome,
        verdict=verdict,
        asked=asked,
        numbers=numbers,
        scale=scale,
        gaps=tuple(_gaps(subject, worst)),
        steps=tuple(_steps(subject, worst, outcome)),
    )


def worst_of(certificate: Certificate | None, purpose: Purpose) -> Bracket | None:
    """Return the brackets at the largest ρ of the requirements, or else of the certificate."""
    if certificate is None:
        return None
    asked = [Requirement.parse(each).rho for each in purpose.requirements]
    return certificate.bracket(max((rho for rho in asked if rho is not None), default=max(certificate.rhos)))


def _labelled(subject: Subject) -> bool:
    return subject.classes is not None


def _share(value: float, *, up: bool) -> str:
    return f"{(at_most if up else at_least)(100 * value, 1)}%"


def _written(subject: Subject, value: float, *, up: bool) -> str:
    """Write an error rate in per cent, or a loss, rounded outwards."""
    return _share(value, up=up) if _labelled(subject) else (at_most if up else at_least)(value, 4)


def _constant(subject: Subject) -> tuple[float, str]:
    """Return the error (or squared error) of the best constant answer on the test rows, and that answer."""
    targets = subject.targets
    if not _labelled(subject):
        return float(targets.double().var(correction=0)), "their mean"
    counts = torch.bincount(targets)
    label = int(counts.argmax())
    names = subject.class_names
    name = names[label] if names and label < len(names) else str(label)
    return 1 - float(counts[label]) / len(targets), f"“{name}”"


def _today(subject: Subject, constant: float, answer: str) -> Number:
    if subject.error is not None:
        value = f"{subject.error:.1%}"
        sentence = (
            f"{value} of the predictions on {subject.rows} are wrong. Always answering {answer} would be "
            f"wrong on {constant:.1%}."
        )
        return Number("Today", value, "attained", sentence)
    if subject.loss is None:
        return Number("Today", "–", "not computed", f"The loss on {subject.rows} is not known.")
    value = f"{subject.loss:.4g}"
    sentence = f"The mean loss on {subject.rows} is {value}."
    if subject.squared:
        typical = ""
        if subject.target_scale is not None:
            typical = f", a typical error of {plain(math.sqrt(subject.loss) * subject.target_scale)}"
        sentence = (
            f"The mean squared error on {subject.rows} is {value}{typical}. Always answering {answer} would "
            f"have {constant:.4g}."
        )
    return Number("Today", value, "attained", sentence)


def _sides(subject: Subject, worst: Bracket) -> tuple[float | None, float | None]:
    """Attained and proven sides of the error rate, or of the loss of a regression."""
    if _labelled(subject):
        return worst.error_low, worst.error_high
    high = worst.loss_high if math.isfinite(worst.loss_high) else None
    return worst.loss_low, high


def _claim(subject: Subject, value: float) -> str:
    """State an upper bound: "at most 12.0% of the predictions are wrong", "the mean loss is at most 0.3"."""
    certificate, most = subject.certificate, f"at most {_written(subject, value, up=True)}"
    if not _labelled(subject):
        return f"the mean loss is {most}"
    changed = certificate is not None and certificate.labels == "predicted"
    return f"{most} of the predictions {'change' if changed else 'are wrong'}"


def _attained(subject: Subject, low: float | None) -> str:
    """State the lower side: data that were found."""
    if low is None or subject.certificate is None:
        return ""
    when = " when the certificate was made" if subject.certificate.lower_evidence == "stated" else ""
    least = _written(subject, low, up=False)
    return f" It can be as bad as {least}: such data were found{when} ({subject.certificate.lower_evidence})."


def _within(subject: Subject, worst: Bracket | None, constant: float, answer: str) -> Number:
    name, certificate = "In the worst case", subject.certificate
    if worst is None or certificate is None:
        if subject.smoothed is not None:
            return _in_noise(subject.smoothed)
        words = "No certificate has been made, so nothing is known about data that move."
        return Number(name, "–", "not computed", words)
    low, high = _sides(subject, worst)
    if high is None or certificate.no_proof is not None:
        what = "rate of wrong predictions" if _labelled(subject) else "mean loss"
        words = f"If the data move that far, no upper bound on the {what} is proven."
        return Number(name, "no bound", "not proven", words + _attained(subject, low))
    sentence = f"If the data move that far, {_claim(subject, high)}.{_attained(subject, low)}"
    if _labelled(subject) and certificate.labels == "given" and high >= constant:
        sentence += f" The bound is no better than always answering {answer} ({constant:.1%})."
        sentence += _useful(subject, constant)
    return Number(name, f"≤ {_written(subject, high, up=True)}", str(certificate.evidence), sentence)


def _useful(subject: Subject, constant: float) -> str:
    """Name the largest certified ρ whose bound is better than the best constant answer."""
    assert subject.certificate is not None
    curve = [each for each in subject.certificate.curve() if each.rho > 0]
    better = [each for each in curve if each.error_high is not None and each.error_high < constant]
    if not better:
        return ""
    largest = max(better, key=lambda each: each.rho)
    assert largest.error_high is not None
    return (
        f" Up to ρ = {largest.rho:g} it is better: at most {_written(subject, largest.error_high, up=True)}."
    )


def _in_noise(certificate: SmoothedCertificate) -> Number:
    """The worst case of the model with noise on its inputs."""
    rho, names = max(certificate.rhos), [quantity.name for quantity in certificate.quantities]
    name = next(each for each in ("vote", "error", *names) if each in names)
    low, high = certificate.lower(rho, name), certificate.bound(rho, name)
    least, value = at_least(low), at_most(high)
    if name != "loss":
        least, value = _share(low, up=False), _share(high, up=True)
    model = {
        "vote": f"the majority of {certificate.votes} predictions in noise is wrong or withheld on",
        "error": "a single prediction in noise is wrong on",
    }.get(name, "the mean loss in noise is")
    sentence = (
        f"If new rows move by a root mean square distance of {rho**0.5:.3g}, {model} at most {value}, with "
        f"confidence {certificate.confidence:.0%}. It can be as bad as {least}: such moves were found "
        f"({certificate.lower_evidence}). The noise is Gaussian, of standard deviation {certificate.sigma:g}."
    )
    return Number("In the worst case, with noise", f"≤ {value}", str(certificate.evidence), sentence)


def _population(subject: Subject, worst: Bracket | None, constant: float) -> Number:
    name, certificate = "For new rows of the same kind", subject.certificate
    if certificate is None and subject.smoothed is not None:
        words = "Nothing is proven about this model if it is used without the noise."
        return Number("Without noise", "no bound", "not proven", words)
    people = None if certificate is None else certificate.population
    high = None if worst is None else worst.population_error if _labelled(subject) else worst.population_loss
    if certificate is None or worst is None or people is None or high is None:
        words = (
            "Not computed. The two other numbers are about these rows alone, not about the source that they "
            "were drawn from."
        )
        return Number(name, "–", "not computed", words)
    clipped = "" if _labelled(subject) else f" Losses above {people.clip:.4g} count as {people.clip:.4g}."
    sentence = (
        f"If new rows from the same source move that far, {_claim(subject, high)}, with confidence "
        f"{people.confidence:.0%}.{clipped} This assumes that the certified rows are independent draws, and "
        "that nothing was tuned on them."
    )
    if _labelled(subject) and certificate.labels == "given" and high >= constant:
        sentence += f" The bound is no better than the best constant answer ({constant:.1%})."
    return Number(name, f"≤ {_written(subject, high, up=True)}", str(certificate.evidence), sentence)


def _verdict(subject: Subject, requirements: Sequence[str]) -> tuple[str, str, tuple[str, ...]]:
    """Return the outcome, the verdict, and what was asked, with the bounds that decided."""
    certificate = subject.certificate or subject.smoothed
    if not requirements:
        return (
            "none",
            "No limit given",
            ("Without a limit, this report states numbers and does not judge them.",),
        )
    if certificate is None:
        asked = tuple(
            f"Not met: {_limit(Requirement.parse(each), None, 1.0, noise=False)}." for each in requirements
        )
        return "fail", "Fail: nothing is proven", (*asked, "There is no certificate.")
    result = certificate.check(requirements)
    asked = tuple(_asked(outcome, subject) for outcome in result.outcomes)
    if not result.passed:
        return "fail", "Fail", asked
    evidence = str(certificate.evidence)
    if evidence == "proven":
        return "pass", "Pass", asked
    return "none", f"Within the limits, but only {evidence}", asked


_QUANTITIES = {
    "error": "an error rate",
    "loss": "a mean loss",
    "recall": "a recall of “{label}”",
    "fpr": "a share of other classes that is taken for “{label}”",
    "balanced_error": "a mean of the error rates of all classes",
    "expected_cost": "an expected cost",
    "accuracy": "an accuracy",
    "vote": "an error rate of the vote",
}


def _limit(requirement: Requirement, rho: float | None, unit: float, *, noise: bool) -> str:
    """Say what a requirement asks for; ``unit`` is the cost of one unit of distance, ``noise`` whether the
    certificate is about the model with noise on its inputs."""
    rho = requirement.rho if rho is None else rho
    side = "at most" if requirement.side == "<=" else "at least"
    limit = f"{requirement.limit:.4g}" if requirement.unbounded else f"{100 * requirement.limit:.4g}%"
    name = _QUANTITIES[requirement.quantity].format(label=requirement.label)
    name += " in noise" if noise else ""
    people = " for new rows of the same kind" if requirement.population or noise else ""
    where = ""
    if rho is not None:
        where = f", if the data move by up to √ρ = {math.sqrt(rho / unit):.3g} (ρ = {rho:g})"
    if requirement.attack is not None:
        where = f", if every row moves by up to {requirement.attack.epsilon:.3g}"
    return f"{name}{people} of {side} {limit}{where}"


def _asked(outcome: Outcome, subject: Subject) -> str:
    """Say what was asked, whether it is met, what is known, and whether a limit is known to be exceeded."""
    certificate, requirement = subject.certificate, Requirement.parse(outcome.requirement)
    unit = 1.0 if certificate is None else certificate.unit_cost
    met = "Met" if outcome.passed else "Not met"
    noise = certificate is None and subject.smoothed is not None
    asked = f"{met}: {_limit(requirement, outcome.rho, unit, noise=noise)}."
    if outcome.value is None:
        return f"{asked} No bound is known."
    up = outcome.side == "<="
    side, rounded = ("at most", at_most) if up else ("at least", at_least)
    value = rounded(outcome.value, 4) if requirement.unbounded else _share(outcome.value, up=up)
    evidence = outcome.evidence[:1].upper() + outcome.evidence[1:]
    asked = f"{asked} {evidence}: {side} {value}."
    plain_side = requirement.quantity in ("error", "loss") and not requirement.population
    if outcome.passed or certificate is None or outcome.rho is None or not plain_side:
        return asked
    bracket = certificate.bracket(outcome.rho)
    low = bracket.error_low if requirement.quantity == "error" else bracket.loss_low
    if low is None:
        return asked
    least = at_least(low, 4) if requirement.unbounded else _share(low, up=False)
    if low > outcome.limit:
        return f"{asked} Moved data beyond the limit were found: {least}."
    return f"{asked} It is open whether the limit can be exceeded: the worst data found have {least}."


def _scale(subject: Subject, worst: Bracket) -> str:
    """Say how far the data may move, in their own units: every row, and one row in a hundred."""
    example = subject.example(worst.rho).removeprefix("as when ")
    root = f"a root mean square distance of √ρ = {worst.distance:.3g} ({subject.units}), or ρ = {worst.rho:g}"
    if not example:
        return f"How far the data may move here: {root}."
    rare = subject.example(100 * worst.rho).removeprefix("as when ")
    rare = rare.replace("in every row", "in one row of a hundred")
    rare = rare.replace("of every image", "of one image in a hundred")
    return (
        f"How far the data may move here: as far as when {example}, or when {rare} and all others stay. That "
        f"is {root}."
    )


def _gaps(subject: Subject, worst: Bracket | None) -> list[str]:
    certificate = subject.certificate
    if certificate is None and subject.smoothed is not None:
        return [
            "Changed labels: if the same inputs come to have other labels, no number here shows it.",
            "The model without noise: the proof is about predictions in noise, as it was certified.",
            f"Premises: {'; '.join(PREMISES)}.",
        ]
    if certificate is None or worst is None:
        return ["Data that move: without a certificate, only today's error on the test rows is known."]
    gaps, settings = [], certificate.about.get("settings", {})
    if settings.get("rho_origin"):
        gaps.append(f"Moves that have not occurred: {settings['rho_origin']}.")
    if settings.get("label_cost") is None:
        gaps.append("Changed labels: if the same inputs come to have other labels, no number here shows it.")
    gaps.append("Larger moves: nothing is stated about data that move farther.")
    if certificate.population is None:
        gaps.append("Other rows: the proof is about the certified rows, wherever they move within the limit.")
    if certificate.assumptions:
        gaps.append(f"Assumptions: {'; '.join(certificate.assumptions)}.")
    if certificate.deployment is None and not subject.rounded:
        gaps.append("Rounding: the proof is about the model in exact arithmetic; computers round.")
    return gaps


def _steps(subject: Subject, worst: Bracket | None, outcome: str) -> list[tuple[str, str]]:
    run = shlex.quote(subject.name)
    population = "--confidence 0.95"
    if not _labelled(subject):  # a squared error has no upper end
        population += f" --clip {4 * _constant(subject)[0]:.2g}"
    if subject.certificate is None and subject.smoothed is not None:
        return [("Judge the vote in noise by a limit:", f"certus gate {run} --require 'vote<=10%'")]
    if worst is None or subject.certificate is None:
        return [("Make a certificate:", f"certus certify {run} --rho 0.01 {population}")]
    steps = []
    if outcome == "none":
        limit = "error<=10%" if _labelled(subject) else "loss<=1"
        words = "Give a limit, for a verdict:"
        steps.append((words, f"certus report {run} --require '{limit}@rho={worst.rho:g}'"))
    if subject.certificate.population is None:
        command = f"certus certify {run} --rho {worst.rho:g} {population}"
        steps.append(("Ask for a statement about new rows of the same kind:", command))
    if outcome == "fail":
        words = "Do not rely on the model where a limit is not met."
        if subject.training is None:
            steps.append((words, ""))
        else:
            steps.append((f"{words} Train one with tighter proofs:", subject.training(worst.rho)))
    if subject.monitored:
        steps.append(("Compare new data with the certified data:", f"certus monitor {run} new.csv"))
    return steps


def _certified_training(report: RunReport, rho: float) -> str:
    """Return the command that trains such a model with a certificate; a short one where it needs choices."""
    settings, output = report.trained.settings, f"{report.name}-certified"
    if settings.method == "wrm" and report.trained.run.record.origin != "imported":
        try:
            rounded = None if settings.rho is None else float(f"{settings.rho:.3g}")
            return train_command(replace(settings, certified=True, rho=rounded), output, imported=False)
        except CertusError:  # of options that certified training does not take
            pass
    return f"certus train {shlex.quote(settings.data)} --certified --rho {rho:g}"


# By class


def by_class(report: RunReport, worst: Bracket | None) -> list[PlainTable | str]:
    """Return recall by class, as measured and as proven, and a confusion table of the test rows."""
    rows = report.trained.data.test
    with torch.no_grad():
        outputs = torch.cat([report.trained.model(part) for part in rows.inputs.split(1024)])
    # A single output is the score of class 1.
    several = outputs.dim() == 2 and outputs.shape[1] > 1
    return class_tables(
        subject_of(report), outputs.argmax(1) if several else (outputs.flatten() > 0).long(), worst
    )


def class_tables(subject: Subject, answers: Tensor, worst: Bracket | None) -> list[PlainTable | str]:
    """Return the tables by class for (n,) predictions; none for a regression."""
    if subject.classes is None or subject.classes < 2:
        return []
    names = [_class_name(subject, label) for label in range(subject.classes)]
    counts = torch.zeros(subject.classes, subject.classes, dtype=torch.int64)
    ones = torch.ones(len(answers), dtype=torch.int64)
    counts.index_put_((subject.targets, answers), ones, accumulate=True)
    recalls = certified_recalls(subject.certificate, worst)
    heads = ("class", "rows", "recall today", *(("recall at least, in the worst case",) if recalls else ()))
    table = make_table(*heads)
    for label, name in enumerate(names):
        total = int(counts[label].sum())
        cells = [name, str(total), f"{int(counts[label, label]) / total:.1%}" if total else "–"]
        if recalls:
            recall = recalls.get(label)
            cells.append("–" if recall is None else _share(recall, up=False))
        table.add_row(*cells)
    parts: list[PlainTable | str] = [table]
    if recalls and worst is not None and subject.certificate is not None:
        parts.append(
            "In the worst case: the rows of this class move, all others stay, and the root mean square "
            f"distance over all rows is at most {worst.distance:.3g} ({subject.certificate.evidence})."
        )
    if subject.classes <= _MOST_CLASSES:
        confusion = make_table("true \\ predicted", *names)
        for name, line in zip(names, counts.tolist(), strict=True):
            confusion.add_row(name, *(str(count) if count else "·" for count in line))
        parts += [
            f"Which class is taken for which, on {subject.rows} (a row for each true class):",
            confusion,
        ]
    return parts


def _class_name(subject: Subject, label: int) -> str:
    names = subject.class_names
    return names[label] if names and label < len(names) else str(label)


def certified_recalls(certificate: Certificate | None, worst: Bracket | None) -> dict[int, float]:
    """Bound the recall of each class from below, if the whole budget is spent on it.

    Returns: label → bound, empty where nothing is proven.
    """
    if certificate is None or worst is None or certificate.no_proof is not None:
        return {}
    try:
        return {label: certificate.recall(label, worst.rho).low for label in range(certificate.classes or 0)}
    except CertusError:  # labels that may change, or are predicted
        return {}
