"""Cart-pole (sec:cartpole): nominal and robust agents on the paper's seven systems, and beyond them.

Beyond the paper: the worst of a grid of masses × lengths × gravities, every combination of the paper's own
factors; the optimum of the robust MDP on the cells, by robust value iteration, tried on the same systems; and
what ends episodes early.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from certus.display.canvas import COLOURS, new_figure
from certus.mdp.cartpole import ORIGINAL, CartPole, variations
from certus.mdp.evaluation import run_trials
from certus.mdp.fast import cartpole_learner, fit_cartpole
from certus.mdp.policies import Policy
from certus.mdp.robust import cartpole_optimum
from studies.agent_pairs import mean_score, paired_gain, spoken_gain
from studies.page import markdown_table
from studies.pole_claims import (
    agents_of,
    optima_of,
    pairs_of,
    pole_statements,
    share_of,
)
from studies.pole_pictures import animate
from studies.pole_study import NOMINAL, PAPER, PENALTY, ROBUST
from studies.reproduction import Extent, Film, Measured, Part, Picture, Reproduction
from studies.workshop import Workshop

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MASSES = LENGTHS = (0.5, 1.0, 2.0)
GRAVITIES = (0.2, 1.0, 5.0)
_BLOCK = 50  # episodes that are averaged for one point of a training curve
_EPISODES, _GAMMA = 4000, PENALTY


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
        tried = {
            name: run_trials(trained.policy, system, trials=settings["trials"], seed=seed)
            for name, system in variations().items()
        }
        found[agent] = {
            "lengths": {name: float(one.lengths.mean()) for name, one in tried.items()},
            "fell": {name: float(one.fell.mean()) for name, one in tried.items()},
            "ran off": {name: float(one.ran_off.mean()) for name, one in tried.items()},
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
    learning = {"gamma": _GAMMA, "episodes": _EPISODES}
    agents = [
        Part(f"seed-{seed}", {"seed": seed, **learning, **trials}, _measure)
        for seed in range(3 if quick else 20)
    ]
    rhos = (0.0, 1e-4) if quick else (0.0, 1e-5, 1e-4, 1e-3)
    return [*agents, *(Part(f"optimum-{rho:g}", {"rho": rho, **trials}, _measure_optimum) for rho in rhos)]


def _draw(measured: Measured) -> Figure:
    figure = new_figure(10.4, 4.0)
    training, across = figure.subplots(1, 2)
    for agent, colour in ((NOMINAL, COLOURS[1]), (ROBUST, COLOURS[0])):
        curves = np.array([one[agent]["curve"] for one in agents_of(measured)])
        at = (np.arange(curves.shape[1]) + 0.5) * _BLOCK
        training.plot(at, curves.mean(0), color=colour, label=agent)
        training.fill_between(at, *np.quantile(curves, [0.25, 0.75], axis=0), color=colour, alpha=0.2, lw=0)
        sizes = [sorted(one[agent]["grid"].values()) for one in agents_of(measured)]
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


def _text(measured: Measured) -> str:
    rows, pairs = [], pairs_of(measured)
    for system, (before, after) in PAPER.items():
        ours = [mean_score(pairs, agent, system) for agent in (NOMINAL, ROBUST)]
        cells = [f"{one.mean:.1f} ± {one.error:.1f}" for one in ours]
        cells.append(spoken_gain(paired_gain(pairs, system), 1))
        optima = [f"{one['lengths'][system]:.0f}" for one in optima_of(measured)]
        rows.append([system, *cells, *(f"{pair[0]} ± {pair[1]}" for pair in (before, after)), *optima])
    head = ["system", NOMINAL, ROBUST, "paired gain, 95%", "paper: nominal", "paper: robust"]
    head += [f"optimum, ρ = {one['rho']:g}" for one in optima_of(measured)]
    words = (
        f"γ = {_GAMMA:g}, chosen by looking at these very systems, not held out; λ = 0.99; {_EPISODES:,} "
        "episodes. The paper gives none of these. Episode length, at most 400; ± the standard error over "
        "agents (the paper's: over trials of one agent). The last columns: the "
        "policy that robust value iteration finds on the cells, which do not see the cart."
    )
    return "\n\n".join([markdown_table(head, rows), words, _ends(measured)])


def _ends(measured: Measured) -> str:
    """What ended trials before their 400th step."""
    kinds = [(agent, end) for agent in (NOMINAL, ROBUST) for end in ("fell", "ran off")]
    shares = {(*kind, system): share_of(measured, *kind, system) for kind in kinds for system in PAPER}
    rows = [[system, *(f"{shares[(*kind, system)]:.1%}" for kind in kinds)] for system in PAPER]
    head = [
        "share of the trials",
        *(f"{agent}: {'pole' if end == 'fell' else 'cart'} {end}" for agent, end in kinds),
    ]
    return markdown_table(head, rows)


def _film(measured: Measured, path: Path) -> None:
    """The most ordinary pair: the seed whose nominal agent is the median one under strong gravity."""
    lengths = [one[NOMINAL]["lengths"]["strong g"] for one in agents_of(measured)]
    seed = int(np.argsort(lengths)[len(lengths) // 2])
    policies = {
        agent: fit_cartpole(cartpole_learner(gamma, episodes=_EPISODES), seed).policy
        for agent, gamma in ((NOMINAL, None), (ROBUST, _GAMMA))
    }
    animate(policies, variations()["strong g"], path, seed=seed)


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
    films=(
        Film(
            "strong-gravity",
            "The median nominal agent under five-fold gravity, and the robust one beside it.",
            _film,
        ),
    ),
    statements=pole_statements,
    revision=2,
    text=_text,
    smaller={Extent.QUICK: "Three agents of each kind, 100 trials."},
)
