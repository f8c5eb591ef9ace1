"""Price and gain of robustness on cart-pole: a sweep of γ, and worst-case values within transition balls.

python -m experiments.cartpole_sweep            # half a minute for each γ
python -m experiments.cartpole_sweep --resume   # go on after an interruption
python -m experiments.cartpole_sweep --plot     # draw the result beside it and print a table
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks._options import OUTPUT, RESUME, Shows, perform, read_options
from benchmarks._results import read_result, read_unfinished, write_result, write_unfinished
from certus.errors import require_count
from certus.figures.canvas import save_figure
from certus.mdp import (
    Landing,
    WeakPenaltyWarning,
    cartpole_learner,
    cartpole_worst_case,
    estimate_mean,
    fit_cartpole,
)
from certus.mdp.study import mean_lengths, try_out

ROUNDED = (10, 15, 17.5, 20, 30, 50, 100, 200, 500)
RHOS = (0.0, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
BRACKETED = (None, 50)  # of these, worst-case values too


@dataclass(frozen=True)
class Args:
    rounded: Annotated[tuple[float, ...], "penalties where moved states are rounded to cells"] = ROUNDED
    covered: Annotated[tuple[float, ...], "penalties where the cells are covered"] = (1e4, 3e4, 1e5, 3e5)
    rhos: Annotated[tuple[float, ...], "radii of worst-case values, of nominal agents and at γ = 50"] = RHOS
    bracketed_seeds: Annotated[int, "agents of which worst-case values are computed"] = 5
    seeds: Annotated[int, "agents of each kind"] = 10
    trials: Annotated[int, "episodes to try each agent for, on each system"] = 300
    episodes: Annotated[int, "of training"] = 4000
    plot: Annotated[bool, "draw what OUTPUT holds, and measure nothing", Shows()] = False
    resume: Annotated[bool, RESUME] = False
    output: Annotated[Path, OUTPUT] = Path("experiments/results/cartpole_sweep.json")

    def __post_init__(self) -> None:
        for name in ("seeds", "bracketed_seeds"):
            require_count(name, getattr(self, name), least=2)  # for standard errors


def run_one(gamma: float | None, landing: Landing, args: Args) -> dict[str, Any]:
    """One value for each seed, throughout."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakPenaltyWarning)  # seeing what happens there is the point
        learner = cartpole_learner(gamma, landing=landing, episodes=args.episodes)
    trained = [fit_cartpole(learner, seed) for seed in range(args.seeds)]
    found: dict[str, Any] = {
        "lengths": mean_lengths(try_out([one.policy for one in trained], trials=args.trials)),
        "training": [float(one.lengths.mean()) for one in trained],
        "rho_hat": [float(one.transport[-500:].mean()) for one in trained],
    }
    if landing == Landing.ROUND and gamma in BRACKETED:
        found["worst-case value"] = {
            f"{rho:g}": [cartpole_worst_case(one.policy, rho) for one in trained[: args.bracketed_seeds]]
            for rho in args.rhos
        }
    return found


def summary(runs: dict[str, Any]) -> dict[str, Any]:
    """Means and standard errors over the seeds."""

    def short(values: list[float]) -> dict[str, float]:
        found = estimate_mean(values)
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
    done = read_unfinished(args)
    plan: list[tuple[float | None, Landing]] = [(None, Landing.ROUND)]
    plan += [(gamma, Landing.ROUND) for gamma in args.rounded]
    plan += [(gamma, Landing.COVER) for gamma in args.covered]
    for gamma, landing in plan:
        key = "nominal" if gamma is None else f"{landing.name.lower()} {gamma:g}"
        if key not in done:
            done[key] = run_one(gamma, landing, args)
            write_unfinished(args, done)
            print(key, {name: round(np.mean(of)) for name, of in done[key]["lengths"].items()}, flush=True)
    write_result(args, {"summary": summary(done), "runs": done})


def plot(args: Args) -> None:
    args, content = read_result(args)
    means = content["summary"]
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
    save_figure(figure, args.output.with_suffix(".png"), dpi=figure.dpi)


if __name__ == "__main__":
    chosen = read_options(Args, __doc__)
    perform(plot if chosen.plot else main, chosen)
