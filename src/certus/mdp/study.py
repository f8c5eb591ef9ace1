"""Nominal against robust agents on the paper's seven cart-poles, over several seeds (sec:cartpole)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from certus.errors import require_count
from certus.mdp.cartpole import ORIGINAL, CartPole, variations
from certus.mdp.episodes import MeanEstimate, Trials, estimate_mean, run_trials
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

PENALTIES = {Landing.ROUND: 50.0, Landing.COVER: 1e5}
"""The γ of a robust agent for which none is given. Both were chosen by trying some on the seven systems."""

Lengths = dict[str, list[float]]
"""For each system the mean episode length of each seed's agent."""

Ends = dict[str, dict[str, float]]
"""For each system the shares of trials in which the pole fell, and in which the cart ran off the track."""


@dataclass(frozen=True)
class Study:
    """What the agents of all seeds reached; everything is *estimated*, from trials.

    Attributes:
        lengths: for "nominal" and "robust", by system, one mean per seed.
        ends: likewise the shares of trials that ended early, by what ended them.
        curves: (seeds, episodes) episode lengths in training, on the original system.
        policies: one per seed.
    """

    lengths: dict[str, Lengths]
    ends: dict[str, Ends]
    curves: dict[str, NDArray[np.int64]]
    policies: dict[str, list[Policy]]

    def means(self, agent: str) -> dict[str, MeanEstimate]:
        """Mean and standard error over the seeds."""
        return {system: estimate_mean(values) for system, values in self.lengths[agent].items()}

    def gains(self) -> dict[str, MeanEstimate]:
        """Robust minus nominal, paired by seed."""
        pairs = self.lengths[ROBUST].items()
        return {system: estimate_mean(np.subtract(v, self.lengths[NOMINAL][system])) for system, v in pairs}

    def learning_gain(self) -> MeanEstimate:
        """The same for the area under the training curve, as a mean episode length."""
        return estimate_mean(self.curves[ROBUST].mean(1) - self.curves[NOMINAL].mean(1))

    def share_run_off(self, agent: str) -> float:
        """Of the trials on all systems that ended early, the share in which the cart ran off; NaN of none."""
        shares = self.ends[agent].values()
        early = sum(one["fell"] + one["ran off"] for one in shares)
        return sum(one["ran off"] for one in shares) / early if early else np.nan

    def summary(self) -> dict[str, Any]:
        """All but policies and curves, for JSON; an interval of a single seed has no ends."""
        gains, learning = self.gains(), self.learning_gain()
        return {
            "lengths": self.lengths,
            "mean": {agent: _plain(self.means(agent)) for agent in self.lengths},
            "paired gain": _plain(gains),
            "ends": self.ends,
            "area under the training curve": {
                **{agent: curve.mean(1).tolist() for agent, curve in self.curves.items()},
                "paired gain": _plain({"": learning})[""],
            },
            "paper": PAPER,
        }


def compare_agents(
    gamma: float | None = None,
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

    Args:
        gamma: the penalty of the robust agents; None, that of ``PENALTIES``.
    """
    require_count("seeds", seeds)
    require_count("trials", trials)
    settings: Mapping[str, Any] = {"landing": landing, "episodes": episodes, "system": system}
    learners = {
        NOMINAL: cartpole_learner(None, **settings),
        ROBUST: cartpole_learner(PENALTIES.get(landing) if gamma is None else gamma, **settings),
    }
    trained: dict[str, list[Training]] = {agent: [] for agent in learners}
    for seed in range(seeds):
        for agent, learner in learners.items():
            progress(f"seed {seed}: training the {agent} agent")
            trained[agent].append(fit_cartpole(learner, seed, system))
    tried = {agent: try_out([one.policy for one in runs], system, trials) for agent, runs in trained.items()}
    return Study(
        {agent: mean_lengths(results) for agent, results in tried.items()},
        {agent: how_they_ended(results) for agent, results in tried.items()},
        {agent: np.stack([one.lengths for one in runs]) for agent, runs in trained.items()},
        {agent: [one.policy for one in runs] for agent, runs in trained.items()},
    )


def try_out(
    policies: Sequence[Policy], system: CartPole = ORIGINAL, trials: int = 1000
) -> dict[str, list[Trials]]:
    """The trials of each policy on each of the seven systems; policy k meets those of seed k."""
    return {
        name: [run_trials(policy, changed, trials=trials, seed=seed) for seed, policy in enumerate(policies)]
        for name, changed in variations(system).items()
    }


def mean_lengths(tried: Mapping[str, Sequence[Trials]]) -> Lengths:
    """The mean episode length of each policy, by system."""
    return {system: [float(one.lengths.mean()) for one in runs] for system, runs in tried.items()}


def how_they_ended(tried: Mapping[str, Sequence[Trials]]) -> Ends:
    """The shares of all trials that ended early, by system."""
    return {
        system: {
            "fell": float(np.mean([one.fell for one in runs])),
            "ran off": float(np.mean([one.ran_off for one in runs])),
        }
        for system, runs in tried.items()
    }


def _plain(intervals: Mapping[str, MeanEstimate]) -> dict[str, dict[str, float | None]]:
    return {
        name: {key: value if np.isfinite(value) else None for key, value in asdict(found).items()}
        for name, found in intervals.items()
    }
