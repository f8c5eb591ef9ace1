"""Environments of gymnasium: cart-pole with other physics, and what a learner can work with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from certus.errors import ArgumentError, UnsupportedError, require, require_count
from certus.mdp.cartpole import ORIGINAL, STEP_LIMIT, CartPole

if TYPE_CHECKING:
    import gymnasium


def _gymnasium() -> Any:
    try:
        import gymnasium
    except ImportError:
        raise UnsupportedError("Environments need gymnasium: pip install 'certus[rl]'.") from None
    return gymnasium


def discretize_action(env: gymnasium.Env[Any, Any], choices: int) -> gymnasium.Env[Any, int]:
    """The environment with a one-dimensional Box of actions cut down to ``choices`` equally spaced ones."""
    gym = _gymnasium()
    require_count("choices", choices, least=2)
    space = env.action_space
    if not isinstance(space, gym.spaces.Box) or space.shape != (1,):
        raise ArgumentError(f"`env` must have one continuous action, a Box of shape (1,); got {space}.")
    levels = np.linspace(space.low, space.high, choices)
    chosen = gym.wrappers.TransformAction(env, lambda choice: levels[choice], gym.spaces.Discrete(choices))
    return cast("gymnasium.Env[Any, int]", chosen)


def make_cartpole(
    system: CartPole = ORIGINAL, step_limit: int = STEP_LIMIT
) -> gymnasium.Env[np.ndarray, int]:
    """gymnasium's CartPole-v1 with this physics, its limits and the paper's cap on an episode."""
    require_count("step_limit", step_limit)
    made: gymnasium.Env[np.ndarray, int] = _gymnasium().make(
        "CartPole-v1", max_episode_steps=step_limit, disable_env_checker=True
    )
    set_physics(made.unwrapped, system)
    return made


def make_cartpoles(
    count: int, system: CartPole = ORIGINAL, step_limit: int = STEP_LIMIT
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """``count`` of them side by side, vectorised by gymnasium itself."""
    require_count("count", count)
    require_count("step_limit", step_limit)
    made: gymnasium.vector.VectorEnv[Any, Any, Any] = _gymnasium().make_vec(
        "CartPole-v1", count, vectorization_mode="vector_entry_point", max_episode_steps=step_limit
    )
    set_physics(made.unwrapped, system)
    return made


def set_physics(env: Any, system: CartPole) -> None:
    """Give a cart-pole of gymnasium other constants, those it computed from the old ones included."""
    env.gravity, env.masscart, env.masspole = system.gravity, system.cart_mass, system.pole_mass
    env.length, env.force_mag, env.tau = system.length, system.force, system.interval
    env.theta_threshold_radians, env.x_threshold = system.angle_limit, system.position_limit
    env.total_mass = env.masspole + env.masscart
    env.polemass_length = env.masspole * env.length


def check_spaces(env: Any, columns: tuple[int, ...] | None, axes: int | None = None) -> int:
    """Continuous observations of which ``columns`` exist, discrete actions: the number of these.

    Raises ``ArgumentError`` for other spaces; ``axes`` is the number of coordinates that are needed.
    """
    spaces = _gymnasium().spaces
    observations, actions = env.observation_space, env.action_space
    continuous = isinstance(observations, spaces.Box) and np.issubdtype(observations.dtype, np.floating)
    if not continuous or len(observations.shape) != 1:
        raise ArgumentError(
            f"`env` must have continuous observations, a one-dimensional Box of real numbers, since states "
            f"are moved by gradients; got {observations}."
        )
    if not isinstance(actions, spaces.Discrete) or actions.start != 0:
        raise ArgumentError(
            f"`env` must have Discrete actions that start at 0 (discretize_action makes them); got {actions}."
        )
    width = observations.shape[0]
    seen = tuple(range(width)) if columns is None else columns
    require(all(0 <= column < width for column in seen), "columns", f"lie in [0, {width})", columns)
    require(axes in (None, len(seen)), "covering", f"have {len(seen)} axes, as what is seen", axes)
    return int(actions.n)
