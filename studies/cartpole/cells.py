"""Cart-pole as a finite model of its cells: worst-case values of policies, and the robust optimum.

The angle and its rate move by themselves, whatever the cart does, so the cells are a model without the cart's
position: a run off the track is not counted. The values hold for the model; for the system they are
*estimated*.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from certus.mdp.cartpole import ORIGINAL, START, CartPole, advance, fallen
from certus.mdp.policies import Covering, Points, TabularPolicy
from certus.mdp.robust import robust_optimum, worst_case_values
from certus.mdp.tabular import ANGLES, cartpole_learner

_PER_AXIS = 4  # points of a cell, along each axis, whose transitions stand for the cell's


def cartpole_worst_case(
    policy: TabularPolicy, rho: float, system: CartPole = ORIGINAL, discount: float = 0.99
) -> float:
    """Return the worst-case discounted reward of a policy from the usual start of cart-pole.

    Args:
        rho: the mean squared distance, over (β, its rate), by which a transition may be moved.
    """
    covering = policy.covering
    following, rewards, costs = cell_model(covering, system)
    chosen = np.append(policy.table.argmax(1), 0)
    chosen_following = following[np.arange(len(chosen)), chosen]
    values = worst_case_values(chosen_following, rewards, costs, rho=rho, discount=discount)
    return value_at_start(values, covering)


def cell_model(covering: Covering, system: CartPole) -> tuple[NDArray[np.int64], Points, Points]:
    """Return cart-pole as a finite model of the cells and, as its last state, the fallen pole of value 0.

    To land there instead of at β costs the squared distance to the angle's limit.

    Returns: (states, 2, samples) where pushing left and right lead from points of each cell; (states,)
    rewards e^(−|β|), and 0 for the fallen pole; (states, states) costs of landing in the first instead of the
    second.
    """
    centres, count, fell = covering.centres, len(covering), len(covering)
    shifts = (np.arange(_PER_AXIS) + 0.5) / _PER_AXIS - 0.5
    offsets = np.stack(np.meshgrid(shifts, shifts, indexing="ij"), -1).reshape(-1, 2) * covering.widths
    points = (centres[:, None] + offsets).reshape(-1, 2)
    nothing = np.zeros(len(points))
    landed = []
    for push in (-1.0, 1.0):
        _, _, angle, spin = advance(nothing, nothing, points[:, 0], points[:, 1], nothing + push, system)
        cells = covering.cells(np.stack([angle, spin], 1))
        landed.append(np.where(fallen(nothing, angle, system), fell, cells).reshape(count, -1))
    stays = np.full((1, 2, len(offsets)), fell)
    costs = np.full((count + 1, count + 1), np.inf)
    costs[:count, :count] = ((centres[:, None] - centres[None]) ** 2).sum(2)
    costs[fell, :count] = np.maximum(system.angle_limit - np.abs(centres[:, 0]), 0) ** 2
    costs[fell, fell] = 0.0
    rewards = np.append(np.exp(-np.abs(centres[:, 0])), 0.0)
    return np.concatenate([np.stack(landed, 1), stays]), rewards, costs


def value_at_start(values: Points, covering: Covering) -> float:
    """Return the mean of V over the first states of an episode."""
    start = np.random.default_rng(0).uniform(-START, START, (1000, 2))
    return float(values[covering.cells(start)].mean())


def cartpole_optimum(
    rho: float, system: CartPole = ORIGINAL, discount: float = 0.99
) -> tuple[TabularPolicy, float]:
    """Return the policy that is optimal within ρ on the cells of cart-pole, and its value there."""
    covering = cartpole_learner().covering
    optimum = robust_optimum(*cell_model(covering, system), rho=rho, discount=discount)
    policy = TabularPolicy(optimum.table[:-1].copy(), covering, ANGLES)
    return policy, value_at_start(optimum.values, covering)
