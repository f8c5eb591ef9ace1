"""The summary at the top of a report: plain sentences, each with its evidence."""

from __future__ import annotations

import math
from typing import Any

import torch

from certus._format import at_least, at_most
from certus.certificates.batching import repeat_words
from certus.certificates.certificate import Bracket, Certificate
from certus.certificates.files import PREDICTED_LABELS_STATEMENT
from certus.datasets import SplitDataset
from certus.display.report.contents import RunReport
from certus.display.tables import differing_words, error_name
from certus.runs.factory import features_of
from certus.runs.loaded_run import LoadedRun
from certus.smoothing.certificate import SmoothedCertificate


def summary(report: RunReport) -> list[str]:
    """State what the model does, how often it errs now, and what moving data can do to it."""
    data, settings = report.trained.data, report.trained.settings
    task = "predicts a number" if data.classes is None else f"tells {data.classes} classes apart"
    how = {"wrm": "robustly (wrm)", "erm": "in the ordinary way (erm)"}.get(
        settings.method, f"against attacks ({settings.method})"
    )
    origin = f"It was trained {how} on {data.name}."
    if report.trained.run.record.origin == "imported":
        origin = f"Its weights were imported; its data are {data.name}."
    sentences = [f"This model ({settings.model}) {task}. {origin}"]
    test = report.result["test"]
    unmoved = f"On the {len(data.test)} test samples, unmoved,"
    if "accuracy" in test:
        sentences.append(f"{unmoved} it errs on {_percent(1 - test['accuracy'])} (attained).")
    else:
        sentences.append(f"{unmoved} its mean loss is {test['loss']:.4g} (attained).")
    certificate = report.certificate
    if certificate is not None:
        brackets = [bracket for bracket in certificate.curve() if bracket.rho > 0]
        sentences += [_bracket_words(bracket, certificate, report.trained) for bracket in brackets]
        sentences += scope(certificate)
    if report.smoothed is not None:
        sentences.append(_noise_words(report.smoothed, data))
    return sentences


def _noise_words(certificate: SmoothedCertificate, data: SplitDataset) -> str:
    """Bound the errors of the model with noise on its inputs, at the largest ρ of the certificate."""
    rho, names = max(certificate.rhos), [quantity.name for quantity in certificate.quantities]
    name = "vote" if "vote" in names else names[0]
    what, on = "its mean loss can reach", ""
    if name == "vote":
        what, on = f"a majority vote of {certificate.votes} noisy predictions can err or abstain on", "on "
    low, high = certificate.lower(rho, name), certificate.bound(rho, name)
    sides = (_percent_down(low), _percent_up(high)) if name == "vote" else (at_least(low), at_most(high))
    return (
        f"With Gaussian noise of standard deviation {certificate.sigma:g} on its inputs, and data that move "
        f"by a root mean square distance of {rho**0.5:.3g} ({data.units}), {what} {sides[0]} (attained) and "
        f"{on}at most {sides[1]} ({certificate.evidence}, with confidence {certificate.confidence:g})."
    )


def _bracket_words(bracket: Bracket, certificate: Certificate, trained: LoadedRun) -> str:
    """State that the error rate can reach a share and cannot exceed another if the data move by √ρ."""
    words = "; ".join(filter(None, (move_example(bracket.rho, trained), f"in {trained.data.units}")))
    start = f"If the data move by a root mean square distance of {bracket.distance:.3g} ({words}), "
    rate = f"the {error_name(certificate.labels)}"
    what, low, high = rate, bracket.error_low, bracket.error_high
    limit, share = 1.0, low is not None
    if low is None:
        what, low, high = "the mean loss", bracket.loss_low, bracket.loss_high
        limit = certificate.vacuous_loss or math.inf
    least = _percent_down(low) if share else at_least(low)
    start += f"{what} can reach {least} (attained: such data were found)"
    if certificate.no_proof is not None or high is None:
        return f"{start}. No upper bound is proven."
    most = _percent_up(high) if share else at_most(high)
    return f"{start} and cannot exceed {most} ({certificate.evidence}{_vacuous(high, limit)})."


