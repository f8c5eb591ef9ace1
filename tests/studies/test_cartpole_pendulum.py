"""The pendulum with other physics, as agents meet it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from certus.errors import ArgumentError
from certus.mdp import AngleReward, episode_rewards
from studies.cartpole.pendulum import make_pendulum


def test_the_pendulum_is_seen_as_angle_and_rate() -> None:
    env = make_pendulum(gravity=2.0, torques=5)
    bare: Any = env.unwrapped
    assert bare.g == 20.0
    env.reset(seed=1)
    seen, *_ = env.step(4)
    angle = (bare.state[0] + np.pi) % (2 * np.pi) - np.pi
    np.testing.assert_allclose(seen, [angle, bare.state[1]], atol=1e-6)
    assert bare.last_u == 2.0


class Push:
    """A policy that always takes the second torque."""

    def actions(self, observations: np.ndarray) -> np.ndarray:
        return np.ones(len(observations), dtype=np.int64)

    def save(self, path: object) -> None: ...


def test_rewards_of_an_environment_of_gymnasium() -> None:
    means = episode_rewards(Push(), make_pendulum(step_limit=20), AngleReward(), trials=3)
    assert means.shape == (3,)
    assert (means >= np.exp(-np.pi)).all()
    assert (means <= 1).all()


def test_bad_values() -> None:
    with pytest.raises(ArgumentError, match="`mass` must be a positive and finite factor; got -1"):
        make_pendulum(mass=-1)
    with pytest.raises(ArgumentError, match="`step_limit` must be a whole number, at least 1; got 0"):
        make_pendulum(step_limit=0)
    with pytest.raises(ArgumentError, match="`choices` must be a whole number, at least 2"):
        make_pendulum(torques=1)
