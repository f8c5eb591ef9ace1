"""The population's error rate by DKW and by betting, against closed forms and every possible sample."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import binom
from torch import Tensor

from certus.certificates import Population, dkw, worst_error
from certus.certificates.confidence import error_gammas, error_means
from certus.errors import ArgumentError
from tests.certificates.problems import dual_values, sample_values

RHOS = (0.02, 0.2)


def population(
    costs: Tensor, confidence: float, rhos: tuple[float, float] = RHOS, seed: int = 0
) -> Population:
    """Of samples whose errors cost just this; all their losses are 0."""
    blank = torch.zeros_like(costs)
    return Population.of(
        [dual_values(1.0, blank, blank, blank)],
        sample_values(blank, costs),
        costs,
        confidence=confidence,
        clip=1.0,
        inequality="hoeffding",
        rhos=rhos,
        seed=seed,
    )


def bounds(people: Population, costs: Tensor, rhos: list[float]) -> list[float]:
    return [
        people.upper.error(rho, sample) for rho, sample in zip(rhos, worst_error(costs, rhos), strict=True)
    ]


def exponential_truth(rho: float, wrong: float) -> float:
    """The worst error rate if a share is wrong already, and the other errors cost Exp(1): all up to t are
    bought, at (1 − wrong)·(1 − (1 + t)e⁻ᵗ) = ρ."""
    if rho == 0:
        return wrong
    t = brentq(lambda t: (1 - wrong) * (1 - (1 + t) * math.exp(-t)) - rho, 0, 50)
    return wrong + (1 - wrong) * (1 - math.exp(-t))


def test_failures_are_as_rare_as_stated() -> None:
    """For all ρ at once, those not asked for included; a mutant that takes plain means is caught."""
    rng, confidence, count, repetitions = np.random.default_rng(0), 0.5, 60, 250
    rhos = [0.0, 0.01, 0.02, 0.06, 0.2, 0.5]
    truth = [exponential_truth(rho, 0.05) for rho in rhos]
    failures = {"right": 0, "mutant": 0}
    gammas = error_gammas(RHOS, count)
    assert len(gammas) >= 3
    for seed in range(repetitions):
        costs = torch.from_numpy(rng.exponential(1.0, count) * (rng.random(count) > 0.05))
        found = bounds(population(costs, confidence, seed=seed), costs, rhos)
        failures["right"] += any(one < true for one, true in zip(found, truth, strict=True))
        means = {gamma: float((1 - gamma * costs).clamp_min(0).mean()) for gamma in gammas}
        plain = [min(gamma * rho + mean for gamma, mean in means.items()) for rho in rhos]
        failures["mutant"] += any(one < true for one, true in zip(plain, truth, strict=True))
    share = 0.4 * (1 - confidence)  # of the upper side of the error rate
    assert failures["right"] <= binom.ppf(0.999, repetitions, share) < failures["mutant"]


def test_every_possible_sample() -> None:
    """Six draws of costs 0, ½ or ∞: the probability of all samples that betting is wrong on."""
    values, chances, count, failure = [0.0, 0.5, math.inf], [0.2, 0.3, 0.5], 6, 0.6
    gammas = (4.0, 1.5)
    truth = {gamma: 0.2 + 0.3 * max(0.0, 1 - gamma * 0.5) for gamma in gammas}
    wrong = 0.0
    for picked in itertools.product(range(3), repeat=count):
        means = error_means(torch.tensor([values[at] for at in picked], dtype=torch.float64), gammas, failure)
        if any(means[gamma] < truth[gamma] for gamma in gammas):
            wrong += math.prod(chances[at] for at in picked)
    assert 0 < wrong <= failure


@pytest.mark.parametrize("seed", range(4))
def test_never_above_dkw_with_half_of_its_share(seed: int) -> None:
    rng, count, confidence = np.random.default_rng(seed), 100, 0.95
    costs = torch.from_numpy(rng.exponential(rng.uniform(0.01, 10), count) * (rng.random(count) > 0.1))
    rhos = [0.0, 0.001, 0.02, 0.1, 0.2, 1.0]
    margin = dkw(count, 0.2 * (1 - confidence))
    samples = worst_error(costs, rhos)
    found = bounds(population(costs, confidence, seed=seed), costs, rhos)
    for one, sample in zip(found, samples, strict=True):
        assert sample <= one <= min(1.0, (sample + margin) * (1 + 1e-11))


def test_rare_errors_of_many_samples_gain_most() -> None:
    """1% wrong among 4,000, and nothing else nearer than cost 1: less than half of what DKW pays."""
    costs = torch.full((4000,), 1.0).double()
    costs[:40] = 0.0
    for rho, truth in ((0.0, 0.01), (0.005, 0.01 + 0.005)):
        (found,) = bounds(population(costs, 0.95, (0.005, 0.005)), costs, [rho])
        assert truth < found < truth + 0.5 * dkw(4000, 0.02)


def test_cases_that_are_known() -> None:
    everywhere = population(torch.zeros(50).double(), 0.95)
    assert everywhere.upper.error(0.1, 1.0) == 1.0
    never = torch.full((300,), math.inf).double()
    for mean in error_means(never, (5.0,), 0.05).values():
        # No bound on a share that was never seen is below Clopper and Pearson's.
        assert 1 - 0.05 ** (1 / 300) <= mean < 2 * (1 - 0.05 ** (1 / 300))


def test_the_grid_follows_from_the_question_alone() -> None:
    for rhos, count in itertools.product([(0.01, 0.01), (1e-4, 1.0), (3.0, 90.0)], [1, 20, 359, 10_000]):
        gammas = error_gammas(rhos, count)
        ratios = [big / small for big, small in itertools.pairwise(gammas)]
        assert gammas[0] * rhos[0] == pytest.approx(0.25)
        assert gammas[-1] * rhos[1] * count <= 4 or len(gammas) == 1
        assert ratios == pytest.approx([math.exp(4 / count**0.25)] * len(ratios))
        assert len(gammas) < 60
    with pytest.raises(
        ArgumentError, match=r"`rhos` must be positive, finite and in order; got \(0\.0, 1\.0\)"
    ):
        error_gammas((0.0, 1.0), 10)
