"""Rates by class against linear programs, exact fractions, and draws from known distributions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.stats import beta
from torch import Tensor

from certus.certificates.class_rates import _group_gamma, _matrix_gamma, _population_proposal
from certus.kernel.error_rates import ClassCosts, complement
from certus.kernel.passes import Refused

Floats = NDArray[np.float64]
RHOS = (0.0, 0.01, 0.2, 1e5)


def drawn(seed: int, classes: int, count: int = 20, *, weighted: bool = False) -> ClassCosts:
    """Costs of predictions, of which some are 0 and some impossible; every label occurs."""
    rng = np.random.default_rng(seed)
    targets = np.concatenate([np.arange(classes), rng.choice(classes, count - classes, p=_skewed(classes))])
    drawn_costs = rng.exponential(rng.uniform(0.05, 3), (count, classes))
    drawn_costs[rng.random(drawn_costs.shape) < 0.15] = 0.0
    drawn_costs[rng.random(drawn_costs.shape) < 0.25] = math.inf
    weights = torch.from_numpy(rng.exponential(1.0, count)) if weighted else None
    weights = None if weights is None else weights / weights.mean()
    tensor = torch.from_numpy(drawn_costs)
    errors = tensor[:, 0]
    if classes == 2:
        return ClassCosts.of(torch.from_numpy(targets), errors, 2, None, weights)
    least = tensor.scatter(1, torch.from_numpy(targets)[:, None], math.inf).amin(1)
    return ClassCosts.of(torch.from_numpy(targets), least, classes, tensor, weights)


def _skewed(classes: int) -> Floats:
    shares = 0.5 ** np.arange(classes)
    return np.asarray(shares / shares.sum())


def program(costs: ClassCosts, matrix: Floats, rho: float) -> float:
    """max Σ mᵢ xᵢₖ C[yᵢ, k] over shares xᵢ of each sample by prediction, of cost at most ρ in all."""
    count, classes = costs.costs.shape
    masses = np.full(count, 1 / count) if costs.weights is None else costs.weights.numpy() / count
    paid, possible = costs.costs.numpy(), torch.isfinite(costs.costs).numpy()
    gains = matrix[costs.targets.numpy()] * masses[:, None]
    spent = np.where(possible, paid, 0.0) * masses[:, None]
    rows = np.kron(np.eye(count), np.ones(classes))
    bounds = [(0, 1 if each else 0) for each in possible.flatten()]
    solved = linprog(
        -gains.flatten(),
        A_ub=spent.flatten()[None],
        b_ub=[rho],
        A_eq=rows,
        b_eq=np.ones(count),
        bounds=bounds,
    )
    return float(-solved.fun)


def definition(costs: ClassCosts, name: str, label: int) -> Floats:
    """The matrix of a rate, from the definition of that rate and plain sums of masses."""
    classes = costs.classes
    masses = torch.ones(len(costs.targets)).double() if costs.weights is None else costs.weights
    share = [float(masses[costs.targets == each].sum() / masses.sum()) for each in range(classes)]
    matrix = np.zeros((classes, classes))
    for true in range(classes):
        for predicted in range(classes):
            if true == predicted:
                continue
            if name == "recall" and true == label:
                matrix[true, predicted] = 1 / share[true]
            if name == "fpr" and predicted == label:
                matrix[true, predicted] = 1 / (1 - share[label])
            if name == "balanced_error":
                matrix[true, predicted] = 1 / (classes * share[true])
    return matrix


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("seed", range(2))
def test_rates_against_a_linear_program(seed: int, classes: int, weighted: bool) -> None:
    """Exact at the proposed γ, and valid at any."""
    costs, rng = drawn(seed, classes, weighted=weighted), np.random.default_rng(seed)
    rates = [("balanced_error", 0), ("recall", 0), ("recall", classes - 1), ("fpr", 0), ("fpr", 1)]
    for name, label in rates:
        groups = costs.groups(name, label)
        for rho in RHOS:
            exact = program(costs, definition(costs, name, label), rho)
            gamma = _group_gamma(costs, name, label, groups, rho)
            bound = costs.worst_rate(name, label, rho, gamma)
            assert exact - 1e-12 <= bound <= exact * (1 + 1e-8) + 1e-8
            for other in rng.exponential([0.01, 1.0, 100.0]):
                assert costs.worst_rate(name, label, rho, float(other)) >= exact - 1e-12
            if name == "recall":
                least = complement(costs.worst_rate("recall", label, rho, gamma))
                assert 1 - bound - 1e-14 <= least <= 1 - exact + 1e-12


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_costs_of_confusions_against_a_linear_program(seed: int, classes: int) -> None:
    """Gains and losses, with a cost of being right and differences between errors."""
    costs, rng = drawn(seed, classes, weighted=seed % 2 == 1), np.random.default_rng(100 + seed)
    matrix = rng.exponential(3.0, (classes, classes)) + np.where(np.eye(classes), -4.0, 0.0)
    matrix = np.maximum(matrix, matrix.diagonal()[:, None])
    for rho in RHOS:
        exact = program(costs, matrix, rho)
        gamma = _matrix_gamma(costs, torch.from_numpy(matrix), rho)
        bound = costs.worst_cost(torch.from_numpy(matrix), rho, gamma)
        assert exact - 1e-11 <= bound <= exact + 1e-7 * (1 + abs(exact))
        for other in (0.0, *rng.exponential([0.01, 1.0, 100.0])):
            assert costs.worst_cost(torch.from_numpy(matrix), rho, float(other)) >= exact - 1e-11


def test_a_price_of_the_right_answer_may_exceed_that_of_errors() -> None:
    """The theorem needs no order of the prices: then the adversary moves right answers away, too."""
    costs = ClassCosts.of(torch.tensor([0, 0]), torch.tensor([1.0, math.inf]).double(), 2, None, None)
    matrix = torch.tensor([[0.0, 5.0], [2.0, 1.0]]).double()
    assert costs.worst_cost(matrix, 0.25, 5.0) == pytest.approx(0.25 * 5)
    assert costs.worst_cost(matrix, 0.5, 5.0) == pytest.approx(2.5)


def test_rounding_is_outwards() -> None:
    """Against fractions of the very numbers of float64, at many γ."""
    rng = np.random.default_rng(5)
    targets = torch.tensor([0, 1, 2, 1, 2, 2, 0])
    table = torch.from_numpy(rng.exponential(1.0, (7, 3)))
    costs = ClassCosts.of(targets, torch.zeros(7).double(), 3, table, None)
    matrix = torch.from_numpy(rng.exponential(1.0, (3, 3)) * 1e3)
    for gamma in rng.exponential([0.1, 1.0, 700.0, 3e4]):
        rows = []
        for label, paid in zip(targets.tolist(), costs.costs.tolist(), strict=True):
            prices = matrix[label].tolist()
            rows.append(
                max(Fraction(c) - Fraction(gamma) * Fraction(k) for c, k in zip(prices, paid, strict=True))
            )
        for gain, truth in zip(costs.gains(matrix, float(gamma)).tolist(), rows, strict=True):
            assert truth <= Fraction(gain) <= truth + Fraction(1, 10**9)
        total = Fraction(gamma) * Fraction(0.37) + sum(rows) / len(rows)
        assert total <= Fraction(costs.worst_cost(matrix, 0.37, float(gamma))) <= total + Fraction(1, 10**7)
    thirds = [Fraction(2, 7), Fraction(2, 7), Fraction(3, 7)]
    for label, share in enumerate(thirds):
        other = (label + 1) % 3
        assert share >= Fraction(float(costs.shares[label])) >= share * (1 - Fraction(1, 10**12))
        assert (
            1 / share
            <= Fraction(float(costs.matrix("recall", label)[label, other]))
            <= 1 / share + Fraction(1, 10**10)
        )
        assert 1 / (1 - share) <= Fraction(float(costs.matrix("fpr", label)[other, label]))
        assert 1 / (3 * share) <= Fraction(float(costs.matrix("balanced_error")[label, other]))
    assert complement(0.0) == 1.0
    assert complement(1.0) == 0.0
    for rate in (1e-30, 0.1, 1 / 3):
        assert Fraction(complement(rate)) < 1 - Fraction(rate)


def test_overflow_proves_nothing_smaller() -> None:
    errors = torch.tensor([1e200, 1e-200], dtype=torch.float64)
    costs = ClassCosts.of(torch.tensor([0, 1]), errors, 2, None, None)
    matrix = torch.tensor([[0.0, 7.0], [3.0, 0.0]]).double()
    assert costs.gains(matrix, 1e300).tolist() == [0.0, 0.0]
    assert costs.gains(matrix, 1e-300)[0] == pytest.approx(7.0)
    assert costs.gains(matrix, 0.0).tolist() == pytest.approx([7.0, 3.0])


LAW = {0: (0.7, [0.05, 0.6, math.inf]), 1: (0.3, [0.0, 0.2, 1.5])}
"""Label → its share, and three equally likely costs of an error."""


def _true_rate(label: int, rho: float) -> float:
    """The worst error rate of a label's rows, all of ρ spent on them."""
    share, costs = LAW[label]
    return _knapsack([(1 / 3, cost) for cost in costs], rho / share)


