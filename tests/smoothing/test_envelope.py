"""The envelope: never below brute force, and hardly above."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm

from certus.errors import ArgumentError
from certus.kernel.smoothing import VotingRule
from certus.smoothing.design import neyman_pearson_bound, worst_failure_probability
from certus.smoothing.voting import IDEAL_VOTE, ONE_DRAW, gives_label, voting_rule
from tests.smoothing.half_space import Array

BALLOTS = {
    "one": ONE_DRAW,
    "ideal": IDEAL_VOTE,
    "plain": voting_rule(25),
    "abstaining": voting_rule(100, 0.001),
    "hopeless": voting_rule(5, 0.001),
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
    found, least = neyman_pearson_bound(BALLOTS[name], kappa).at(scores), brute(BALLOTS[name], kappa, scores)
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
        rule = voting_rule(votes, level)
        for errors in range(votes):
            given = all(gives_label(rule, votes - errors, second) for second in range(errors + 1))
            assert given == (errors < rule.failure_threshold)


def test_two_local_maxima() -> None:
    """Not to move, or to move far: an ascent from h finds the first of the two only."""
    score, kappa = np.array([-4.0]), 0.02
    near = max(norm.cdf(-4 + s) - kappa * s**2 for s in np.linspace(0, 1, 1001))
    assert worst_failure_probability(ONE_DRAW, kappa, score)[0] > near + 0.1


def test_a_label_cost_is_a_floor() -> None:
    envelope = neyman_pearson_bound(ONE_DRAW, 1.0, floor=0.3)
    assert (envelope.values >= 0.3).all()
    assert envelope.at(np.array([-5.0]))[0] < 0.301


@pytest.mark.parametrize(("votes", "level"), [(100, 0.001), (20, 0.05), (9, 0.5), (5, 0.001)])
def test_the_abstaining_vote_is_that_of_the_literature(votes: int, level: float) -> None:
    rule = voting_rule(votes, level)

    given = [
        2 * errors < votes and binomtest(votes - errors, votes, 0.5).pvalue <= level
        for errors in range(votes + 1)
    ]
    assert given == [errors < rule.failure_threshold for errors in range(votes + 1)]
    # Errors that are spread over several labels lose no vote that they would win together.
    for errors in range(0, rule.failure_threshold, 5):
        assert all(gives_label(rule, votes - errors, second) for second in range(errors + 1))


def test_votes_and_levels_are_checked() -> None:
    with pytest.raises(ArgumentError, match="`votes` must be a whole number, at least 1; got 0"):
        voting_rule(0)
    with pytest.raises(ArgumentError, match=r"`abstain` must lie in \(0, 1\], or be None; got 2"):
        voting_rule(10, 2)
