"""Robust value iteration against every policy of a small model."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from certus.errors import ArgumentError
from certus.mdp import robust_optimum, worst_case_values
from tests.oracles import worst_case_by_linear_program

GAMMAS = np.linspace(0, 30, 151)


def small_model(seed: int) -> tuple[np.ndarray[Any, Any], ...]:
    generator = np.random.default_rng(seed)
    places = generator.uniform(0, 1, 4)
    following = generator.integers(4, size=(4, 2, 3))
    return following, generator.uniform(0, 1, 4), (places[:, None] - places) ** 2


@pytest.mark.parametrize("rho", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("seed", [0, 1])
def test_no_policy_is_better_and_one_is_as_good(rho: float, seed: int) -> None:
    """All 16 deterministic policies: their worst-case values are at most V everywhere, and one reaches it."""
    following, rewards, costs = small_model(seed)
    settings: dict[str, Any] = {"rho": rho, "discount": 0.7, "gammas": GAMMAS, "tolerance": 1e-6}
    found = robust_optimum(following, rewards, costs, **settings)
    values = [
        worst_case_values(following[np.arange(4), list(policy)], rewards, costs, **settings)
        for policy in itertools.product(range(2), repeat=4)
    ]
    np.testing.assert_allclose(np.max(values, axis=0), found.values, atol=1e-5)
    own = worst_case_values(following[np.arange(4), found.table.argmax(1)], rewards, costs, **settings)
    np.testing.assert_allclose(own, found.values, atol=1e-5)


def test_values_solve_the_equation_by_linear_programs() -> None:
    following, rewards, costs = small_model(2)
    found = robust_optimum(following, rewards, costs, rho=0.05, discount=0.7, gammas=GAMMAS, tolerance=1e-6)
    for state in range(4):
        worst = [
            -worst_case_by_linear_program(-found.values, costs[:, following[state, action]].T, 0.05)
            for action in range(2)
        ]
        assert found.values[state] == pytest.approx(rewards[state] + 0.7 * max(worst), abs=1e-2)


def test_refused() -> None:
    following, rewards, costs = small_model(0)
    with pytest.raises(ArgumentError, match="`rho` must be finite and not negative"):
        robust_optimum(following, rewards, costs, rho=-1.0)
    with pytest.raises(ArgumentError, match="`discount` must lie in"):
        robust_optimum(following, rewards, costs, rho=0.1, discount=1.0)


def test_values_that_do_not_settle_are_refused() -> None:
    """Two states by turns, one of them with a reward: 10,000 sweeps are too few for this discount."""
    turns, rewards = np.array([[1], [0]]), np.array([1.0, 0.0])
    rule = r"`discount` must be smaller, or `tolerance` larger: .* after 10,000 sweeps; got 0\.99999\."
    with pytest.raises(ArgumentError, match=rule):
        worst_case_values(turns, rewards, np.zeros((2, 2)), rho=0.0, discount=0.99999)
    with pytest.raises(ArgumentError, match=rule):
        robust_optimum(turns[:, None], rewards, np.zeros((2, 2)), rho=0.0, discount=0.99999)