def _knapsack(parts: list[tuple[float, float]], rho: float) -> float:
    rate = 0.0
    for mass, cost in sorted(parts, key=lambda part: part[1]):
        if cost == math.inf:
            break
        paid = mass if cost == 0 else min(mass, rho / cost)
        rate, rho = rate + paid, rho - paid * cost
    return rate


def _sample(rng: np.random.Generator, count: int) -> ClassCosts:
    targets = (rng.random(count) < LAW[1][0]).astype(np.int64)
    table = np.array([LAW[0][1], LAW[1][1]])
    errors = torch.from_numpy(table[targets, rng.integers(3, size=count)])
    return ClassCosts.of(torch.from_numpy(targets), errors, 2, None, None)


class _Asked:
    """As much of a certificate as proposals need."""

    def __init__(self, confidence: float) -> None:
        self.population = self
        self.confidence = confidence


def _bound(costs: ClassCosts, name: str, label: int, rho: float, confidence: float) -> float:
    groups = costs.groups(name, label)
    claims, gamma = _population_proposal(_Asked(confidence), costs, name, label, groups, rho)  # type: ignore[arg-type]
    return costs.population_rate(name, label, rho, gamma, claims, 1 - confidence)


@pytest.mark.parametrize("rho", [0.02, 0.2])
def test_rates_of_a_population_hold_as_often_as_they_say(rho: float) -> None:
    """All rates together: of 120 samples of a known law at most the share δ may fail, and hardly any does."""
    rng, failures, gaps = np.random.default_rng(7), 0, []
    rates = {label: _true_rate(label, rho) for label in LAW}
    parts = [(1 / 6, cost * 2 * share) for share, costs in LAW.values() for cost in costs]
    balanced = _knapsack(parts, rho)
    for _ in range(120):
        costs = _sample(rng, 150)
        bounds = {label: _bound(costs, "recall", label, rho, 0.8) for label in LAW}
        other = _bound(costs, "balanced_error", 0, rho, 0.8)
        failures += any(bounds[label] < rates[label] for label in LAW) or other < balanced
        gaps += [bounds[label] - rates[label] for label in LAW]
    assert failures / 120 <= 0.2
    assert min(gaps) > -0.2
    large = _sample(rng, 40_000)
    for label in LAW:
        assert rates[label] <= _bound(large, "recall", label, rho, 0.95) <= rates[label] + 0.04
        assert _bound(large, "fpr", 1 - label, rho, 0.95) == pytest.approx(
            _bound(large, "recall", label, rho, 0.95)
        )
    assert balanced <= _bound(large, "balanced_error", 0, rho, 0.95) <= balanced + 0.04


