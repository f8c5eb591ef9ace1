"""What the paper says of cart-pole (sec:cartpole), beside nominal and robust agents of the same seeds.

On its harder systems the paper's robust agent is better, on the others both are alike. Here the 95% interval
of the paired gain, robust − nominal, decides. The lengths of episodes themselves are not compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from certus.mdp.evaluation import MeanEstimate, estimate_mean
from studies.agent_pairs import AgentPair, mean_score, paired_gain
from studies.pole_study import NOMINAL, PAPER, ROBUST
from studies.reproduction import Measured, Outcome, Quantity, Verdict, outcome_of

HARDER = ("heavy", "short", "strong g")
"""The paper's "harder environments"."""

_ALIKE = 10.0  # steps of 400
_BETTER_RULE = (
    "a gain whose interval lies above 0; one that holds both 0 and the paper's own gain is not comparable"
)
_ALIKE_RULE = (
    f"a gain whose interval holds 0 and lies within ±{_ALIKE:g} steps; a wider one is not comparable"
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


def pole_statements(measured: Measured) -> list[Verdict]:
    """All of them: the seven systems, learning, and the worst case."""
    systems = [_about_system(measured, system) for system in PAPER]
    return [*systems, _about_learning(measured), _about_worst(measured)]


def _about_system(measured: Measured, system: str) -> Verdict:
    (before, _), (after, _) = PAPER[system]
    pairs, harder = pairs_of(measured), system in HARDER
    gain = paired_gain(pairs, system)
    return Verdict(
        name=system,
        label="sec:cartpole",
        claim="The robust agent balances longer." if harder else "Both agents balance equally long.",
        rule=_BETTER_RULE if harder else _ALIKE_RULE,
        outcome=outcome_of(better_agrees(gain, after - before) if harder else alike_agrees(gain)),
        paper={NOMINAL: before, ROBUST: after},
        ours={
            **{
                agent: Quantity(mean_score(pairs, agent, system).mean, places=1)
                for agent in (NOMINAL, ROBUST)
            },
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
        agent: float(np.mean([min(one[agent]["grid"].values()) for one in agents_of(measured)]))
        for agent in (NOMINAL, ROBUST)
    }
    optima = {f"optimum at ρ = {one['rho']:g}": min(one["grid"].values()) for one in optima_of(measured)}
    return Verdict(
        name="worst of 27 systems",
        label="sec:cartpole",
        claim="The goal is the worst case over an ambiguity set of transitions.",
        rule="",
        outcome=Outcome.NOT_COMPARABLE,
        ours={name: Quantity(length, places=0) for name, length in (worst | optima).items()},
    )
