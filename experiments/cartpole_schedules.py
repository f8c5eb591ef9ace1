"""Does the gain belong to the schedule? Learning rate × exploration, nominal and robust, on cart-pole.

python -m experiments.cartpole_schedules            # 64 settings, 10 s each
python -m experiments.cartpole_schedules --resume   # go on after an interruption
python -m experiments.cartpole_schedules --plot     # draw the result beside it and print a table
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks._options import OUTPUT, RESUME, Shows, perform, read_options
from benchmarks._results import read_result, read_unfinished, write_result, write_unfinished
from certus.figures.canvas import save_figure
from certus.mdp import Decay, cartpole_learner, episode_lengths, estimate_mean, fit_cartpole, variations

COLOURS = ("#D55E00", "#56B4E9", "#0072B2", "#1a1a1a")  # nominal, then ever smaller γ


# What random actions are multiplied by after each episode, the same of rates, episodes. The last schedule is
# the default one, four times slower.
SCHEDULES = ((0.995, 0.998, 4000), (0.998, 0.998, 4000), (0.999, 0.998, 4000), (0.9995, 0.9995, 16000))


@dataclass(frozen=True)
class Args:
    rates: Annotated[tuple[float, ...], "of the first episode; the last is 0.02"] = (0.5, 0.2, 0.1, 0.05)
    gammas: Annotated[tuple[float, ...], "penalties of the robust agents"] = (
        200,
        100,
        50,
    )
    systems: Annotated[tuple[str, ...], "on which agents are tried"] = ("original", "short", "strong g")
    seeds: Annotated[int, "agents of each setting"] = 10
    trials: Annotated[int, "episodes to try each agent for, on each system"] = 100
    share: Annotated[float, "of the schedules' episodes, for a quick look"] = 1.0
    plot: Annotated[bool, "draw what OUTPUT holds, and measure nothing", Shows()] = False
    resume: Annotated[bool, RESUME] = False
    output: Annotated[Path, OUTPUT] = Path("experiments/results/cartpole_schedules.json")

    @property
    def agents(self) -> tuple[float | None, ...]:
        """None for the nominal one, and every γ."""
        return (None, *self.gammas)


Setting = tuple[float, tuple[float, float, int], float | None]


def name(setting: Setting) -> str:
    rate, (exploration, factor, episodes), gamma = setting
    agent = "nominal" if gamma is None else f"gamma {gamma:g}"
    return f"rate {rate:g} x {factor:g}, exploration x {exploration:g}, {episodes} episodes, {agent}"


def run_one(setting: Setting, args: Args) -> dict[str, list[float]]:
    """By system the mean episode length of each seed's agent, and that in training."""
    rate, (exploration, factor, episodes), gamma = setting
    learner = replace(
        cartpole_learner(gamma, episodes=max(1, round(args.share * episodes))),
        rate=Decay(rate, factor, last=0.02),
        exploration=Decay(1.0, exploration),
    )
    systems = variations()
    found: dict[str, list[float]] = {key: [] for key in (*args.systems, "training")}
    for seed in range(args.seeds):
        trained = fit_cartpole(learner, seed)
        found["training"].append(round(float(trained.lengths.mean()), 2))
        for system in args.systems:
            lengths = episode_lengths(trained.policy, systems[system], trials=args.trials, seed=seed)
            found[system].append(round(float(lengths.mean()), 2))
    return found


def main(args: Args) -> None:
    done = read_unfinished(args)
    for setting in product(args.rates, SCHEDULES, args.agents):
        if name(setting) not in done:
            done[name(setting)] = run_one(setting, args)
            write_unfinished(args, done)
            means = {key: round(float(np.mean(values))) for key, values in done[name(setting)].items()}
            print(name(setting), means, flush=True)
    write_result(args, {"runs": done})


def plot(args: Args) -> None:
    args, content = read_result(args)
    runs = content["runs"]
    figure = Figure(figsize=(10, 6.5), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(args.systems), len(SCHEDULES), sharex=True, sharey=True)
    for (row, system), (column, schedule) in product(enumerate(args.systems), enumerate(SCHEDULES)):
        panel = panels[row][column]
        for gamma, colour in zip(args.agents, COLOURS, strict=False):
            found = [estimate_mean(runs[name((rate, schedule, gamma))][system]) for rate in args.rates]
            panel.errorbar(
                args.rates,
                [one.mean for one in found],
                [one.error for one in found],
                marker="o",
                ms=3,
                lw=1.2,
                color=colour,
                label="nominal" if gamma is None else f"γ = {gamma:g}",
            )
        panel.set(xscale="log", ylim=(0, 415))
        panel.set_xticks(args.rates, [f"{rate:g}" for rate in args.rates], minor=False)
        panel.minorticks_off()
        if row == 0:
            slower = ", all slower" if schedule[1] != 0.998 else ""
            panel.set_title(f"{schedule[2]:,} episodes,\nexploration × {schedule[0]:g}{slower}", fontsize=9)
        if column == 0:
            panel.set_ylabel(f"{system}: steps")
    figure.supxlabel("first learning rate", fontsize=10)
    panels[0][-1].legend(frameon=False, fontsize=8, loc="lower left")
    save_figure(figure, args.output.with_suffix(".png"), dpi=figure.dpi)
    show(runs, args)


def show(runs: dict[str, Any], args: Args) -> None:
    """Markdown: nominal, and each γ with its paired gain, on each system."""
    for system, schedule, rate in product(args.systems, SCHEDULES, args.rates):
        nominal = np.array(runs[name((rate, schedule, None))][system])
        cells = [f"{nominal.mean():.0f}"]
        for gamma in args.gammas:
            robust = np.array(runs[name((rate, schedule, gamma))][system])
            gain = estimate_mean(robust - nominal)
            cells.append(f"{robust.mean():.0f} ({gain.mean:+z.0f} [{gain.low:z.0f}, {gain.high:z.0f}])")
        row = " | ".join([system, f"{schedule[0]:g}, {schedule[2]}", f"{rate:g}", *cells])
        print(f"| {row} |".replace("-", "−"))


if __name__ == "__main__":
    chosen = read_options(Args, __doc__)
    perform(plot if chosen.plot else main, chosen)