def test_a_population_by_the_formula() -> None:
    """The printed formula in plain NumPy, at the same γ: no smaller, and by no more than rounding."""
    costs, rho, gamma, delta = drawn(3, 3, 3000), 0.05, 2.0, 0.1
    count, part = len(costs.targets), delta / 12
    for name, label in (("recall", 1), ("fpr", 2), ("balanced_error", 0)):
        groups = costs.groups(name, label)
        total, claims = 0.0, []
        for rows in groups:
            hits = int(rows.sum())
            claims.append(float(beta.ppf(part, hits, count - hits + 1)) * (1 - 1e-9))
            paid = costs.costs[rows].numpy().copy()
            paid[np.arange(hits), costs.targets[rows].numpy()] = math.inf
            paid = paid[:, label] if name == "fpr" else paid.min(1)
            gains = np.where(
                np.isfinite(paid),
                1 - gamma * len(groups) * claims[-1] * np.where(np.isfinite(paid), paid, 0),
                0,
            )
            total += min(1.0, gains.clip(0).mean() + math.sqrt(math.log(1 / part) / (2 * hits))) / len(groups)
        bound = costs.population_rate(name, label, rho, gamma, claims, delta)
        assert total + gamma * rho <= bound <= total + gamma * rho + 1e-9
        with pytest.raises(Refused):
            costs.population_rate(name, label, rho, gamma, [claim * 1.2 for claim in claims], delta)
        assert costs.population_rate(name, label, rho, 0.0, [0.0] * len(groups), delta) <= 1.0


