"""Tabular Q-learning against value iteration on the perturbed model; compiled loop against gymnasium."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from scipy.special import lambertw
from torch import Tensor

from certus.errors import ArgumentError, LossError, UnsupportedError
from certus.mdp import AngleReward, Covering, TabularQLearning, cartpole_learner, fit_cartpole, make_cartpole
from certus.mdp.cartpole import START
from certus.mdp.tabular import Decay, Landing, lowest_cell
from certus.mdp.transition import WeakPenaltyWarning

CENTRES = np.array([-0.8, -0.4, 0.0, 0.4, 0.8])
REWARDS = np.exp(-np.abs(CENTRES))
DISCOUNT = 0.8


class Corridor(gymnasium.Env[Any, Any]):
    """Five places in a row; actions 0 and 1 go left and right, and the right end is a fall."""

    observation_space = Box(-1.0, 1.0, (1,), np.float64)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.steps = int(self.np_random.integers(4)), 0
        return CENTRES[[self.place]], {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place, self.steps = max(self.place + 2 * action - 1, 0), self.steps + 1
        return CENTRES[[self.place]], 0.0, self.place == 4, self.steps == 20, {}


def learn(gamma: float | None, landing: Landing = Landing.ROUND) -> np.ndarray[Any, Any]:
    covering = Covering((-1.0,), (1.0,), (5,))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *ignored, **also: None)  # the threshold is tested below
        learner = TabularQLearning(
            covering,
            gamma=gamma,
            landing=landing,
            discount=DISCOUNT,
            episodes=400,
            rate=Decay(0.5, 1.0),
            exploration=Decay(1.0, 1.0),
        )
    return learner.fit(Corridor(), seed=0).policy.table


def value_iteration(landed: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Q of the corridor in which a move to place j leads to ``landed[j]``; a fall (4) ends it."""
    table = np.zeros((5, 2))
    for _ in range(500):
        for place in range(4):
            for action in range(2):
                after = max(place + 2 * action - 1, 0)
                ahead = 0.0 if after == 4 else table[landed[after]].max()
                table[place, action] = REWARDS[place] + DISCOUNT * ahead
    return table


def test_nominal_learning_is_value_iteration() -> None:
    np.testing.assert_allclose(learn(None), value_iteration(np.arange(5)), atol=1e-6)


@pytest.mark.quick_share(3)
@pytest.mark.parametrize("gamma", [0.5, 1.5, 100.0])
def test_robust_learning_is_value_iteration_on_the_perturbed_model(gamma: float) -> None:
    sides = np.where(CENTRES >= 0, 1, -1)
    moved = CENTRES + sides * lambertw(REWARDS / (2 * gamma)).real
    landed = np.abs(np.clip(moved, -0.99, 0.99)[:, None] - CENTRES).argmin(1)
    assert (landed[2] == 2) == (gamma == 100.0)  # the weaker penalties do move the middle place
    table = learn(gamma)
    # Place 4 is only reached by a fall or by the adversary; no action starts there, so its row stays 0.
    np.testing.assert_allclose(table, value_iteration(landed), atol=1e-6)


@pytest.mark.parametrize("gamma", [1.0, 10.0])  # between 2 and 6 no fixed point attracts: Q goes in circles
def test_minimising_over_the_covering_is_a_fixed_point_of_its_equation(gamma: float) -> None:
    table = learn(gamma, Landing.COVER)
    values = table.max(1)
    for place in range(4):
        for action in range(2):
            after = max(place + 2 * action - 1, 0)
            costs = gamma * (CENTRES - CENTRES[after]) ** 2
            worst = (REWARDS + DISCOUNT * values + costs).argmin()
            ahead = 0.0 if after == 4 else values[worst]
            assert table[place, action] == pytest.approx(REWARDS[place] + DISCOUNT * ahead, abs=1e-6)
    assert (np.abs(table - value_iteration(np.arange(5))) > 0.1).any()  # and not the nominal one


def test_over_the_covering_a_large_penalty_is_rounding() -> None:
    np.testing.assert_allclose(learn(1e9, Landing.COVER), value_iteration(np.arange(5)), atol=1e-6)


class SharedCartPole(gymnasium.ObservationWrapper[Any, Any, Any]):
    """gymnasium's cart-pole in double precision, started by the random numbers that the learner uses."""

    def __init__(self, generator: np.random.Generator) -> None:
        super().__init__(make_cartpole())
        self.generator = generator

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        bare: Any = self.unwrapped
        if seed is None:  # the first call only seeds
            bare.state = np.array([self.generator.uniform(-START, START) for _ in range(4)])
        return bare.state, {}

    def observation(self, observation: Any) -> Any:
        bare: Any = self.unwrapped
        return bare.state


