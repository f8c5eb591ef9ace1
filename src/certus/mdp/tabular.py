"""Q-learning on a covering, nominal and robust: in any environment of gymnasium, and compiled for cart-pole.

    Q(sᵗ, aᵗ) ← Q(sᵗ, aᵗ) + αₜ (r(sᵗ) + λ max_a Q(sᵗ⁺¹, a) − Q(sᵗ, aᵗ))                [eqn:qlearning]

sᵗ⁺¹ is the cell where the transition *lands*; the two robust variants of sec:cartpole differ in that alone:

- ``Landing.ROUND``: leave the Q-term out, move ŝ to argmin_s r(s) + γ c(s, ŝ), then round. The cells' model
  is then a fixed one, and tabular Q-learning converges on it as usual.
- ``Landing.COVER``: the cell j that minimises r(zⱼ) + λ max_a Q(j, a) + γ c(zⱼ, ŝ), zⱼ its centre.

The environment itself goes on from ŝ: only the update sees the adversary.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from certus._compiled import compiled, warn_if_uncompiled
from certus.errors import UnsupportedError, require, require_count
from certus.mdp.cartpole import ORIGINAL, START, STEP_LIMIT, CartPole, advance_fast, check_spaces, fallen_fast
from certus.mdp.policies import Covering, Points, TabularPolicy, axis_cell_fast
from certus.mdp.transition import (
    AngleReward,
    Reward,
    RobustTransition,
    WeakPenaltyWarning,
    check_reward,
    finest_penalty,
    pushed_fast,
)

if TYPE_CHECKING:
    import gymnasium

_UPRIGHT = AngleReward()


class Landing(IntEnum):
    """Rule for the cell of a robust transition."""

    ROUND = 1
    COVER = 2


@dataclass(frozen=True)
class Decay:
    """first · factorᵏ in episode k, but at least ``last``."""

    first: float
    factor: float = 0.998
    last: float = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.last <= self.first <= 1, "first", "lie in [`last`, 1], `last` ≥ 0", self.first)
        require(0 < self.factor <= 1, "factor", "lie in (0, 1]", self.factor)

    def values(self, count: int) -> NDArray[np.float64]:
        """(count,) the value in each episode."""
        return np.asarray(np.maximum(self.first * self.factor ** np.arange(count), self.last))


@dataclass(frozen=True)
class Training:
    """Result of tabular Q-learning. The late ``transport`` is the radius ρ̂ trained for: *estimated*."""

    policy: TabularPolicy  # greedy in the learnt Q
    lengths: NDArray[np.int64]  # (episodes,) how long each lasted
    transport: NDArray[np.float64]  # (episodes,) mean transport cost c(s, ŝ); 0 for a nominal agent


@dataclass(frozen=True)
class TabularQLearning:
    """Settings of a tabular Q-learner; ``fit`` runs it.

    Args:
        covering: the cells, over the observed coordinates.
        reward: r of these coordinates.
        gamma: the penalty γ on c = ‖s − ŝ‖₂²; None for a nominal agent. A ``WeakPenaltyWarning`` names the
            threshold below which the adversary moves states by more than a whole cell.
        landing: the robust variant.
        discount: λ; rate: αₜ; exploration: the share of random actions.
        columns: the entries of an observation that are the coordinates; all of them when None.
    """

    covering: Covering
    reward: Reward = _UPRIGHT
    gamma: float | None = None
    landing: Landing = Landing.ROUND
    discount: float = 0.99
    episodes: int = 4000
    rate: Decay = Decay(0.5, last=0.02)
    exploration: Decay = Decay(1.0)
    columns: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        require_count("episodes", self.episodes)
        rule = "be Landing.ROUND or Landing.COVER"
        require(isinstance(self.landing, Landing), "landing", rule, self.landing)
        transition = self.transition  # checks γ and the discount
        followed = transition is not None and self.landing == Landing.ROUND
        check_reward(self.reward, torch.from_numpy(self.covering.centres[:1]), gradient=followed)
        if transition is None or not isinstance(self.reward, AngleReward):
            return
        # The γ at which the adversary moves e^(−|β|) by one cell of β, of width h. With the Q-term V may
        # reach 1/(1 − λ). If it falls evenly from there to 0 at the edge, b away, the next cell is lower by
        # h/((1 − λ)b), which pays for γh² where γ < 1/((1 − λ)bh).
        axis = self.reward.coordinate
        width = self.covering.widths[axis]
        threshold, where = finest_penalty(width), "at rest"
        if self.landing == Landing.COVER:
            reach = (self.covering.upper[axis] - self.covering.lower[axis]) / 2
            threshold = 1 / ((1 - self.discount) * reach * width)
            where = "where the value falls evenly to the edge"
        if transition.gamma < threshold:
            warnings.warn(
                f"gamma = {transition.gamma:g} is below {threshold:.3g}: {where} the adversary moves a state "
                "by more than a cell in each step, and learning usually fails.",
                WeakPenaltyWarning,
                stacklevel=3,
            )

    @property
    def transition(self) -> RobustTransition | None:
        """The robust transition without its Q-term; None for a nominal agent."""
        require(0 <= self.discount < 1, "discount", "lie in [0, 1)", self.discount)
        return None if self.gamma is None else RobustTransition(self.reward, self.gamma)

    @torch.no_grad()
    def rewards(self, points: Points) -> NDArray[np.float64]:
        """r at points of the covering's space. Shapes (n, axes) → (n,)."""
        return self.reward(torch.from_numpy(points)).numpy()

    def fit(self, env: gymnasium.Env[Any, Any], seed: int = 0) -> Training:
        """Learn in an environment with a continuous observation and discrete actions.

        For thousands of episodes of cart-pole, ``fit_cartpole`` does the same in a compiled simulator.
        """
        actions = check_spaces(env.observation_space, env.action_space, self.columns, len(self.covering.bins))
        generator = np.random.default_rng(seed)
        table = np.zeros((len(self.covering), actions))
        rewards, transition = self.rewards(self.covering.centres), self.transition
        rates, explorations = self.rate.values(self.episodes), self.exploration.values(self.episodes)
        lengths, transport = np.zeros(self.episodes, dtype=np.int64), np.zeros(self.episodes)
        env.reset(seed=seed)
        for episode in range(self.episodes):
            point = self._see(env.reset()[0])
            cell, over = int(self.covering.cells(point)[0]), False
            while not over:
                if generator.random() < explorations[episode]:
                    action = int(actions * generator.random())
                else:
                    action = int(table[cell].argmax())
                observation, _, ended, cut, _ = env.step(action)
                following = self._see(observation)
                landed, cost = self._land(following, transition, table, rewards)
                ahead = 0.0 if ended else self.discount * table[landed].max()
                goal = self.rewards(point)[0] + ahead
                table[cell, action] += rates[episode] * (goal - table[cell, action])
                point, cell = following, int(self.covering.cells(following)[0])
                lengths[episode] += 1
                transport[episode] += (cost - transport[episode]) / lengths[episode]
                over = bool(ended or cut)
        return Training(TabularPolicy(table, self.covering, self.columns), lengths, transport)

    def _see(self, observation: Any) -> Points:
        observed = np.asarray(observation, dtype=np.float64).reshape(1, -1)
        return observed if self.columns is None else observed[:, list(self.columns)]

    def _land(
        self, point: Points, transition: RobustTransition | None, table: Points, rewards: Points
    ) -> tuple[int, float]:
        """Return the cell where a transition to ŝ lands, and its transport cost."""
        if transition is None:
            return int(self.covering.cells(point)[0]), 0.0
        if self.landing == Landing.COVER:
            levels = rewards + self.discount * table.max(1)
            cell = lowest_cell(point[0], self.covering.centres, levels, transition.gamma)
            return cell, float(((self.covering.centres[cell] - point[0]) ** 2).sum())
        moved = transition(torch.from_numpy(point)).numpy()
        return int(self.covering.cells(moved)[0]), float(((moved - point) ** 2).sum())


@compiled
def lowest_cell(point: Points, centres: Points, levels: Points, gamma: float) -> int:
    """argmin_j levelsⱼ + γ‖zⱼ − ŝ‖₂², the first of equals; levelsⱼ = r(zⱼ) + λ max_a Q(j, a)."""
    best, lowest = 0, np.inf
    for cell in range(len(centres)):
        cost = 0.0
        for axis in range(len(point)):
            cost += (centres[cell, axis] - point[axis]) ** 2
        value = levels[cell] + gamma * cost
        if value < lowest:
            best, lowest = cell, value
    return best


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
    """Return the paper's agent: 30 cells for β up to its limit, 15 for its rate, r = e^(−|β|)."""
    limits = (system.angle_limit, SPIN_LIMIT)
    covering = Covering((-limits[0], -limits[1]), limits, bins)
    return TabularQLearning(covering, AngleReward(0), gamma, landing, episodes=episodes, columns=ANGLES)


def fit_cartpole(
    learner: TabularQLearning, seed: int = 0, system: CartPole = ORIGINAL, step_limit: int = STEP_LIMIT
) -> Training:
    """Train a learner that observes β and its rate, with r = e^(−|β|), on the simulated cart-pole."""
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
    table: Points,
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
    """Run episodes of cart-pole, with an update after each step; ``table`` is changed in place."""
    lengths, transport = np.zeros(len(rates), dtype=np.int64), np.zeros(len(rates))
    observed, levels = np.zeros(2), rewards + discount * np.maximum(table[:, 0], table[:, 1])
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
                observed[0], observed[1] = angle, spin
                landed = lowest_cell(observed, centres, levels, gamma)
                total += (centres[landed, 0] - angle) ** 2 + (centres[landed, 1] - spin) ** 2
            if not over:
                goal += discount * max(table[landed, 0], table[landed, 1])
            table[cell, action] += rates[episode] * (goal - table[cell, action])
            levels[cell] = rewards[cell] + discount * max(table[cell, 0], table[cell, 1])
            cell = following
            step += 1
        lengths[episode], transport[episode] = step, total / step
    return lengths, transport
