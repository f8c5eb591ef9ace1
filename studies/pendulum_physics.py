"""The pendulum of gymnasium with other physics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from certus.errors import require, require_count
from certus.mdp import discretize_action

if TYPE_CHECKING:
    import gymnasium


def make_pendulum(
    *,
    mass: float = 1.0,
    length: float = 1.0,
    gravity: float = 1.0,
    torques: int = 3,
    step_limit: int = 200,
) -> gymnasium.Env[np.ndarray, int]:
    """gymnasium's Pendulum-v1 with changed physics, seen as (angle from the top, rate), with few torques.

    Args:
        mass, length, gravity: factors.
        torques: how many equally spaced torques there are to choose from.
    """
    import gymnasium

    for name, factor in (("mass", mass), ("length", length), ("gravity", gravity)):
        require(0 < factor < math.inf, name, "be a positive and finite factor", factor)
    require_count("step_limit", step_limit)
    made = gymnasium.make("Pendulum-v1", max_episode_steps=step_limit, disable_env_checker=True)
    bare: Any = made.unwrapped
    bare.m, bare.l, bare.g = bare.m * mass, bare.l * length, bare.g * gravity
    high = np.array([math.pi, bare.max_speed])

    def angle_and_rate(observation: np.ndarray) -> np.ndarray:
        return np.array([math.atan2(observation[1], observation[0]), observation[2]])

    seen = gymnasium.wrappers.TransformObservation(
        made, angle_and_rate, gymnasium.spaces.Box(-high, high, dtype=np.float64)
    )
    return discretize_action(seen, torques)
