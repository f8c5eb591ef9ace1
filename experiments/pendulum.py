"""A further environment: swinging a pendulum up under changed physics, learnt through gymnasium.

    python -m experiments.pendulum                  # about a minute for each of five seeds
    python -m experiments.pendulum --resume         # go on after an interruption

Pendulum-v1 with three torques, r = e^(−|θ|), θ the angle from the top; tabular agents as on cart-pole.
The score is the mean of r over the 200 steps of an episode.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from benchmarks._options import OUTPUT, RESUME, perform, read_options
from benchmarks._results import read_unfinished, write_result, write_unfinished
from certus.errors import require
from certus.mdp import (
    AngleReward,
    Covering,
    Decay,
    TabularQLearning,
    episode_rewards,
    estimate_mean,
    make_pendulum,
)

SYSTEMS = {  # factors of mass, length and gravity
    "original": (1.0, 1.0, 1.0),
    "light": (0.8, 1.0, 1.0),
    "short": (1.0, 0.8, 1.0),
    "soft g": (1.0, 1.0, 0.8),
    "heavy": (1.25, 1.0, 1.0),
    "long": (1.0, 1.25, 1.0),
    "strong g": (1.0, 1.0, 1.25),
}


@dataclass(frozen=True)
class Args:
    gamma: Annotated[float, "penalty on moving a transition, of the robust agents"] = 20.0
    episodes: Annotated[int, "of training"] = 800
    trials: Annotated[int, "episodes to try each agent for, on each system"] = 20
    bins: Annotated[tuple[int, ...], "cells of the angle and of its rate"] = (41, 31)
    decay: Annotated[float, "factor of exploration and learning rate after each episode"] = 0.994
    seeds: Annotated[tuple[int, ...], "one agent of each kind for each, two at least"] = (0, 1, 2, 3, 4)
    resume: Annotated[bool, RESUME] = False
    output: Annotated[Path, OUTPUT] = Path("experiments/results/pendulum.json")

    def __post_init__(self) -> None:
        require(len(self.seeds) >= 2, "seeds", "be two or more, for intervals", self.seeds)


def run_one(gamma: float | None, seed: int, args: Args) -> dict[str, float]:
    covering = Covering((-math.pi, -8.0), (math.pi, 8.0), args.bins)
    learner = TabularQLearning(
        covering,
        AngleReward(0),
        gamma,
        episodes=args.episodes,
        rate=Decay(0.5, args.decay, last=0.02),
        exploration=Decay(1.0, args.decay),
    )
    policy = learner.fit(make_pendulum(), seed).policy
    scores = {}
    for name, (mass, length, gravity) in SYSTEMS.items():
        env = make_pendulum(mass=mass, length=length, gravity=gravity)
        rewards = episode_rewards(policy, env, learner.reward, trials=args.trials, seed=seed)
        scores[name] = float(rewards.mean())
    return scores


def summarise(runs: dict[str, dict[str, float]]) -> dict[str, Any]:
    seeds = sorted({key.split()[1] for key in runs if f"robust {key.split()[1]}" in runs})
    table: dict[str, Any] = {"seeds": len(seeds)}
    for system in SYSTEMS:
        nominal, robust = (
            np.array([runs[f"{agent} {seed}"][system] for seed in seeds]) for agent in ("nominal", "robust")
        )
        gain = estimate_mean(robust - nominal)
        table[system] = {"nominal": nominal.mean(), "robust": robust.mean(), "paired gain": asdict(gain)}
    return table


def main(args: Args) -> None:
    done = read_unfinished(args)
    for seed in args.seeds:
        for agent, gamma in (("nominal", None), ("robust", args.gamma)):
            key = f"{agent} {seed}"
            if key not in done:
                done[key] = run_one(gamma, seed, args)
                print(key, {name: round(score, 3) for name, score in done[key].items()}, flush=True)
                write_unfinished(args, done)
    summary = summarise(done)
    write_result(args, {"runs": done, "summary": summary})
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
