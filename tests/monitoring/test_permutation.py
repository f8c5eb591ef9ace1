"""The permutation test against all permutations, exact transport, and its own level."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import ot
import pytest

from certus.errors import ArgumentError
from certus.monitoring.permutation import permutation_test, rounds_for


def samples(seed: int, n: int, m: int, move: float = 0.0) -> tuple[Any, Any]:
    """A number, a number with ties, and a column of two values."""
    rng = np.random.default_rng(seed)

    def rows(count: int, by: float) -> Any:
        columns = rng.normal(by, 1, count), rng.integers(0, 4, count) + by, rng.integers(0, 2, count) * 3.0
        return np.stack(columns, 1)

    return rows(n, 0.0), rows(m, move)


WEIGHTS = np.array([1.0, 0.5, 2.0])


def exact(first: Any, second: Any) -> Any:
    """(columns,) weighted costs, by POT."""
    return WEIGHTS * [ot.emd2_1d(first[:, at], second[:, at]) for at in range(first.shape[1])]


@pytest.mark.parametrize(("n", "m"), [(4, 4), (3, 5), (5, 2)])
def test_the_p_value_against_all_ways_to_deal(n: int, m: int) -> None:
    """The share of all subsets that move the columns as far, relative to their means, by POT."""
    first, second = samples(n, n, m, 0.8)
    pooled = np.concatenate([first, second])
    own = exact(first, second)
    dealt = []
    for chosen in combinations(range(n + m), n):
        inside = np.isin(np.arange(n + m), chosen)
        dealt.append(exact(pooled[inside], pooled[~inside]))
    costs = np.stack(dealt)
    ratios = (costs / costs.mean(0)).mean(1)
    rounds = 1500
    test = permutation_test(first, second, WEIGHTS, rounds=rounds)
    share = float(np.mean(ratios >= (own / costs.mean(0)).mean() * (1 - 1e-9)))
    assert test.columns == pytest.approx(own, rel=1e-9)
    assert test.chance_columns == pytest.approx(costs.mean(0), rel=0.1)
    assert test.statistic == pytest.approx((own / costs.mean(0)).mean(), rel=0.1)
    assert test.p_value == pytest.approx(share, abs=0.05 + 5 * (share * (1 - share) / rounds) ** 0.5)
    assert test.chance == pytest.approx(test.chance_columns.sum())


def test_false_alarms_are_as_rare_as_stated() -> None:
    """Of 300 pairs of one law: fewer than 5% plus four standard errors; and a shift is seen."""
    p_values = [permutation_test(*samples(seed, 20, 30), WEIGHTS, rounds=19).p_value for seed in range(300)]
    alarms = sum(p_value <= 0.05 for p_value in p_values)
    assert alarms <= 0.05 * 300 + 4 * (300 * 0.05 * 0.95) ** 0.5
    assert permutation_test(*samples(0, 60, 80, 1.0), WEIGHTS).p_value <= 0.01


def test_dependent_rows_need_their_clusters() -> None:
    """Forty copies of each row: rows dealt out one by one cry always, whole clusters at the level."""
    plain, whole = 0, 0
    for seed in range(40):
        first, second = (np.repeat(part, 40, axis=0) for part in samples(seed, 6, 6))
        names = (np.repeat(np.arange(6), 40), np.repeat(np.arange(6, 12), 40))
        plain += permutation_test(first, second, WEIGHTS, rounds=39).p_value <= 0.05
        whole += permutation_test(first, second, WEIGHTS, rounds=39, clusters=names).p_value <= 0.05
    assert plain >= 30
    assert whole <= 0.05 * 40 + 4 * (40 * 0.05 * 0.95) ** 0.5


def test_clusters_lie_in_one_sample() -> None:
    with pytest.raises(ArgumentError, match="`clusters` must lie in one of the samples each"):
        permutation_test(*samples(0, 3, 3), WEIGHTS, clusters=(np.array([1, 1, 2]), np.array([2, 3, 3])))


def test_enough_permutations_for_the_level() -> None:
    for level in (0.5, 0.05, 0.01, 0.05 / 52):
        assert 1 / (rounds_for(level) + 1) <= level / 5 * (1 + 1e-9) or rounds_for(level) == 199
        assert permutation_test(*samples(0, 5, 5, 9.0), WEIGHTS, level=level, rounds=5).p_value >= 1 / 6
