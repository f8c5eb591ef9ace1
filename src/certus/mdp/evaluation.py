"""Evaluation of policies: trials of cart-pole under other physics, and means with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import stdtrit

from certus.errors import require, require_count
from certus.mdp.cartpole import ORIGINAL, START, STEP_LIMIT, CartPole, advance, fallen
from certus.mdp.policies import Policy
from certus.mdp.transition import Reward

if TYPE_CHECKING:
    import gymnasium


@dataclass(frozen=True)
class Trials:
    """Results of cart-pole episodes.

    Attributes:
        lengths: (trials,) steps until the pole or the cart was beyond its limit, at most the step limit.
        fell: (trials,) whether the pole was.
        ran_off: (trials,) whether the cart was, with the pole still up.
    """

    lengths: NDArray[np.int64]
    fell: NDArray[np.bool_]
    ran_off: NDArray[np.bool_]


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
    """Run episodes on the simulated cart-pole, all side by side.

    Equal seeds give equal first states, so that policies can be compared in pairs.
    """
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
        seen, over = [], False
        while not over:
            action = int(policy.actions(np.asarray(observation)[None])[0])
            observation, _, ended, cut, _ = env.step(action)
            seen.append(np.asarray(observation))
            over = bool(ended or cut)
        with torch.no_grad():
            means[trial] = float(reward(torch.from_numpy(np.stack(seen))).mean())
    return means


@dataclass(frozen=True)
class MeanEstimate:
    """A mean with its standard error and a confidence interval (Student's t): *estimated*."""

    mean: float
    error: float
    low: float
    high: float


def estimate_mean(values: Sequence[float] | NDArray[np.floating], confidence: float = 0.95) -> MeanEstimate:
    """Mean, standard error and interval of independent values. Of one value nothing more is known: ±∞.

    >>> estimate_mean([1.0, 2.0, 3.0])
    MeanEstimate(mean=2.0, error=0.577..., low=-0.484..., high=4.484...)
    """
    require(0 < confidence < 1, "confidence", "lie strictly between 0 and 1", confidence)
    require(len(values) > 0, "values", "not be empty", values)
    mean, count = float(np.mean(values)), len(values)
    if count == 1:
        return MeanEstimate(mean, math.inf, -math.inf, math.inf)
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    reach = float(stdtrit(count - 1, (1 + confidence) / 2)) * error
    return MeanEstimate(mean, error, mean - reach, mean + reach)
