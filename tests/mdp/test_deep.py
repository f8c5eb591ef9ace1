"""Deep Q-learning: what it converges to, what it remembers, what it refuses."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor

from certus.domains import Box as Interval
from certus.errors import ArgumentError, LossError, UnsupportedError
from certus.mdp import AngleReward, DeepQLearning, make_cartpoles
from certus.mdp.deep import Replay
from certus.mdp.policies import NetworkShape, QNetwork


class Line(gymnasium.Env[Any, Any]):
    """A walk on [−1, 1] in steps of ±0.2, cut after 15; r = −s², so the middle is best."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at, self.steps = float(self.np_random.uniform(-1, 1)), 0
        return np.array([self.at], np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.at, self.steps = float(np.clip(self.at + 0.4 * action - 0.2, -1, 1)), self.steps + 1
        return np.array([self.at], np.float32), 0.0, False, self.steps == 15, {}


def bowl(states: Tensor) -> Tensor:
    return -(states[:, 0] ** 2)


DISCOUNT, PENALTY = 0.5, 3.0


def value_iteration(gamma: float | None) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Q on a fine grid; each step lands where r + γc is lowest on the grid, if γ is given."""
    grid = np.linspace(-1, 1, 401)
    rewards, values = -(grid**2), np.zeros(401)
    after = np.abs(np.clip(grid[:, None] + [-0.2, 0.2], -1, 1)[..., None] - grid).argmin(2)
    for _ in range(60):
        landed = after
        if gamma is not None:
            landed = (rewards + gamma * (grid[:, None] - grid) ** 2).argmin(1)[after]
        table = rewards[:, None] + DISCOUNT * values[landed]
        values = table.max(1)
    return grid, table


@pytest.mark.parametrize("gamma", [None, PENALTY])
def test_it_learns_the_values_of_the_perturbed_model(gamma: float | None) -> None:
    # Without the Q-term, where Q-learning converges; the transition with it is tested on its own.
    domain = Interval(-1.0, 1.0)
    learner = DeepQLearning(
        bowl, (1.0,), gamma, False, domain=domain, discount=DISCOUNT, steps=500, learning_rate=3e-3
    )
    trained = learner.fit(SyncVectorEnv([Line] * 6), seed=0)
    grid, table = value_iteration(gamma)
    inside = np.abs(grid) <= 0.9
    with torch.no_grad():
        learnt = trained.policy.network(torch.from_numpy(grid[inside, None]).float()).numpy()
    other = value_iteration(None if gamma else PENALTY)[1]  # without the adversary, or with one
    error, difference = (np.abs(learnt - right[inside]).mean() for right in (table, other))
    assert error < 0.1
    assert error < difference / 3
    assert (trained.transport.max() > 0) == (gamma is not None)
    assert set(trained.lengths.tolist()) == {15}


def test_it_runs_on_cart_pole_and_leaves_torch_alone() -> None:
    learner = DeepQLearning(AngleReward(2), (2.4, 2.0, 0.4, 2.0), 1e4, steps=60, warm_up=20)
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    first, again = (learner.fit(make_cartpoles(4), seed=3) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    for name, weights in first.policy.network.state_dict().items():
        assert torch.equal(weights, again.policy.network.state_dict()[name])
    assert first.lengths.min() >= 1
    assert (first.transport > 0).all()


def test_replay_keeps_the_last_transitions() -> None:
    replay = Replay(4, 1)
    for start in (0.0, 3.0):
        rows = np.arange(start, start + 3)[:, None]
        replay.add(rows, np.array([0, 1, 0]), rows + 10, np.array([False, False, True]))
    assert len(replay) == 4
    states, actions, following, ended = replay.draw(200, np.random.default_rng(0))
    assert set(states[:, 0].tolist()) == {2.0, 3.0, 4.0, 5.0}
    assert torch.equal(following, states + 10)
    assert torch.equal(actions == 1, states[:, 0] == 4)
    assert torch.equal(ended == 1, (states[:, 0] == 5) | (states[:, 0] == 2))


def test_the_scale_of_outputs() -> None:
    network = QNetwork(NetworkShape(2, (1.0,), discount=0.9))
    states = torch.zeros(1, 1)
    torch.testing.assert_close(network(states), 10 * network.layers(states))


def test_refusals() -> None:
    learner = DeepQLearning(bowl, (1.0,), steps=5)
    with pytest.raises(ArgumentError, match=r"continuous observations.*Discrete\(16\)"):
        learner.fit(gymnasium.make_vec("FrozenLake-v1", 2))
    with pytest.raises(ArgumentError, match="`covering` must have 4 axes"):
        learner.fit(make_cartpoles(2))
    with pytest.raises(UnsupportedError, match="at the step after its end"):
        learner.fit(SyncVectorEnv([Line] * 2, autoreset_mode=AutoresetMode.SAME_STEP))
    for name, value, message in [
        ("steps", 0, "`steps` must be a whole number"),
        ("gamma", -1.0, "`gamma` must be positive"),
        ("discount", 1.0, r"`discount` must lie in \[0, 1\)"),
        ("learning_rate", 0.0, "`learning_rate` must be positive"),
        ("following_rate", 0.0, "`following_rate` must lie in"),
        ("explored", 2.0, "`explored` must lie in"),
        ("hidden", 0, "`hidden` must be a whole number, at least 1; got 0"),
    ]:
        with pytest.raises(ArgumentError, match=message):
            DeepQLearning(bowl, (1.0,), **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="`scales` must be positive"):
        NetworkShape(2, (0.0,))
    with pytest.raises(LossError, match="one number per state"):
        DeepQLearning(lambda states: states.sum(), (1.0,))
    with pytest.raises(LossError, match="no gradient"):
        DeepQLearning(lambda states: states[:, 0].detach(), (1.0,), 1.0)
    DeepQLearning(lambda states: states[:, 0].detach(), (1.0,))


def test_the_learning_rate_falls_with_every_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a straight line to a twentieth after ``steps`` updates; those of the warm-up are left out."""
    made: list[torch.optim.Adam] = []

    class Recorded(torch.optim.Adam):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(torch.optim, "Adam", Recorded)
    learner = DeepQLearning(AngleReward(2), (2.4, 2.0, 0.4, 2.0), learning_rate=0.01, steps=50, warm_up=10)
    learner.fit(make_cartpoles(2), seed=0)
    (optimizer,) = made
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01 * (1 - 0.95 * 40 / 50))
