"""Population bounds fail as seldom as they say, and mutants of them are caught."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import beta, binom
from torch import Tensor

from certus.certificates import betting, dkw, empirical_bernstein, hoeffding, worst_error
from certus.certificates.confidence import INEQUALITIES as KNOWN
from certus.certificates.dual_values import DualValues
from certus.certificates.population import Population
from certus.errors import ArgumentError
from certus.kernel import statement
from tests.certificates.problems import dual_values, sample_values

REPETITIONS = 500
INEQUALITIES = {"hoeffding": hoeffding, "bernstein": empirical_bernstein, "betting": betting}


def most_failures(failure: float, repetitions: int = REPETITIONS) -> int:
    """The 99.9% quantile of the number of failures, if each has this probability."""
    return int(binom.ppf(0.999, repetitions, failure))


DRAWS: dict[str, tuple[Callable[[np.random.Generator, int], np.ndarray], float]] = {
    "coin, rare": (lambda rng, n: (rng.random(n) < 0.02) * 1.0, 0.02),
    "coin, fair": (lambda rng, n: (rng.random(n) < 0.5) * 1.0, 0.5),
    "beta": (lambda rng, n: rng.beta(0.3, 2.0, n), float(beta.mean(0.3, 2.0))),
}


@pytest.mark.parametrize("repetitions", [REPETITIONS, pytest.param(20_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", INEQUALITIES)
@pytest.mark.parametrize("kind", DRAWS)
def test_failures_are_as_rare_as_stated(name: str, kind: str, repetitions: int) -> None:
    rng, failure, ceiling, count = np.random.default_rng(0), 0.1, 3.0, 60
    draw, mean = DRAWS[kind]
    failures = 0
    for _ in range(repetitions):
        values = ceiling * torch.from_numpy(draw(rng, count)).double()
        failures += INEQUALITIES[name](values, ceiling, failure) < ceiling * mean
    assert failures <= most_failures(failure, repetitions)


def test_betting_is_the_tightest_on_losses_that_are_mostly_small() -> None:
    values = 2.0 * torch.from_numpy(np.random.default_rng(1).beta(0.3, 4.0, 2000))
    widths = {name: bound(values, 4.0, 0.05) - float(values.mean()) for name, bound in INEQUALITIES.items()}
    assert 0 < widths["betting"] < widths["bernstein"] < widths["hoeffding"]


def test_bernstein_by_hand() -> None:
    """2,000 values, half of them 0 and half 2, of at most 4: mean 1, and variance 2000/1999."""
    values, log = torch.tensor([0.0, 0.0, 2.0, 2.0], dtype=torch.float64).repeat(500), math.log(2 / 0.1)
    variance = 2000 / 1999
    truth = 1 + math.sqrt(2 * variance * log / 2000) + 7 * 4 * log / (3 * 1999)
    assert truth <= empirical_bernstein(values, 4.0, 0.1) <= truth * (1 + 1e-11)


@pytest.mark.parametrize("name", INEQUALITIES)
def test_no_mean_is_above_the_ceiling(name: str) -> None:
    assert INEQUALITIES[name](torch.tensor([0.0, 3.0, 3.0], dtype=torch.float64), 3.0, 1e-6) <= 3.0


def test_dkw_bounds_every_knapsack_at_once() -> None:
    """Costs of errors are exponential, with an atom at 0; the true knapsack is that of 200,000 draws."""
    rng, failure, count = np.random.default_rng(2), 0.1, 80
    rhos = [0.0, 0.01, 0.05, 0.2, 0.6]

    def draw(size: int) -> Tensor:
        return torch.from_numpy(rng.exponential(1.0, size) * (rng.random(size) > 0.1))

    truth = worst_error(draw(200_000), rhos)
    margin = dkw(count, failure)
    failures = 0
    for _ in range(REPETITIONS):
        found = worst_error(draw(count), rhos)
        failures += any(one + margin < true - 2e-3 for one, true in zip(found, truth, strict=True))
    assert failures <= most_failures(failure)


GRID = [1.0, 4.0]
RHO = 0.04


def levels(values: Tensor) -> list[DualValues]:
    """ℓ = x on the line: φ_γ(x) = x + 1/4γ, T_γ(x) = x + 1/2γ at cost 1/4γ²; the worst case is E x + √ρ."""
    nothing = torch.zeros_like(values)
    return [
        dual_values(gamma, values + 0.25 / gamma, nothing + 0.25 / gamma**2, values + 0.5 / gamma)
        for gamma in GRID
    ]


def population(sample: Tensor, confidence: float, clip: float, inequality: str, seed: int = 0) -> Population:
    """Of a regression: it has no error rate."""
    return Population.of(
        levels(sample),
        sample_values(sample),
        confidence=confidence,
        clip=clip,
        inequality=inequality,
        rhos=(RHO, RHO),
        seed=seed,
    )


def population_failures(
    make: Callable[[Tensor], float], clip: float, confidence: float, count: int = 40
) -> int:
    """How often a claim about sup E min(ℓ, B) is too small: many samples of a distribution with a rare
    large loss."""
    rng = np.random.default_rng(3)
    failures = 0
    values = np.array([0.0, 0.2, 3.0])
    shares = np.array([0.6, 0.37, 0.03])
    worst = min(
        gamma * RHO + float((np.minimum(values + 0.25 / gamma, clip) * shares).sum()) for gamma in GRID
    )
    for _ in range(REPETITIONS):
        sample = torch.from_numpy(rng.choice(values, count, p=shares))
        failures += make(sample) < worst
        if failures > most_failures(1 - confidence):
            break  # caught
    return failures


@pytest.mark.parametrize("inequality", INEQUALITIES)
def test_both_sides_fail_as_seldom_as_stated(inequality: str) -> None:
    """Against min_γ γρ + E min(φ_γ, B), which the union bound is about, and E x + √ρ, the truth from below;
    the mean of the sample itself, a mutant, is caught."""
    rng, confidence, clip, count = np.random.default_rng(6), 0.8, 4.0, 40
    values, shares = np.array([0.0, 0.2, 3.0]), np.array([0.6, 0.37, 0.03])
    truth = float((values * shares).sum()) + math.sqrt(RHO)
    above = min(
        gamma * RHO + float((np.minimum(values + 0.25 / gamma, clip) * shares).sum()) for gamma in GRID
    )
    failures = {"right": 0, "mutant": 0}
    for _ in range(REPETITIONS):
        sample = torch.from_numpy(rng.choice(values, count, p=shares))
        found = population(sample, confidence, clip, inequality)
        failures["right"] += found.loss(RHO) < above or found.loss_low(RHO) > truth
        failures["mutant"] += float(sample.mean()) + math.sqrt(RHO) > truth
    assert failures["right"] <= most_failures(1 - confidence) < failures["mutant"]


def test_the_lower_side_says_something() -> None:
    """With many samples it comes near E x + √ρ, the truth, at a ρ that some T_γ reaches."""
    sample = torch.from_numpy(np.random.default_rng(7).choice([0.0, 0.2, 1.0], 20_000))
    found = population(sample, 0.95, 4.0, "betting")
    rho = 0.25 / GRID[1] ** 2
    assert 0.93 < found.loss_low(rho) / (0.4 + math.sqrt(rho)) < 1
    assert 1 < found.loss(rho) / (0.4 + math.sqrt(rho)) < 1.05
    assert found.loss_low(0.0) == pytest.approx(found.clean_loss, abs=1e-11)


def test_the_error_rate_from_below() -> None:
    """Costs at which errors were found: their knapsack, less a margin, is below that of 200,000 draws."""
    rng, confidence, count, repetitions = np.random.default_rng(8), 0.6, 60, 400
    failures = {"right": 0, "mutant": 0}

    def draw(size: int) -> Tensor:
        return torch.from_numpy(rng.exponential(1.0, size) * (rng.random(size) > 0.1))

    rhos = [0.0, 0.05, 0.4]
    truth = worst_error(draw(200_000), rhos)
    blank = torch.zeros(count).double()
    level = [dual_values(1.0, blank, blank, blank)]
    for _ in range(repetitions):
        costs = draw(count)
        people = Population.of(
            level,
            sample_values(blank, costs),
            costs,
            confidence=confidence,
            clip=1.0,
            inequality="hoeffding",
            rhos=(0.05, 1.0),
            seed=0,
        )
        lows = [people.error_low(rho) or 0.0 for rho in rhos]
        failures["right"] += any(low > true + 2e-3 for low, true in zip(lows, truth, strict=True))
        bare = worst_error(costs, rhos)
        failures["mutant"] += any(low > true for low, true in zip(bare, truth, strict=True))
    assert failures["right"] <= most_failures((1 - confidence) / 10, repetitions) < failures["mutant"]


def test_a_clip_below_the_truth_is_caught() -> None:
    """Mutant: the sample is cut at its own largest value, and that is called B."""
    confidence, clip = 0.8, 4.0

    def wrong(sample: Tensor) -> float:
        small = float(sample.max()) + 0.05
        return population(sample.clamp_max(small), confidence, small, "betting").loss(RHO)

    assert population_failures(wrong, clip, confidence) > most_failures(1 - confidence)


def test_every_bound_has_its_share_of_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """With |Γ| = 3 and both sides of loss and error: all shares together are δ."""
    asked: list[float] = []

    def spied(bound: Callable[..., float], place: int) -> Callable[..., float]:
        def spy(*arguments: Any) -> float:
            asked.append(arguments[place])
            return bound(*arguments)

        return spy

    proposed: list[float] = []

    def proposal(values: Tensor, ceiling: float, failure: float) -> float:
        proposed.append(failure)
        return hoeffding(values, ceiling, failure)

    for name, place in (("mean_at_most", 3), ("betting", 2), ("dkw", 1)):
        monkeypatch.setattr(statement, name, spied(getattr(statement, name), place))
    monkeypatch.setattr("certus.certificates.population.dkw", spied(dkw, 1))
    monkeypatch.setitem(KNOWN, "hoeffding", proposal)
    values = torch.full((20,), 0.3, dtype=torch.float64)
    levels = [dual_values(gamma, values, values, values) for gamma in (0.5, 1.0, 2.0)]
    Population.of(
        levels,
        sample_values(values, values),
        values,
        confidence=0.9,
        clip=1.0,
        inequality="hoeffding",
        rhos=(0.01, 0.5),
        seed=0,
    )
    lower = proposed[:6] + proposed[-1:]  # of costs and losses at three γ, and of the clean loss
    assert proposed[6:-1] == pytest.approx([0.04 / 3] * 3)  # what the kernel then checks
    assert sum(asked) + sum(lower) == pytest.approx(0.1)
    assert min(asked + lower) > 0


def test_no_union_over_the_grid_is_caught() -> None:
    """Mutant: each of many independent bounds takes all of δ, and the smallest is claimed."""
    rng, confidence, count, grid = np.random.default_rng(4), 0.8, 50, 12
    failures = {"right": 0, "mutant": 0}
    for _ in range(REPETITIONS):
        samples = torch.from_numpy((rng.random((grid, count)) < 0.5) * 1.0)
        for name, share in (("right", (1 - confidence) / grid), ("mutant", 1 - confidence)):
            failures[name] += min(hoeffding(sample, 1.0, share) for sample in samples) < 0.5
    assert failures["right"] <= most_failures(1 - confidence) < failures["mutant"]


def test_tuning_on_the_same_data_is_caught() -> None:
    """Mutant: the best of 50 models is chosen on the data that its bound is computed from."""
    rng, confidence, count = np.random.default_rng(5), 0.8, 60
    failures = {"right": 0, "mutant": 0}
    for _ in range(REPETITIONS):
        losses = torch.from_numpy((rng.random((50, count)) < 0.3) * 1.0)
        best = int(losses.mean(1).argmin())
        fresh = torch.from_numpy((rng.random(count) < 0.3) * 1.0)
        failures["mutant"] += betting(losses[best], 1.0, 1 - confidence) < 0.3
        failures["right"] += betting(fresh, 1.0, 1 - confidence) < 0.3
    assert failures["right"] <= most_failures(1 - confidence) < failures["mutant"]


def test_refusals() -> None:
    values = torch.tensor([0.1, 0.2]).double()
    with pytest.raises(ArgumentError, match="`clip` must be positive and finite; got inf"):
        betting(values, math.inf, 0.1)
    with pytest.raises(ArgumentError, match=r"`values` must lie between 0 and 0\.15"):
        hoeffding(values, 0.15, 0.1)
    with pytest.raises(ArgumentError, match=r"`failure` must lie in \(0, 0\.5\]; got 0\.7"):
        dkw(10, 0.7)
    with pytest.raises(ArgumentError, match=r"`failure` must lie in \(0, 0\.5\]; got 0"):
        dkw(10, 0.0)
    with pytest.raises(ArgumentError, match=r"`confidence` must lie in \[0\.5, 1\); got 1\.0"):
        population(values, 1.0, 4.0, "betting")
    with pytest.raises(
        ArgumentError, match="`inequality` must be one of betting, bernstein, hoeffding; got 'luck'"
    ):
        population(values, 0.9, 4.0, "luck")
    assert betting(torch.ones(3), 1.0, 0.1) == 1.0
    assert empirical_bernstein(torch.zeros(1), 2.0, 0.1) == 2.0
