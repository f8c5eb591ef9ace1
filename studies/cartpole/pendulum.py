"""Swinging a pendulum up under changed physics, learnt through gymnasium.

Pendulum-v1 with three torques, r = e^(−|θ|), θ the angle from the top; tabular agents as on cart-pole
(eqn:qlearningthing). The score is the mean of r over the 200 steps of an episode.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from certus.errors import require, require_count
from certus.mdp.cartpole import discretize_action
from certus.mdp.policies import Covering, episode_rewards
from certus.mdp.tabular import Decay, TabularQLearning
from certus.mdp.transition import AngleReward
from studies.cartpole.pairs import NOMINAL, ROBUST, pair_figure, pair_table, pair_verdict
from studies.study import Measured, Part, Picture, Scale, Study, Verdict
from studies.workspace import Workspace

if TYPE_CHECKING:
    import gymnasium
    from matplotlib.figure import Figure


def make_pendulum(
    *,
    mass: float = 1.0,
    length: float = 1.0,
    gravity: float = 1.0,
    torques: int = 3,
    step_limit: int = 200,
) -> gymnasium.Env[np.ndarray, int]:
    """Build gymnasium's Pendulum-v1 with changed physics, discrete torques, and (angle, rate) observations.

    Args:
        mass, length, gravity: factors.
        torques: how many equally spaced torques there are to choose from.
    """
    import gymnasium

    for name, factor in (("mass", mass), ("length", length), ("gravity", gravity)):
        require(0 < factor < math.inf, name, "be a positive and finite factor", factor)
    require_count("step_limit", step_limit)
    env = gymnasium.make("Pendulum-v1", max_episode_steps=step_limit, disable_env_checker=True)
    bare: Any = env.unwrapped
    bare.m, bare.l, bare.g = bare.m * mass, bare.l * length, bare.g * gravity
    high = np.array([math.pi, bare.max_speed])

    def angle_and_rate(observation: np.ndarray) -> np.ndarray:
        return np.array([math.atan2(observation[1], observation[0]), observation[2]])

    seen = gymnasium.wrappers.TransformObservation(
        env, angle_and_rate, gymnasium.spaces.Box(-high, high, dtype=np.float64)
    )
    return discretize_action(seen, torques)


_SYSTEMS = {  # factors of mass, length and gravity
    "original": (1.0, 1.0, 1.0),
    "light": (0.8, 1.0, 1.0),
    "short": (1.0, 0.8, 1.0),
    "soft g": (1.0, 1.0, 0.8),
    "heavy": (1.25, 1.0, 1.0),
    "long": (1.0, 1.25, 1.0),
    "strong g": (1.0, 1.0, 1.25),
}


def _measure(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Train one pair of agents; return the mean score of each on each system."""
    return {
        NOMINAL: _scores(None, settings),
        ROBUST: _scores(settings["gamma"], settings),
    }


def _scores(gamma: float | None, settings: Mapping[str, Any]) -> dict[str, float]:
    seed, decay = settings["seed"], settings["decay"]
    learner = TabularQLearning(
        Covering((-math.pi, -8.0), (math.pi, 8.0), tuple(settings["bins"])),
        AngleReward(0),
        gamma,
        episodes=settings["episodes"],
        rate=Decay(0.5, decay, last=0.02),
        exploration=Decay(1.0, decay),
    )
    policy = learner.fit(make_pendulum(), seed).policy
    scores = {}
    for name, (mass, length, gravity) in _SYSTEMS.items():
        env = make_pendulum(mass=mass, length=length, gravity=gravity)
        rewards = episode_rewards(policy, env, learner.reward, trials=settings["trials"], seed=seed)
        scores[name] = float(rewards.mean())
    return scores


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
    learning = {"gamma": 20.0, "bins": [41, 31], "decay": 0.97 if quick else 0.994}
    size = {"episodes": 100 if quick else 800, "trials": 3 if quick else 20}
    return [
        Part(f"seed-{seed}", {"seed": seed, **learning, **size}, _measure, packages=("gymnasium",))
        for seed in range(2 if quick else 5)
    ]


def _draw(measured: Measured) -> Figure:
    return pair_figure(list(measured.values()), "mean reward of a step, at most 1")


def _verdicts(measured: Measured) -> list[Verdict]:
    claim = "Do robust agents swing a pendulum up better under changed physics?"
    return [pair_verdict(list(measured.values()), claim, 3)]


def _text(measured: Measured) -> str:
    words = "The mean of e^(−|θ|) over an episode, ± the standard error over the seeds."
    return f"{pair_table(list(measured.values()), 3)}\n\n{words}"


STUDY = Study(
    name="pendulum",
    title="A pendulum to swing up under changed physics",
    labels=("eqn:qlearningthing",),
    minutes={Scale.QUICK: 0.3, Scale.FULL: 10},
    parts=_parts,
    pictures=(Picture("systems", "Scores of nominal and robust agents, ± the standard error.", _draw),),
    verdicts=_verdicts,
    text=_text,
    scope={Scale.QUICK: "Two agents of each kind, 100 episodes instead of 800, 3 trials."},
    beyond=True,
)
