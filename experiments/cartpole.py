"""The paper's table and figure of cart-pole (sec:cartpole), over 20 seeds, and the animation.

python -m experiments.cartpole              # some minutes; writes experiments/results/cartpole.json
python -m experiments.cartpole --plot       # draws it as .png, and new agents as .gif, beside the result
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from benchmarks._options import OUTPUT, Shows, perform, read_options
from benchmarks._results import read_result, write_result
from certus.mdp import cartpole_learner, compare_agents, fit_cartpole, variations
from certus.mdp.pictures import animate, draw_curves


@dataclass(frozen=True)
class Args:
    gamma: Annotated[float, "penalty on moving a transition, of the robust agents"] = 50.0
    seeds: Annotated[int, "agents of each kind"] = 20
    episodes: Annotated[int, "of training"] = 4000
    trials: Annotated[int, "episodes to try each agent for, on each system"] = 1000
    block: Annotated[int, "episodes that are averaged for one point of a stored curve"] = 50
    plot: Annotated[bool, "draw what OUTPUT holds, and measure nothing", Shows()] = False
    output: Annotated[Path, OUTPUT] = Path("experiments/results/cartpole.json")


def main(args: Args) -> None:
    study = compare_agents(
        args.gamma, seeds=args.seeds, episodes=args.episodes, trials=args.trials, progress=print
    )
    shape = (args.seeds, -1, args.block)
    curves = {name: curve.reshape(shape).mean(2).tolist() for name, curve in study.curves.items()}
    result = {**study.summary(), "curves": curves}
    write_result(args, result)
    print(json.dumps({key: result[key] for key in ("mean", "paired gain", "ends")}, indent=2))
    print(json.dumps(result["area under the training curve"]["paired gain"]))


def plot(args: Args) -> None:
    args, content = read_result(args)
    curves = {
        name: np.repeat(np.array(curve), args.block, axis=1) for name, curve in content["curves"].items()
    }
    draw_curves(curves, args.output.with_suffix(".png"), window=args.block)
    # The most ordinary pair: the seed whose nominal agent is the median one under strong gravity.
    lengths = content["lengths"]["nominal"]["strong g"]
    seed = int(np.argsort(lengths)[len(lengths) // 2])
    print(f"agents of seed {seed}; the nominal one holds for {lengths[seed]:.0f} steps on average")
    agents = {"nominal": None, "robust": args.gamma}
    policies = {
        name: fit_cartpole(cartpole_learner(gamma, episodes=args.episodes), seed).policy
        for name, gamma in agents.items()
    }
    animate(policies, variations()["strong g"], args.output.with_suffix(".gif"), seed=seed)


if __name__ == "__main__":
    chosen = read_options(Args, __doc__)
    perform(plot if chosen.plot else main, chosen)
