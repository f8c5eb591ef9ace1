"""The cart-pole of gymnasium, with other masses, lengths and gravity, in a form that compiles (sec:cartpole).

One function, ``advance``, is the physics: over arrays in NumPy, and over numbers inside compiled loops. It
equals ``gymnasium``'s step operation by operation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from certus.errors import require
from certus.mdp._compiled import Real, compiled

STEP_LIMIT = 400  # the paper's cap on an episode
START = 0.05  # every entry of the first state is uniform on ±START


class CartPole(NamedTuple):
    """The constants of the system; a named tuple, since compiled code accepts these.

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
        """The same system with the pole's mass and length and the gravity multiplied by these factors."""
        for name, factor in (("mass", mass), ("length", length), ("gravity", gravity)):
            require(0 < factor < math.inf, name, "be a positive and finite factor", factor)
        return self._replace(
            pole_mass=self.pole_mass * mass, length=self.length * length, gravity=self.gravity * gravity
        )


ORIGINAL = CartPole()


def variations(nominal: CartPole = ORIGINAL) -> dict[str, CartPole]:
    """The paper's seven systems: mass and length changed by a factor 2, gravity by 5."""
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
    """One step of explicit Euler; ``push`` is +1 or −1, for a force to the right or to the left."""
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
