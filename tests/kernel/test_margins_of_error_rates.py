"""Rates by class are rounded upwards, by what the theory of their terms asks for and little more."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from certus.kernel.concentration import dkw
from certus.kernel.error_rates import ClassCosts, complement, dual_bound
from certus.kernel.passes import Refused
from certus.kernel.rounding import FEW, SOME, slack
from tests.kernel.margins import near

INFINITE = math.inf


def float64(numbers: object) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


TARGETS = torch.tensor([0, 0, 1, 2, 0])
COSTS = float64(
    [
        [0.0, 0.5, 2.0, INFINITE],
        [0.0, 0.1, 0.3, 7.0],
        [0.2, 0.0, INFINITE, 1.0],
        [INFINITE, 0.4, 0.0, 3.0],
        [0.0, INFINITE, INFINITE, INFINITE],
    ]
)


def costs(weights: Tensor | None = None) -> ClassCosts:
    return ClassCosts(TARGETS, COSTS, weights)


def raised(bound: float, exact: Fraction, share: float) -> bool:
    """Whether a bound exceeds an exact value by a relative share, and not much more."""
    return 0.9 * share <= float(Fraction(bound) / exact - 1) <= 1.1 * share + 2e-16


def test_shares_of_labels_are_rounded_down() -> None:
    exact = [Fraction(3, 5), Fraction(1, 5), Fraction(1, 5)]
    uneven = float64([0.5, 1.0, 2.0, 1.0, 0.5])
    for each, truth in ((costs(), exact), (costs(uneven), [Fraction(2, 5), Fraction(2, 5), Fraction(1, 5)])):
        for share, value in zip(each.shares.tolist(), truth, strict=False):
            assert raised(1 / share, 1 / value, slack(20))
        assert float(each.shares[3]) == 0


def test_costs_of_confusion_are_rounded_up() -> None:
    """1/p of a label, 1/(1 − p) of all others and 1/(m·p) for m labels that occur."""
    recall = costs().matrix("recall", 0)
    assert raised(float(recall[0, 1]), Fraction(5, 3), slack(20) + slack(4) + FEW)
    assert recall.count_nonzero() == 3
    assert float(recall[0, 0]) == 0
    wrong = costs().matrix("fpr", 1)
    assert raised(float(wrong[3, 1]), Fraction(5, 4), slack(20) + slack(4) + FEW)
    assert wrong.count_nonzero() == 3
    assert float(wrong[1, 1]) == 0
    balanced = costs().matrix("balanced_error")
    assert raised(float(balanced[0, 3]), Fraction(5, 9), slack(20) + FEW)
    assert raised(float(balanced[2, 0]), Fraction(5, 3), slack(20) + FEW)
    assert balanced[3].tolist() == [0.0] * 4
    assert balanced.diagonal().tolist() == [0.0] * 4
    for name, label in (("recall", 3), ("recall", 4), ("recall", -1), ("precision", 0)):
        with pytest.raises(Refused):
            costs().matrix(name, label)
    alone = ClassCosts(torch.tensor([0]), float64([[0.0, 1.0]]))
    with pytest.raises(Refused, match="no sample"):
        alone.matrix("fpr", 0)


def test_gains_of_confusions() -> None:
    """max_k C[y, k] − γκ_k with the rounding of both; a prediction that is impossible gains nothing."""
    matrix = torch.arange(16.0).double().reshape(4, 4) - 3
    for gamma in (0.0, 0.5, 3.0):
        gains = costs().gains(matrix, gamma).tolist()
        for row, gain in enumerate(gains):
            numbers = [
                (Fraction(float(matrix[TARGETS[row], k])) - Fraction(gamma) * Fraction(cost), k)
                for k, cost in enumerate(COSTS[row].tolist())
                if cost < INFINITE
            ]
            best, place = max(numbers)
            size = abs(float(matrix[TARGETS[row], place])) + gamma * float(COSTS[row, place])
            assert 0.7 * FEW * size <= float(Fraction(gain) - best) <= 1.3 * FEW * size
    free = costs().gains(matrix, 1e308)
    assert free.tolist() == near([-3.0, -3.0, 2.0, 7.0, -3.0], rel=1e-14)
    wrong = (torch.full((4, 4), 2e100, dtype=torch.float64), torch.eye(3).double(), matrix * math.nan)
    for entries, gamma in (*((each, 1.0) for each in wrong), (matrix, -1.0), (matrix, INFINITE)):
        with pytest.raises(Refused):
            costs().gains(entries, gamma)
    one = torch.zeros(4, 4).double()
    one[0, 0] = 2e100
    with pytest.raises(Refused):
        costs().gains(one, 1.0)
    with pytest.raises(Refused):
        ClassCosts(TARGETS, -COSTS).gains(matrix, 1.0)


def test_rates_of_samples() -> None:
    matrix = costs().matrix("recall", 0)
    for rho in (0.0, 0.3):
        rate = costs().worst_cost(matrix, rho, 0.5)
        exact = 0.5 * rho + float(costs().gains(matrix, 0.5).mean())
        assert 0.9 * 2 * SOME <= rate / exact - 1 <= 2.1 * SOME
    assert costs().worst_rate("recall", 0, 9.0, 1.0) == 1
    for rho in (-1.0, INFINITE, math.nan):
        with pytest.raises(Refused, match="rho"):
            costs().worst_cost(matrix, rho, 1.0)


@pytest.mark.parametrize(
    ("name", "label", "count"), [("recall", 0, 1), ("fpr", 1, 1), ("balanced_error", 0, 3)]
)
def test_rates_of_a_population(name: str, label: int, count: int) -> None:
    """γρ + (1/m) Σ_g (E (1 − γ·m·p̲·κ)₊ + the width of DKW), each at most 1, for m groups."""
    repeated = ClassCosts(TARGETS.repeat(400), COSTS.repeat(400, 1))
    failure, rho, gamma = 0.2, 0.01, 2.0
    each = repeated.failure_share(failure)
    assert each == failure / 16
    assert ClassCosts(TARGETS[:2], COSTS[:2, :2]).failure_share(failure) == failure / 4
    rows = {"recall": [[0, 1, 4]], "fpr": [[0, 1, 3, 4]], "balanced_error": [[0, 1, 4], [2], [3]]}[name]
    claims = [0.9 * len(group) / 5 for group in rows]
    total = gamma * rho
    for group, claim in zip(rows, claims, strict=True):
        paid = COSTS[group]
        paid = paid[:, label] if name == "fpr" else paid.where(paid > 0, INFINITE).amin(1)
        gains = (1 - gamma * count * claim * paid).clamp(0, 1)
        total += (float(gains.mean()) + dkw(400 * len(group), each)) / count
    assert total < 1
    rate = repeated.population_rate(name, label, rho, gamma, claims, failure)
    assert 0.9 * SOME <= rate / total - 1 <= 3 * SOME
    assert repeated.population_rate(name, label, 0.0, gamma, claims, failure) < rate
    assert repeated.population_rate(name, label, 9.0, gamma, claims, failure) == 1
    for changed in (
        {"rho": -1.0},
        {"rho": INFINITE},
        {"gamma": -1.0},
        {"claims": claims[1:]},
        {"claims": [1.0] * count},
    ):
        options = {"rho": rho, "gamma": gamma, "claims": claims, "failure": failure} | changed
        with pytest.raises(Refused):
            repeated.population_rate(name, label, **options)  # type: ignore[arg-type]
    with pytest.raises(Refused):
        ClassCosts(TARGETS, COSTS, torch.ones(5).double()).population_rate(
            name, label, rho, gamma, claims, 0.2
        )


def test_parts_that_count_alike_are_joined() -> None:
    first, second = ClassCosts(TARGETS[:2], COSTS[:2]), ClassCosts(TARGETS[2:], COSTS[2:])
    whole = ClassCosts.joined([first, second])
    assert whole is not None
    assert torch.equal(whole.targets, TARGETS)
    assert torch.equal(whole.costs, COSTS)
    assert whole.weights is None
    assert ClassCosts.joined([first, None]) is None
    assert ClassCosts.joined([first, ClassCosts(TARGETS[2:], COSTS[2:], torch.ones(3))]) is None
    assert ClassCosts.joined([first, ClassCosts(TARGETS[2:], COSTS[2:, :3])]) is None
    of = ClassCosts.of(TARGETS, float64([0.1, 0.2, 0.3, 0.4, 0.5]), 4, COSTS, None)
    assert of.costs[1].tolist() == [0.0, 0.2, 0.3, 7.0]
    assert ClassCosts.of(TARGETS, float64([0.1, 0.2, 0.3, 0.4, 0.5]), 4, None, None).costs[2].tolist() == [
        0.3,
        0.0,
        0.3,
        0.3,
    ]


def test_a_complement_is_rounded_down() -> None:
    assert complement(0.0) == 1
    assert complement(2.0) == complement(1.0) == 0
    assert 0.9 * slack(0) <= 0.75 - complement(0.25) <= 1.1 * slack(0)


def test_the_least_of_several_dual_bounds() -> None:
    assert dual_bound({1.0: 0.5, 4.0: 0.1}, 0.01) == near(0.14, rel=1e-11)
    assert dual_bound({1.0: 0.5, 4.0: 0.1}, 1.0) == near(1.5, rel=1e-11)
    assert dual_bound({}, 1.0) == INFINITE
    for mean in (0.5, -0.5):
        exact = Fraction(0.25) * Fraction(0.125) + Fraction(mean)
        margin = SOME * (0.25 * 0.125 + 0.5)
        assert 0.95 * margin <= float(Fraction(dual_bound({0.25: mean}, 0.125)) - exact) <= 1.05 * margin
    with pytest.raises(Refused, match="gamma"):
        dual_bound({1.0: 0.5, -1.0: 0.5}, 1.0)
