"""What a report says first, for someone who will not read on: plain sentences, each with its evidence."""

from __future__ import annotations

import math
from typing import Any

from certus.certificates.certificate import Bracket, Certificate
from certus.certificates.repeats import repeat_words
from certus.certificates.smoothing.noisy_certificate import SmoothedCertificate
from certus.data import DataSet
from certus.decimals import at_least, at_most
from certus.report.findings import Findings
from certus.texts.certificate_words import differing_words


def opening(found: Findings) -> list[str]:
    """What the model does, how often it errs now, and what moving data can do to it."""
    data, settings = found.trained.data, found.trained.settings
    kind = "predicts a number" if data.classes is None else f"tells {data.classes} classes apart"
    how = {"wrm": "robustly (wrm)", "erm": "in the ordinary way (erm)"}.get(
        settings.method, f"against attacks ({settings.method})"
    )
    said = [f"This model ({settings.model}) {kind}. It was trained {how} on {data.name}."]
    test = found.result["test"]
    if "accuracy" in test:
        said.append(
            f"On the {len(data.test)} test samples as they are, it errs in {_percent(1 - test['accuracy'])} "
            "of the cases (attained on them)."
        )
    else:
        said.append(
            f"On the {len(data.test)} test samples as they are, its mean loss is {test['loss']:.4g} "
            "(attained on them)."
        )
    noisy = [] if found.smoothed is None else [_in_noise(found.smoothed, data)]
    certificate = found.certificate
    if certificate is None:
        return said + noisy
    for one in certificate.curve():
        if one.rho > 0:
            said.append(_promise(one, certificate, data))
    return [*said, *grounds(certificate), *noisy]


def _in_noise(certificate: SmoothedCertificate, data: DataSet) -> str:
    """What is proven of the model with noise on its inputs, at the largest ρ that was asked for."""
    rho, names = max(certificate.rhos), [one.name for one in certificate.quantities]
    name = "vote" if "vote" in names else names[0]
    what, of = "its mean loss is", ""
    if name == "vote":
        what, of = f"a vote of {certificate.votes} noisy answers errs or abstains in", " of the cases"
    low, high = certificate.lower(rho, name), certificate.bound(rho, name)
    sides = (_percent_down(low), _percent_up(high)) if name == "vote" else (at_least(low), at_most(high))
    return (
        f"With noise of sigma {certificate.sigma:g} on its inputs, and data that move by {rho**0.5:.3g} "
        f"{data.units}, {what} at least {sides[0]} (attained) and at most {sides[1]}{of} "
        f"({certificate.evidence}, with confidence {certificate.confidence:g})."
    )


def _promise(one: Bracket, certificate: Certificate, data: DataSet) -> str:
    """ "If the data move by …, the error is at least … and at most …"."""
    words = f"{distance_words(one.distance, data)}; in {data.units}"
    start = f"If the data move by a distance of {one.distance:.3g} on average ({words}), "
    if certificate.no_proof is not None:
        low, what = one.error_low, "the error" if one.error_low is not None else "the mean loss"
        found = f"{_percent_down(low)}" if low is not None else at_least(one.loss_low)
        return f"{start}{what} can become {found} (attained: such data were found). No upper side is proven."
    upper = f"({certificate.evidence})"
    if one.error_low is not None and one.error_high is not None:
        return (
            f"{start}the error is at least {_percent_down(one.error_low)} (attained: such data were found) "
            f"and at most {_percent_up(one.error_high)} {upper}{_vacuous(one.error_high, 1.0)}."
        )
    return (
        f"{start}the mean loss is at least {at_least(one.loss_low)} (attained: such data were found) and at "
        f"most {at_most(one.loss_high)} {upper}{_vacuous(one.loss_high, certificate.vacuous_loss)}."
    )


def distance_words(distance: float, data: DataSet) -> str:
    """What a distance means for one sample of these data, by an example."""
    if data.train.inputs.dim() == 4:
        count = math.prod(data.train.inputs.shape[1:])
        return f"as when one pixel changes by {distance:.3g}, or all {count} by {distance / count**0.5:.2g}"
    encoding = data.train.encoding
    names = [] if encoding is None else [one for one in encoding.columns if one.kind == "number"]
    if encoding is not None and names and data.input_scale is not None:
        widest = max(names, key=lambda one: float(encoding.scales[one.inputs[0]]))
        scale = float(encoding.scales[widest.inputs[0]])
        return f"as when {widest.name} alone changes by {distance * scale:.3g}"
    return "the root of the mean squared distance"


def grounds(certificate: Certificate) -> list[str]:
    """What the numbers are about, and what is assumed."""
    said = [
        f"These numbers are about {certificate.about['rows']['words']}, and about every way to move them "
        "by so much on average: some samples may move farther if others stay."
    ]
    now = None if certificate.no_proof is not None else certificate.bracket(0.0).error_low
    if now is not None and not _are_all_test_samples(certificate.about["rows"]):  # of those it is said above
        said.append(f"As these samples are, the model errs in {_percent(now)} of them (attained).")
    if certificate.differing:
        said.append(differing_words(certificate))
    if certificate.population is not None:
        said.append(_for_everyone(certificate))
    if certificate.no_proof is not None:
        said.append(f"Why nothing is proven: {certificate.no_proof}")
    elif certificate.assumptions:
        said.append(f"Assumed, not proven: {'; '.join(certificate.assumptions)}.")
    else:
        said.append("Nothing is assumed about the network.")
    return said


def _are_all_test_samples(rows: dict[str, Any]) -> bool:
    return bool(rows["source"].endswith("@test") and rows["count"] == rows["total"])


def _for_everyone(certificate: Certificate) -> str:
    """What the samples say of data like them, at the largest ρ that was asked for."""
    people, one = certificate.population, certificate.bracket(max(certificate.rhos))
    assert people is not None
    told = f"For data like these in general, moved by {one.distance:.3g}, "
    if one.population_error is not None:
        told += f"the error is at most {_percent_up(one.population_error)}"
    else:
        told += (
            f"the mean loss, clipped at {people.clip:.4g}, is at most {at_most(one.population_loss or 0.0)}"
        )
    evidence = f"({certificate.evidence}, with confidence {people.confidence:g})"
    repeats = repeat_words(people.repeats, certificate.samples)
    assumed = "Assumed: the samples were drawn independently, and nothing was tuned on them."
    return f"{told} {evidence}. {assumed}{repeats}"


def _vacuous(value: float, limit: float | None) -> str:
    return ", which says no more than guessing does" if limit is not None and value >= limit else ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _percent_down(share: float) -> str:
    return f"{at_least(100 * share, 1)}%"


def _percent_up(share: float) -> str:
    return f"{at_most(100 * share, 1)}%"
