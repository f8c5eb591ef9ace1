"""Cart-pole (sec:cartpole): nominal and robust agents on the paper's seven systems, and beyond them.

On its harder systems the paper's robust agent is better, on the others both are alike. Here the 95% interval
of the paired gain, robust − nominal, decides. The lengths of episodes themselves are not compared.

Beyond the paper: the worst of a grid of masses × lengths × gravities, every combination of the paper's own
factors; the optimum of the robust MDP on the cells, by robust value iteration, tried on the same systems; and
what ends episodes early.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from certus.display.canvas import COLOURS, new_figure
from certus.mdp.cartpole import ORIGINAL, CartPole, variations
from certus.mdp.policies import Policy, run_trials
from certus.mdp.tabular import cartpole_learner, fit_cartpole
from studies.cartpole.cells import cartpole_optimum
from studies.cartpole.limits import draw_agents, limit_parts, limits_text
from studies.cartpole.pairs import (
    NOMINAL,
    PAPER,
    PENALTY,
    ROBUST,
    AgentPair,
    MeanEstimate,
    animate,
    estimate_mean,
    gain_text,
    mean_score,
    paired_gain,
)
from studies.page import markdown_table
from studies.strictness import outcome_of_number
from studies.study import (
    Animation,
    Measured,
    Outcome,
    Part,
    Picture,
    Quantity,
    Scale,
    Study,
    Verdict,
    outcome_of,
)
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HARDER = ("heavy", "short", "strong g")
"""The paper's "harder environments"."""

_BETTER_RULE = (
    "a gain whose interval lies above 0; one that holds both 0 and the paper's own gain is not comparable"
)
_ALIKE_RULE = "mean lengths within a factor of 1.25 of each other; *partly*: of 2"


def agents_of(measured: Measured) -> list[Mapping[str, Any]]:
    """Return the results of each seed: agent → measurements."""
    return [agents for name, agents in measured.items() if name.startswith("seed-")]


def optima_of(measured: Measured) -> list[Mapping[str, Any]]:
    """Return the policies of robust value iteration, by rising ρ."""
    return [optimum for name, optimum in measured.items() if name.startswith("optimum-")]


def pairs_of(measured: Measured) -> Sequence[AgentPair]:
    """Return the episode lengths of each pair of agents on the seven systems."""
    return [{agent: entry[agent]["lengths"] for agent in (NOMINAL, ROBUST)} for entry in agents_of(measured)]


def share_of(measured: Measured, agent: str, end: str, system: str) -> float:
    """Return the share of all agents' trials that ended in this way."""
    return float(np.mean([entry[agent][end][system] for entry in agents_of(measured)]))


def learning_gain(measured: Measured) -> MeanEstimate:
    """Estimate by how much the robust agents' training episodes are longer."""
    return estimate_mean(
        [np.mean(entry[ROBUST]["curve"]) - np.mean(entry[NOMINAL]["curve"]) for entry in agents_of(measured)]
    )


def better_agrees(gain: MeanEstimate, printed_gain: float) -> bool | None:
    """Decide whether the robust agents are better where the paper's is, by ``printed_gain`` steps."""
    if gain.low > 0:
        return True
    return None if gain.low <= 0 and gain.high >= printed_gain else False


def cartpole_verdicts(measured: Measured) -> list[Verdict]:
    """Judge the seven systems, learning, and the worst case."""
    systems = [_about_system(measured, system) for system in PAPER]
    return [*systems, _about_learning(measured), _about_worst(measured)]


def _about_system(measured: Measured, system: str) -> Verdict:
    (before, _), (after, _) = PAPER[system]
    pairs, harder = pairs_of(measured), system in HARDER
    gain = paired_gain(pairs, system)
    lengths = {agent: mean_score(pairs, agent, system).mean for agent in (NOMINAL, ROBUST)}
    return Verdict(
        name=system,
        label="sec:cartpole",
        claim="The robust agent balances longer." if harder else "Both agents balance equally long.",
        rule=_BETTER_RULE if harder else _ALIKE_RULE,
        outcome=outcome_of(better_agrees(gain, after - before))
        if harder
        else outcome_of_number(lengths[ROBUST], lengths[NOMINAL]),
        paper={NOMINAL: before, ROBUST: after},
        ours={
            **{agent: Quantity(length, places=1) for agent, length in lengths.items()},
            "gain": _gain(gain),
        },
    )


