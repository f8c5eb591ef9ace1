"""What a report says first, for someone who will not read on: plain sentences, each with its evidence."""

from __future__ import annotations

import math
from typing import Any

import torch

from certus._format import at_least, at_most
from certus.certificates.batching import repeat_words
from certus.certificates.certificate import Bracket, Certificate
from certus.certificates.files import OWN_LABELS
from certus.datasets import SplitDataset
from certus.display.report.findings import Findings
from certus.display.tables import differing_words, error_name
from certus.runs.factory import features_of
from certus.runs.loaded_run import LoadedRun
from certus.smoothing.certificate import SmoothedCertificate


def opening(found: Findings) -> list[str]:
    """What the model does, how often it errs now, and what moving data can do to it."""
    data, settings = found.trained.data, found.trained.settings
    kind = "predicts a number" if data.classes is None else f"tells {data.classes} classes apart"
    how = {"wrm": "robustly (wrm)", "erm": "in the ordinary way (erm)"}.get(
        settings.method, f"against attacks ({settings.method})"
    )
    trained = f"It was trained {how} on {data.name}."
    if found.trained.run.record.origin == "imported":
        trained = f"Its weights were imported; its data are {data.name}."
    said = [f"This model ({settings.model}) {kind}. {trained}"]
    test = found.result["test"]
    unmoved = f"On the {len(data.test)} test samples, unmoved,"
    if "accuracy" in test:
        said.append(f"{unmoved} it errs on {_percent(1 - test['accuracy'])} (attained).")
    else:
        said.append(f"{unmoved} its mean loss is {test['loss']:.4g} (attained).")
    noisy = [] if found.smoothed is None else [_in_noise(found.smoothed, data)]
    certificate = found.certificate
    if certificate is None:
        return said + noisy
    for one in certificate.curve():
        if one.rho > 0:
            said.append(_promise(one, certificate, found.trained))
    return [*said, *grounds(certificate), *noisy]


def _in_noise(certificate: SmoothedCertificate, data: SplitDataset) -> str:
    """What is proven of the model with noise on its inputs, at the largest ρ that was asked for."""
    rho, names = max(certificate.rhos), [one.name for one in certificate.quantities]
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


def _promise(one: Bracket, certificate: Certificate, trained: LoadedRun) -> str:
    """ "If the data move by …, the error rate can reach … and cannot exceed …"."""
    words = "; ".join(filter(None, (move_example(one.rho, trained), f"in {trained.data.units}")))
    start = f"If the data move by a root mean square distance of {one.distance:.3g} ({words}), "
    rate = f"the {error_name(certificate.labels)}"
    what, low, high = rate, one.error_low, one.error_high
    limit, share = 1.0, low is not None
    if low is None:
        what, low, high = "the mean loss", one.loss_low, one.loss_high
        limit = certificate.vacuous_loss or math.inf
    least = _percent_down(low) if share else at_least(low)
    start += f"{what} can reach {least} (attained: such data were found)"
    if certificate.no_proof is not None or high is None:
        return f"{start}. No upper bound is proven."
    most = _percent_up(high) if share else at_most(high)
    return f"{start} and cannot exceed {most} ({certificate.evidence}{_vacuous(high, limit)})."


def move_example(rho: float, trained: LoadedRun) -> str:
    """A move of every sample that costs ρ, in the data's own units; empty if there is none to name.

    Along a direction d of unit cost c(d) a move by √(ρ/c(d)) costs ρ: costs of runs are squares of norms.
    """
    data, cost = trained.data, trained.cost
    shape = data.train.inputs.shape[1:]

    def length(direction: torch.Tensor) -> float:
        """√(ρ/c) for one direction, in the units of the inputs; 0 where the cost is infinite."""
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


def grounds(certificate: Certificate) -> list[str]:
    """What the numbers are about, and what is assumed."""
    said = [
        f"These numbers are about {certificate.about['rows']['words']}. They cover every way to move these "
        "samples whose root mean square distance is at most the stated one. That allows more than moving "
        "each sample by at most that distance: a few samples may move far if the others stay."
    ]
    if certificate.labels == "predicted":
        said.append(OWN_LABELS)
    now = None if certificate.no_proof is not None else certificate.bracket(0.0).error_low
    if now is not None and not _are_all_test_samples(certificate.about["rows"]):  # of those it is said above
        said.append(f"On these samples, unmoved, the model errs on {_percent(now)} (attained).")
    if certificate.differing:
        said.append(differing_words(certificate))
    if certificate.population is not None:
        said.append(_for_everyone(certificate))
    if certificate.no_proof is not None:
        said.append(f"Nothing is proven about this model: {certificate.no_proof}")
    elif certificate.assumptions:
        named = "; ".join(certificate.assumptions)
        said.append(f"The upper bounds rest on claims that certus did not prove: {named}.")
    else:
        said.append(
            "The upper bounds hold for this network with its stored weights in exact arithmetic, and rest on "
            "no unproven claim about it. The same network in float32 can differ by its rounding."
        )
    return said


def _are_all_test_samples(rows: dict[str, Any]) -> bool:
    return bool(rows["source"].endswith("@test") and rows["count"] == rows["total"])


def _for_everyone(certificate: Certificate) -> str:
    """What the samples say of data like them, at the largest ρ that was asked for."""
    people, one = certificate.population, certificate.bracket(max(certificate.rhos))
    assert people is not None
    told = (
        "For the population that these samples were drawn from, moved by a root mean square distance of "
        f"{one.distance:.3g}, "
    )
    if one.population_error is not None:
        told += f"the {error_name(certificate.labels)} is at most {_percent_up(one.population_error)}"
    else:
        told += (
            f"the mean loss, clipped at {people.clip:.4g}, is at most {at_most(one.population_loss or 0.0)}"
        )
    evidence = f"({certificate.evidence}, with confidence {people.confidence:g})"
    return (
        f"{told} {evidence}. This assumes that the samples were drawn independently and that nothing was "
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
