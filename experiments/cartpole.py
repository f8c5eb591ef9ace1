"""The paper's table and figure of cart-pole (sec:cartpole), over 20 seeds, and the animation.

python -m experiments.cartpole          # some minutes; writes experiments/results/cartpole.json
python -m experiments.cartpole plot     # draws cartpole.png, and docs/cartpole.gif from new agents
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from certus.mdp import cartpole_learner, compare, fit_cartpole, variations
from certus.mdp.figures import animate, draw_curves

RESULTS = Path("experiments/results")


@dataclass(frozen=True)
class Args:
    gamma: float = 50.0
    seeds: int = 20
    episodes: int = 4000
    trials: int = 1000
    block: int = 50  # episodes that are averaged for one point of a stored curve


def main(args: Args) -> None:
    study = compare(args.gamma, seeds=args.seeds, episodes=args.episodes, trials=args.trials, progress=print)
    shape = (args.seeds, -1, args.block)
    curves = {name: curve.reshape(shape).mean(2).tolist() for name, curve in study.curves.items()}
    result = {"args": asdict(args), **study.summary(), "curves": curves}
    (RESULTS / "cartpole.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: result[key] for key in ("mean", "paired gain", "ends")}, indent=2))
    print(json.dumps(result["area under the training curve"]["paired gain"]))


def plot(args: Args) -> None:
    content = json.loads((RESULTS / "cartpole.json").read_text())
    curves = {
        name: np.repeat(np.array(curve), args.block, axis=1) for name, curve in content["curves"].items()
    }
    draw_curves(curves, RESULTS / "cartpole.png", window=args.block)
    # The most ordinary pair: the seed whose nominal agent is the median one under strong gravity.
    lengths = content["lengths"]["nominal"]["strong g"]
    seed = int(np.argsort(lengths)[len(lengths) // 2])
    print(f"agents of seed {seed}; the nominal one holds for {lengths[seed]:.0f} steps on average")
    agents = {"nominal": cartpole_learner(), "robust": cartpole_learner(args.gamma)}
    policies = {name: fit_cartpole(learner, seed).policy for name, learner in agents.items()}
    animate(policies, variations()["strong g"], Path("docs/cartpole.gif"), seed=seed)


if __name__ == "__main__":
    (plot if sys.argv[1:] == ["plot"] else main)(Args())
