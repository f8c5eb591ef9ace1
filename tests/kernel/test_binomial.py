"""Normal and binomial probabilities against ball arithmetic and SciPy, and claims beside their limits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
import torch
from flint import arb, ctx
from scipy.stats import beta, binom, binomtest, norm

from certus.certificates import confidence
from certus.kernel.binomial import (
    binomial_mean,
    binomial_probabilities,
    binomial_tail,
    clopper_pearson,
    gaussian_radius,
    largest_probability,
    normal_cdf,
    normal_down,
    normal_up,
    relative_error,
)
from certus.kernel.passes import Refused

ULP = 2.0**-52


@pytest.fixture(autouse=True)
def precise() -> Iterator[None]:
    """Balls of 200 bits."""
    with ctx.workprec(200):
        yield


def off(computed: float, truth: arb) -> float:
    """The relative error of a computed number."""
    return float((abs(arb(computed) - truth) / abs(truth)).upper())


@pytest.mark.parametrize("point", [-36.0, -8.0, -6.0, -3.3, -0.1, 0.0, 0.7, 4.0, 8.0])
def test_the_normal_distribution_is_as_good_as_slacks_assume(point: float) -> None:
    truth = (arb(-point) / arb(2).sqrt()).erfc() / 2
    assert off(float(normal_cdf(np.array([point]))[0]), truth) <= 1e-12
    assert (
        arb(float(normal_down(np.array([point]))[0])) <= truth <= arb(float(normal_up(np.array([point]))[0]))
    )


def test_beyond_all_digits_the_normal_distribution_is_rounded_to_something() -> None:
    low, high = normal_down(np.array([-50.0, 50.0])), normal_up(np.array([-50.0, 50.0]))
    assert low[0] == 0.0 < high[0] <= 1e-299
    assert low[1] < 1.0 == high[1]


def test_torch_is_as_accurate_as_the_kernel_assumes() -> None:
    """4 units in the last place of lgamma, log, log1p and exp: at all whole numbers, and at random ones."""
    whole = torch.arange(3, 10_002, 7, dtype=torch.float64)
    errors = [
        off(value, arb(at).lgamma())
        for at, value in zip(whole.tolist(), whole.lgamma().tolist(), strict=True)
    ]
    assert max(errors) <= 4 * ULP
    points = torch.from_numpy(np.random.default_rng(0).uniform(size=2000) ** 6)
    for at, log, log1p in zip(
        points.tolist(), points.log().tolist(), (-points).log1p().tolist(), strict=True
    ):
        assert off(log, arb(at).log()) <= 4 * ULP
        assert off(log1p, (1 - arb(at)).log()) <= 4 * ULP
    for at, value in zip((-700 * points).tolist(), (-700 * points).exp().tolist(), strict=True):
        assert off(value, arb(at).exp()) <= 4 * ULP


def test_the_binomial_table() -> None:
    chances = np.array([0.0, 1e-9, 0.013, 0.5, 0.97, 1.0])
    for count in (1, 7, 1000):
        truth = binom.pmf(np.arange(count + 1), count, chances[:, None])
        assert np.abs(binomial_probabilities(chances, count) - truth).max() < 1e-11
    assert binomial_mean(np.ones(5), np.array([])).shape == (0,)


@pytest.mark.parametrize("count", [1, 12, 300, 10_000])
def test_probabilities_are_within_their_relative_error(count: int) -> None:
    """Against exact fractions, far into the tails."""
    chance = 0.3
    table = binomial_probabilities(np.array([chance]), count)[0]
    yes, no = arb(chance), 1 - arb(chance)
    for hits in {0, 1, count // 3, count // 2, count}:
        truth = arb(math.comb(count, hits)) * yes**hits * no ** (count - hits)
        if truth > 1e-300:
            assert off(float(table[hits]), truth) <= relative_error(count) / 2
    assert relative_error(10_000) < 1e-9


def test_a_tail_is_rounded_up() -> None:
    for least, count, chance in ((3, 10, 0.25), (1, 4, 1e-9), (10, 10, 0.5), (60, 100, 0.5)):
        yes = Fraction(chance)
        truth = sum(math.comb(count, k) * yes**k * (1 - yes) ** (count - k) for k in range(least, count + 1))
        tail = float(binomial_tail(least, count, np.array([chance]))[0])
        assert truth <= Fraction(tail) <= truth * (1 + Fraction(1, 10**9))
    assert binomial_tail(0, 5, np.array([0.0, 1.0])).tolist() == [1.0, 1.0]
    assert binomial_tail(1, 5, np.array([0.0]))[0] <= 1e-298


def test_modes() -> None:
    for hits, count in ((0, 5), (5, 5), (2, 5), (33, 99)):
        dense = binom.pmf(hits, count, np.linspace(0, 1, 10_001)).max()
        assert dense <= largest_probability(hits, count) <= dense * (1 + 1e-6)
    assert largest_probability(-1, 3) == largest_probability(4, 3) == largest_probability(0, -1) == 0.0


@pytest.mark.parametrize(("count", "failure"), [(1, 0.05), (20, 0.05), (1000, 0.01), (100_000, 0.025)])
def test_clopper_and_pearson_prove_what_scipy_computes_and_no_more(count: int, failure: float) -> None:
    for successes in {1, count // 3 + 1, count - 1, count} - {0}:
        limit = float(beta.ppf(failure, successes, count - successes + 1))
        assert clopper_pearson(successes, count, failure, limit * (1 - 1e-6)) == limit * (1 - 1e-6)
        assert clopper_pearson(successes, count, failure, limit / 3) == limit / 3
        found = confidence.clopper_pearson(successes, count, failure)
        assert limit * (1 - 1e-6) < found < limit * (1 + 1e-12)
        with pytest.raises(Refused):
            clopper_pearson(successes, count, failure, limit * (1 + 1e-6))
    assert clopper_pearson(0, count, failure, 0.0) == confidence.clopper_pearson(0, count, failure) == 0.0
    with pytest.raises(Refused):
        clopper_pearson(0, count, failure, 1e-6)


@pytest.mark.parametrize(("hits", "count"), [(100, 100), (990, 1000), (1, 5), (0, 5), (51, 100)])
def test_clopper_and_pearson_at_a_small_level(hits: int, count: int) -> None:
    limit = binomtest(hits, count, alternative="greater").proportion_ci(0.999, "exact").low
    found = confidence.clopper_pearson(hits, count, 0.001)
    assert limit - 1e-7 <= found <= limit


def test_clopper_and_pearson_on_every_outcome() -> None:
    """The probability of all outcomes at which the bound exceeds the truth is at most δ."""
    count, failure = 15, 0.1
    bounds = np.array([confidence.clopper_pearson(hits, count, failure) for hits in range(count + 1)])
    for chance in (0.02, 0.3, 0.5, 0.77, 0.99):
        wrong = binom.pmf(np.flatnonzero(bounds > chance), count, chance).sum()
        assert wrong <= failure


@pytest.mark.parametrize(
    ("successes", "count", "failure", "claim"),
    [
        (3, 2, 0.1, 0.0),
        (-1, 2, 0.1, 0.0),
        (1, 2, 0.0, 0.0),
        (1, 2, 1.0, 0.0),
        (1, 2, 0.1, 1.1),
        (1, 2, 0.1, math.nan),
    ],
)
def test_senseless_claims_are_refused(successes: int, count: int, failure: float, claim: float) -> None:
    with pytest.raises(Refused):
        clopper_pearson(successes, count, failure, claim)


@pytest.mark.parametrize("chance", [0.51, 0.9, 0.999, 1 - 1e-9])
def test_a_radius_is_proven_to_its_limit(chance: float) -> None:
    limit = 0.25 * float(norm.ppf(chance))
    assert gaussian_radius(0.25, chance, limit * (1 - 1e-7)) == limit * (1 - 1e-7)
    assert gaussian_radius(0.25, chance, 0.0) == 0.0
    with pytest.raises(Refused):
        gaussian_radius(0.25, chance, limit * (1 + 1e-7))


def test_a_radius_of_an_unlikely_label_is_refused() -> None:
    for sigma, chance, claim in ((1.0, 0.4, 0.1), (1.0, 0.5, 1e-9), (0.0, 0.9, 0.1), (1.0, 0.9, math.nan)):
        with pytest.raises(Refused):
            gaussian_radius(sigma, chance, claim)