def test_what_has_no_theorem_is_refused() -> None:
    costs = drawn(0, 3)
    matrix = torch.ones(3, 3).double()
    absent = ClassCosts.of(torch.tensor([0, 0]), torch.ones(2).double(), 2, None, None)
    weighted = drawn(0, 3, weighted=True)
    for refused in (
        lambda: costs.worst_cost(matrix, -0.1, 1.0),
        lambda: costs.worst_cost(matrix, math.inf, 1.0),
        lambda: costs.worst_cost(matrix, 0.1, -1.0),
        lambda: costs.worst_cost(matrix, 0.1, math.nan),
        lambda: costs.worst_cost(matrix[:2], 0.1, 1.0),
        lambda: costs.worst_cost(matrix * math.inf, 0.1, 1.0),
        lambda: costs.worst_rate("precision", 0, 0.1, 1.0),
        lambda: costs.worst_rate("recall", 3, 0.1, 1.0),
        lambda: costs.worst_rate("recall", -1, 0.1, 1.0),
        lambda: absent.worst_rate("recall", 1, 0.1, 1.0),
        lambda: absent.worst_rate("fpr", 0, 0.1, 1.0),
        lambda: ClassCosts(costs.targets, -costs.costs).gains(matrix, 1.0),
        lambda: weighted.population_rate("recall", 0, 0.1, 1.0, [0.1], 0.1),
        lambda: costs.population_rate("recall", 0, 0.1, 1.0, [], 0.1),
        lambda: costs.population_rate("recall", 0, -0.1, 1.0, [0.0], 0.1),
        lambda: costs.population_rate("recall", 0, 0.1, -1.0, [0.0], 0.1),
    ):
        with pytest.raises(Refused):
            refused()
    assert absent.worst_rate("fpr", 1, 0.0, 1e9) == 0.0
    assert absent.groups("balanced_error", 0)[0].all()


def test_what_may_be_predicted_costs_nothing_only_for_the_label() -> None:
    errors = torch.tensor([0.5, 2.0]).double()
    two = ClassCosts.of(torch.tensor([1, 0]), errors, 2, None, None)
    assert two.costs.tolist() == [[0.5, 0.0], [0.0, 2.0]]
    own: Tensor = torch.tensor([[9.0, 1.0, 2.0], [3.0, 9.0, math.inf]]).double()
    three = ClassCosts.of(torch.tensor([0, 1]), errors, 3, own, None)
    assert three.costs.tolist() == [[0.0, 1.0, 2.0], [3.0, 0.0, math.inf]]
