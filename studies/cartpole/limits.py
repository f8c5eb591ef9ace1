"""Cart-pole at other settings: episodes that end at gymnasium's 12°, heavier poles, and each agent by itself.

The paper does not say at which angle an episode ends, nor what its pole weighs. Everything else here is as
in ``study.py``: agents are trained and tested at the same limit, and at the same mass before it changes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from certus.display.canvas import COLOURS, new_figure
from certus.mdp.cartpole import ORIGINAL, CartPole, variations
from certus.mdp.policies import run_trials
from certus.mdp.tabular import cartpole_learner, fit_cartpole
from studies.cartpole.pairs import NOMINAL, ROBUST, estimate_mean
from studies.page import markdown_table
from studies.study import Measured, Part, Scale
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GYMNASIUM_DEGREES = 12.0
MASSES_TRIED = (0.5, 1.0)
_SHOWN = ("original", "heavy", "short", "strong g")


def _lengths(system: CartPole, names: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train a pair of agents on a system; return agent → variation → mean episode length."""
    lengths = {}
    for agent, gamma in ((NOMINAL, None), (ROBUST, settings["gamma"])):
        learner = cartpole_learner(gamma, system=system, episodes=settings["episodes"])
        policy = fit_cartpole(learner, settings["seed"], system).policy
        tried = {name: changed for name, changed in variations(system).items() if name in names}
        lengths[agent] = {
            name: float(
                run_trials(policy, changed, trials=settings["trials"], seed=settings["seed"]).lengths.mean()
            )
            for name, changed in tried.items()
        }
    return lengths


def measure_limit(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Measure a pair of agents whose episodes end at an angle in degrees."""
    system = ORIGINAL._replace(angle_limit=math.radians(settings["degrees"]))
    return {"lengths": _lengths(system, list(variations()), settings)}


def measure_mass(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Measure a pair of agents with a pole of another mass, and on that of twice the mass."""
    system = ORIGINAL._replace(pole_mass=settings["mass"])
    return {"mass": settings["mass"], "lengths": _lengths(system, ("original", "heavy"), settings)}


def limit_parts(scale: Scale, common: Mapping[str, Any]) -> list[Part]:
    """Return the parts of a narrower limit, and of heavier poles."""
    quick = scale is Scale.QUICK
    narrow = [
        Part(
            f"narrow-{seed}",
            {"seed": seed, "degrees": GYMNASIUM_DEGREES, **common},
            measure_limit,
            effort=0.7,
        )
        for seed in range(2 if quick else 20)
    ]
    masses = [
        Part(f"mass-{mass:g}-{seed}", {"seed": seed, "mass": mass, **common}, measure_mass, effort=0.6)
        for seed, mass in itertools.product(range(2 if quick else 8), MASSES_TRIED)
    ]
    return [*narrow, *masses]


def _of(measured: Measured, begin: str) -> list[Mapping[str, Any]]:
    return [entry["lengths"] for name, entry in measured.items() if name.startswith(begin)]


def _wide(measured: Measured) -> list[Mapping[str, Any]]:
    agents = [entry for name, entry in measured.items() if name.startswith("seed-")]
    return [{agent: entry[agent]["lengths"] for agent in (NOMINAL, ROBUST)} for entry in agents]


def draw_agents(measured: Measured) -> Figure:
    """Draw every agent's mean episode length on four systems, for both limits."""
    figure = new_figure(10.4, 4.2)
    panels = figure.subplots(1, 2, sharey=True)
    groups = {"episodes end at 24°": _wide(measured), "at 12°, gymnasium's limit": _of(measured, "narrow-")}
    for axes, (title, pairs) in zip(panels, groups.items(), strict=True):
        for place, system in enumerate(_SHOWN):
            for shift, agent, colour in ((-0.17, NOMINAL, COLOURS[1]), (0.17, ROBUST, COLOURS[0])):
                lengths = sorted(pair[agent][system] for pair in pairs)
                spread = np.linspace(-0.12, 0.12, len(lengths)) + place + shift
                axes.plot(spread, lengths, ".", color=colour, label=agent if place == 0 else "_")
        axes.set(title=title, ylim=(0, 410))
        axes.set_xticks(range(len(_SHOWN)), _SHOWN)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("mean episode length of an agent (at most 400)")
    panels[0].legend(frameon=False, loc="lower left")
    return figure


def limits_text(measured: Measured) -> str:
    """Return the tables of both limits, with quartiles over agents, and of the pole's mass."""
    groups = {"24°": _wide(measured), "12°": _of(measured, "narrow-")}
    groups = {limit: pairs for limit, pairs in groups.items() if pairs}
    rows = [
        [
            system,
            *(
                _spread([pair[agent][system] for pair in pairs])
                for pairs in groups.values()
                for agent in (NOMINAL, ROBUST)
            ),
        ]
        for system in variations()
    ]
    head = ["system", *(f"{agent}, {limit}" for limit in groups for agent in (NOMINAL, ROBUST))]
    masses = {ORIGINAL.pole_mass: _wide(measured)} | {
        mass: pairs for mass in MASSES_TRIED if (pairs := _of(measured, f"mass-{mass:g}-"))
    }
    by_mass = [
        [
            f"{mass:g} kg",
            *(
                _spread([pair[agent][system] for pair in pairs])
                for system in ("original", "heavy")
                for agent in (NOMINAL, ROBUST)
            ),
        ]
        for mass, pairs in masses.items()
    ]
    head_of_masses = [
        "pole",
        *(f"{agent}, {system}" for system in ("original", "heavy") for agent in (NOMINAL, ROBUST)),
    ]
    return "\n\n".join(
        [
            "## The angle at which an episode ends",
            "Episodes end at ±24°, twice gymnasium's limit of 12°; the paper gives none. Mean over agents, "
            "and in brackets the smallest, the median and the largest agent.",
            markdown_table(head, rows),
            "## The mass of the pole",
            "Agents trained with poles of three masses, and tested with twice the mass (*heavy*), at 24°.",
            markdown_table(head_of_masses, by_mass),
        ]
    )


def _spread(lengths: Sequence[float]) -> str:
    mean = estimate_mean(lengths).mean
    return f"{mean:.0f} ({min(lengths):.0f}, {np.median(lengths):.0f}, {max(lengths):.0f})"
