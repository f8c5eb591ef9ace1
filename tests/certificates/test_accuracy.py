"""Certified accuracy: counted by hand, refused for regressions, told again by a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import beta, binom
from torch import nn

from certus import certify
from certus.certificates import Certificate
from certus.certificates.confidence import clopper_pearson, dkw
from certus.certificates.files import as_json
from certus.costs import WeightedL2
from certus.errors import ArgumentError, ContradictionError, UnsupportedError
from certus.losses import SquaredError
from tests.certificates.problems import network, samples

QUICK: dict[str, Any] = {"local_radii": 0, "gamma_rounds": 0, "attack_steps": 3}


def linear() -> nn.Sequential:
    """Two classes, parted by the line x₀ = 0, at unit slope: the distance of an error is |x₀|."""
    layer = nn.Linear(2, 2).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.5, 0.0], [-0.5, 0.0]]))
        layer.bias.zero_()
    return nn.Sequential(layer)


POINTS = torch.tensor([[0.1, 5.0], [0.4, 0.0], [-0.7, 1.0], [1.5, 0.0], [-0.2, 0.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1, 0, 0])  # the last is wrong; the others are at 0.1, 0.4, 0.7 and 1.5


@pytest.mark.parametrize(
    ("epsilon", "share"), [(0.0, 0.8), (0.09, 0.8), (0.11, 0.6), (0.5, 0.4), (0.71, 0.2), (2.0, 0.0)]
)
def test_it_is_the_share_that_is_farther_than_epsilon(epsilon: float, share: float) -> None:
    found = certify(linear(), (POINTS, LABELS), epsilon=[0.3], **QUICK)
    assert found.certified_accuracy(epsilon) == share
    assert found.attacked_accuracy(epsilon) == share


def test_the_distance_is_that_of_the_cost() -> None:
    """With a weight of 4 every distance along the first axis is doubled."""
    cost = WeightedL2(torch.tensor([4.0, 1.0]))
    found = certify(linear(), (POINTS, LABELS), epsilon=0.3, cost=cost, **QUICK)
    assert [found.certified_accuracy(one) for one in (0.19, 0.21, 0.79, 0.81, 1.39, 1.41)] == [
        *(0.8, 0.6, 0.6, 0.4, 0.4, 0.2)
    ]


def test_rho_follows_epsilon_if_it_is_left_out() -> None:
    found = certify(linear(), (POINTS, LABELS), epsilon=[0.3, 0.5], **QUICK)
    assert found.rhos == pytest.approx((0.09, 0.25))
    assert [one.epsilon for one in found.accuracies()] == [0.3, 0.5]
    assert certify(linear(), (POINTS, LABELS), rho=0.1, **QUICK).accuracies() == []


def test_attacks_leave_at_least_what_is_certified() -> None:
    found = certify(network("logcosh", 0), samples(0, 40), rho=0.1, **QUICK)
    for epsilon in torch.linspace(0, 2, 41).tolist():
        assert found.certified_accuracy(epsilon) <= found.attacked_accuracy(epsilon)
    assert found.certified_accuracy(0.02) > 0


def test_a_certificate_from_a_file_says_the_same(tmp_path: Path) -> None:
    found = certify(network("tanh", 0), samples(0, 40), epsilon=[0.05, 0.2], confidence=0.9, **QUICK)
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(as_json(found)))
    again = Certificate.load(path)
    assert again.accuracies() == found.accuracies()
    assert again.accuracy_bracket(0.1) == found.accuracy_bracket(0.1)
    content = json.loads(path.read_text())
    assert content["accuracies"][0]["certified"] == found.certified_accuracy(0.05)


def test_a_regression_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 1)).double()
    data, criterion = (POINTS, POINTS[:, :1]), SquaredError()
    with pytest.raises(ArgumentError, match=r"`epsilon` must be left out for a regression.*got 0\.3\."):
        certify(model, data, rho=0.1, epsilon=0.3, criterion=criterion, **QUICK)
    found = certify(model, data, rho=0.1, criterion=criterion, **QUICK)
    with pytest.raises(UnsupportedError, match="A regression has no certified accuracy"):
        found.certified_accuracy(0.3)


def test_misuse_is_named() -> None:
    with pytest.raises(ArgumentError, match="`rho` must be given, or `epsilon`; got None"):
        certify(linear(), (POINTS, LABELS), **QUICK)
    for wrong in (-0.1, float("inf"), float("nan")):
        with pytest.raises(ArgumentError, match="`epsilon` must be finite and not negative"):
            certify(linear(), (POINTS, LABELS), epsilon=wrong, **QUICK)
    found = certify(linear(), (POINTS, LABELS), rho=0.1, **QUICK)
    with pytest.raises(ArgumentError, match="`epsilon` must be finite and not negative; got -1"):
        found.certified_accuracy(-1)


def test_the_population_is_bounded_by_both_inequalities() -> None:
    found = certify(network("tanh", 0), samples(0, 200), epsilon=0.05, confidence=0.9, **QUICK)
    one = found.accuracy_bracket(0.05)
    assert one.population_certified == pytest.approx(one.certified - dkw(200, 0.1 / 5), abs=1e-9)
    assert found.population is not None
    assert found.population.attained_error_cost is not None
    left = float((found.population.attained_error_cost > 0.05**2).double().mean())
    assert one.population_attacked == pytest.approx(min(1, left + dkw(200, 0.1 / 10)), abs=1e-9)
    successes = round(200 * one.certified)
    assert one.fixed_certified == pytest.approx(beta.ppf(0.05, successes, 201 - successes), abs=1e-6)
    errors = 200 - round(200 * left)
    assert one.fixed_attacked == pytest.approx(1 - beta.ppf(0.05, errors, 201 - errors), abs=1e-6)
    assert one.population_certified is not None
    assert one.fixed_certified is not None
    assert one.population_certified < one.fixed_certified < one.certified


@pytest.mark.parametrize(("count", "failure"), [(1, 0.05), (20, 0.05), (1000, 0.01), (10_000, 0.025)])
def test_clopper_and_pearson_are_those_of_scipy(count: int, failure: float) -> None:
    """And never above, where rounding decides: the tail at the bound is at most the failure."""
    for successes in {1, count // 3 + 1, count - 1, count} - {0}:
        found = clopper_pearson(successes, count, failure)
        assert found == pytest.approx(beta.ppf(failure, successes, count - successes + 1), rel=1e-6)
        assert binom.sf(successes - 1, count, found) <= failure * (1 + 1e-9)
    assert clopper_pearson(0, count, failure) == 0.0


def test_more_certified_than_attacks_left_raises() -> None:
    found = certify(linear(), (POINTS, LABELS), epsilon=0.3, confidence=0.9, **QUICK)
    assert found.population is not None
    upper = replace(found.population.upper, error_margin=0.0)
    nothing = replace(
        found.population, attained_error_cost=torch.zeros(5, dtype=torch.float64), error_margin_low=0.0
    )
    broken = replace(found, population=nothing, statement=replace(found.statement, population=upper))
    with pytest.raises(ContradictionError, match=r"within epsilon = 0\.3 the population's accuracy"):
        broken.accuracy_bracket(0.3)
