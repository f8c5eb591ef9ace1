"""Confidence bounds at claims: what is proven holds on enumerated samples, and smaller ones are refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import binom
from torch import Tensor

from certus.certificates import confidence
from certus.kernel.concentration import betting, dkw, empirical_bernstein, hoeffding, log_wealth
from certus.kernel.passes import Refused


def beta_sample(seed: int, count: int = 300, ceiling: float = 2.0) -> Tensor:
    return ceiling * torch.from_numpy(np.random.default_rng(seed).beta(0.3, 2.0, count))


def plain_betting(values: Tensor, ceiling: float, failure: float) -> float:
    """The least mean that betting refutes larger ones of: written anew, one sample after the other."""
    gains, goal = (1 - values / ceiling).tolist(), math.log(1 / failure)

    def best(share: float) -> float:
        total, squares, wealth, largest = 0.5, 0.25, 0.0, -math.inf
        spread = 0.25
        for time, gain in enumerate(gains, 2):
            bet = min(math.sqrt(2 * goal / (len(gains) * spread)), 0.9)
            wealth += math.log1p(bet * (gain - share))
            largest = max(largest, wealth)
            total += gain
            squares += (gain - total / time) ** 2
            spread = squares / time
        return largest - goal

    return ceiling if best(0.0) <= 0 else ceiling * (1 - float(brentq(best, 0.0, 1.0, xtol=1e-14)))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("failure", [0.4, 0.05, 1e-6])
def test_betting_is_that_of_a_plain_loop(seed: int, failure: float) -> None:
    values = beta_sample(seed)
    truth = plain_betting(values, 2.0, failure)
    assert truth * (1 - 1e-12) <= confidence.betting(values, 2.0, failure) <= truth * (1 + 1e-9)
    assert betting(values, 2.0, failure, truth * (1 + 1e-9)) == truth * (1 + 1e-9)
    with pytest.raises(Refused):
        betting(values, 2.0, failure, truth * (1 - 1e-9))


def test_a_foolish_claim_is_loose_but_proven() -> None:
    values = beta_sample(0)
    assert betting(values, 2.0, 0.05, 1.7) == 1.7
    assert betting(values, 2.0, 0.05, 2.0) == betting(values, 2.0, 0.05, math.inf) == 2.0
    for claim in (-1.0, 0.0, float(values.mean()), math.nan):
        with pytest.raises(Refused):
            betting(values, 2.0, 0.05, claim)


def test_the_wealth_grows_with_the_claim() -> None:
    wealth = [log_wealth(beta_sample(3), 2.0, 0.1, claim) for claim in np.linspace(0, 1.999, 40)]
    assert all(low < high for low, high in itertools.pairwise(wealth))


def test_bets_depend_on_the_past_only() -> None:
    """With a later sample changed, the wealth until then is the same: it is the largest of both."""
    values = torch.zeros(40, dtype=torch.float64)
    before = log_wealth(values, 1.0, 0.1, 0.3)
    changed = values.clone()
    changed[-1] = 1.0
    # All gains are 1: the wealth has its maximum at the end, and one sample earlier if the last is lost.
    until = log_wealth(changed, 1.0, 0.1, 0.3)
    assert until < before
    kept = [
        log_wealth(torch.cat([values[:-1], values.new_tensor([last])]), 1.0, 0.1, 0.3) for last in (0.9, 1.0)
    ]
    assert kept[0] == kept[1] == until


@pytest.mark.parametrize("count", [9, pytest.param(12, marks=pytest.mark.soak)])
@pytest.mark.parametrize("claim", [0.5, 0.6, 0.7, 0.8])
def test_every_sample_of_a_coin(claim: float, count: int) -> None:
    """The probability of all samples of n throws on which a claim below the mean is proven."""
    failure, proven = 0.2, []
    for throws in itertools.product((0.0, 1.0), repeat=count):
        values = torch.tensor(throws, dtype=torch.float64)
        if log_wealth(values, 1.0, failure, claim) >= math.log(1 / failure):
            proven.append(int(values.sum()))
    assert proven
    for mean in (claim + 0.01, claim + 0.15):
        assert sum(mean**ones * (1 - mean) ** (count - ones) for ones in proven) <= failure


def test_claims_that_were_chosen_after_the_sample_hold_together() -> None:
    """The least of all claims, searched for on each sample: wrong no more often than δ."""
    rng, failure, repetitions = np.random.default_rng(0), 0.2, 150
    failures = 0
    for _ in range(repetitions):
        values = torch.from_numpy((rng.random(50) < 0.1) * 1.0)
        failures += confidence.betting(values, 1.0, failure) < 0.1
    assert 0 < failures <= binom.ppf(0.999, repetitions, failure)


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_widths_by_hand(count: int) -> None:
    values, failure = beta_sample(1, count), 0.03
    mean = float(values.mean())
    wide = mean + 2 * math.sqrt(math.log(1 / failure) / (2 * count))
    assert min(2.0, wide) <= hoeffding(values, 2.0, failure) <= wide * (1 + 1e-11)
    if count > 1:
        log = math.log(2 / failure)
        wide = mean + math.sqrt(2 * float(values.var()) * log / count) + 14 * log / (3 * (count - 1))
        assert min(2.0, wide * (1 - 1e-13)) <= empirical_bernstein(values, 2.0, failure) <= wide * (1 + 1e-11)
    else:
        assert empirical_bernstein(values, 2.0, failure) == 2.0
    truth = math.sqrt(math.log(1 / failure) / (2 * count))
    assert truth <= dkw(count, failure) <= truth * (1 + 1e-11)


def test_dkw_holds_on_every_sample_of_two_values() -> None:
    """Only the share of the smaller value counts: P(K/n < p − margin) ≤ δ."""
    for count, chance, failure in itertools.product((3, 20, 60), (0.1, 0.5, 0.9), (0.5, 0.1, 0.01)):
        assert binom.cdf(math.ceil((chance - dkw(count, failure)) * count) - 1, count, chance) <= failure


def ceiling_by_betting(values: Tensor, ceiling: float, failure: float) -> float:
    return betting(values, ceiling, failure, ceiling)


@pytest.mark.parametrize("rule", [hoeffding, empirical_bernstein, ceiling_by_betting])
@pytest.mark.parametrize(
    ("values", "ceiling", "failure"),
    [
        ([0.5, 1.2], 1.0, 0.1),
        ([0.5, -0.1], 1.0, 0.1),
        ([0.5, math.nan], 1.0, 0.1),
        ([], 1.0, 0.1),
        ([0.5], math.inf, 0.1),
        ([0.5], math.nan, 0.1),
        ([0.5], 1.0, 0.0),
        ([0.5], 1.0, 1.0),
        ([0.5], 1.0, math.nan),
    ],
)
def test_values_without_a_theorem_are_refused(
    rule: confidence.Inequality, values: list[float], ceiling: float, failure: float
) -> None:
    with pytest.raises(Refused):
        rule(torch.tensor(values, dtype=torch.float64), ceiling, failure)


def test_dkw_needs_a_failure_of_at_most_a_half() -> None:
    for count, failure in ((10, 0.7), (10, 0.0), (0, 0.1), (10, math.nan)):
        with pytest.raises(Refused):
            dkw(count, failure)
