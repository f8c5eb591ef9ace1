"""Rates by class of certificates: brackets, moved data that attain them, files, and refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import certus
from certus.certificates import Certificate
from certus.certificates.class_rates import rates_of
from certus.certificates.files import json_bytes, read_content
from certus.costs import LabelCost
from certus.data import Samples
from certus.errors import ArgumentError, CertusError, UnsupportedError
from certus.storage.write import add_checksum
from tests.certificates.problems import network, samples

RHOS = (0.0, 0.01, 0.1)


@cache
def certified(classes: int = 3, **options: Any) -> Certificate:
    torch.manual_seed(0)
    model, data = network("tanh", 1, classes), samples(2, 40, classes)
    quick: dict[str, Any] = {
        "local_radii": 2,
        "gammas": (0.3, 1.0, 3.0),
        "gamma_rounds": 0,
        "attack_steps": 5,
    }
    return certus.certify(model, data, rho=RHOS, progress=False, **(quick | options))


def predictions(classes: int, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        outputs: Tensor = network("tanh", 1, classes)(inputs)
    return outputs.argmax(1)


@pytest.mark.parametrize("classes", [2, 3])
def test_unmoved_rates_are_those_of_the_confusion_matrix(classes: int) -> None:
    certificate, (inputs, targets) = certified(classes), samples(2, 40, classes)
    wrong = predictions(classes, inputs) != targets
    recalls = []
    for label in range(classes):
        own = targets == label
        recalls.append(float((~wrong)[own].double().mean()))
        recall, fpr = certificate.recall(label, 0.0), certificate.false_positive_rate(label, 0.0)
        assert recall.low == pytest.approx(recalls[-1], abs=1e-9) == recall.high
        positives = float((predictions(classes, inputs)[~own] == label).double().mean())
        # A row that is wrong for another reason may count as this label, too.
        assert fpr.low == pytest.approx(positives, abs=1e-9)
        assert fpr.high == pytest.approx(positives, abs=1e-9) if classes == 2 else fpr.high >= positives
    assert certificate.balanced_error(0.0).high == pytest.approx(1 - np.mean(recalls), abs=1e-9)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("rho", RHOS[1:])
def test_lower_sides_are_attained_by_real_moves(classes: int, rho: float) -> None:
    """The nearest errors of the certificate, evaluated and sorted by a loop of the test's own."""
    certificate, (inputs, targets) = certified(classes), samples(2, 40, classes)
    assert certificate.source is not None
    costs, errors = certificate.source.nearest_errors([push.rho for push in certificate.attacks])
    moved = predictions(classes, errors.inputs)
    start = predictions(classes, inputs)
    squares = ((errors.inputs - inputs) ** 2).sum(1)
    for label in range(classes):
        own = targets == label
        left, lost = rho * len(inputs), 0.0
        for cost, changed in sorted(
            zip(squares[own].tolist(), (moved != targets)[own].tolist(), strict=True)
        ):
            share = 0.0 if not changed else 1.0 if cost <= left else left / cost
            left, lost = left - cost * share, lost + share
        recall = certificate.recall(label, rho)
        assert recall.low <= recall.high
        assert recall.high == pytest.approx(1 - lost / int(own.sum()), abs=1e-6)
        fpr = certificate.false_positive_rate(label, rho)
        left, gained = rho * len(inputs), 0.0
        reaching = (moved == label) & ~own
        for cost in sorted(squares[reaching].tolist()):
            share = 1.0 if cost <= left else left / cost
            left, gained = left - cost * share, gained + share
        assert fpr.low <= fpr.high
        assert fpr.low == pytest.approx(gained / int((~own).sum()), abs=1e-6)
    assert bool(((start != targets) <= (costs == 0)).all())


@pytest.mark.parametrize("classes", [2, 3])
def test_a_matrix_of_ones_is_the_error_rate(classes: int) -> None:
    certificate = certified(classes)
    ones = 1 - np.eye(classes)
    for rho in RHOS:
        bracket = certificate.expected_cost(ones, rho)
        assert bracket.high == pytest.approx(certificate.error_bound(rho), abs=1e-9)
        assert bracket.low == pytest.approx(certificate.error_lower(rho), abs=1e-9)
        tripled = certificate.expected_cost(3 * ones - 2, rho)
        assert tripled.high == pytest.approx(3 * bracket.high - 2, abs=1e-6)
        assert tripled.low == pytest.approx(3 * bracket.low - 2, abs=1e-6)


def test_dear_classes_are_attacked_first() -> None:
    certificate = certified(2)
    dear = certificate.expected_cost([[0, 1], [9, 0]], 0.01)
    even = certificate.expected_cost([[0, 1], [1, 0]], 0.01)
    assert even.low < dear.low <= dear.high
    assert dear.high <= 9 * even.high


def test_weighted_samples_have_weighted_rates() -> None:
    """A weight of two is the same as the row twice."""
    inputs, targets = samples(2, 12, 2)
    weights = torch.tensor([1.0, 2.0] * 6)
    twice = torch.repeat_interleave(torch.arange(12), weights.long())
    options: dict[str, Any] = {
        "rho": (0.02,),
        "local_radii": 0,
        "gammas": (1.0,),
        "gamma_rounds": 0,
        "progress": False,
    }
    model = network("tanh", 1, 2)
    weighted = certus.certify(model, Samples(inputs, targets, weights / weights.mean()), **options)
    repeated = certus.certify(model, (inputs[twice], targets[twice]), **options)
    for one, other in zip(rates_of(weighted), rates_of(repeated), strict=True):
        assert (one.low, one.high) == pytest.approx((other.low, other.high), abs=1e-6)