def _gain(gain: MeanEstimate) -> Quantity:
    return Quantity(gain.mean, gain.low, gain.high, places=1)


def _about_learning(measured: Measured) -> Verdict:
    gain = learning_gain(measured)
    return Verdict(
        name="learning",
        label="sec:cartpole",
        claim="The robust agent also learns more efficiently on the original system (Fig. 5).",
        rule="longer training episodes, by an interval above 0; one that holds 0 is not comparable",
        outcome=outcome_of(True if gain.low > 0 else False if gain.high < 0 else None),
        ours={"gain": _gain(gain)},
    )


def _about_worst(measured: Measured) -> Verdict:
    worst = {
        agent: float(np.mean([min(entry[agent]["grid"].values()) for entry in agents_of(measured)]))
        for agent in (NOMINAL, ROBUST)
    }
    optima = {
        f"optimum at ρ = {entry['rho']:g}": min(entry["grid"].values()) for entry in optima_of(measured)
    }
    return Verdict(
        name="worst of 27 systems",
        label="sec:cartpole",
        claim="The goal is the worst case over an ambiguity set of transitions.",
        rule="",
        outcome=Outcome.NOT_COMPARABLE,
        ours={name: Quantity(length, places=0) for name, length in (worst | optima).items()},
    )


MASSES = LENGTHS = (0.5, 1.0, 2.0)
GRAVITIES = (0.2, 1.0, 5.0)
_BLOCK = 50  # episodes that are averaged for one point of a training curve
_EPISODES, _GAMMA = 4000, PENALTY


def combinations() -> dict[str, CartPole]:
    """Return the 27 systems of all combinations of factors."""
    return {
        f"{mass:g} × {length:g} × {gravity:g}": ORIGINAL.scaled(mass=mass, length=length, gravity=gravity)
        for mass, length, gravity in itertools.product(MASSES, LENGTHS, GRAVITIES)
    }


def _tried(policy: Policy, systems: Mapping[str, CartPole], trials: int, seed: int) -> dict[str, float]:
    return {
        name: float(run_trials(policy, system, trials=trials, seed=seed).lengths.mean())
        for name, system in systems.items()
    }


