"""Cart-pole (sec:cartpole): nominal and robust agents on the paper's seven systems, and beyond them.

Beyond the paper: the worst of a grid of masses × lengths × gravities, every combination of the paper's own
factors; and the optimum of the robust MDP on the cells, by robust value iteration, tried on the same systems.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from certus.figures.canvas import COLOURS, new_figure
from certus.mdp.cartpole import ORIGINAL, CartPole, variations
from certus.mdp.episodes import MeanEstimate, estimate_mean, run_trials
from certus.mdp.fast import cartpole_learner, fit_cartpole
from certus.mdp.policies import Policy
from certus.mdp.study import NOMINAL, PAPER, PENALTIES, ROBUST
from certus.mdp.tabular import Landing
from certus.mdp.value_iteration import cartpole_optimum
from certus.reproduce.page import markdown_table
from certus.reproduce.reproduction import Comparison, Extent, Measured, Part, Picture, Reproduction
from certus.reproduce.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MASSES = LENGTHS = (0.5, 1.0, 2.0)
GRAVITIES = (0.2, 1.0, 5.0)
_BLOCK = 50  # episodes that are averaged for one point of a training curve


def combinations() -> dict[str, CartPole]:
    """The 27 systems of all factors."""
    return {
        f"{mass:g} × {length:g} × {gravity:g}": ORIGINAL.scaled(mass=mass, length=length, gravity=gravity)
        for mass, length, gravity in itertools.product(MASSES, LENGTHS, GRAVITIES)
    }


def _tried(policy: Policy, systems: Mapping[str, CartPole], trials: int, seed: int) -> dict[str, float]:
    return {
        name: float(run_trials(policy, system, trials=trials, seed=seed).lengths.mean())
        for name, system in systems.items()
    }


def _measure(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """One pair of agents."""
    seed, found = settings["seed"], {}
    for agent, gamma in ((NOMINAL, None), (ROBUST, settings["gamma"])):
        trained = fit_cartpole(cartpole_learner(gamma, episodes=settings["episodes"]), seed)
        found[agent] = {
            "lengths": _tried(trained.policy, variations(), settings["trials"], seed),
            "grid": _tried(trained.policy, combinations(), settings["grid_trials"], seed),
            "curve": trained.lengths.reshape(-1, _BLOCK).mean(1).tolist(),
        }
    return found


def _measure_optimum(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The policy of robust value iteration at one ρ."""
    policy, value = cartpole_optimum(settings["rho"])
    lengths = _tried(policy, variations(), settings["trials"], seed=0)
    grid = _tried(policy, combinations(), settings["grid_trials"], seed=0)
    return {"rho": settings["rho"], "value": value, "lengths": lengths, "grid": grid}


def _parts(extent: Extent) -> list[Part]:
    quick = extent is Extent.QUICK
    trials = {"trials": 100 if quick else 1000, "grid_trials": 20 if quick else 200}
    learning = {"gamma": PENALTIES[Landing.ROUND], "episodes": 4000}
    agents = [
        Part(f"seed-{seed}", {"seed": seed, **learning, **trials}, _measure)
        for seed in range(3 if quick else 20)
    ]
    rhos = (0.0, 1e-4) if quick else (0.0, 1e-5, 1e-4, 1e-3)
    return [*agents, *(Part(f"optimum-{rho:g}", {"rho": rho, **trials}, _measure_optimum) for rho in rhos)]


def _agents(measured: Measured) -> list[Mapping[str, Any]]:
    return [found for name, found in measured.items() if name.startswith("seed-")]


def _optima(measured: Measured) -> list[Mapping[str, Any]]:
    return [found for name, found in measured.items() if name.startswith("optimum-")]


def _mean(measured: Measured, agent: str, system: str) -> MeanEstimate:
    return estimate_mean([one[agent]["lengths"][system] for one in _agents(measured)])


def _worst(grid: Mapping[str, float]) -> float:
    return min(grid.values())


