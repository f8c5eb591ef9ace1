"""Price and gain of robustness on cart-pole: a sweep of γ, and worst-case values within transition balls.

    python -m experiments.cartpole_sweep     # goes on where it stopped, half a minute for each γ

Results go to experiments/results/cartpole_sweep.json and .png.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from certus.mdp import (
    Landing,
    WeakPenaltyWarning,
    cartpole_learner,
    cartpole_worst_case,
    fit_cartpole,
)
from certus.mdp.study import try_out

OUTPUT = Path("experiments/results/cartpole_sweep.json")


@dataclass(frozen=True)
class Args:
    rounded: tuple[float, ...] = (10, 15, 17.5, 20, 30, 50, 100, 200, 500)
    covered: tuple[float, ...] = (1e4,)
    rhos: tuple[float, ...] = (0.0, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
    bracketed: tuple[float | None, ...] = (None, 50)  # of these, worst-case values too
    seeds: int = 10
    covered_seeds: int = 2
    trials: int = 300


def run_one(gamma: float | None, landing: Landing, seeds: int, args: Args) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakPenaltyWarning)  # seeing what happens there is the point
        learner = cartpole_learner(gamma, landing=landing)
    trained = [fit_cartpole(learner, seed) for seed in range(seeds)]
    found = {
        "lengths": {
            name: float(np.mean(values))
            for name, values in try_out([one.policy for one in trained], trials=args.trials).items()
        },
        "area": float(np.mean([one.lengths.mean() for one in trained])),
        "rho_hat": float(np.mean([one.transport[-500:].mean() for one in trained])),
    }
    if gamma in args.bracketed:
        worst = {rho: [cartpole_worst_case(one.policy, rho) for one in trained[:5]] for rho in args.rhos}
        found["worst-case value, 5 seeds"] = {f"{rho:g}": float(np.mean(of)) for rho, of in worst.items()}
    return found


def main(args: Args) -> None:
    done = json.loads(OUTPUT.read_text()) if OUTPUT.exists() else {}
    plan: list[tuple[float | None, Landing, int]] = [(None, Landing.ROUND, args.seeds)]
    plan += [(gamma, Landing.ROUND, args.seeds) for gamma in args.rounded]
    plan += [(gamma, Landing.COVER, args.covered_seeds) for gamma in args.covered]
    for gamma, landing, seeds in plan:
        key = "nominal" if gamma is None else f"{landing.name.lower()} {gamma:g}"
        if key not in done:
            done[key] = run_one(gamma, landing, seeds, args)
            OUTPUT.write_text(json.dumps(done, indent=1) + "\n")
        print(key, {name: round(length) for name, length in done[key]["lengths"].items()}, flush=True)
    draw(done, args)


def draw(done: dict[str, Any], args: Args) -> None:
    figure = Figure(figsize=(9, 3.6), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for name, colour in zip(
        ("original", "short", "strong g"), ("#1a1a1a", "#0072B2", "#D55E00"), strict=True
    ):
        lengths = [done[f"round {gamma:g}"]["lengths"][name] for gamma in args.rounded]
        left.plot(args.rounded, lengths, "o-", ms=4, color=colour, label=name)
        left.axhline(done["nominal"]["lengths"][name], color=colour, lw=1, ls=":")
    left.set(xscale="log", xlabel="γ", ylabel="episode length", title="robust agents; dotted: nominal")
    left.legend(frameon=False)
    for key, colour in (("nominal", "#D55E00"), ("round 50", "#0072B2")):
        values = done[key]["worst-case value, 5 seeds"]
        radii = [float(rho) ** 0.5 for rho in values]
        right.plot(radii, list(values.values()), "o-", ms=4, color=colour, label=key)
    title = "worst case in a ball (estimated)"
    right.set(xlabel="√ρ per step", ylabel="discounted reward", title=title)
    right.legend(frameon=False)
    figure.savefig(OUTPUT.with_suffix(".png"))


if __name__ == "__main__":
    main(Args())
