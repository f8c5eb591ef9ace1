"""The envelope: never below brute force, and hardly above."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb
from scipy.stats import binom, binomtest, norm

from certus.errors import ArgumentError
from certus.smoothing.binomial import (
    binomial_probabilities,
    clopper_pearson_lower,
    largest_binomial_probability,
    normal_cdf,
    normal_quantile_lower,
)
from certus.smoothing.neyman_pearson import NeymanPearsonBound, worst_failure_probability
from certus.smoothing.voting import IDEAL_VOTE, ONE_DRAW, VotingRule
from tests.smoothing.half_space import Array

BALLOTS = {
    "one": ONE_DRAW,
    "ideal": IDEAL_VOTE,
    "plain": VotingRule.of(25),
    "abstaining": VotingRule.of(100, 0.001),
    "hopeless": VotingRule.of(5, 0.001),
}


def brute(rule: VotingRule, kappa: float, scores: Array) -> Array:
    """sup over a dense grid of moves: from below."""
    steps = np.linspace(0, min(13.0, 1 / math.sqrt(kappa)), 2001)
    reached = scores[:, None] + steps
    if rule.votes is None:
        chances = (reached >= 0).astype(float)
    else:
        chances = binom.sf(rule.failure_threshold - 1, rule.votes, norm.cdf(reached))
    return np.asarray((chances - kappa * steps**2).max(1))


@pytest.mark.parametrize("kappa", [0.01, 0.07, 1.0, 30.0])
@pytest.mark.parametrize("name", BALLOTS)
def test_the_envelope_is_above_brute_force_and_close(name: str, kappa: float) -> None:
    scores = np.concatenate([np.linspace(-5.9, 5.9, 60) + 0.0013, [-6.0, 0.0, 6.0]])
    found, least = NeymanPearsonBound.of(BALLOTS[name], kappa).at(scores), brute(BALLOTS[name], kappa, scores)
    assert (found >= least).all()
    # Brute force misses a jump by up to a step of the grid.
    assert (found <= least + 1e-4 + 1e-3).all()


@pytest.mark.parametrize("votes", [1, 2, 3, 4, 9])
def test_a_vote_is_given_whenever_fewer_err(votes: int) -> None:
    """For every level that a test can meet exactly, and beside it: whatever labels the errors have."""
    exact = [float(2 * binom.cdf(errors, votes, 0.5)) for errors in range(votes)]
    for level in (
        *(each for each in exact if each <= 1),
        1.0,
        *(0.999 * each for each in exact if each <= 1),
    ):
        rule = VotingRule.of(votes, level)
        for errors in range(votes):
            given = all(rule.gives(votes - errors, second) for second in range(errors + 1))
            assert given == (errors < rule.failure_threshold)


def test_two_local_maxima() -> None:
    """Not to move, or to move far: an ascent from h finds the first of the two only."""
    score, kappa = np.array([-4.0]), 0.02
    near = max(norm.cdf(-4 + s) - kappa * s**2 for s in np.linspace(0, 1, 1001))
    assert worst_failure_probability(ONE_DRAW, kappa, score)[0] > near + 0.1


def test_a_label_cost_is_a_floor() -> None:
    envelope = NeymanPearsonBound.of(ONE_DRAW, 1.0, floor=0.3)
    assert (envelope.values >= 0.3).all()
    assert envelope.at(np.array([-5.0]))[0] < 0.301


@pytest.mark.parametrize("point", [-8.0, -6.0, -3.3, -0.1, 0.0, 0.7, 4.0, 8.0])
def test_the_normal_distribution_is_as_good_as_slacks_assume(point: float) -> None:
    exact = (arb(-point) / arb(2).sqrt()).erfc() / 2
    assert abs(arb(float(normal_cdf(np.array([point]))[0])) - exact) <= 1e-12 * exact


def test_the_binomial_table() -> None:
    chances = np.array([0.0, 1e-9, 0.013, 0.5, 0.97, 1.0])
    for count in (1, 7, 1000):
        exact = binom.pmf(np.arange(count + 1), count, chances[:, None])
        assert np.abs(binomial_probabilities(chances, count) - exact).max() < 1e-11


@pytest.mark.parametrize("rule", [ONE_DRAW, VotingRule.of(25), VotingRule.of(100, 0.001), VotingRule.of(2)])
def test_the_bend_is_a_bound(rule: VotingRule) -> None:
    assert rule.votes is not None
    points = np.linspace(-5, 5, 20_001)
    values, step = binom.sf(rule.failure_threshold - 1, rule.votes, norm.cdf(points)), points[1] - points[0]
    second = (values[2:] - 2 * values[1:-1] + values[:-2]) / step**2
    assert -second.min() <= rule.bend
    assert rule.bend <= 12 * -second.min()


def test_modes() -> None:
    for hits, count in ((0, 5), (5, 5), (2, 5), (33, 99)):
        dense = binom.pmf(hits, count, np.linspace(0, 1, 10_001)).max()
        assert dense <= largest_binomial_probability(hits, count) <= dense * (1 + 1e-6)
    assert (
        largest_binomial_probability(-1, 3)
        == largest_binomial_probability(4, 3)
        == largest_binomial_probability(0, -1)
        == 0.0
    )


@pytest.mark.parametrize(("votes", "level"), [(100, 0.001), (20, 0.05), (9, 0.5), (5, 0.001)])
def test_the_abstaining_vote_is_that_of_the_literature(votes: int, level: float) -> None:
    rule = VotingRule.of(votes, level)

    given = [
        2 * errors < votes and binomtest(votes - errors, votes, 0.5).pvalue <= level
        for errors in range(votes + 1)
    ]
    assert given == [errors < rule.failure_threshold for errors in range(votes + 1)]
    # Errors that are spread over several labels lose no vote that they would win together.
    for errors in range(0, rule.failure_threshold, 5):
        assert all(rule.gives(votes - errors, second) for second in range(errors + 1))


def test_votes_and_levels_are_checked() -> None:
    with pytest.raises(ArgumentError, match="`votes` must be a whole number, at least 1; got 0"):
        VotingRule.of(0)
    with pytest.raises(ArgumentError, match=r"`abstain` must lie in \(0, 1\], or be None; got 2"):
        VotingRule.of(10, 2)


@pytest.mark.parametrize(("hits", "count"), [(100, 100), (990, 1000), (1, 5), (0, 5), (51, 100)])
def test_clopper_and_pearson(hits: int, count: int) -> None:
    exact = binomtest(hits, count, alternative="greater").proportion_ci(0.999, "exact").low
    found = clopper_pearson_lower(hits, count, 0.001)
    assert exact - 1e-7 <= found <= exact
    score = normal_quantile_lower(found)
    assert score == 0 if found <= 0.5 else norm.ppf(found) - 1e-6 <= score <= norm.ppf(found)
