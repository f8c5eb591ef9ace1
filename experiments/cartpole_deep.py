"""Deep Q-learning on cart-pole, nominal and robust with the Q-term, on all seven systems.

    python -m experiments.cartpole_deep [seed …]     # trains what is missing of these seeds

Five seeds take about ten minutes on one core. Results go to experiments/results/cartpole_deep.json.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from certus.mdp import AngleReward, DeepQLearning, episode_lengths, interval, make_cartpoles, variations

OUTPUT = Path("experiments/results/cartpole_deep.json")
SCALES = (2.4, 2.0, 0.4, 2.0)  # of position, speed, angle and rate


@dataclass(frozen=True)
class Args:
    gamma: float = 3e4
    steps: int = 6000
    environments: int = 16
    trials: int = 1000


def run_one(gamma: float | None, seed: int, args: Args) -> dict[str, Any]:
    began = time.perf_counter()
    learner = DeepQLearning(AngleReward(2), SCALES, gamma, steps=args.steps)
    trained = learner.fit(make_cartpoles(args.environments), seed)
    seconds = time.perf_counter() - began
    lengths = {
        name: float(episode_lengths(trained.policy, system, trials=args.trials, seed=seed).mean())
        for name, system in variations().items()
    }
    return {
        "lengths": lengths,
        "episodes": len(trained.lengths),
        "mean training length": float(trained.lengths.mean()),
        "rho_hat": float(trained.transport[-1000:].mean()),
        "seconds": seconds,
    }


def summarise(runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    seeds = [key.split()[1] for key in runs if key.startswith("robust")]
    table: dict[str, Any] = {"seeds": len(seeds), "seconds": sum(run["seconds"] for run in runs.values())}
    for system in variations():
        nominal, robust = (
            np.array([runs[f"{agent} {seed}"]["lengths"][system] for seed in seeds])
            for agent in ("nominal", "robust")
        )
        gain = interval(robust - nominal)
        table[system] = {"nominal": nominal.mean(), "robust": robust.mean(), "paired gain": asdict(gain)}
    return table


def main(seeds: list[int], args: Args) -> None:
    torch.set_num_threads(1)
    done = json.loads(OUTPUT.read_text())["runs"] if OUTPUT.exists() else {}
    for seed in seeds:
        for agent, gamma in (("nominal", None), ("robust", args.gamma)):
            key = f"{agent} {seed}"
            if key not in done:
                done[key] = run_one(gamma, seed, args)
                print(key, json.dumps(done[key]), flush=True)
                OUTPUT.write_text(json.dumps({"args": asdict(args), "runs": done}, indent=1) + "\n")
    if len(done) >= 4:
        content = {"args": asdict(args), "runs": done, "summary": summarise(done)}
        OUTPUT.write_text(json.dumps(content, indent=1) + "\n")
        print(json.dumps(content["summary"], indent=1))


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]] or list(range(5)), Args())