def _measure(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train and test one pair of agents."""
    seed, agents = settings["seed"], {}
    for agent, gamma in ((NOMINAL, None), (ROBUST, settings["gamma"])):
        trained = fit_cartpole(cartpole_learner(gamma, episodes=settings["episodes"]), seed)
        tried = {
            name: run_trials(trained.policy, system, trials=settings["trials"], seed=seed)
            for name, system in variations().items()
        }
        agents[agent] = {
            "lengths": {name: float(entry.lengths.mean()) for name, entry in tried.items()},
            "fell": {name: float(entry.fell.mean()) for name, entry in tried.items()},
            "ran off": {name: float(entry.ran_off.mean()) for name, entry in tried.items()},
            "grid": _tried(trained.policy, combinations(), settings["grid_trials"], seed),
            "curve": trained.lengths.reshape(-1, _BLOCK).mean(1).tolist(),
        }
    return agents


def _measure_optimum(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Test the policy of robust value iteration at one ρ."""
    policy, value = cartpole_optimum(settings["rho"])
    lengths = _tried(policy, variations(), settings["trials"], seed=0)
    grid = _tried(policy, combinations(), settings["grid_trials"], seed=0)
    return {"rho": settings["rho"], "value": value, "lengths": lengths, "grid": grid}


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
    trials = {"trials": 100 if quick else 1000, "grid_trials": 20 if quick else 200}
    learning = {"gamma": _GAMMA, "episodes": _EPISODES}
    agents = [
        Part(f"seed-{seed}", {"seed": seed, **learning, **trials}, _measure)
        for seed in range(3 if quick else 20)
    ]
    rhos = (0.0, 1e-4) if quick else (0.0, 1e-5, 1e-4, 1e-3)
    optima = [Part(f"optimum-{rho:g}", {"rho": rho, **trials}, _measure_optimum) for rho in rhos]
    return [*agents, *optima, *limit_parts(scale, {**learning, "trials": trials["trials"]})]


def _draw(measured: Measured) -> Figure:
    figure = new_figure(10.4, 4.0)
    training, across = figure.subplots(1, 2)
    for agent, colour in ((NOMINAL, COLOURS[1]), (ROBUST, COLOURS[0])):
        curves = np.array([entry[agent]["curve"] for entry in agents_of(measured)])
        at = (np.arange(curves.shape[1]) + 0.5) * _BLOCK
        training.plot(at, curves.mean(0), color=colour, label=agent)
        training.fill_between(at, *np.quantile(curves, [0.25, 0.75], axis=0), color=colour, alpha=0.2, lw=0)
        sizes = [sorted(entry[agent]["grid"].values()) for entry in agents_of(measured)]
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
        cells = [f"{entry.mean:.1f} ± {entry.error:.1f}" for entry in ours]
        cells.append(gain_text(paired_gain(pairs, system), 1))
        optima = [f"{entry['lengths'][system]:.0f}" for entry in optima_of(measured)]
        rows.append([system, *cells, *(f"{pair[0]} ± {pair[1]}" for pair in (before, after)), *optima])
    head = ["system", NOMINAL, ROBUST, "paired gain, 95%", "paper: nominal", "paper: robust"]
    head += [f"optimum, ρ = {entry['rho']:g}" for entry in optima_of(measured)]
    words = (
        f"γ = {_GAMMA:g}, chosen on these systems, not on held-out ones; λ = 0.99; {_EPISODES:,} "
        "episodes. The paper gives none of these. Episode length, at most 400; ± the standard error over "
        "agents (the paper's: over trials of one agent). The last columns have the policy that robust value "
        "iteration finds on the cells, which do not include the cart's position."
    )
    return "\n\n".join([markdown_table(head, rows), words, _ends(measured), limits_text(measured)])


def _ends(measured: Measured) -> str:
    """Return the shares of trials that ended before their 400th step, by cause."""
    kinds = [(agent, end) for agent in (NOMINAL, ROBUST) for end in ("fell", "ran off")]
    shares = {(*kind, system): share_of(measured, *kind, system) for kind in kinds for system in PAPER}
    rows = [[system, *(f"{shares[(*kind, system)]:.1%}" for kind in kinds)] for system in PAPER]
    head = [
        "share of the trials",
        *(f"{agent}: {'pole' if end == 'fell' else 'cart'} {end}" for agent, end in kinds),
    ]
    return markdown_table(head, rows)


def _animate_pair(measured: Measured, path: Path) -> None:
    """Animate the pair whose nominal agent is the median one under strong gravity."""
    lengths = [entry[NOMINAL]["lengths"]["strong g"] for entry in agents_of(measured)]
    seed = int(np.argsort(lengths)[len(lengths) // 2])
    policies = {
        agent: fit_cartpole(cartpole_learner(gamma, episodes=_EPISODES), seed).policy
        for agent, gamma in ((NOMINAL, None), (ROBUST, _GAMMA))
    }
    animate(policies, variations()["strong g"], path, seed=seed)


STUDY = Study(
    name="cartpole",
    title="Cart-pole: agents that survive other physics",
    labels=("sec:cartpole", "eqn:qlearningthing"),
    minutes={Scale.QUICK: 0.7, Scale.FULL: 11},
    parts=_parts,
    pictures=(
        Picture(
            "agents",
            "Left: episode lengths during training. Right: all combinations of the paper's factors.",
            _draw,
        ),
        Picture(
            "limits",
            "Every agent's mean episode length on four of the systems, for two angles at which episodes end.",
            draw_agents,
        ),
    ),
    animations=(
        Animation(
            "strong-gravity",
            "The median nominal agent under five-fold gravity, and the robust one beside it.",
            _animate_pair,
        ),
    ),
    verdicts=cartpole_verdicts,
    revision=2,
    text=_text,
    scope={Scale.QUICK: "Three agents of each kind, 100 trials."},
)
