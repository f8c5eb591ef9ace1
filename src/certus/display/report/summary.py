"""The summary at the top of a report: plain sentences, each with its evidence."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn.functional import one_hot

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
    methods = {"wrm": "robustly (wrm)", "erm": "in the ordinary way (erm)"}
    how = methods.get(settings.method, f"against attacks ({settings.method})")
    origin = f"It was trained {how} on {data.name}."
    if report.trained.run.record.origin == "imported":
        origin = f"Its weights were imported; its data are {data.name}."
    result = report.trained.run.result
    assert result is not None  # it was opened as a complete run
    test = result["test"]
    now = f"its mean loss is {test['loss']:.4g}"
    if "accuracy" in test:
        now = f"it errs on {1 - test['accuracy']:.1%}"
    sentences = [
        f"This model ({settings.model}) {task}. {origin}",
        f"On the {len(data.test)} test samples, unmoved, {now} (attained).",
    ]
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
    what, on, share = "its mean loss can reach", "", name == "vote"
    if share:
        what, on = f"a majority vote of {certificate.votes} noisy predictions can err or abstain on", "on "
    low = _written(certificate.lower(rho, name), at_least, share=share)
    high = _written(certificate.bound(rho, name), at_most, share=share)
    return (
        f"With Gaussian noise of standard deviation {certificate.sigma:g} on its inputs, and data that move "
        f"by a root mean square distance of {rho**0.5:.3g} ({data.units}), {what} {low} (attained) and "
        f"{on}at most {high} ({certificate.evidence}, with confidence {certificate.confidence:g})."
    )


def _bracket_words(bracket: Bracket, certificate: Certificate, trained: LoadedRun) -> str:
    """State that the error rate can reach a share and cannot exceed another if the data move by √ρ."""
    words = "; ".join(filter(None, (move_example(bracket.rho, trained), f"in {trained.data.units}")))
    start = f"If the data move by a root mean square distance of {bracket.distance:.3g} ({words}), "
    name, low, high, limit = error_name(certificate.labels), bracket.error_low, bracket.error_high, 1.0
    share = low is not None
    if low is None:
        name, low, high = "mean loss", bracket.loss_low, bracket.loss_high
        limit = certificate.vacuous_loss or math.inf
    least = _written(low, at_least, share=share)
    start += f"the {name} can reach {least} (attained: such data were found)"
    if certificate.no_proof is not None or high is None:
        return f"{start}. No upper bound is proven."
    vacuous = "; vacuous: a model that guesses does as well" if high >= limit else ""
    return (
        f"{start} and cannot exceed {_written(high, at_most, share=share)} ({certificate.evidence}{vacuous})."
    )


def move_example(rho: float, trained: LoadedRun) -> str:
    """Give an example of a move that costs ρ in every sample, in the data's units; empty if there is none.

    Along a direction d of unit cost c(d) a move by √(ρ/c(d)) costs ρ: costs of runs are squares of norms.
    """
    data, shape = trained.data, trained.data.train.inputs.shape[1:]
    size = math.prod(shape)

    def length(direction: torch.Tensor) -> float:
        """Return √(ρ/c) of a direction, in the units of the inputs; 0 where the cost is infinite."""
        unit = direction.double().reshape(1, *shape)
        return math.sqrt(rho / float(trained.cost(unit, torch.zeros_like(unit))))

    if len(shape) == 3:
        alone, every = length(one_hot(torch.tensor(0), size)), length(torch.ones(size))
        each = f"or all {size} by {every:.2g} each"
        return f"as when one pixel of every image changes by {alone:.3g}, {each}"
    if data.feature_names is None or data.input_scale is None:
        return ""
    moves = []
    for feature in features_of(data):
        if not (feature.category or feature.mark or len(feature.columns) > 1):
            alone = length(one_hot(torch.tensor(feature.columns[0]), size))
            moves.append((alone * feature.scale, feature.name))
    largest, name = max(moves, default=(0.0, ""))
    return f"as when {name} alone changes by {largest:.3g} in every row" if largest > 0 else ""


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
    rows = certificate.about["rows"]
    whole = rows["source"].endswith("@test") and rows["count"] == rows["total"]  # the summary has its error
    if now is not None and not whole:
        sentences.append(f"On these samples, unmoved, the model errs on {now:.1%} (attained).")
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


def _population_words(certificate: Certificate) -> str:
    """Bound the population that the samples were drawn from, at the largest ρ of the certificate."""
    population, bracket = certificate.population, certificate.bracket(max(certificate.rhos))
    assert population is not None
    name, bound = f"mean loss, clipped at {population.clip:.4g},", at_most(bracket.population_loss or 0.0)
    if bracket.population_error is not None:
        name = error_name(certificate.labels)
        bound = _written(bracket.population_error, at_most, share=True)
    return (
        "For the population that these samples were drawn from, moved by a root mean square distance of "
        f"{bracket.distance:.3g}, the {name} is at most {bound} ({certificate.evidence}, with confidence "
        f"{population.confidence:g}). This assumes that the samples were drawn independently and that "
        f"nothing was trained or tuned on them.{repeat_words(population.repeats, certificate.samples)}"
    )


def _written(bound: float, rounded: Callable[[float, int], str], *, share: bool) -> str:
    return f"{rounded(100 * bound, 1)}%" if share else rounded(bound, 4)
