"""Smoothing in the kernel: sound for any grid, any coefficients and any cells, and tight for good ones."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np
import pytest
import torch
from scipy.stats import binom, binomtest, norm

from certus.certificates.confidence import betting
from certus.kernel.passes import Refused
from certus.kernel.smoothing import (
    GammaDesign,
    NeymanPearsonBound,
    VotingRule,
    dominate,
    poisson_binomial,
    smoothed_values,
    stake,
    upper_means,
    worst_failure,
)
from tests.smoothing.half_space import Array

RULES = {
    "one": VotingRule(1, 1),
    "ideal": VotingRule(None),
    "plain": VotingRule(25, 13),
    "abstaining": VotingRule(100, 34, 0.001),
    "lost": VotingRule(5, 0, 0.001),
}
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2, 3))]
SCORES = np.concatenate([np.linspace(-7, 7, 71) + 0.0013, [-6.0, 0.0]])


@lru_cache
def brute_at_scores(rule: VotingRule, penalty: float) -> Array:
    return brute(rule, penalty, SCORES)


def brute(rule: VotingRule, penalty: float, scores: Array) -> Array:
    """sup over a dense grid of moves: from below."""
    moves = np.linspace(0, min(13.0, 1 / math.sqrt(penalty)), 4001)
    reached = scores[:, None] + moves
    if rule.votes is None:
        chances = (reached >= 0).astype(float)
    else:
        chances = binom.sf(rule.failure_threshold - 1, rule.votes, norm.cdf(reached))
    return np.asarray((chances - penalty * moves**2).max(1))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("penalty", [0.01, 0.3, 30.0])
@pytest.mark.parametrize("name", RULES)
def test_any_stations_are_valid(name: str, penalty: float, seed: int) -> None:
    rng, rule = np.random.default_rng(seed), RULES[name]
    stations = np.sort(rng.uniform(-4, 4, int(rng.integers(2, 60))))
    assert (worst_failure(rule, penalty, SCORES, stations) >= brute_at_scores(rule, penalty)).all()


@pytest.mark.parametrize("penalty", [0.05, 2.0])
@pytest.mark.parametrize("name", RULES)
def test_fine_stations_are_tight(name: str, penalty: float) -> None:
    found = worst_failure(RULES[name], penalty, SCORES, np.linspace(-6, 6, 20_001))
    # Brute force misses a jump by up to a step of its grid.
    assert (found <= brute(RULES[name], penalty, SCORES) + 2e-3).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", RULES)
def test_between_any_scores_the_bound_holds(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, penalty = np.sort(rng.uniform(-5, 5, 12)), float(rng.exponential(1.0))
    bound = NeymanPearsonBound.of(RULES[name], penalty, scores, np.linspace(-5, 5, 300), floor=0.2)
    assert (bound.at(SCORES) >= np.maximum(0.2, brute(RULES[name], penalty, SCORES))).all()
    assert (np.diff(bound.values) >= 0).all()
    assert bound.values.max() <= 1.0


@pytest.mark.parametrize("rule", [RULES["one"], RULES["plain"], RULES["abstaining"], VotingRule(2, 1)])
def test_the_bend_is_a_bound(rule: VotingRule) -> None:
    assert rule.votes is not None
    points = np.linspace(-5, 5, 20_001)
    values, step = binom.sf(rule.failure_threshold - 1, rule.votes, norm.cdf(points)), points[1] - points[0]
    second = (values[2:] - 2 * values[1:-1] + values[:-2]) / step**2
    assert -second.min() <= rule.bend <= 12 * -second.min()


def test_failure_probabilities_are_rounded_up() -> None:
    scores = np.linspace(-8, 8, 161)
    for name in ("one", "plain", "abstaining", "lost"):
        rule = RULES[name]
        assert rule.votes is not None
        truth = binom.sf(rule.failure_threshold - 1, rule.votes, norm.cdf(scores))
        found = rule.failure_probability(scores)
        assert ((truth <= found) & (found <= truth + 1e-8)).all()


@pytest.mark.parametrize(
    ("votes", "level"), [(100, 0.001), (20, 0.05), (9, 0.5), (9, None), (10, None), (1, None)]
)
def test_a_vote_may_only_claim_errors_that_never_lose_it(votes: int, level: float | None) -> None:
    for threshold in range(votes + 2):
        errors = threshold - 1
        never = errors < 0 or (
            2 * errors < votes and (level is None or binomtest(votes - errors, votes, 0.5).pvalue <= level)
        )
        if never:
            assert VotingRule(votes, threshold, level).failure_threshold == threshold
        else:
            with pytest.raises(Refused):
                VotingRule(votes, threshold, level)
    with pytest.raises(Refused):
        VotingRule(votes, -1, level)


CHANCES = np.concatenate(
    [[0.0, 1e-12, 1e-7], np.linspace(0.0005, 0.9995, 200), 1 - np.array([1e-7, 1e-12, 0.0])]
)


def polynomial(coefficients: Array) -> Array:
    draws = len(coefficients) - 1
    return np.asarray(binom.pmf(np.arange(draws + 1), draws, CHANCES[:, None]) @ coefficients)


@lru_cache
def truth(rule: VotingRule, penalty: float) -> Array:
    found = brute(rule, penalty, norm.ppf(np.clip(CHANCES, 1e-12, 1 - 1e-12)))
    found[0] = 1.0 if rule.failure_threshold == 0 and rule.votes else 0.0
    return found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("draws", [1, 7, 100])
def test_any_coefficients_on_any_cells_are_lifted(draws: int, name: str, seed: int) -> None:
    rng, penalty = np.random.default_rng(seed), 0.3
    bound = NeymanPearsonBound.of(RULES[name], penalty, np.linspace(-6, 6, 200), np.linspace(-6, 6, 500))
    edges = np.sort(rng.uniform(-6.5, 6.5, int(rng.integers(2, 40))))
    found = dominate(rng.uniform(-1, 1, draws + 1), bound, edges)
    assert (polynomial(found) >= truth(RULES[name], penalty)).all()
    assert (np.diff(found) >= 0).all()


def test_coefficients_that_dominate_are_returned_as_they_are() -> None:
    bound = NeymanPearsonBound.of(RULES["one"], 0.3, np.linspace(-6, 6, 600), np.linspace(-6, 6, 600))
    edges = np.linspace(-6, 6, 400)
    lifted = dominate(np.linspace(0, 1, 21), bound, edges)
    assert (lifted > np.linspace(0, 1, 21)).all()
    assert (dominate(lifted + 1e-8, bound, edges) == lifted + 1e-8).all()
    smaller = dominate(lifted - 1e-4, bound, edges)
    assert smaller == pytest.approx(lifted, abs=1e-8)
    assert (smaller >= lifted - 1e-8).all()


@pytest.mark.parametrize(
    ("proposed", "edges"),
    [
        ([0.0, math.nan], [-1.0, 1.0]),
        ([0.0, math.inf], [-1.0, 1.0]),
        ([0.0, 2e3], [-1.0, 1.0]),
        ([0.0, 1.0], [1.0, -1.0]),
        ([0.0, 1.0], [1.0, 1.0]),
        ([0.0, 1.0], [1.0]),
        ([0.0, 1.0], [-1.0, math.nan, 1.0]),
        ([0.0, 1.0], [-math.inf, 1.0]),
    ],
)
def test_proposals_without_a_theorem_are_refused(proposed: list[float], edges: list[float]) -> None:
    bound = NeymanPearsonBound.of(RULES["one"], 1.0, np.linspace(-6, 6, 50), np.linspace(-6, 6, 50))
    with pytest.raises(Refused):
        dominate(np.array(proposed), bound, np.array(edges))


@pytest.mark.parametrize(
    ("penalty", "floor"), [(0.0, 0.0), (-1.0, 0.0), (math.nan, 0.0), (1.0, math.nan), (1.0, 2.0)]
)
def test_penalties_without_a_theorem_are_refused(penalty: float, floor: float) -> None:
    for rule in (RULES["one"], RULES["ideal"]):
        with pytest.raises(Refused):
            NeymanPearsonBound.of(rule, penalty, np.linspace(-6, 6, 50), np.linspace(-6, 6, 50), floor)
    with pytest.raises(Refused):
        worst_failure(RULES["one"], 1.0, SCORES, np.array([1.0, 0.0]))
    with pytest.raises(Refused):
        _ = RULES["ideal"].bend


def test_losses_have_the_expectation_of_counts() -> None:
    """Of a loss that is 0.2 or 0.9, as likely as not, at each of three copies: enumerated."""
    design = GammaDesign(1.0, np.array([0.1, 0.2, 0.7, 1.0]))
    every = torch.tensor(list(itertools.product([0.2, 0.9], repeat=3)), dtype=torch.float64)
    mean = float(smoothed_values([design], every).mean())
    assert mean == pytest.approx(binom.pmf(np.arange(4), 3, 0.55) @ design.coefficients, abs=1e-12)
    assert smoothed_values([design], torch.tensor([3, 0])).tolist() == [[1.0, 0.1]]
    table = poisson_binomial(torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
    assert table.tolist() == [[0.25, 0.5, 0.25], [0.0, 1.0, 0.0]]


@pytest.mark.parametrize(
    "errors", [[-1, 0], [4, 0], [[0.1, 0.2, 1.1]], [[0.1, 0.2, -0.1]], [[0.1, 0.2, math.nan]]]
)
def test_counts_and_losses_out_of_range_are_refused(errors: list[object]) -> None:
    with pytest.raises(Refused):
        smoothed_values([GammaDesign(1.0, np.linspace(0, 1, 4))], torch.tensor(errors))


def designs() -> list[GammaDesign]:
    line = np.arange(11) / 10
    return [GammaDesign(2.0, line, 0.8), GammaDesign(1.0, 0.2 + 0.8 * line**2, 0.2, slope=0.7)]


def claimed(errors: torch.Tensor, failure: float) -> tuple[torch.Tensor, list[float]]:
    values = smoothed_values(designs(), errors)
    stakes = [stake(designs(), values, failure, index) for index in range(2)]
    return values, [betting(numbers, ceiling, level) for numbers, ceiling, level, *_ in stakes]


def test_means_of_claims_and_no_smaller_ones() -> None:
    errors = torch.from_numpy(np.random.default_rng(0).binomial(10, 0.2, 500))
    values, claims = claimed(errors, 0.05)
    bounds = upper_means(designs(), values, 0.05, claims)
    looser = upper_means(designs(), values, 0.05, [claim + 0.01 for claim in claims])
    for index, (gamma, bound) in enumerate(bounds.items()):
        assert float(values[index].mean()) < bound < looser[gamma]
        smaller = [claim - 1e-6 * (place == index) for place, claim in enumerate(claims)]
        with pytest.raises(Refused):
            upper_means(designs(), values, 0.05, smaller)


@pytest.mark.parametrize("repetitions", [150, pytest.param(300, marks=pytest.mark.soak)])
def test_all_means_hold_together_as_often_as_stated(repetitions: int) -> None:
    rng, failure = np.random.default_rng(1), 0.3
    chances = rng.beta(0.3, 1.5, 4000)
    exact = [
        float((binom.pmf(np.arange(11), 10, chances[:, None]) @ design.coefficients).mean())
        for design in designs()
    ]
    failures = 0
    for _ in range(repetitions):
        errors = torch.from_numpy(rng.binomial(10, rng.choice(chances, 40)))
        values, claims = claimed(errors, failure)
        bounds = upper_means(designs(), values, failure, claims)
        failures += any(bound < mean for bound, mean in zip(bounds.values(), exact, strict=True))
    assert failures <= binom.ppf(0.999, repetitions, failure)
