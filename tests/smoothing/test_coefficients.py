"""Coefficients: their polynomial is nowhere below the envelope, for whatever was proposed."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm

from certus.errors import ArgumentError
from certus.kernel.smoothing import GammaDesign, VotingRule, poisson_binomial, smoothed_values
from certus.smoothing.design import error_distribution, neyman_pearson_bound, propose, raised_coefficients
from certus.smoothing.voting import IDEAL_VOTE, ONE_DRAW, voting_rule
from tests.smoothing.half_space import Array
from tests.smoothing.test_envelope import brute

CHANCES = np.concatenate(
    [[0.0, 1e-12, 1e-7, 1e-4], np.linspace(0.001, 0.999, 120), 1 - np.array([1e-4, 1e-7, 1e-12, 0.0])]
)


def polynomial(coefficients: Array) -> Array:
    draws = len(coefficients) - 1
    return np.asarray(binom.pmf(np.arange(draws + 1), draws, CHANCES[:, None]) @ coefficients)


@cache
def truth(rule: VotingRule, kappa: float) -> Array:
    """F at the chances, from below; F(0) is that of the lost rule at h = 0, and F(1) = 1."""
    scores = norm.ppf(np.clip(CHANCES, 1e-12, 1 - 1e-12))
    found = brute(rule, kappa, scores)
    found[0] = 1.0 if rule.failure_threshold == 0 and rule.votes else 0.0
    return found


@pytest.mark.parametrize("kappa", [0.05, 1.0])
@pytest.mark.parametrize("rule", [ONE_DRAW, IDEAL_VOTE, voting_rule(100, 0.001)], ids=["one", "ideal", "M"])
@pytest.mark.parametrize("draws", [1, 7, 100])
def test_the_polynomial_is_above_brute_force(draws: int, rule: VotingRule, kappa: float) -> None:
    errors = np.random.default_rng(0).binomial(draws, np.random.default_rng(1).beta(0.3, 3, 60)).astype(float)
    envelope = neyman_pearson_bound(rule, kappa)
    found, _ = raised_coefficients(propose(envelope, error_distribution(errors, draws)), envelope)
    assert (polynomial(found) >= truth(rule, kappa)).all()
    assert (np.diff(found) >= 0).all()
    assert found.min() >= 0


def test_many_draws_come_close_to_the_envelope() -> None:
    """Where the guess puts its weight, a thousand draws cost less than 0.01."""
    envelope = neyman_pearson_bound(ONE_DRAW, 0.2)
    found, _ = raised_coefficients(
        propose(envelope, error_distribution(np.linspace(0, 1000, 50), 1000)), envelope
    )
    excess = polynomial(found) - truth(ONE_DRAW, 0.2)
    assert excess.min() >= 0
    assert excess[4:-4].mean() < 0.01


@pytest.mark.parametrize("seed", range(3))
def test_any_proposal_is_lifted(seed: int) -> None:
    jagged = np.random.default_rng(seed).uniform(-1, 1, 31)
    envelope = neyman_pearson_bound(ONE_DRAW, 0.3)
    assert (polynomial(raised_coefficients(jagged, envelope)[0]) >= truth(ONE_DRAW, 0.3)).all()
    with pytest.raises(ArgumentError, match="`proposed` must be finite"):
        raised_coefficients(np.array([0.0, np.nan]), envelope)


@pytest.mark.parametrize("first", [40, 143, 160, 500])
def test_a_steep_polynomial_is_lifted_between_the_points_of_the_grid(first: int) -> None:
    """A thousand draws make a step of nothing but c: inside of one cell p falls behind by 0.001 and more."""
    envelope = neyman_pearson_bound(ONE_DRAW, 0.2)
    step = (np.arange(1001) >= first).astype(float)
    between = np.linspace(-4, 4, 40_001)
    behind = envelope.at(between) - binom.sf(first - 1, 1000, norm.cdf(between))
    assert behind.max() <= (raised_coefficients(step, envelope)[0] - step).min() <= behind.max() + 2e-4


def test_a_polynomial_that_is_above_is_hardly_lifted() -> None:
    ones = np.ones(11)
    assert (raised_coefficients(ones, neyman_pearson_bound(IDEAL_VOTE, 0.5))[0] - ones).max() < 2e-4


def test_the_guess_is_a_distribution() -> None:
    spread = error_distribution(np.array([0.0, 3.0, 2.5]), 10)
    assert spread.sum() == pytest.approx(1)
    assert (spread > 0).all()
    assert spread[0] > spread[10]


def test_successes_of_unequal_trials() -> None:
    losses = np.random.default_rng(0).uniform(size=(4, 6))
    exact = []
    for row in losses:
        table = np.ones(1)
        for chance in row:
            table = np.convolve(table, [1 - chance, chance])
        exact.append(table)
    assert np.abs(poisson_binomial(torch.from_numpy(losses)).numpy() - np.array(exact)).max() < 1e-14
    whole = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    assert poisson_binomial(whole).argmax(1).tolist() == [2, 0]


def test_losses_have_the_expectation_of_counts() -> None:
    """Of a loss that is 0.2 or 0.9, as likely as not, at each of three copies: enumerated."""
    coefficients = np.array([0.1, 0.2, 0.7, 1.0])
    every = torch.tensor(list(itertools.product([0.2, 0.9], repeat=3)))
    mean = float((poisson_binomial(every) @ torch.from_numpy(coefficients)).mean())
    assert mean == pytest.approx(binom.pmf(np.arange(4), 3, 0.55) @ coefficients, abs=1e-7)
    designs = [GammaDesign(1.0, coefficients)]
    assert smoothed_values(designs, torch.tensor([3, 0])).tolist() == [[1.0, 0.1]]
    assert float(smoothed_values(designs, every).mean()) == pytest.approx(mean)
