"""Deep Q-learning on cart-pole, nominal and robust with the Q-term, on all seven systems.

python -m experiments.cartpole_deep                 # about ten minutes on one core
python -m experiments.cartpole_deep --resume        # go on after an interruption
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from benchmarks._options import OUTPUT, RESUME, perform, read_options
from benchmarks._results import read_unfinished, write_result, write_unfinished
from certus.errors import require
from certus.mdp import AngleReward, DeepQLearning, episode_lengths, estimate_mean, make_cartpoles, variations

SCALES = (2.4, 2.0, 0.4, 2.0)  # of position, speed, angle and rate


@dataclass(frozen=True)
class Args:
    gamma: Annotated[float, "penalty on moving a transition, of the robust agents"] = 3e4
    steps: Annotated[int, "of training"] = 6000
    environments: Annotated[int, "that are simulated at once"] = 16
    trials: Annotated[int, "episodes to try each agent for, on each system"] = 1000
    seeds: Annotated[tuple[int, ...], "one agent of each kind for each, two at least"] = (0, 1, 2, 3, 4)
    resume: Annotated[bool, RESUME] = False
    output: Annotated[Path, OUTPUT] = Path("experiments/results/cartpole_deep.json")

    def __post_init__(self) -> None:
        require(len(self.seeds) >= 2, "seeds", "be two or more, for intervals", self.seeds)


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
        gain = estimate_mean(robust - nominal)
        table[system] = {"nominal": nominal.mean(), "robust": robust.mean(), "paired gain": asdict(gain)}
    return table


def main(args: Args) -> None:
    torch.set_num_threads(1)
    done = read_unfinished(args)
    for seed in args.seeds:
        for agent, gamma in (("nominal", None), ("robust", args.gamma)):
            key = f"{agent} {seed}"
            if key not in done:
                done[key] = run_one(gamma, seed, args)
                print(key, json.dumps(done[key]), flush=True)
                write_unfinished(args, done)
    summary = summarise(done)
    write_result(args, {"runs": done, "summary": summary})
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
