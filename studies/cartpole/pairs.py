"""Nominal and robust agents of the same seeds on several systems: paired gains, table, figure, animation.

A gain is the mean of robust − nominal over the seeds, with its 95% interval (Student's t): *estimated*.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from certus.display.canvas import COLOURS, new_figure
from certus.errors import require, require_count
from certus.mdp.cartpole import ORIGINAL, START, STEP_LIMIT, CartPole, advance, fallen, variations
from certus.mdp.policies import Policy, Trials, run_trials
from certus.storage.write import write_atomically
from studies.page import markdown_table
from studies.study import Outcome, Quantity, Verdict, outcome_of_several

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NOMINAL, ROBUST = "nominal", "robust"

PAPER: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "original": ((399.7, 0.1), (400.0, 0.0)),
    "light": ((400.0, 0.0), (400.0, 0.0)),
    "long": ((400.0, 0.0), (400.0, 0.0)),
    "soft g": ((400.0, 0.0), (400.0, 0.0)),
    "heavy": ((150.1, 4.7), (334.0, 3.7)),
    "short": ((245.2, 4.8), (400.0, 0.0)),
    "strong g": ((189.8, 2.3), (398.5, 0.3)),
}
"""The paper's table: episode length, mean and standard error over 1,000 trials, nominal and robust."""

PENALTY = 50.0
"""The γ of the robust agents, chosen by trying some on the seven systems."""


def try_out(
    policies: Sequence[Policy], system: CartPole = ORIGINAL, trials: int = 1000
) -> dict[str, list[Trials]]:
    """Run trials of each policy on each of the seven systems; policy k has seed k."""
    return {
        name: [run_trials(policy, changed, trials=trials, seed=seed) for seed, policy in enumerate(policies)]
        for name, changed in variations(system).items()
    }


def mean_lengths(tried: Mapping[str, Sequence[Trials]]) -> dict[str, list[float]]:
    """Return the mean episode length of each policy, by system."""
    return {system: [float(run.lengths.mean()) for run in runs] for system, runs in tried.items()}


@dataclass(frozen=True)
class MeanEstimate:
    """A mean with its standard error and a confidence interval (Student's t): *estimated*."""

    mean: float
    error: float
    low: float
    high: float


def estimate_mean(values: Sequence[float] | NDArray[np.floating], confidence: float = 0.95) -> MeanEstimate:
    """Mean, standard error and interval of independent values. Of one value nothing more is known: ±∞.

    >>> estimate_mean([1.0, 2.0, 3.0])
    MeanEstimate(mean=2.0, error=0.577..., low=-0.484..., high=4.484...)
    """
    require(0 < confidence < 1, "confidence", "lie strictly between 0 and 1", confidence)
    require(len(values) > 0, "values", "not be empty", values)
    mean, count = float(np.mean(values)), len(values)
    if count == 1:
        return MeanEstimate(mean, math.inf, -math.inf, math.inf)
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    reach = float(stdtrit(count - 1, (1 + confidence) / 2)) * error
    return MeanEstimate(mean, error, mean - reach, mean + reach)


AgentPair = Mapping[str, Mapping[str, float]]
"""Of one seed: agent → system → its score."""


def mean_score(pairs: Sequence[AgentPair], agent: str, system: str) -> MeanEstimate:
    """Estimate the mean score of an agent on a system, over the seeds."""
    return estimate_mean([pair[agent][system] for pair in pairs])


def paired_gain(pairs: Sequence[AgentPair], system: str) -> MeanEstimate:
    """Estimate the mean of robust minus nominal scores, paired by seed."""
    return estimate_mean([pair[ROBUST][system] - pair[NOMINAL][system] for pair in pairs])