def test_rates_of_the_population_are_weaker() -> None:
    certificate = certified(2, confidence=0.9)
    for rho in RHOS:
        recall, fpr = certificate.recall(0, rho), certificate.false_positive_rate(0, rho)
        assert recall.population is not None
        assert fpr.population is not None
        assert 0 <= recall.population < recall.low or recall.low == 0 == recall.population
        assert fpr.high < fpr.population <= 1
        assert (certificate.balanced_error(rho).population or 0.0) > certificate.balanced_error(rho).high
    assert certified(2).recall(0, 0.1).population is None


@pytest.mark.parametrize("classes", [2, 3])
def test_files_answer_as_the_certificate_did(classes: int, tmp_path: Path) -> None:
    certificate = certified(classes, confidence=0.8)
    certificate.save(tmp_path / "certificate.json", include_data=True)
    read = Certificate.load(tmp_path / "certificate.json")
    assert rates_of(read) == rates_of(certificate)
    for rho in (0.003, 0.5):
        assert read.recall(1, rho) == certificate.recall(1, rho)
        assert read.expected_cost(1 - np.eye(classes), rho) == certificate.expected_cost(
            1 - np.eye(classes), rho
        )
    verified = read.verify()
    for one, other in zip(rates_of(verified), rates_of(certificate), strict=True):
        assert one.proven == pytest.approx(other.proven, abs=1e-8)


@pytest.mark.parametrize("entry", ["low", "targets", "class_costs", "attained_label"])
def test_forged_rates_are_refused(entry: str, tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    certified(3).save(path, include_data=True)
    content = read_content(path)
    if entry == "low":
        line = next(each for each in content["rates"] if each["name"] == "recall" and each["rho"] > 0)
        line["low"] += 0.05
    elif entry == "targets":
        content["targets"][0] = (content["targets"][0] + 1) % 3
    elif entry == "class_costs":
        content["class_costs"][0] = [None] * 3
    else:
        content["attained_label"] = [label + 3 for label in content["attained_label"]]
    path.write_bytes(json_bytes(add_checksum(content)))
    with pytest.raises(CertusError):
        Certificate.load(path).verify()


def test_an_earlier_file_answers_without_rates(tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    certified(3).save(path)
    content = read_content(path)
    for name in ("targets", "class_costs", "attained_label", "rates"):
        del content[name]
    path.write_bytes(json_bytes(add_checksum(content)))
    read = Certificate.load(path)
    assert read.error_bound(0.1) == certified(3).error_bound(0.1)
    with pytest.raises(UnsupportedError, match="certify again"):
        read.recall(0, 0.1)


def test_labels_that_may_change_have_no_rates() -> None:
    inputs, targets = samples(2, 10)
    options: dict[str, Any] = {
        "rho": 0.1,
        "local_radii": 0,
        "gammas": (1.0,),
        "gamma_rounds": 0,
        "progress": False,
    }
    priced = certus.certify(network("tanh", 1), (inputs, targets), label_cost=LabelCost(0.5, 3), **options)
    with pytest.raises(UnsupportedError, match="without a label cost"):
        priced.recall(0, 0.1)
    own = certus.certify(network("tanh", 1), (inputs, None), **options)
    with pytest.raises(UnsupportedError, match="given labels"):
        own.balanced_error(0.1)
    assert rates_of(own) == []
    numbers = certus.certify(network("tanh", 1, 1), (inputs, targets[:, None].double()), **options)
    with pytest.raises(UnsupportedError, match="regression"):
        numbers.recall(0, 0.1)


def test_labels_have_names() -> None:
    certificate = replace(certified(2), about={"class_names": ["no", "yes"]})
    assert certificate.recall("yes", 0.01) == certificate.recall(1, 0.01)
    assert certificate.recall("1", 0.01) == certificate.recall(1, 0.01)
    for label in ("maybe", "2", -1, 2, True):
        with pytest.raises(ArgumentError, match="no, yes"):
            certificate.recall(label, 0.01)
    alone = certus.certify(
        network("tanh", 1, 2),
        (samples(2, 4)[0], torch.zeros(4).long()),
        rho=0.1,
        local_radii=0,
        progress=False,
    )
    assert alone.false_positive_rate(1, 0.0).high <= 1
    with pytest.raises(UnsupportedError, match="no row"):
        alone.recall(1, 0.1)


@pytest.mark.parametrize(
    "matrix", [[[0, 1]], [[0, 1, 2]] * 3, [[0, math.inf], [1, 0]], "costs", [[1, 0], [0, 0]], None]
)
def test_matrices_that_are_none_are_refused(matrix: Any) -> None:
    with pytest.raises(ArgumentError, match=r"rows of 2 finite|on its diagonal"):
        certified(2).expected_cost(matrix, 0.1)


def test_the_best_constant_answer_decides_what_is_vacuous() -> None:
    """Of 40 rows of two labels in unequal shares: its error and cross-entropy, with and without weights."""
    certificate, (_, targets) = certified(2), samples(2, 40, 2)
    share = float((targets == 1).double().mean())
    answer = certificate.constant_answer
    assert answer is not None
    assert answer.label == int(share > 0.5)
    assert certificate.vacuous_error == pytest.approx(min(share, 1 - share))
    entropy = -(share * math.log(share) + (1 - share) * math.log(1 - share))
    assert certificate.vacuous_loss == pytest.approx(entropy)
    weighted = certified(2, class_weights=(1.0, 5.0))
    odds = np.linspace(0.001, 0.999, 999)
    least = (-(1 - share) * np.log(1 - odds) - 5 * share * np.log(odds)).min()
    assert weighted.vacuous_loss == pytest.approx(least, rel=1e-4)
