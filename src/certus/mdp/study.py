"""Nominal against robust agents on the paper's seven cart-poles, over several seeds (sec:cartpole)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certus.errors import require_count
from certus.mdp.cartpole import ORIGINAL, CartPole, variations
from certus.mdp.evaluation import Interval, episode_lengths, interval
from certus.mdp.fast import cartpole_learner, fit_cartpole
from certus.mdp.policies import Policy
from certus.mdp.tabular import Landing, Training

NOMINAL, ROBUST = "nominal", "robust"

PAPER: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "original": ((399.7, 0.1), (400.0, 0.0)),
    "light": ((400.0, 0.0), (400.0, 0.0)),
    "long": ((400.0, 0.0), (400.0, 0.0)),
    "soft g": ((400.0, 0.0), (400.0, 0.0)),
    "heavy": ((150.1, 4.7), (334.0, 3.7)),
    "short": ((245.2, 4.8), (400.0, 0.0)),
    "strong g": ((189.8, 2.3), (398.5, 0.3)),
}
"""The paper's table: episode length, mean and standard error over 1,000 trials, nominal and robust."""

Lengths = dict[str, list[float]]
"""For each system the mean episode length of each seed's agent."""


@dataclass(frozen=True)
class Study:
    """What the agents of all seeds reached; everything is *estimated*, from trials.

    Attributes:
        lengths: for "nominal" and "robust", by system, one mean per seed.
        curves: (seeds, episodes) episode lengths in training, on the original system.
        policies: one per seed.
    """

    lengths: dict[str, Lengths]
    curves: dict[str, NDArray[np.int64]]
    policies: dict[str, list[Policy]]

    def means(self, agent: str) -> dict[str, Interval]:
        """Mean and standard error over the seeds."""
        return {system: interval(values) for system, values in self.lengths[agent].items()}

    def gains(self) -> dict[str, Interval]:
        """Robust minus nominal, paired by seed."""
        pairs = self.lengths[ROBUST].items()
        return {system: interval(np.subtract(v, self.lengths[NOMINAL][system])) for system, v in pairs}

    def learning_gain(self) -> Interval:
        """The same for the area under the training curve, as a mean episode length."""
        return interval(self.curves[ROBUST].mean(1) - self.curves[NOMINAL].mean(1))

    def summary(self) -> dict[str, Any]:
        """All but policies and curves, for JSON; an interval of a single seed has no ends."""
        gains, learning = self.gains(), self.learning_gain()
        return {
            "lengths": self.lengths,
            "mean": {agent: _plain(self.means(agent)) for agent in self.lengths},
            "paired gain": _plain(gains),
            "area under the training curve": {
                **{agent: curve.mean(1).tolist() for agent, curve in self.curves.items()},
                "paired gain": _plain({"": learning})[""],
            },
            "paper": PAPER,
        }


def compare(
    gamma: float,
    *,
    seeds: int = 5,
    episodes: int = 4000,
    trials: int = 1000,
    landing: Landing = Landing.ROUND,
    system: CartPole = ORIGINAL,
    progress: Callable[[str], None] = lambda message: None,
) -> Study:
    """Train a nominal and a robust tabular agent per seed; try each on all seven systems.

    Both agents of a seed meet the same random numbers, and the same first states in the trials.
    """
    require_count("seeds", seeds)
    settings: Mapping[str, Any] = {"landing": landing, "episodes": episodes, "system": system}
    learners = {
        NOMINAL: cartpole_learner(None, **settings),
        ROBUST: cartpole_learner(gamma, **settings),
    }
    trained: dict[str, list[Training]] = {agent: [] for agent in learners}
    for seed in range(seeds):
        for agent, learner in learners.items():
            progress(f"seed {seed}: training the {agent} agent")
            trained[agent].append(fit_cartpole(learner, seed, system))
    return Study(
        {agent: try_out([one.policy for one in runs], system, trials) for agent, runs in trained.items()},
        {agent: np.stack([one.lengths for one in runs]) for agent, runs in trained.items()},
        {agent: [one.policy for one in runs] for agent, runs in trained.items()},
    )


def try_out(policies: list[Any], system: CartPole = ORIGINAL, trials: int = 1000) -> Lengths:
    """Mean episode length of each policy on each of the seven systems; policy k meets trials of seed k."""
    return {
        name: [
            float(episode_lengths(policy, changed, trials=trials, seed=seed).mean())
            for seed, policy in enumerate(policies)
        ]
        for name, changed in variations(system).items()
    }


def _plain(intervals: Mapping[str, Interval]) -> dict[str, dict[str, float | None]]:
    return {
        name: {key: value if np.isfinite(value) else None for key, value in asdict(found).items()}
        for name, found in intervals.items()
    }