def _draw(measured: Measured) -> Figure:
    figure = new_figure(10.4, 4.0)
    training, across = figure.subplots(1, 2)
    for agent, colour in ((NOMINAL, COLOURS[1]), (ROBUST, COLOURS[0])):
        curves = np.array([one[agent]["curve"] for one in _agents(measured)])
        at = (np.arange(curves.shape[1]) + 0.5) * _BLOCK
        training.plot(at, curves.mean(0), color=colour, label=agent)
        training.fill_between(at, *np.quantile(curves, [0.25, 0.75], axis=0), color=colour, alpha=0.2, lw=0)
        sizes = [sorted(one[agent]["grid"].values()) for one in _agents(measured)]
        across.plot(
            range(1, len(sizes[0]) + 1), np.mean(sizes, axis=0), "o-", ms=3, color=colour, label=agent
        )
    training.set(
        xlabel="training episode", ylabel="episode length (at most 400)", title="Learning, band: middle half"
    )
    across.set(xlabel="the 27 systems, hardest first", ylabel="episode length (at most 400)")
    across.set_title("All combinations of mass, length and gravity")
    for axes in (training, across):
        axes.set_ylim(0, 410)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="lower right")
    return figure


def _statements(measured: Measured) -> list[Comparison]:
    made = []
    for system in ("original", "heavy", "short", "strong g"):
        nominal, robust = (_mean(measured, agent, system) for agent in (NOMINAL, ROBUST))
        before, after = PAPER[system]
        wins = after[0] - before[0] > 5
        agrees = (robust.mean - nominal.mean > 5) if wins else abs(robust.mean - nominal.mean) <= 10
        heavy = system == "heavy" and not agrees
        made.append(
            Comparison(
                "sec:cartpole",
                f"{system.capitalize()}: nominal {before[0]:g}, robust {after[0]:g} of 400 steps.",
                f"Nominal {nominal.mean:.1f}, robust {robust.mean:.1f} ({len(_agents(measured))} "
                f"agents each).",
                agrees,
                reason="gymnasium's pole weighs a tenth of its cart; doubling it hurts nobody."
                if heavy
                else "",
            )
        )
    areas = [np.mean(one[ROBUST]["curve"]) - np.mean(one[NOMINAL]["curve"]) for one in _agents(measured)]
    gain = float(np.mean(areas))
    made.append(
        Comparison(
            "sec:cartpole",
            "The robust agent also learns more efficiently on the original system (Fig. 5).",
            f"Its training episodes are {gain:+.0f} steps longer in the mean.",
            gain > 0,
        )
    )
    worst = {
        agent: np.mean([_worst(one[agent]["grid"]) for one in _agents(measured)])
        for agent in (NOMINAL, ROBUST)
    }
    best = max(_optima(measured), key=lambda one: _worst(one["grid"]))
    made.append(
        Comparison(
            "unlabelled: robust MDP",
            "The goal is the worst case over an ambiguity set of transitions.",
            f"Worst of 27 systems: nominal {worst[NOMINAL]:.0f}, robust {worst[ROBUST]:.0f} steps; "
            f"the optimum of the "
            f"robust MDP on the cells {_worst(best['grid']):.0f} (ρ = {best['rho']:g}).",
            None,
            reason="the paper has no such number.",
        )
    )
    return made


def _text(measured: Measured) -> str:
    rows = []
    for system, (before, after) in PAPER.items():
        ours = [_mean(measured, agent, system) for agent in (NOMINAL, ROBUST)]
        cells = [f"{one.mean:.1f} ± {one.error:.1f}" for one in ours]
        optima = [f"{one['lengths'][system]:.0f}" for one in _optima(measured)]
        rows.append([system, *cells, *(f"{pair[0]} ± {pair[1]}" for pair in (before, after)), *optima])
    head = ["system", "nominal", "robust", "paper: nominal", "paper: robust"]
    head += [f"optimum, ρ = {one['rho']:g}" for one in _optima(measured)]
    words = (
        "Episode length, at most 400; ± the standard error over agents (the paper's: over trials of "
        "one agent). The last columns: "
        "the policy that robust value iteration finds on the cells, which do not see the cart."
    )
    return f"{markdown_table(head, rows)}\n\n{words}"


REPRODUCTION = Reproduction(
    name="cartpole",
    title="Cart-pole: agents that survive other physics",
    shows=("sec:cartpole", "eqn:qlearningthing"),
    minutes={Extent.QUICK: 0.5, Extent.PAPER: 5},
    parts=_parts,
    pictures=(
        Picture(
            "agents",
            "Left: episode lengths during training. Right: all combinations of the paper's factors.",
            _draw,
        ),
    ),
    statements=_statements,
    text=_text,
    smaller={Extent.QUICK: "Three agents of each kind, 100 trials."},
)
