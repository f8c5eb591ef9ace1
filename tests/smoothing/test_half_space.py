"""Linear base classifiers, where the bound is attained, and the coverage of the stated confidence."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import norm

import certus
from certus.smoothing.certificate import Quantity
from certus.smoothing.design import make_design, upper_means, worst_failure_probability
from certus.smoothing.voting import IDEAL_VOTE, ONE_DRAW, voting_rule
from tests.smoothing.half_space import SIGMA, Array, dual, margins, quantile_margins, worst_error

RHOS = (0.003, 0.03, 0.2)


@pytest.mark.parametrize("rho", RHOS)
def test_the_bound_is_attained_to_three_digits(rho: float) -> None:
    scores = -quantile_margins() / SIGMA
    attained = worst_error(scores, rho)
    proven = dual(lambda kappa: worst_failure_probability(ONE_DRAW, kappa, scores), rho)
    assert attained <= proven <= attained + 1e-3


def test_the_ideal_vote_is_a_knapsack() -> None:
    """It errs where the margin is not positive; those nearest to 0 are moved first."""
    edges = quantile_margins(2000)
    right = np.sort(edges[edges > 0])
    for rho in RHOS:
        spent = (right**2).cumsum() / len(edges)
        moved = int((spent <= rho).sum())
        attained = ((edges <= 0).sum() + moved) / len(edges)
        proven = dual(lambda kappa: worst_failure_probability(IDEAL_VOTE, kappa, -edges / SIGMA), rho)
        assert attained <= proven <= attained + 2e-3


def test_a_certificate_of_a_half_space() -> None:
    """Around the truth, and close to it: 3,000 samples, known to the callable alone."""
    edges = margins(3_000, 0)
    signs = np.where(np.random.default_rng(1).random(len(edges)) < 0.5, 1, -1)
    inputs = torch.from_numpy(np.stack([edges * signs, np.zeros(len(edges))], 1))
    labels = torch.from_numpy((signs > 0).astype(np.int64))
    found = certus.certify_smoothed(
        lambda points: (points[:, 0] > 0).astype(int),
        (inputs, labels),
        rho=[0.03, 0.2],
        sigma=SIGMA,
        draws=50,
        votes=50,
        attack_steps=4,
    )
    scores = -quantile_margins() / SIGMA
    for rho in (0.03, 0.2):
        exact = worst_error(scores, rho)
        assert exact <= found.bound(rho) <= exact + 0.05
        assert 0.7 * exact <= found.lower(rho) <= exact + 1e-3
    one = found.bracket(0.03)
    assert one.vote_low is not None
    assert one.vote_high is not None
    assert one.vote_low <= one.vote_high


def repetitions(name: str, times: int, samples: int, failure: float) -> float:
    """How often a bound at some ρ is below the truth, over fresh samples and fresh noise."""
    draws, random = 20, np.random.default_rng(0)
    rule = {"error": ONE_DRAW, "loss": ONE_DRAW, "vote": voting_rule(11)}[name]
    population = -quantile_margins(300) / SIGMA
    exact = {rho: dual(lambda kappa: worst_failure_probability(rule, kappa, population), rho) for rho in RHOS}
    errors = _errors(margins(100, 7), draws, random)
    designs = make_design(rule, errors, draws, RHOS, SIGMA, samples=samples, failure=failure)
    assert any(design.slope > 0 for design in designs)
    order, missed = torch.arange(samples), 0
    for _ in range(times):
        edges = random.normal(0.6, 0.5, samples)
        observed = _loss(edges, draws, random) if name == "loss" else _count(edges, draws, random)
        means = upper_means(designs, observed, order, failure)
        quantity = Quantity(name, 1.0, means)
        missed += any(quantity.high(rho) < exact[rho] - 2e-4 for rho in RHOS)
    return missed / times


def _errors(edges: Array, draws: int, random: np.random.Generator) -> Array:
    return np.asarray(random.binomial(draws, norm.cdf(-edges / SIGMA)), dtype=np.float64)


def _count(edges: Array, draws: int, random: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(_errors(edges, draws, random).astype(np.int64))


def _loss(edges: Array, draws: int, random: np.random.Generator) -> torch.Tensor:
    """A loss between 0 and 1 whose mean is that of a half-space: uniform, pulled towards the mean."""
    mean = norm.cdf(-edges / SIGMA)[:, None]
    reach = np.minimum(mean, 1 - mean)
    return torch.from_numpy(mean + reach * random.uniform(-1, 1, (len(edges), draws)))


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("name", ["error", "vote", "loss"])
def test_coverage_in_short(name: str) -> None:
    assert repetitions(name, times=40, samples=60, failure=0.2) <= 0.2


@pytest.mark.soak
@pytest.mark.parametrize("name", ["error", "vote", "loss"])
def test_coverage_over_2000_repetitions(name: str) -> None:
    rate = repetitions(name, times=2000, samples=150, failure=0.05)
    print(f"{name}: {rate:.4f} of 2,000 bounds fail at 0.05")
    assert rate <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


def test_coefficients_that_do_not_majorise_are_noticed() -> None:
    """Coefficients a tenth too small fail far more often than they may: the repetitions see it."""
    errors = _errors(margins(100, 7), 20, np.random.default_rng(0))
    designs = make_design(ONE_DRAW, errors, 20, RHOS, SIGMA, samples=4000, failure=0.05)
    small = [replace(one, coefficients=0.4 * one.coefficients) for one in designs]
    observed = _count(margins(4000, 3), 20, np.random.default_rng(1))
    exact = worst_error(-quantile_margins() / SIGMA, 0.03)
    for tried, right in ((designs, True), (small, False)):
        means = upper_means(tried, observed, torch.arange(4000), 0.05)
        assert (Quantity("error", 1.0, means).high(0.03) >= exact) is right
