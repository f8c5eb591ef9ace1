"""Tabular Q-learning on cart-pole in one compiled loop: thousands of episodes in a second.

The same updates as ``TabularQLearning.fit``, with the physics of ``cartpole.advance`` in place of gymnasium.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from certus.errors import UnsupportedError, require_count
from certus.mdp._compiled import compiled, warn_if_uncompiled
from certus.mdp.cartpole import ORIGINAL, START, STEP_LIMIT, CartPole, advance_fast, fallen_fast
from certus.mdp.policies import Covering, Points, TabularPolicy, axis_cell_fast
from certus.mdp.rewards import AngleReward, pushed_fast
from certus.mdp.tabular import Landing, Table, TabularQLearning, Training, lowest_cell

ANGLES = (2, 3)  # the entries β and its rate of an observation of cart-pole
CellGrid = tuple[float, float, float, float, int, int]  # lower and upper ends, and cells, of angle and rate
SPIN_LIMIT = 2.0  # rad/s at which the cells of the rate end; the paper does not say


def cartpole_learner(
    gamma: float | None = None,
    *,
    system: CartPole = ORIGINAL,
    bins: tuple[int, int] = (30, 15),
    landing: Landing = Landing.ROUND,
    episodes: int = 4000,
) -> TabularQLearning:
    """The paper's agent: 30 cells for β up to where an episode ends, 15 for its rate, r = e^(−|β|)."""
    limits = (system.angle_limit, SPIN_LIMIT)
    covering = Covering((-limits[0], -limits[1]), limits, bins)
    return TabularQLearning(
        covering, AngleReward(0), gamma, landing=landing, episodes=episodes, columns=ANGLES
    )


def fit_cartpole(
    learner: TabularQLearning, seed: int = 0, system: CartPole = ORIGINAL, step_limit: int = STEP_LIMIT
) -> Training:
    """Train a learner that sees β and its rate, with r = e^(−|β|), on the simulated cart-pole."""
    if learner.columns != ANGLES or len(learner.covering.bins) != 2 or learner.reward != AngleReward(0):
        raise UnsupportedError(
            "The compiled simulator trains agents that see the angle and its rate, with AngleReward(0): "
            "`cartpole_learner` makes one. For others use `learner.fit(make_cartpole())`."
        )
    require_count("step_limit", step_limit)
    warn_if_uncompiled()
    covering, transition = learner.covering, learner.transition
    (low_angle, low_spin), (high_angle, high_spin) = covering.lower, covering.upper
    grid: CellGrid = (low_angle, low_spin, high_angle, high_spin, covering.bins[0], covering.bins[1])
    table = np.zeros((len(covering), 2))
    lengths, transport = _train(
        table,
        np.random.default_rng(seed),
        system,
        grid,
        covering.centres,
        learner.rewards(covering.centres),
        0 if transition is None else int(learner.landing),
        0.0 if transition is None else transition.gamma,
        learner.discount,
        learner.rate.values(learner.episodes),
        learner.exploration.values(learner.episodes),
        step_limit,
    )
    return Training(TabularPolicy(table, covering, ANGLES), lengths, transport)


@compiled
def _cell(angle: float, spin: float, grid: CellGrid) -> int:
    first = axis_cell_fast(angle, grid[0], grid[2], grid[4])
    return int(first * grid[5] + axis_cell_fast(spin, grid[1], grid[3], grid[5]))


@compiled
def _train(
    table: Table,
    generator: np.random.Generator,
    system: CartPole,
    grid: CellGrid,
    centres: Points,
    rewards: Points,
    landing: int,
    gamma: float,
    discount: float,
    rates: Points,
    explorations: Points,
    step_limit: int,
) -> tuple[NDArray[np.int64], Points]:
    """Episodes of cart-pole, with an update after each step; ``table`` is changed in place."""
    lengths, transport = np.zeros(len(rates), dtype=np.int64), np.zeros(len(rates))
    seen, levels = np.zeros(2), rewards + discount * np.maximum(table[:, 0], table[:, 1])
    for episode in range(len(rates)):
        x = generator.uniform(-START, START)
        speed = generator.uniform(-START, START)
        angle = generator.uniform(-START, START)
        spin = generator.uniform(-START, START)
        cell, total, step, over = _cell(angle, spin, grid), 0.0, 0, False
        while step < step_limit and not over:
            if generator.random() < explorations[episode]:
                action = int(2 * generator.random())
            else:
                action = int(table[cell, 1] > table[cell, 0])
            goal = np.exp(-abs(angle))
            x, speed, angle, spin = advance_fast(x, speed, angle, spin, 2.0 * action - 1.0, system)
            over = bool(fallen_fast(x, angle, system))
            following = _cell(angle, spin, grid)
            landed = following
            if landing == 1:  # Landing.ROUND
                moved = pushed_fast(angle, gamma)
                landed = _cell(moved, spin, grid)
                total += (moved - angle) ** 2
            elif landing == 2:  # Landing.COVER
                seen[0], seen[1] = angle, spin
                landed = lowest_cell(seen, centres, levels, gamma)
                total += (centres[landed, 0] - angle) ** 2 + (centres[landed, 1] - spin) ** 2
            if not over:
                goal += discount * max(table[landed, 0], table[landed, 1])
            table[cell, action] += rates[episode] * (goal - table[cell, action])
            levels[cell] = rewards[cell] + discount * max(table[cell, 0], table[cell, 1])
            cell = following
            step += 1
        lengths[episode], transport[episode] = step, total / step
    return lengths, transport