def move_example(rho: float, trained: LoadedRun) -> str:
    """Give an example of a move that costs ρ in every sample, in the data's units; empty if there is none.

    Along a direction d of unit cost c(d) a move by √(ρ/c(d)) costs ρ: costs of runs are squares of norms.
    """
    data, cost = trained.data, trained.cost
    shape = data.train.inputs.shape[1:]

    def length(direction: torch.Tensor) -> float:
        """Return √(ρ/c) of a direction, in the units of the inputs; 0 where the cost is infinite."""
        unit = direction.double().reshape(1, *shape)
        return math.sqrt(rho / float(cost(unit, torch.zeros_like(unit))))

    if len(shape) == 3:
        pixel = torch.zeros(math.prod(shape))
        pixel[0] = 1.0
        alone, every = length(pixel), length(torch.ones_like(pixel))
        each = f"or all {len(pixel)} by {every:.2g} each"
        return f"as when one pixel of every image changes by {alone:.3g}, {each}"
    if data.feature_names is None or data.input_scale is None:
        return ""
    moves = []
    for feature in features_of(data):
        if not (feature.category or feature.mark or len(feature.columns) > 1):
            direction = torch.zeros(math.prod(shape))
            direction[feature.columns[0]] = 1.0
            moves.append((length(direction) * feature.scale, feature.name))
    size, name = max(moves, default=(0.0, ""))
    return f"as when {name} alone changes by {size:.3g} in every row" if size > 0 else ""


def scope(certificate: Certificate) -> list[str]:
    """State which samples the numbers are about, and what they assume."""
    sentences = [
        f"These numbers are about {certificate.about['rows']['words']}. They cover every way to move these "
        "samples whose root mean square distance is at most the stated one. That allows more than moving "
        "each sample by at most that distance: a few samples may move far if the others stay."
    ]
    if certificate.labels == "predicted":
        sentences.append(PREDICTED_LABELS_STATEMENT)
    now = None if certificate.no_proof is not None else certificate.bracket(0.0).error_low
    if now is not None and not _are_all_test_samples(certificate.about["rows"]):  # of those it is said above
        sentences.append(f"On these samples, unmoved, the model errs on {_percent(now)} (attained).")
    if certificate.differing_predictions:
        sentences.append(differing_words(certificate))
    if certificate.population is not None:
        sentences.append(_population_words(certificate))
    if certificate.no_proof is not None:
        sentences.append(f"Nothing is proven about this model: {certificate.no_proof}")
    elif certificate.assumptions:
        named = "; ".join(certificate.assumptions)
        sentences.append(f"The upper bounds rest on claims that certus did not prove: {named}.")
    else:
        sentences.append(
            "The upper bounds hold for this network with its stored weights in exact arithmetic, and rest on "
            "no unproven claim about it. The same network in float32 can differ by its rounding."
        )
    return sentences


def _are_all_test_samples(rows: dict[str, Any]) -> bool:
    return bool(rows["source"].endswith("@test") and rows["count"] == rows["total"])


def _population_words(certificate: Certificate) -> str:
    """Bound the population that the samples were drawn from, at the largest ρ of the certificate."""
    people, bracket = certificate.population, certificate.bracket(max(certificate.rhos))
    assert people is not None
    words = (
        "For the population that these samples were drawn from, moved by a root mean square distance of "
        f"{bracket.distance:.3g}, "
    )
    if bracket.population_error is not None:
        words += f"the {error_name(certificate.labels)} is at most {_percent_up(bracket.population_error)}"
    else:
        bound = at_most(bracket.population_loss or 0.0)
        words += f"the mean loss, clipped at {people.clip:.4g}, is at most {bound}"
    evidence = f"({certificate.evidence}, with confidence {people.confidence:g})"
    return (
        f"{words} {evidence}. This assumes that the samples were drawn independently and that nothing was "
        f"trained or tuned on them.{repeat_words(people.repeats, certificate.samples)}"
    )


def _vacuous(value: float, limit: float) -> str:
    return "; vacuous: a model that guesses does as well" if value >= limit else ""


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _percent_down(share: float) -> str:
    return f"{at_least(100 * share, 1)}%"


def _percent_up(share: float) -> str:
    return f"{at_most(100 * share, 1)}%"
