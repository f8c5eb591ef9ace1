"""A further environment: swinging a pendulum up under changed physics, learnt through gymnasium.

    python -m experiments.pendulum [seed …]     # trains what is missing of these seeds, about a minute each

Pendulum-v1 with three torques, r = e^(−|θ|), θ the angle from the top; tabular agents as on cart-pole.
The score is the mean of r over the 200 steps of an episode. Results go to experiments/results/pendulum.json.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from certus.mdp import (
    AngleReward,
    Covering,
    Decay,
    TabularQLearning,
    episode_rewards,
    interval,
    make_pendulum,
)

OUTPUT = Path("experiments/results/pendulum.json")
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
    gamma: float = 20.0
    episodes: int = 800
    trials: int = 20
    bins: tuple[int, int] = (41, 31)
    decay: float = 0.994


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
        gain = interval(robust - nominal)
        table[system] = {"nominal": nominal.mean(), "robust": robust.mean(), "paired gain": asdict(gain)}
    return table


def main(seeds: list[int], args: Args) -> None:
    done = json.loads(OUTPUT.read_text())["runs"] if OUTPUT.exists() else {}
    for seed in seeds:
        for agent, gamma in (("nominal", None), ("robust", args.gamma)):
            key = f"{agent} {seed}"
            if key not in done:
                done[key] = run_one(gamma, seed, args)
                print(key, {name: round(score, 3) for name, score in done[key].items()}, flush=True)
                content = {"args": asdict(args), "runs": done}
                OUTPUT.write_text(json.dumps(content, indent=1) + "\n")
    if len(done) >= 4:
        content = {"args": asdict(args), "runs": done, "summary": summarise(done)}
        OUTPUT.write_text(json.dumps(content, indent=1) + "\n")
        print(json.dumps(content["summary"], indent=1))


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]] or list(range(5)), Args())
