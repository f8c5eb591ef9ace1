"""Deep Q-learning with replay, a target network and the robust transition with its Q-term.

The network Q(s, ·) is fitted to targets r(sᵗ) + λ max_a Q⁻(s, a), Q⁻ a copy that follows it slowly. Here s is
sᵗ⁺¹ itself, or for a robust agent

    argmin_s r(s) + λ max_a Q⁻(s, a) + γ c(s, sᵗ⁺¹)                               [eqn:qlearningthing]

The network is smooth, so that for a large γ the perturbation solves a strongly convex problem wherever the
reward is smooth, too.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from certus.costs import Cost, SquaredL2
from certus.domains import Domain, Unbounded
from certus.errors import UnsupportedError, require, require_count
from certus.inner import BarzilaiBorwein, Maximizer
from certus.mdp.cartpole import check_spaces
from certus.mdp.policies import DeepPolicy, NetworkShape, QNetwork
from certus.mdp.transition import Reward, RobustTransition, check_reward

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv


class Replay:
    """The last ``capacity`` transitions (s, a, s′, ended); ``ended`` means that s′ has no future."""

    def __init__(self, capacity: int, width: int) -> None:
        states, following = np.zeros((2, capacity, width), dtype=np.float32)
        actions, ended = np.zeros(capacity, dtype=np.int64), np.zeros(capacity, dtype=np.float32)
        self._arrays: tuple[NDArray[Any], ...] = states, actions, following, ended
        self._capacity, self._written = capacity, 0

    def __len__(self) -> int:
        return min(self._written, self._capacity)

    def add(self, states: Any, actions: Any, following: Any, ended: Any) -> None:
        """Add transitions, one per row."""
        places = (self._written + np.arange(len(states))) % self._capacity
        for array, rows in zip(self._arrays, (states, actions, following, ended), strict=True):
            array[places] = rows
        self._written += len(states)

    def draw(self, count: int, generator: np.random.Generator) -> tuple[Tensor, ...]:
        """Draw ``count`` transitions with replacement: (count, width), (count,), (count, width), (count,)."""
        places = generator.integers(len(self), size=count)
        return tuple(torch.from_numpy(array[places]) for array in self._arrays)


_L2, _EVERYWHERE = SquaredL2(), Unbounded()
_QUICK = BarzilaiBorwein(tolerance=1e-2, max_gradients=4)


@dataclass(frozen=True)
class DeepTraining:
    """Result of deep Q-learning."""

    policy: DeepPolicy  # greedy in the slowly following Q⁻
    lengths: NDArray[np.int64]  # (episodes,) how long each lasted, in the order in which they ended
    transport: NDArray[np.float64]  # (updates,) mean transport cost of moved states; 0 for a nominal agent


@dataclass(frozen=True)
class DeepQLearning:
    """Settings of a deep Q-learner; ``fit`` runs it.

    Args:
        reward: r of an observation.
        scales: a typical size of each coordinate of an observation.
        gamma: the penalty γ; None for a nominal agent. V grows to 1/(1 − λ) and falls off steeply near a
            failure, so a γ that suits r alone is too small for r + λV.
        q_term: whether the adversary minimises r + λV, or r alone.
        cost, domain: c, and the set that moved next states stay in.
        maximizer: algorithm and tolerance of the perturbation.
        steps: total number of steps of all environments, with one update per step after ``warm_up``.
        following_rate: rate τ of the target network, Q⁻ ← Q⁻ + τ(Q − Q⁻) after each update.
        explored: share of the steps over which the share of random actions falls from 1 to ``random_share``.
    """

    reward: Reward
    scales: tuple[float, ...]
    gamma: float | None = None
    q_term: bool = True
    cost: Cost = _L2
    domain: Domain = _EVERYWHERE
    maximizer: Maximizer = _QUICK
    discount: float = 0.99
    steps: int = 8000
    hidden: int = 64
    batch_size: int = 128
    learning_rate: float = 1e-3
    following_rate: float = 0.05
    capacity: int = 200_000
    warm_up: int = 100
    explored: float = 0.4
    random_share: float = 0.05

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "capacity", "warm_up"):
            require_count(name, getattr(self, name))
        require(self.learning_rate > 0, "learning_rate", "be positive", self.learning_rate)
        require(0 < self.following_rate <= 1, "following_rate", "lie in (0, 1]", self.following_rate)
        for name in ("explored", "random_share"):
            require(0 <= getattr(self, name) <= 1, name, "lie in [0, 1]", getattr(self, name))
        NetworkShape(1, self.scales, self.hidden, self.discount)  # checks them
        robust = self._transition() is not None  # checks γ
        check_reward(self.reward, torch.zeros(2, len(self.scales)), gradient=robust)

    def _transition(self) -> RobustTransition | None:
        if self.gamma is None:
            return None
        return RobustTransition(
            self.reward,
            self.gamma,
            discount=self.discount,
            cost=self.cost,
            domain=self.domain,
            maximizer=self.maximizer,
        )

    def fit(self, env: VectorEnv[Any, Any, Any], seed: int = 0) -> DeepTraining:
        """Learn in vectorised environments with continuous observations and discrete actions."""
        actions = check_spaces(env.single_observation_space, env.single_action_space, None, len(self.scales))
        mode = env.metadata.get("autoreset_mode")
        if "NEXT_STEP" not in str(mode):
            raise UnsupportedError(f"`env` must reset an episode at the step after its end; it does {mode}.")
        student = _Student(self, NetworkShape(actions, self.scales, self.hidden, self.discount), seed)
        replay = Replay(self.capacity, len(self.scales))
        states, _ = env.reset(seed=seed)
        running = np.ones(env.num_envs, dtype=bool)  # not at the step that only resets
        ages, lengths = np.zeros(env.num_envs, dtype=np.int64), list[int]()
        for step in range(self.steps):
            share = max(self.random_share, 1 - step / max(self.explored * self.steps, 1))
            chosen = student.act(states, share)
            following, _, ended, cut, _ = env.step(chosen)
            ages += running
            over = (ended | cut) & running
            lengths += ages[over].tolist()
            ages[over] = 0
            replay.add(states[running], chosen[running], following[running], ended[running])
            states, running = following, ~over
            if step >= self.warm_up:
                student.update(*replay.draw(self.batch_size, student.generator))
        policy = DeepPolicy(student.follower.requires_grad_(False))
        return DeepTraining(policy, np.array(lengths, dtype=np.int64), np.array(student.transport))


class _Student:
    """Network, follower and optimizer while they learn."""

    def __init__(self, settings: DeepQLearning, shape: NetworkShape, seed: int) -> None:
        self.settings, self.generator = settings, np.random.default_rng(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = QNetwork(shape)
        self.follower = copy.deepcopy(self.network)
        self.transition = settings._transition()
        self.optimizer = torch.optim.Adam(self.network.parameters(), lr=settings.learning_rate)
        self.decay = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.05, settings.steps)
        self.transport: list[float] = []

    def act(self, states: NDArray[np.floating], random_share: float) -> NDArray[np.int64]:
        best = DeepPolicy(self.network).actions(states)
        random = self.generator.integers(self.network.shape.actions, size=len(states))
        return np.where(self.generator.random(len(states)) < random_share, random, best)

    def value(self, states: Tensor) -> Tensor:
        """max_a Q⁻(s, a)."""
        return torch.amax(self.follower(states), 1)

    def update(self, states: Tensor, actions: Tensor, following: Tensor, ended: Tensor) -> None:
        moved, cost = following, 0.0
        if self.transition is not None:
            solution = self.transition.solve(following, self.value if self.settings.q_term else None)
            moved, cost = solution.inputs, float(solution.transport_cost.mean())
        self.transport.append(cost)
        with torch.no_grad():
            goal = self.settings.reward(states) + self.settings.discount * (1 - ended) * self.value(moved)
        learnt = self.network(states).gather(1, actions.unsqueeze(1)).squeeze(1)
        unit = 1 - self.settings.discount  # errors in units of a reward
        loss = functional.smooth_l1_loss(unit * learnt, unit * goal, beta=0.1)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 10.0)
        self.optimizer.step()
        self.decay.step()
        with torch.no_grad():
            for slow, fast in zip(self.follower.parameters(), self.network.parameters(), strict=True):
                slow.lerp_(fast, self.settings.following_rate)