def gain_text(gain: MeanEstimate, digits: int) -> str:
    """Format a gain with its interval.

    >>> gain_text(MeanEstimate(-1.25, 0.5, -2.0, 0.04), 1)
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
    """Return *yes* if all intervals lie above 0, *partly* if some do and none lies below 0."""
    gains = list(gains)
    if any(gain.high < 0 for gain in gains):
        return Outcome.NO
    return outcome_of_several([gain.low > 0 for gain in gains])


def pair_table(pairs: Sequence[AgentPair], digits: int) -> str:
    """Return a Markdown table with a row for each system."""
    rows = []
    for system in pairs[0][NOMINAL]:
        means = [mean_score(pairs, agent, system) for agent in (NOMINAL, ROBUST)]
        cells = [f"{mean.mean:.{digits}f} ± {mean.error:.{digits}f}" for mean in means]
        rows.append([system, *cells, gain_text(paired_gain(pairs, system), digits)])
    return markdown_table(["system", NOMINAL, ROBUST, "paired gain, 95%"], rows)


def pair_figure(pairs: Sequence[AgentPair], quantity: str) -> Figure:
    """Draw the scores of both agents on every system, ± the standard error over the seeds."""
    figure = new_figure(6.4, 3.8)
    axes, systems = figure.subplots(), list(pairs[0][NOMINAL])
    for agent, colour, aside in zip((NOMINAL, ROBUST), AGENT_COLOURS, (-0.1, 0.1), strict=True):
        scores = [mean_score(pairs, agent, system) for system in systems]
        places = [place + aside for place in range(len(systems))]
        means, errors = [score.mean for score in scores], [score.error for score in scores]
        axes.errorbar(places, means, errors, fmt="o", ms=5, capsize=2, color=colour, label=agent)
    axes.set_xticks(range(len(systems)), systems)
    axes.set(ylabel=quantity, ylim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure


AGENT_COLOURS = (COLOURS[1], COLOURS[0])  # vermilion and blue


def animate(
    policies: Mapping[str, Policy],
    system: CartPole,
    path: str | Path,
    *,
    steps: int = STEP_LIMIT,
    seed: int = 0,
) -> None:
    """Write a GIF of policies from the same first state, side by side, in real time.

    Args:
        policies: by the name to write above each.
        path: the GIF file to write.
        steps: how many to show, every second one; the last stays for two seconds.
        seed: of the first state.
    """
    require_count("steps", steps)
    figure = new_figure(4 * len(policies), 2.1)
    from matplotlib.animation import PillowWriter  # matplotlib is there, or new_figure has said so

    traces = {name: _trace(policy, system, steps, seed) for name, policy in policies.items()}
    panels: list[Axes] = list(np.atleast_1d(figure.subplots(1, len(traces))))
    writer = PillowWriter(fps=round(1 / (2 * system.interval)))
    with tempfile.TemporaryDirectory() as folder:
        temporary = Path(folder) / "made.gif"
        with writer.saving(figure, str(temporary), 80):
            for step in (*range(0, steps, 2), *[steps] * 2 * writer.fps):
                for panel, (name, trace), colour in zip(panels, traces.items(), AGENT_COLOURS, strict=False):
                    _draw(panel, name, trace, step, system, colour)
                writer.grab_frame()
        write_atomically(Path(path), temporary.read_bytes())


def _trace(policy: Policy, system: CartPole, steps: int, seed: int) -> NDArray[np.float64]:
    """Return the (steps, 4) states of an episode, the first one included."""
    state = np.random.default_rng(seed).uniform(-START, START, (4, 1))
    states = [state[:, 0]]
    while len(states) <= steps and not fallen(state[0], state[2], system)[0]:
        x, speed, angle, spin = state
        push = 2.0 * policy.actions(state.T) - 1.0
        state = np.stack(advance(x, speed, angle, spin, push, system))
        states.append(state[:, 0])
    return np.stack(states)


def _draw(
    panel: Axes, name: str, trace: NDArray[np.float64], step: int, system: CartPole, colour: str
) -> None:
    last = len(trace) - 1
    x, _, angle, _ = trace[min(step, last)]
    end, reach = system.position_limit, 2 * system.length
    panel.clear()
    panel.plot([-end, -end, end, end], [0.3, 0, 0, 0.3], color="#9a9a9a", lw=1)  # the track and its ends
    panel.plot([x - 0.25, x + 0.25], [0, 0], color="#1a1a1a", lw=9, solid_capstyle="butt")
    panel.plot([x, x + reach * np.sin(angle)], [0, reach * np.cos(angle)], color=colour, lw=4)
    panel.set(xlim=(-end - 0.6, end + 0.6), ylim=(-0.2, reach + 0.2), aspect="equal")
    panel.set_axis_off()
    if step < last or not fallen(x, angle, system):
        state = f"step {step}"
    else:
        state = f"{'fell' if abs(angle) > system.angle_limit else 'off the track'} after {last} steps"
    panel.set_title(f"{name}: {state}", fontsize=11, color=colour)
