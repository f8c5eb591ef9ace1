"""Nominal and robust agents of the same seeds on several systems: means, paired gains, a table, a picture.

A gain is the mean of robust − nominal over the seeds, with its 95% interval (Student's t): *estimated*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from certus.display.canvas import new_figure
from certus.mdp.evaluation import MeanEstimate, estimate_mean
from studies.page import markdown_table
from studies.pole_pictures import AGENT_COLOURS
from studies.pole_study import NOMINAL, ROBUST
from studies.reproduction import Outcome, Quantity, Verdict, outcome_of_several

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AgentPair = Mapping[str, Mapping[str, float]]
"""Of one seed: agent → system → its score."""


def mean_score(pairs: Sequence[AgentPair], agent: str, system: str) -> MeanEstimate:
    """Over the seeds."""
    return estimate_mean([one[agent][system] for one in pairs])


def paired_gain(pairs: Sequence[AgentPair], system: str) -> MeanEstimate:
    """Robust minus nominal, seed by seed."""
    return estimate_mean([one[ROBUST][system] - one[NOMINAL][system] for one in pairs])


def spoken_gain(gain: MeanEstimate, digits: int) -> str:
    """With its interval, and minus signs as they are printed.

    >>> spoken_gain(MeanEstimate(-1.25, 0.5, -2.0, 0.04), 1)
    '−1.2 [−2.0, 0.0]'
    """
    ends = ", ".join(f"{end:z.{digits}f}" for end in (gain.low, gain.high))
    return f"{gain.mean:+z.{digits}f} [{ends}]".replace("-", "−")


PAIR_RULE = "on every system a gain whose interval lies above 0; *partly*: on some, and below 0 on none"


def pair_verdict(pairs: Sequence[AgentPair], claim: str, places: int) -> Verdict:
    """Judge the gains on all systems by ``PAIR_RULE``."""
    gains = {system: paired_gain(pairs, system) for system in pairs[0][NOMINAL]}
    return Verdict(
        name="systems",
        label="",
        claim=claim,
        rule=PAIR_RULE,
        outcome=outcome_of_gains(gains.values()),
        ours={system: Quantity(gain.mean, gain.low, gain.high, places) for system, gain in gains.items()},
    )


def outcome_of_gains(gains: Iterable[MeanEstimate]) -> Outcome:
    """*Yes* if all intervals lie above 0, *partly* if some do and none lies below 0."""
    gains = list(gains)
    if any(gain.high < 0 for gain in gains):
        return Outcome.NO
    return outcome_of_several([gain.low > 0 for gain in gains])


def pair_table(pairs: Sequence[AgentPair], digits: int) -> str:
    """A row for each system."""
    rows = []
    for system in pairs[0][NOMINAL]:
        means = [mean_score(pairs, agent, system) for agent in (NOMINAL, ROBUST)]
        cells = [f"{one.mean:.{digits}f} ± {one.error:.{digits}f}" for one in means]
        rows.append([system, *cells, spoken_gain(paired_gain(pairs, system), digits)])
    return markdown_table(["system", NOMINAL, ROBUST, "paired gain, 95%"], rows)


def pair_figure(pairs: Sequence[AgentPair], quantity: str) -> Figure:
    """Both agents on every system, ± the standard error over the seeds."""
    figure = new_figure(6.4, 3.8)
    axes, systems = figure.subplots(), list(pairs[0][NOMINAL])
    for agent, colour, aside in zip((NOMINAL, ROBUST), AGENT_COLOURS, (-0.1, 0.1), strict=True):
        found = [mean_score(pairs, agent, system) for system in systems]
        places = [place + aside for place in range(len(systems))]
        means, errors = [one.mean for one in found], [one.error for one in found]
        axes.errorbar(places, means, errors, fmt="o", ms=5, capsize=2, color=colour, label=agent)
    axes.set_xticks(range(len(systems)), systems)
    axes.set(ylabel=quantity, ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure
