"""Q-learning on a covering, nominal and robust, in any environment of gymnasium.

    Q(sᵗ, aᵗ) ← Q(sᵗ, aᵗ) + αₜ (r(sᵗ) + λ max_a Q(sᵗ⁺¹, a) − Q(sᵗ, aᵗ))                [eqn:qlearning]

sᵗ⁺¹ is the cell where the transition *lands*; the two robust ways of sec:cartpole differ in that alone:

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

from certus.errors import require, require_count
from certus.mdp._compiled import compiled
from certus.mdp.environments import check_spaces
from certus.mdp.policies import Covering, Points, TabularPolicy
from certus.mdp.rewards import AngleReward, Reward, check_reward, finest_penalty
from certus.mdp.transition import RobustTransition, WeakPenaltyWarning

if TYPE_CHECKING:
    import gymnasium

Table = NDArray[np.float64]
_UPRIGHT = AngleReward()


class Landing(IntEnum):
    """How the cell of a robust transition is found."""

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
        values: NDArray[np.float64] = np.maximum(self.first * self.factor ** np.arange(count), self.last)
        return values


@dataclass(frozen=True)
class Training:
    """What tabular learning returns.

    Attributes:
        policy: greedy in the learnt Q.
        lengths: (episodes,) how long each episode lasted.
        transport: (episodes,) mean transport cost c(s, ŝ) of its transitions; 0 for a nominal agent. Its
            late entries are the radius ρ̂ that this policy was trained for: *estimated*.
    """

    policy: TabularPolicy
    lengths: NDArray[np.int64]
    transport: NDArray[np.float64]


@dataclass(frozen=True)
class TabularQLearning:
    """The settings of a learner; ``fit`` runs it.

    Args:
        covering: the cells, over the coordinates that the agent sees.
        reward: r of these coordinates.
        gamma: the penalty γ on c = ‖s − ŝ‖₂²; None for a nominal agent. A ``WeakPenaltyWarning`` names the
            threshold below which the adversary moves states by more than a whole cell.
        landing: which robust variant.
        discount: λ; rate: αₜ; exploration: the share of random actions.
        columns: which entries of an observation are the coordinates; None, all of them.
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
        require(
            isinstance(self.landing, Landing), "landing", "be Landing.ROUND or Landing.COVER", self.landing
        )
        transition = self.transition  # checks γ and the discount
        followed = transition is not None and self.landing == Landing.ROUND
        check_reward(self.reward, torch.from_numpy(self.covering.centres[:1]), gradient=followed)
        if transition is None or not isinstance(self.reward, AngleReward):
            return
        threshold, where = self._weakest(self.reward.coordinate)
        if transition.gamma < threshold:
            warnings.warn(
                f"gamma = {transition.gamma:g} is below {threshold:.3g}: {where} the adversary moves a state "
                "by more than a cell each step, which few agents survive.",
                WeakPenaltyWarning,
                stacklevel=3,
            )

    def _weakest(self, axis: int) -> tuple[float, str]:
        """The γ at which the adversary moves e^(−|β|) by one cell of β, and where: h its width.

        With the Q-term V may reach 1/(1 − λ). If it falls evenly from there to 0 at the edge, b away, the
        next cell is lower by h/((1 − λ)b), which pays for γh² where γ < 1/((1 − λ)bh).
        """
        width = self.covering.widths[axis]
        if self.landing == Landing.ROUND:
            return finest_penalty(width), "at rest"
        reach = (self.covering.upper[axis] - self.covering.lower[axis]) / 2
        return 1 / ((1 - self.discount) * reach * width), "where the value falls evenly to the edge"

    @property
    def transition(self) -> RobustTransition | None:
        """The robust transition without its Q-term; None for a nominal agent."""
        require(0 <= self.discount < 1, "discount", "lie in [0, 1)", self.discount)
        return None if self.gamma is None else RobustTransition(self.reward, self.gamma)

    def rewards(self, points: Points) -> NDArray[np.float64]:
        """r at points of the covering's space. Shapes (n, axes) → (n,)."""
        with torch.no_grad():
            return self.reward(torch.from_numpy(points)).numpy()

    def fit(self, env: gymnasium.Env[Any, Any], seed: int = 0) -> Training:
        """Learn in an environment with a continuous observation and discrete actions.

        For thousands of episodes of cart-pole, ``fit_cartpole`` does the same in a compiled simulator.
        """
        actions = check_spaces(env, self.columns, len(self.covering.bins))
        generator = np.random.default_rng(seed)
        table = np.zeros((len(self.covering), actions))
        lander = Lander(self)
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
                landed, cost = lander.land(following, table)
                ahead = 0.0 if ended else self.discount * table[landed].max()
                goal = self.rewards(point)[0] + ahead
                table[cell, action] += rates[episode] * (goal - table[cell, action])
                point, cell = following, int(self.covering.cells(following)[0])
                lengths[episode] += 1
                transport[episode] += (cost - transport[episode]) / lengths[episode]
                over = bool(ended or cut)
        return Training(TabularPolicy(table, self.covering, self.columns), lengths, transport)

    def _see(self, observation: Any) -> Points:
        seen = np.asarray(observation, dtype=np.float64).reshape(1, -1)
        return seen if self.columns is None else seen[:, list(self.columns)]


class Lander:
    """Where a transition to ŝ lands: ``land(point, table) -> (cell, transport cost)``."""

    def __init__(self, learner: TabularQLearning) -> None:
        self.learner, self.transition = learner, learner.transition
        self.rewards = learner.rewards(learner.covering.centres)

    def land(self, point: Points, table: Table) -> tuple[int, float]:
        covering = self.learner.covering
        if self.transition is None:
            return int(covering.cells(point)[0]), 0.0
        if self.learner.landing == Landing.COVER:
            levels = self.rewards + self.learner.discount * table.max(1)
            cell = lowest_cell(point[0], covering.centres, levels, self.transition.gamma)
            return cell, float(((covering.centres[cell] - point[0]) ** 2).sum())
        moved = self.transition(torch.from_numpy(point)).numpy()
        return int(covering.cells(moved)[0]), float(((moved - point) ** 2).sum())


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