@pytest.mark.parametrize(
    ("gamma", "landing"), [(None, Landing.ROUND), (50.0, Landing.ROUND), (1e5, Landing.COVER)]
)
def test_the_compiled_loop_learns_what_gymnasium_teaches(
    gamma: float | None, landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = cartpole_learner(gamma, landing=landing, episodes=40)
    fast = fit_cartpole(learner, seed=5)
    shared = np.random.default_rng(5)
    monkeypatch.setattr(np.random, "default_rng", lambda seed: shared)
    slow = learner.fit(SharedCartPole(shared), seed=5)
    np.testing.assert_array_equal(fast.lengths, slow.lengths)
    np.testing.assert_allclose(fast.policy.table, slow.policy.table, rtol=0, atol=1e-9)
    np.testing.assert_allclose(fast.transport, slow.transport, rtol=1e-6, atol=1e-15)
    assert (fast.transport.max() > 0) == (gamma is not None)


def test_learning_is_a_function_of_the_seed() -> None:
    learner = cartpole_learner(50.0, episodes=100)
    first, again, other = (fit_cartpole(learner, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.policy.table, again.policy.table)
    assert (first.policy.table != other.policy.table).any()


def test_a_penalty_below_the_width_of_a_cell_is_named_with_its_threshold() -> None:
    with pytest.warns(WeakPenaltyWarning, match=r"gamma = 10 is below 17.4"):
        cartpole_learner(10.0)
    # 100 to lose over 15 cells of 0.0279: 6.67 for each, which pays for γ·0.0279² below 8.55e3.
    with pytest.warns(WeakPenaltyWarning, match=r"gamma = 8500 is below 8.55e\+03"):
        cartpole_learner(8500.0, landing=Landing.COVER)
    cartpole_learner(8600.0, landing=Landing.COVER)


def test_coverings() -> None:
    grid = Covering((-1.0, 0.0), (1.0, 3.0), (4, 3))
    np.testing.assert_array_equal(grid.cells(grid.centres), np.arange(12))
    assert grid.widths == (0.5, 1.0)
    for bins in (0, -3, 2.5):
        with pytest.raises(ArgumentError, match=f"`bins` must be a whole number, at least 1; got {bins}"):
            Covering((0.0,), (1.0,), (bins,))  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="`lower` must have one entry per axis"):
        Covering((0.0, 0.0), (1.0,), (2,))
    with pytest.raises(ArgumentError, match="`lower` must be below `upper`"):
        Covering((1.0,), (1.0,), (2,))


def test_spaces_that_cannot_be_learnt_in() -> None:
    learner = TabularQLearning(Covering((0.0,), (1.0,), (4,)), episodes=1)
    frozen = gymnasium.make("FrozenLake-v1")
    with pytest.raises(ArgumentError, match=r"`env` must have continuous observations.*got Discrete\(16\)"):
        learner.fit(frozen)
    with pytest.raises(ArgumentError, match="`env` must have Discrete actions"):
        learner.fit(gymnasium.make("Pendulum-v1"))
    with pytest.raises(ArgumentError, match="`covering` must have 2 axes"):
        learner.fit(gymnasium.make("MountainCar-v0"))
    with pytest.raises(ArgumentError, match=r"`columns` must lie in \[0, 4\)"):
        TabularQLearning(learner.covering, columns=(4,)).fit(make_cartpole())
    with pytest.raises(UnsupportedError, match="`cartpole_learner` makes one"):
        fit_cartpole(learner)


def test_bad_settings() -> None:
    grid = Covering((0.0,), (1.0,), (4,))
    with pytest.raises(ArgumentError, match="`episodes` must be a whole number, at least 1; got 0"):
        TabularQLearning(grid, episodes=0)
    with pytest.raises(ArgumentError, match=r"`discount` must lie in \[0, 1\)"):
        TabularQLearning(grid, discount=1.0)
    with pytest.raises(ArgumentError, match="`gamma` must be positive and finite"):
        TabularQLearning(grid, gamma=0.0)
    with pytest.raises(ArgumentError, match=r"`landing` must be Landing.ROUND or Landing.COVER; got 3"):
        TabularQLearning(grid, landing=3)  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ArgumentError, match="`coordinate` must be below 1"):
        TabularQLearning(grid, AngleReward(1))
    with pytest.raises(ArgumentError, match="`first` must lie in"):
        Decay(0.1, last=0.5)
    with pytest.raises(ArgumentError, match="`factor` must lie in"):
        Decay(0.1, factor=0.0)
    assert Decay(1.0, 0.5, last=0.3).values(3).tolist() == [1.0, 0.5, 0.3]
    assert TabularQLearning(grid).reward == AngleReward()


def test_only_what_follows_a_gradient_needs_one() -> None:
    grid = Covering((-1.0,), (1.0,), (5,))

    def steps(states: Tensor) -> Tensor:
        return (states[:, 0].abs() < 0.3).double()

    for options in ({}, {"gamma": 1.0, "landing": Landing.COVER}):
        # The options are of several kinds.
        learner = TabularQLearning(grid, steps, episodes=2, **options)  # type: ignore[arg-type]
        assert learner.fit(Corridor(), seed=0).policy.table.max() > 0
    with pytest.raises(LossError, match="no gradient in the state"):
        TabularQLearning(grid, steps, 1.0)
    with pytest.raises(LossError, match="one number per state"):
        TabularQLearning(grid, lambda states: states.sum())


@pytest.mark.parametrize("gamma", [0.1, 1.0, 30.0])
def test_the_lowest_cell_is_that_of_brute_force(gamma: float) -> None:
    rng = np.random.default_rng(int(gamma * 10))
    centres, levels = rng.normal(size=(40, 2)), rng.normal(size=40)
    for point in rng.normal(size=(20, 2)):
        values = levels + gamma * ((centres - point) ** 2).sum(1)
        assert lowest_cell(point, centres, levels, gamma) == values.argmin()
