"""What the paper says of cart-pole (sec:cartpole), beside nominal and robust agents of the same seeds.

On its harder systems the paper's robust agent is better, on the others both are alike. Here the 95% interval
of the paired gain, robust − nominal, says who is better; ``RULE`` is what the page says of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from certus.mdp.episodes import MeanEstimate, estimate_mean
from studies.agent_pairs import AgentPair, mean_score, paired_gain, spoken_gain
from studies.pole_study import NOMINAL, PAPER, ROBUST
from studies.reproduction import Comparison, Measured

HARDER = ("heavy", "short", "strong g")
"""The paper's "harder environments"."""

_ALIKE = 10.0  # steps of 400
_UNHURT = 0.95  # of the length on the original system
RULE = (
    "How we judge: by the 95% interval of the paired gain. The lengths of episodes themselves are not "
    f"compared. Where the paper's robust agent is better (its harder systems: {', '.join(HARDER)}), *yes* "
    "needs an interval above 0; one that holds both 0 and the paper's own gain tells nothing; any other is a "
    f"*no*. Where its agents are alike, *yes* needs an interval that holds 0 and lies within ±{_ALIKE:g} "
    "steps; one that leaves 0 out is a *no*; a wider one tells nothing."
)


def agents_of(measured: Measured) -> list[Mapping[str, Any]]:
    """Of each seed: agent → what it did."""
    return [found for name, found in measured.items() if name.startswith("seed-")]


def optima_of(measured: Measured) -> list[Mapping[str, Any]]:
    """The policies of robust value iteration, by rising ρ."""
    return [found for name, found in measured.items() if name.startswith("optimum-")]


def pairs_of(measured: Measured) -> Sequence[AgentPair]:
    """Episode lengths on the seven systems."""
    return [{agent: one[agent]["lengths"] for agent in (NOMINAL, ROBUST)} for one in agents_of(measured)]


def share_of(measured: Measured, agent: str, end: str, system: str) -> float:
    """Of the trials of all agents that ended so."""
    return float(np.mean([one[agent][end][system] for one in agents_of(measured)]))


def learning_gain(measured: Measured) -> MeanEstimate:
    """How much longer the robust agents' episodes in training are, in the mean."""
    return estimate_mean(
        [np.mean(one[ROBUST]["curve"]) - np.mean(one[NOMINAL]["curve"]) for one in agents_of(measured)]
    )


def better_agrees(gain: MeanEstimate, said: float) -> bool | None:
    """Whether the robust agents are better, where the paper's is, by ``said`` steps."""
    if gain.low > 0:
        return True
    return None if gain.low <= 0 and gain.high >= said else False


def alike_agrees(gain: MeanEstimate) -> bool | None:
    """Whether both agents are alike."""
    if gain.low > 0 or gain.high < 0:
        return False
    return True if gain.low >= -_ALIKE and gain.high <= _ALIKE else None


def pole_statements(measured: Measured) -> list[Comparison]:
    """All of them: the seven systems, learning, and the worst case."""
    systems = [_about_system(measured, system) for system in PAPER]
    return [*systems, _about_learning(measured), _about_worst(measured)]


def _about_system(measured: Measured, system: str) -> Comparison:
    (before, _), (after, _) = PAPER[system]
    pairs = pairs_of(measured)
    nominal, robust = (mean_score(pairs, agent, system) for agent in (NOMINAL, ROBUST))
    gain, harder = paired_gain(pairs, system), system in HARDER
    agrees = better_agrees(gain, after - before) if harder else alike_agrees(gain)
    return Comparison(
        "sec:cartpole",
        f"{system.capitalize()}: nominal {before:g}, robust {after:g} of 400 steps; "
        f"{'the robust agent is better' if harder else 'both are alike'}.",
        f"Nominal {nominal.mean:.1f}, robust {robust.mean:.1f}, paired gain {spoken_gain(gain, 1)} "
        f"({len(pairs)} agents each).",
        agrees,
        reason="" if agrees else _why_otherwise(measured, system, agrees),
    )


def _why_otherwise(measured: Measured, system: str, agrees: bool | None) -> str:
    gain = paired_gain(pairs_of(measured), system)
    if agrees is None:
        return "the interval is too wide to tell."
    if gain.low > 0:
        off = share_of(measured, NOMINAL, "ran off", system)
        return (
            f"the robust agents are better. In {off:.0%} of the nominal agents' trials the cart runs off the "
            "track, which no cell sees."
        )
    if gain.high < 0:
        return "the nominal agents are better; why is not known."
    here, usual = (mean_score(pairs_of(measured), NOMINAL, name).mean for name in (system, "original"))
    if system == "heavy" and here >= _UNHURT * usual:
        return "gymnasium's pole weighs a tenth of its cart; doubling it hurts nobody."
    return "the interval holds 0; why is not known."


def _about_learning(measured: Measured) -> Comparison:
    gain = learning_gain(measured)
    agrees = True if gain.low > 0 else False if gain.high < 0 else None
    reasons = {True: "", False: "its episodes are shorter; why is not known.", None: "the interval holds 0."}
    return Comparison(
        "sec:cartpole",
        "The robust agent also learns more efficiently on the original system (Fig. 5).",
        f"Its training episodes are longer by {spoken_gain(gain, 1)} steps in the mean, paired.",
        agrees,
        reason=reasons[agrees],
    )


def _about_worst(measured: Measured) -> Comparison:
    worst = {
        agent: np.mean([min(one[agent]["grid"].values()) for one in agents_of(measured)])
        for agent in (NOMINAL, ROBUST)
    }
    optima = ", ".join(
        f"{min(one['grid'].values()):.0f} at ρ = {one['rho']:g}" for one in optima_of(measured)
    )
    return Comparison(
        "sec:cartpole",
        "The goal is the worst case over an ambiguity set of transitions.",
        f"Worst of 27 systems: nominal {worst[NOMINAL]:.0f}, robust {worst[ROBUST]:.0f} steps; the "
        f"optimum of the robust MDP on the cells {optima}.",
        None,
        reason="the paper has no such number.",
    )
