"""The optimum of a robust MDP: the best policy when every transition may move within a ball of radius ρ.

    V(i) = max_a r(i) + λ inf {E_P V : W_c(P, P̂_ia) ≤ ρ}

The balls of different states and actions are independent of each other (they are *rectangular*). So a
deterministic, stationary policy is optimal, and iterating the equation converges to its value.
As in ``worst_case`` the infimum is taken from below, by duality, on a grid of γ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from certus.mdp.cartpole import ORIGINAL, CartPole
from certus.mdp.covering import Points
from certus.mdp.fast import ANGLES, cartpole_learner
from certus.mdp.policies import TabularPolicy
from certus.mdp.worst_case import (
    DUAL_GRID,
    MOST_SWEEPS,
    cell_model,
    check_ball,
    unsettled,
    value_at_start,
    worst_expectations,
)


@dataclass(frozen=True, eq=False)
class RobustOptimum:
    """What robust value iteration returns.

    Attributes:
        values: (states,) V.
        table: (states, actions) r + λ inf E_P V; the optimal action is the largest of its row.
    """

    values: Points
    table: Points


def robust_optimum(
    following: NDArray[np.int64],
    rewards: Points,
    costs: Points,
    *,
    rho: float,
    discount: float = 0.99,
    gammas: Sequence[float] | Points = DUAL_GRID,
    tolerance: float = 1e-2,
) -> RobustOptimum:
    """Solve the equation above for a finite model with uniform samples.

    Args:
        following: (states, actions, samples) the states that each action leads to, equally likely.
        rewards, costs, rho, gammas, tolerance: see ``worst_case_values``.

    One state, two actions, nothing to be moved: the reward for ever.

    >>> robust_optimum(np.zeros((1, 2, 1), int), np.ones(1), np.zeros((1, 1)), rho=0.1, discount=0.5).values
    array([2.])
    """
    check_ball(rho, discount)
    values = rewards / (1 - discount)
    for _ in range(MOST_SWEEPS):
        table = rewards[:, None] + discount * worst_expectations(values, following, costs, rho, gammas)
        change = np.abs(table.max(1) - values).max()
        values = table.max(1)
        if change <= tolerance * (1 - discount):
            return RobustOptimum(values, table)
    raise unsettled(discount)


def cartpole_optimum(
    rho: float, system: CartPole = ORIGINAL, discount: float = 0.99
) -> tuple[TabularPolicy, float]:
    """The policy that is optimal within ρ on the cells of cart-pole, and its value there.

    Of the cells it is the optimum; of the system, whose cart has a position that the cells do not see, its
    value is *estimated*.
    """
    covering = cartpole_learner().covering
    model = cell_model(covering, system)
    found = robust_optimum(model.following, model.rewards, model.costs, rho=rho, discount=discount)
    policy = TabularPolicy(found.table[:-1].copy(), covering, ANGLES)
    return policy, value_at_start(found.values, covering)
