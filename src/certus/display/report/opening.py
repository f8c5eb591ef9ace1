"""The opening of a report, for readers who do not write code: a verdict, three numbers, what they do not
cover.

Numbers come from the certificate at its largest ρ. The best constant answer stands beside them: a bound
that is no better than always giving the same answer is called so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from certus._format import at_least, at_most
from certus.certificates.certificate import Bracket, Certificate
from certus.display.report.contents import RunReport, move_example
from certus.display.text import PlainTable, make_table
from certus.errors import CertusError
from certus.requirements import Outcome, Requirement

_MOST_CLASSES = 12  # of a confusion table

GLOSSARY = {
    "Error rate": "the share of wrong predictions.",
    "Recall": "of the rows that truly belong to a class, the share that is predicted as that class.",
    "Attained": "measured on data that exist. The worst case is at least this bad.",
    "Proven": "follows from a mathematical proof. Nothing within its conditions is worse.",
    "Assumed": "would be proven if a named claim is true, which certus has not checked.",
    "Estimated": "a measurement that may be too low or too high.",
    "Budget ρ": "how much the data may move in all: the mean of the squared distances of all rows.",
    "Distance √ρ": "the root of the budget, in the units of the data. Some rows may move farther if "
    "others stay.",
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


def opening_of(report: RunReport, purpose: Purpose) -> Opening:
    """Return the opening about a run."""
    certificate = report.certificate
    worst = None if certificate is None else certificate.bracket(max(certificate.rhos))
    constant, answer = _constant(report)
    numbers = (
        _today(report, constant, answer),
        _within(report, worst, constant, answer),
        _population(report, worst, constant),
    )
    outcome, verdict, asked = _verdict(report, purpose.requirements)
    scale = "" if worst is None or worst.rho == 0 else _scale(report, worst)
    return Opening(
        name=report.name,
        outcome=outcome,
        verdict=verdict,
        asked=asked,
        numbers=numbers,
        scale=scale,
        gaps=tuple(_gaps(report, worst)),
        steps=tuple(_steps(report, worst, outcome)),
    )


def _labelled(report: RunReport) -> bool:
    return report.trained.data.classes is not None


def _share(value: float, *, up: bool) -> str:
    return f"{(at_most if up else at_least)(100 * value, 1)}%"


def _written(report: RunReport, value: float, *, up: bool) -> str:
    """Write an error rate in per cent, or a loss, rounded outwards."""
    return _share(value, up=up) if _labelled(report) else (at_most if up else at_least)(value, 4)


def _constant(report: RunReport) -> tuple[float, str]:
    """Return the error (or squared error) of the best constant answer on the test rows, and that answer."""
    targets = report.trained.data.test.targets
    if not _labelled(report):
        return float(targets.double().var(correction=0)), "their mean"
    counts = torch.bincount(targets)
    label = int(counts.argmax())
    names = report.trained.data.class_names
    name = names[label] if names and label < len(names) else str(label)
    return 1 - float(counts[label]) / len(targets), f"“{name}”"


def _today(report: RunReport, constant: float, answer: str) -> Number:
    result = report.trained.run.result
    assert result is not None  # it was opened as a complete run
    test, count = result["test"], len(report.trained.data.test)
    if "accuracy" in test:
        value = f"{1 - test['accuracy']:.1%}"
        sentence = (
            f"On {count:,} test rows as they are, {value} of the predictions are wrong. Always answering "
            f"{answer} would be wrong on {constant:.1%}."
        )
        return Number("Today", value, "attained", sentence)
    value = f"{test['loss']:.4g}"
    sentence = f"On {count:,} test rows as they are, the mean loss is {value}."
    if type(report.trained.certified_criterion).__name__ == "SquaredError":
        sentence += f" Always answering {answer} would have {constant:.4g}."
    return Number("Today", value, "attained", sentence)


def _sides(report: RunReport, worst: Bracket) -> tuple[float | None, float | None]:
    """Attained and proven sides of the error rate, or of the loss of a regression."""
    if _labelled(report):
        return worst.error_low, worst.error_high
    high = worst.loss_high if math.isfinite(worst.loss_high) else None
    return worst.loss_low, high


def _kind(certificate: Certificate) -> str:
    return "changed predictions" if certificate.labels == "predicted" else "wrong predictions"


def _within(report: RunReport, worst: Bracket | None, constant: float, answer: str) -> Number:
    name, certificate = "In the worst case", report.certificate
    if worst is None or certificate is None:
        words = "No certificate has been made, so nothing is known about moved data."
        return Number(name, "–", "not computed", words)
    low, high = _sides(report, worst)
    what = f"rate of {_kind(certificate)}" if _labelled(report) else "mean loss"
    attained = ""
    if low is not None:
        least = _written(report, low, up=False)
        attained = f" Data within this distance with {least} were found ({certificate.lower_evidence})."
    where = f"If the data move by a root mean square distance of at most {worst.distance:.3g}"
    if high is None or certificate.no_proof is not None:
        words = f"{where}, no upper bound on the {what} is proven.{attained}"
        return Number(name, "no bound", "not proven", words)
    value = f"≤ {_written(report, high, up=True)}"
    sentence = f"{where}, the {what} is at most {_written(report, high, up=True)}.{attained}"
    if _labelled(report) and certificate.labels == "given" and high >= constant:
        sentence += f" This is no better than always answering {answer} ({constant:.1%})."
    return Number(name, value, str(certificate.evidence), sentence)


def _population(report: RunReport, worst: Bracket | None, constant: float) -> Number:
    name, certificate = "For new rows of the same kind", report.certificate
    people = None if certificate is None else certificate.population
    high = None if worst is None else worst.population_error if _labelled(report) else worst.population_loss
    if certificate is None or worst is None or people is None or high is None:
        words = (
            "Not asked. The two other numbers are about these rows alone, not about the source that they "
            "were drawn from."
        )
        return Number(name, "not asked", "–", words)
    clipped = f"mean loss, clipped at {people.clip:.4g},"
    what = f"rate of {_kind(certificate)}" if _labelled(report) else clipped
    sentence = (
        f"For new rows from the same source, moved by at most the same distance, the {what} is at most "
        f"{_written(report, high, up=True)}, with confidence {people.confidence:.0%}, if the rows "
        "are independent draws and nothing was tuned on them."
    )
    if _labelled(report) and certificate.labels == "given" and high >= constant:
        sentence += f" This is no better than the best constant answer ({constant:.1%})."
    return Number(name, f"≤ {_written(report, high, up=True)}", str(certificate.evidence), sentence)


def _verdict(report: RunReport, requirements: Sequence[str]) -> tuple[str, str, tuple[str, ...]]:
    """Return the outcome, the verdict, and what was asked, with the bounds that decided."""
    certificate = report.certificate
    if not requirements:
        words = (
            "No limit was given, so that this report states numbers and does not judge them: certus report"
        )
        return "none", "No limit given", (f"{words} --require 'error<=10%' gives one.",)
    if certificate is None:
        asked = tuple(f"Asked: {requirement}." for requirement in requirements)
        return "fail", "Fail: nothing is proven", (*asked, "There is no certificate.")
    result = certificate.check(requirements)
    asked = tuple(_asked(outcome, certificate) for outcome in result.outcomes)
    if not result.passed:
        return "fail", "Fail", asked
    evidence = certificate.statement.evidence
    if evidence == "proven":
        return "pass", "Pass", asked
    return "none", f"Within the limits, but only {evidence}", asked


_QUANTITIES = {
    "error": "error rate",
    "loss": "mean loss",
    "recall": "recall of “{label}”",
    "fpr": "share of other classes that is taken for “{label}”",
    "balanced_error": "mean of the error rates of all classes",
    "expected_cost": "expected cost",
    "accuracy": "accuracy",
}


def _asked(outcome: Outcome, certificate: Certificate) -> str:
    """Return a requirement and its outcome in words, without symbols."""
    requirement = Requirement.parse(outcome.requirement)
    side = "at most" if outcome.side == "<=" else "at least"
    share = requirement.quantity not in ("loss", "expected_cost")
    name = _QUANTITIES.get(requirement.quantity, requirement.quantity).format(label=requirement.label)
    limit = f"{outcome.limit:.4g}" if not share else f"{100 * outcome.limit:.4g}%"
    where = ""
    if outcome.rho is not None:
        distance = math.sqrt(outcome.rho / certificate.unit_cost)
        where = f" if the data move by a root mean square distance of at most {distance:.3g}"
    people = " for new rows of the same kind" if requirement.population else ""
    asked = f"Asked: {name}{people} of {side} {limit}{where}."
    if outcome.value is None:
        return f"{asked} No bound is known, so that it does not hold."
    rounded = at_most if outcome.side == "<=" else at_least
    value = f"{rounded(100 * outcome.value, 1)}%" if share else rounded(outcome.value, 4)
    evidence = outcome.evidence[:1].upper() + outcome.evidence[1:]
    return f"{asked} {evidence}: {side} {value}. {'It holds.' if outcome.passed else 'It does not hold.'}"


def _scale(report: RunReport, worst: Bracket) -> str:
    """Return the budget in the units of the data: for every row, and for one row in a hundred."""
    example = move_example(worst.rho, report.trained)
    tenfold = move_example(100 * worst.rho, report.trained)
    root = f"a root mean square distance of √ρ = {worst.distance:.3g} ({report.trained.data.units})"
    start = f"The budget is ρ = {worst.rho:g}, {root}"
    if not example:
        return f"{start}."
    rare = tenfold.removeprefix("as when ").replace("in every row", "in one row of a hundred")
    rare = rare.replace("of every image", "of one image in a hundred")
    return f"{start}: {example}; or {rare}, if all others stay."


def _gaps(report: RunReport, worst: Bracket | None) -> list[str]:
    certificate = report.certificate
    if certificate is None or worst is None:
        return ["Moved data: without a certificate, only today's error on the test rows is known."]
    gaps = []
    priced = certificate.about.get("settings", {}).get("label_cost")
    if priced is None:
        gaps.append(
            "Changed meaning: labels are fixed. If the same inputs get other labels, no number here says so."
        )
    gaps.append(f"Larger moves: nothing is stated beyond √ρ = {worst.distance:.3g}.")
    if certificate.population is None:
        gaps.append("Other rows: the proven number is about the certified rows, and moves of them.")
    if certificate.assumptions:
        gaps.append(f"Assumptions: {'; '.join(certificate.assumptions)}.")
    if certificate.deployment is None:
        gaps.append("Rounding in use: the proof is about exact arithmetic with the stored weights.")
    return gaps


def _steps(report: RunReport, worst: Bracket | None, outcome: str) -> list[tuple[str, str]]:
    run = report.name
    if worst is None or report.certificate is None:
        return [("Make a certificate:", f"certus certify {run} --rho 0.01 --confidence 0.95")]
    steps = []
    if report.certificate.population is None:
        command = f"certus certify {run} --rho {worst.rho:g} --confidence 0.95"
        steps.append(("Ask for a statement about the source of the rows:", command))
    if outcome == "fail":
        words = "Do not rely on the model at this distance. Train a more robust one:"
        steps.append((words, f"certus train {report.trained.settings.data} --certified --rho {worst.rho:g}"))
    steps.append(("Compare new data with the certified ones:", f"certus monitor {run} new.csv"))
    return steps


# By class


def by_class(report: RunReport, worst: Bracket | None) -> list[PlainTable | str]:
    """Return recall by class, as measured and as proven, and a confusion table of the test rows."""
    data, rows = report.trained.data, report.trained.data.test
    if data.classes is None or data.classes < 2:
        return []
    with torch.no_grad():
        outputs = torch.cat([report.trained.model(part) for part in rows.inputs.split(1024)])
    # A single output is the score of class 1.
    several = outputs.dim() == 2 and outputs.shape[1] > 1
    answers = outputs.argmax(1) if several else (outputs.flatten() > 0).long()
    names = [_class_name(report, label) for label in range(data.classes)]
    counts = torch.zeros(data.classes, data.classes, dtype=torch.int64)
    counts.index_put_((rows.targets, answers), torch.ones(len(rows), dtype=torch.int64), accumulate=True)
    recalls = certified_recalls(report, worst)
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
    if recalls and worst is not None and report.certificate is not None:
        parts.append(
            f"In the worst case: if the certified rows move by a root mean square distance of "
            f"{worst.distance:.3g}, and "
            f"the whole budget is spent on this class ({report.certificate.evidence})."
        )
    if data.classes <= _MOST_CLASSES:
        confusion = make_table("true \\ predicted", *names)
        for name, line in zip(names, counts.tolist(), strict=True):
            confusion.add_row(name, *(str(count) if count else "·" for count in line))
        parts += ["Which class is taken for which, on the test rows (a row for each true class):", confusion]
    return parts


def _class_name(report: RunReport, label: int) -> str:
    names = report.trained.data.class_names
    return names[label] if names and label < len(names) else str(label)


def certified_recalls(report: RunReport, worst: Bracket | None) -> dict[int, float]:
    """Bound the recall of each class from below, if the whole budget is spent on it.

    Returns: label → bound, empty where nothing is proven.
    """
    certificate = report.certificate
    if certificate is None or worst is None or certificate.no_proof is not None:
        return {}
    try:
        return {label: certificate.recall(label, worst.rho).low for label in range(certificate.classes or 0)}
    except CertusError:  # labels that may change, or are predicted
        return {}
