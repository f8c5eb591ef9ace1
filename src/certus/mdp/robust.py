"""Robust values: policy evaluation and value iteration under worst-case transitions.

The optimum of a robust MDP is the value of the best policy when every transition may move within a ball of
transport cost ρ around P̂_ia, where action a nominally leads from state i.

    V(i) = max_a r(i) + λ inf {E_P V : W_c(P, P̂_ia) ≤ ρ}

The worst-case value of a given policy is the same with its own action in place of the maximum. The balls of
different states and actions are independent of each other (they are *rectangular*). So a deterministic,
stationary policy is optimal, and iterating the equation converges to its value.

By duality (prop:duality, with −V for the loss) the infimum is

    max_{γ ≥ 0} E_{j ~ P̂_ia}[min_k V(k) + γ c(k, j)] − γρ

Each γ of a grid gives a lower bound on it, so the fixed point is a lower bound on the worst case *of the
model*. A model of cells is not the system: for that the value is *estimated*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from certus._compiled import compiled
from certus.errors import ArgumentError, require
from certus.mdp.policies import Points

DUAL_GRID = np.geomspace(1, 1e5, 11)
MOST_SWEEPS = 10_000


def worst_case_values(
    following: NDArray[np.int64],
    rewards: Points,
    costs: Points,
    *,
    rho: float,
    discount: float = 0.99,
    gammas: Sequence[float] | Points = DUAL_GRID,
    tolerance: float = 1e-2,
) -> Points:
    """Return the worst-case values of a policy, from below, for a finite model with uniform samples.

    Args:
        following: (states, samples) the states that the transition from each leads to, equally likely.
        rewards: (states,) r.
        costs: (states, states) c(k, j), the price of landing in k instead of j; ∞ forbids it.
        rho: the radius ρ ≥ 0 for every transition.
        gammas: the grid of dual variables; 0, and for ρ = 0 the limit ∞, are always tried.
        tolerance: largest distance of the result from the fixed point.

    Returns: (states,) values.
    """
    return robust_optimum(
        following[:, None], rewards, costs, rho=rho, discount=discount, gammas=gammas, tolerance=tolerance
    ).values


def worst_expectations(
    values: Points, following: NDArray[np.int64], costs: Points, rho: float, gammas: Sequence[float] | Points
) -> Points:
    """(…,) inf {E_P V : W_c(P, P̂) ≤ ρ}, from below, for samples ``following`` (…, samples) of every P̂."""
    if rho == 0:
        return np.asarray(values[following].mean(-1))
    expected = np.full(following.shape[:-1], values.min())  # γ = 0: land anywhere
    for gamma in gammas:
        lowest = _cheapest(values, costs, gamma)
        np.maximum(expected, lowest[following].mean(-1) - gamma * rho, out=expected)
    return expected


@compiled
def _cheapest(values: Points, costs: Points, gamma: float) -> Points:
    """(states,) min_k V(k) + γ c(k, j) for each j."""
    lowest = np.full(len(values), np.inf)
    for k in range(len(values)):
        lowest = np.minimum(lowest, values[k] + gamma * costs[k])
    return lowest


@dataclass(frozen=True, eq=False)
class RobustOptimum:
    """Result of robust value iteration."""

    values: Points  # (states,) V
    table: Points  # (states, actions) r + λ inf E_P V; the optimal action is the largest of its row


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
    """Return the optimal values of a finite robust MDP with uniform samples.

    Args:
        following: (states, actions, samples) the states that each action leads to, equally likely.
        rewards, costs, rho, gammas, tolerance: see ``worst_case_values``.

    One state, two actions, nothing to move: the discounted sum of the reward.

    >>> robust_optimum(np.zeros((1, 2, 1), int), np.ones(1), np.zeros((1, 1)), rho=0.1, discount=0.5).values
    array([2.])
    """
    require(0 <= rho < math.inf, "rho", "be finite and not negative", rho)
    require(0 <= discount < 1, "discount", "lie in [0, 1)", discount)
    values = rewards / (1 - discount)
    for _ in range(MOST_SWEEPS):
        table = rewards[:, None] + discount * worst_expectations(values, following, costs, rho, gammas)
        change = np.abs(table.max(1) - values).max()
        values = table.max(1)
        if change <= tolerance * (1 - discount):
            return RobustOptimum(values, table)
    raise ArgumentError(
        f"`discount` must be smaller, or `tolerance` larger: values still change after {MOST_SWEEPS:,} "
        f"sweeps; got {discount}."
    )
