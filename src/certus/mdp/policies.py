"""Policies, Q-tables on equal cells of the state space and smooth Q-networks, and episodes run with them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from certus._compiled import Real, compiled
from certus.errors import ArgumentError, require, require_count
from certus.mdp.cartpole import ORIGINAL, START, STEP_LIMIT, CartPole, advance, fallen
from certus.mdp.transition import Reward
from certus.storage.tensors import load_tensors, save_tensors

if TYPE_CHECKING:
    import gymnasium


@dataclass(frozen=True)
class NetworkShape:
    """Shape of a Q-network."""

    actions: int
    scales: tuple[float, ...]  # a typical size of each coordinate; states are divided by them
    hidden: int = 64  # width of both hidden layers
    discount: float = 0.99  # λ; outputs are multiplied by 1/(1 − λ), the sum of discounted ones

    def __post_init__(self) -> None:
        require_count("actions", self.actions)
        require_count("hidden", self.hidden)
        require(len(self.scales) > 0 and min(self.scales) > 0, "scales", "be positive", self.scales)
        require(0 <= self.discount < 1, "discount", "lie in [0, 1)", self.discount)


class QNetwork(nn.Module):
    """Q(s, ·), two hidden layers of ELU units. Shapes (batch, coordinates) → (batch, actions)."""

    scales: Tensor

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("scales", torch.tensor(shape.scales), persistent=False)
        self.layers = nn.Sequential(
            nn.Linear(len(shape.scales), shape.hidden),
            nn.ELU(),
            nn.Linear(shape.hidden, shape.hidden),
            nn.ELU(),
            nn.Linear(shape.hidden, shape.actions),
        )

    def forward(self, states: Tensor) -> Tensor:
        outputs: Tensor = self.layers(states / self.scales)
        return outputs / (1 - self.shape.discount)


Points = NDArray[np.float64]


def axis_cell(value: Real, lower: float, upper: float, bins: int) -> Real:
    """Return the index of the interval that holds the value, of ``bins`` equal ones in [lower, upper]; the
    outer intervals are unbounded."""
    place = np.floor((value - lower) / (upper - lower) * bins)
    return np.minimum(np.maximum(place, 0.0), bins - 1.0)


axis_cell_fast = compiled(axis_cell)


@dataclass(frozen=True)
class Covering:
    """∏ [lowerᵢ, upperᵢ], cut into binsᵢ intervals along each axis. States outside round to its edge.

    >>> grid = Covering((-1.0, 0.0), (1.0, 1.0), (4, 2))
    >>> grid.cells(np.array([[-0.9, 0.2], [0.1, 0.7], [99.0, 99.0]]))
    array([0, 5, 7])
    """

    lower: tuple[float, ...]
    upper: tuple[float, ...]
    bins: tuple[int, ...]

    def __post_init__(self) -> None:
        for number in self.bins:
            require_count("bins", number)
        same = len(self.lower) == len(self.upper) == len(self.bins) > 0
        sizes = f"{len(self.lower)}, {len(self.upper)} and {len(self.bins)} entries"
        require(same, "lower", "have one entry per axis, as `upper` and `bins`", sizes)
        for low, high in zip(self.lower, self.upper, strict=True):
            ordered = -math.inf < low < high < math.inf
            require(ordered, "lower", "be below `upper`, both finite", f"{low} and {high}")

    def __len__(self) -> int:
        """The number of cells."""
        return math.prod(self.bins)

    @property
    def widths(self) -> tuple[float, ...]:
        """The length of a cell along each axis."""
        ends = zip(self.lower, self.upper, self.bins, strict=True)
        return tuple((high - low) / number for low, high, number in ends)

    @cached_property
    def centres(self) -> Points:
        """(cells, axes), in the order of ``cells``."""
        axes = [
            low + width * (np.arange(number) + 0.5)
            for low, width, number in zip(self.lower, self.widths, self.bins, strict=True)
        ]
        return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(len(self), -1)

    def cells(self, points: Points) -> NDArray[np.int64]:
        """The cell of each point. Shapes (n, axes) → (n,)."""
        cell = np.zeros(len(points))
        for axis, (low, high, number) in enumerate(zip(self.lower, self.upper, self.bins, strict=True)):
            cell = cell * number + axis_cell(np.asarray(points[:, axis], np.float64), low, high, number)
        return cell.astype(np.int64)


Actions = NDArray[np.int64]
Observations = NDArray[np.floating]


class Policy(Protocol):
    """Policy: an action for each observation."""

    def actions(self, observations: Observations, /) -> Actions:
        """Return the greedy actions. Shapes (n, width) → (n,)."""

    def save(self, path: str | Path, /) -> None:
        """Write a safetensors file that ``load_policy`` reads; it never executes code."""


@dataclass(frozen=True, eq=False)
class TabularPolicy:
    """argmax_a Q(cell(s), a) in a (cells, actions) table; the covering is of some ``columns`` of an
    observation, or of all."""

    table: NDArray[np.float64]
    covering: Covering
    columns: tuple[int, ...] | None = None

    def actions(self, observations: Observations) -> Actions:
        observed = observations if self.columns is None else observations[:, list(self.columns)]
        return np.asarray(self.table[self.covering.cells(observed.astype(np.float64))].argmax(1))

    def save(self, path: str | Path) -> None:
        note = {"policy": "tabular", "covering": asdict(self.covering), "columns": self.columns}
        save_tensors(Path(path), {"table": torch.from_numpy(self.table)}, note)


@dataclass(frozen=True, eq=False)
class DeepPolicy:
    """argmax_a Q(s, a) for a network Q."""

    network: QNetwork

    @torch.no_grad()
    def actions(self, observations: Observations) -> Actions:
        return np.asarray(self.network(torch.from_numpy(observations).float()).argmax(1))

    def save(self, path: str | Path) -> None:
        note = {"policy": "deep", "shape": asdict(self.network.shape)}
        save_tensors(Path(path), self.network.state_dict(), note)


def load_policy(path: str | Path) -> TabularPolicy | DeepPolicy:
    """Load a policy from a file of ``save``; raises ``RunError`` if it is missing, corrupt or pickled."""
    tensors, note = load_tensors(Path(path))
    try:
        if note["policy"] == "tabular":
            covering = Covering(**{name: tuple(entries) for name, entries in note["covering"].items()})
            columns = None if note["columns"] is None else tuple(note["columns"])
            return TabularPolicy(tensors["table"].numpy(), covering, columns)
        network = QNetwork(NetworkShape(**{**note["shape"], "scales": tuple(note["shape"]["scales"])}))
        network.load_state_dict(tensors)
        return DeepPolicy(network.requires_grad_(False))
    except (KeyError, TypeError, RuntimeError):
        raise ArgumentError(f"`path` must name a saved policy; got {path}.") from None


@dataclass(frozen=True)
class Trials:
    """Results of cart-pole episodes, (trials,) each."""

    lengths: NDArray[np.int64]  # steps until the pole or the cart was beyond its limit, or the step limit
    fell: NDArray[np.bool_]  # whether the pole was
    ran_off: NDArray[np.bool_]  # whether the cart was, with the pole still up


def episode_lengths(
    policy: Policy,
    system: CartPole = ORIGINAL,
    *,
    trials: int = 1000,
    seed: int = 0,
    step_limit: int = STEP_LIMIT,
) -> NDArray[np.int64]:
    """Return (trials,) episode lengths of ``run_trials``."""
    return run_trials(policy, system, trials=trials, seed=seed, step_limit=step_limit).lengths


def run_trials(
    policy: Policy,
    system: CartPole = ORIGINAL,
    *,
    trials: int = 1000,
    seed: int = 0,
    step_limit: int = STEP_LIMIT,
) -> Trials:
    """Run episodes on the simulated cart-pole, all side by side. Equal seeds give equal first states, so that
    policies can be compared in pairs."""
    require_count("trials", trials)
    require_count("step_limit", step_limit)
    state = np.random.default_rng(seed).uniform(-START, START, (4, trials))
    lengths, standing = np.zeros(trials, dtype=np.int64), np.arange(trials)
    fell, ran_off = np.zeros((2, trials), dtype=bool)
    for _ in range(step_limit):
        push = 2.0 * policy.actions(state.T) - 1.0
        x, speed, angle, spin = state
        state = np.stack(advance(x, speed, angle, spin, push, system))
        lengths[standing] += 1
        over = fallen(state[0], state[2], system)
        fell[standing] = np.abs(state[2]) > system.angle_limit
        ran_off[standing] = over & ~fell[standing]
        state, standing = state[:, ~over], standing[~over]
        if not len(standing):
            break
    return Trials(lengths, fell, ran_off)


def episode_rewards(
    policy: Policy, env: gymnasium.Env[Any, Any], reward: Reward, *, trials: int = 100, seed: int = 0
) -> NDArray[np.float64]:
    """(trials,) the mean of r(s) over the states of each episode, in any environment of gymnasium."""
    require_count("trials", trials)
    means = np.zeros(trials)
    for trial in range(trials):
        observation, _ = env.reset(seed=seed * trials + trial)
        observed, over = [], False
        while not over:
            action = int(policy.actions(np.asarray(observation)[None])[0])
            observation, _, ended, cut, _ = env.step(action)
            observed.append(np.asarray(observation))
            over = bool(ended or cut)
        with torch.no_grad():
            means[trial] = float(reward(torch.from_numpy(np.stack(observed))).mean())
    return means
