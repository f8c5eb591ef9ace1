"""The cart-pole of gymnasium with other masses, lengths and gravity (sec:cartpole), and its environments.

One function, ``advance``, is the physics: over arrays in NumPy, and over numbers inside compiled loops. It
equals ``gymnasium``'s step operation by operation.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from certus._compiled import Real, compiled
from certus.errors import ArgumentError, optional_import, require, require_count

if TYPE_CHECKING:
    import gymnasium

STEP_LIMIT = 400  # the paper's cap on an episode
START = 0.05  # every entry of the first state is uniform on ±START


class CartPole(NamedTuple):
    """Constants of a cart-pole; a named tuple, since compiled code accepts these.

    Attributes:
        length: half of the pole's length, as in gymnasium.
        angle_limit: radians from the vertical at which an episode ends. The paper does not give it; the
            24° here are where gymnasium's observations end, twice its own limit.
        position_limit: distance from the origin at which an episode ends.
    """

    gravity: float = 9.8
    cart_mass: float = 1.0
    pole_mass: float = 0.1
    length: float = 0.5
    force: float = 10.0
    interval: float = 0.02
    angle_limit: float = math.radians(24)
    position_limit: float = 2.4

    def scaled(self, *, mass: float = 1.0, length: float = 1.0, gravity: float = 1.0) -> CartPole:
        """Return the system with the pole's mass and length and the gravity multiplied by these factors."""
        for name, factor in (("mass", mass), ("length", length), ("gravity", gravity)):
            require(0 < factor < math.inf, name, "be a positive and finite factor", factor)
        return self._replace(
            pole_mass=self.pole_mass * mass, length=self.length * length, gravity=self.gravity * gravity
        )


ORIGINAL = CartPole()


def variations(nominal: CartPole = ORIGINAL) -> dict[str, CartPole]:
    """Return the paper's seven systems: mass and length changed by a factor 2, gravity by 5."""
    return {
        "original": nominal,
        "light": nominal.scaled(mass=1 / 2),
        "long": nominal.scaled(length=2),
        "soft g": nominal.scaled(gravity=1 / 5),
        "heavy": nominal.scaled(mass=2),
        "short": nominal.scaled(length=1 / 2),
        "strong g": nominal.scaled(gravity=5),
    }


def advance(
    x: Real, speed: Real, angle: Real, spin: Real, push: Real, system: CartPole
) -> tuple[Real, Real, Real, Real]:
    """Take one step of explicit Euler; ``push`` is +1 or −1, for a force to the right or to the left."""
    total = system.pole_mass + system.cart_mass
    moment = system.pole_mass * system.length
    cosine, sine = np.cos(angle), np.sin(angle)
    drive = (push * system.force + moment * np.square(spin) * sine) / total
    resistance = system.length * (4.0 / 3.0 - system.pole_mass * np.square(cosine) / total)
    twist = (system.gravity * sine - cosine * drive) / resistance
    acceleration = drive - moment * twist * cosine / total
    return (
        x + system.interval * speed,
        speed + system.interval * acceleration,
        angle + system.interval * spin,
        spin + system.interval * twist,
    )


def fallen(x: Real, angle: Real, system: CartPole) -> Real:
    """Whether the cart or the pole is beyond its limit."""
    return (np.abs(x) > system.position_limit) | (np.abs(angle) > system.angle_limit)


advance_fast, fallen_fast = compiled(advance), compiled(fallen)


def _gymnasium() -> Any:
    return optional_import("gymnasium", "Environments need gymnasium: pip install 'certus[rl]'.")


def discretize_action(env: gymnasium.Env[Any, Any], choices: int) -> gymnasium.Env[Any, int]:
    """Return the environment with its one continuous action reduced to ``choices`` equally spaced ones."""
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
    """Return gymnasium's CartPole-v1 with this physics, its limits and the paper's cap on an episode."""
    require_count("step_limit", step_limit)
    env: gymnasium.Env[np.ndarray, int] = _gymnasium().make(
        "CartPole-v1", max_episode_steps=step_limit, disable_env_checker=True
    )
    set_physics(env.unwrapped, system)
    return env


def make_cartpoles(
    count: int, system: CartPole = ORIGINAL, step_limit: int = STEP_LIMIT
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Return ``count`` cart-poles side by side, vectorised by gymnasium."""
    require_count("count", count)
    require_count("step_limit", step_limit)
    env: gymnasium.vector.VectorEnv[Any, Any, Any] = _gymnasium().make_vec(
        "CartPole-v1", count, vectorization_mode="vector_entry_point", max_episode_steps=step_limit
    )
    set_physics(env.unwrapped, system)
    return env


def set_physics(env: Any, system: CartPole) -> None:
    """Set the constants of a gymnasium cart-pole, derived ones included."""
    env.gravity, env.masscart, env.masspole = system.gravity, system.cart_mass, system.pole_mass
    env.length, env.force_mag, env.tau = system.length, system.force, system.interval
    env.theta_threshold_radians, env.x_threshold = system.angle_limit, system.position_limit
    env.total_mass = env.masspole + env.masscart
    env.polemass_length = env.masspole * env.length


def check_spaces(observations: Any, actions: Any, columns: tuple[int, ...] | None, axes: int) -> int:
    """Return the number of actions; raise ``ArgumentError`` unless they are discrete, observations are
    continuous, and ``columns`` (None: all of an observation) are ``axes`` coordinates."""
    spaces = _gymnasium().spaces
    continuous = isinstance(observations, spaces.Box) and np.issubdtype(observations.dtype, np.floating)
    rule = "have continuous observations, a one-dimensional Box of real numbers: gradients move the states"
    require(continuous and len(observations.shape) == 1, "env", rule, observations)
    discrete = isinstance(actions, spaces.Discrete) and actions.start == 0
    require(discrete, "env", "have Discrete actions that start at 0 (discretize_action makes them)", actions)
    width = observations.shape[0]
    observed = tuple(range(width)) if columns is None else columns
    require(all(0 <= column < width for column in observed), "columns", f"lie in [0, {width})", columns)
    require(
        axes == len(observed),
        "covering",
        f"have {len(observed)} axes, as many as the observations that it covers",
        axes,
    )
    return int(actions.n)
