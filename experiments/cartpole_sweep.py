"""Price and gain of robustness on cart-pole: a sweep of γ, and worst-case values within transition balls.

    python -m experiments.cartpole_sweep          # goes on where it stopped, half a minute for each γ
    python -m experiments.cartpole_sweep plot     # draws it and prints a table

Results go to experiments/results/cartpole_sweep.json and .png.
"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import asdict, dataclass
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
    interval,
)
from certus.mdp.study import mean_lengths, try_out

OUTPUT = Path("experiments/results/cartpole_sweep.json")


@dataclass(frozen=True)
class Args:
    rounded: tuple[float, ...] = (10, 15, 17.5, 20, 30, 50, 100, 200, 500)
    covered: tuple[float, ...] = (1e4, 3e4, 1e5, 3e5)
    rhos: tuple[float, ...] = (0.0, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
    bracketed: tuple[float | None, ...] = (None, 50)  # of these, worst-case values too
    bracketed_seeds: int = 5
    seeds: int = 10
    trials: int = 300


def run_one(gamma: float | None, landing: Landing, args: Args) -> dict[str, Any]:
    """One value for each seed, throughout."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakPenaltyWarning)  # seeing what happens there is the point
        learner = cartpole_learner(gamma, landing=landing)
    trained = [fit_cartpole(learner, seed) for seed in range(args.seeds)]
    found: dict[str, Any] = {
        "lengths": mean_lengths(try_out([one.policy for one in trained], trials=args.trials)),
        "training": [float(one.lengths.mean()) for one in trained],
        "rho_hat": [float(one.transport[-500:].mean()) for one in trained],
    }
    if landing == Landing.ROUND and gamma in args.bracketed:
        found["worst-case value"] = {
            f"{rho:g}": [cartpole_worst_case(one.policy, rho) for one in trained[: args.bracketed_seeds]]
            for rho in args.rhos
        }
    return found


def summary(runs: dict[str, Any]) -> dict[str, Any]:
    """Means and standard errors over the seeds."""

    def short(values: list[float]) -> dict[str, float]:
        found = interval(values)
        return {"mean": found.mean, "error": found.error}

    return {
        key: {
            name: {of: short(values) for of, values in content.items()}
            if isinstance(content, dict)
            else short(content)
            for name, content in found.items()
        }
        for key, found in runs.items()
    }


def main(args: Args) -> None:
    done = json.loads(OUTPUT.read_text())["runs"] if OUTPUT.exists() else {}
    plan: list[tuple[float | None, Landing]] = [(None, Landing.ROUND)]
    plan += [(gamma, Landing.ROUND) for gamma in args.rounded]
    plan += [(gamma, Landing.COVER) for gamma in args.covered]
    for gamma, landing in plan:
        key = "nominal" if gamma is None else f"{landing.name.lower()} {gamma:g}"
        if key not in done:
            done[key] = run_one(gamma, landing, args)
            content = {"args": asdict(args), "summary": summary(done), "runs": done}
            OUTPUT.write_text(json.dumps(content, indent=1) + "\n")
            print(key, {name: round(np.mean(of)) for name, of in done[key]["lengths"].items()}, flush=True)


def plot(args: Args) -> None:
    means = json.loads(OUTPUT.read_text())["summary"]
    for key, found in means.items():
        cells = [f"{found['rho_hat']['mean'] ** 0.5:.2g}", f"{found['training']['mean']:.0f}"]
        for system in ("original", "long", "short", "strong g"):
            length = found["lengths"][system]
            cells.append(f"{length['mean']:.0f} ± {length['error']:.0f}")
        print(f"| {' | '.join([key, *cells])} |")
    for key in ("nominal", "round 50"):
        values = means[key]["worst-case value"].values()
        print(key, [f"{value['mean']:.1f} ± {value['error']:.1f}" for value in values])
    draw(means, args)


def draw(means: dict[str, Any], args: Args) -> None:
    figure = Figure(figsize=(9, 3.6), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for name, colour in zip(
        ("original", "short", "strong g"), ("#1a1a1a", "#0072B2", "#D55E00"), strict=True
    ):
        lengths = [means[f"round {gamma:g}"]["lengths"][name] for gamma in args.rounded]
        centre, error = ([one[part] for one in lengths] for part in ("mean", "error"))
        left.errorbar(args.rounded, centre, error, marker="o", ms=4, color=colour, label=name)
        left.axhline(means["nominal"]["lengths"][name]["mean"], color=colour, lw=1, ls=":")
    left.set(xscale="log", xlabel="γ", ylabel="episode length", title="robust agents ± s.e.; dotted: nominal")
    left.legend(frameon=False)
    for key, label, colour in (("nominal", "nominal", "#D55E00"), ("round 50", "robust, γ = 50", "#0072B2")):
        values = means[key]["worst-case value"]
        radii = [float(rho) ** 0.5 for rho in values]
        right.plot(radii, [one["mean"] for one in values.values()], "o-", ms=4, color=colour, label=label)
    title = "worst case in a ball (estimated)"
    right.set(xlabel="√ρ per step", ylabel="discounted reward", title=title)
    right.legend(frameon=False)
    figure.savefig(OUTPUT.with_suffix(".png"))


if __name__ == "__main__":
    (plot if sys.argv[1:] == ["plot"] else main)(Args())
