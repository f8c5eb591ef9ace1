"""Does the gain belong to the schedule? Learning rate × exploration, nominal and robust, on cart-pole.

Each part trains agents of one first learning rate, one schedule and one γ, on the same seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from certus.display.canvas import COLOURS, legend_below, new_figure
from certus.mdp.cartpole import variations
from certus.mdp.policies import episode_lengths
from certus.mdp.tabular import Decay, cartpole_learner, fit_cartpole
from studies.cartpole.pairs import MeanEstimate, estimate_mean, gain_text, outcome_of_gains
from studies.page import markdown_table
from studies.study import Measured, Part, Picture, Quantity, Scale, Study, Verdict
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What random actions are multiplied by after each episode, the same of rates, episodes. The last schedule is
# the default one, four times slower.
_SCHEDULES = ((0.995, 0.998, 4000), (0.998, 0.998, 4000), (0.999, 0.998, 4000), (0.9995, 0.9995, 16000))
_SYSTEMS = ("original", "short", "strong g")
_GAMMAS = (None, 200.0, 100.0, 50.0)

Schedule = tuple[float, float, int]


def _measure(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mean episode lengths of each seed's agent, by system and in training."""
    learner = replace(
        cartpole_learner(settings["gamma"], episodes=round(settings["share"] * settings["episodes"])),
        rate=Decay(settings["rate"], settings["rate_factor"], last=0.02),
        exploration=Decay(1.0, settings["exploration_factor"]),
    )
    systems = variations()
    lengths_by_system: dict[str, list[float]] = {key: [] for key in (*_SYSTEMS, "training")}
    for seed in range(settings["seeds"]):
        trained = fit_cartpole(learner, seed)
        lengths_by_system["training"].append(round(float(trained.lengths.mean()), 2))
        for system in _SYSTEMS:
            lengths = episode_lengths(trained.policy, systems[system], trials=settings["trials"], seed=seed)
            lengths_by_system[system].append(round(float(lengths.mean()), 2))
    return {**settings, "lengths": lengths_by_system}


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
    size = {"seeds": 2 if quick else 10, "trials": 20 if quick else 100, "share": 0.1 if quick else 1.0}
    rates = (0.5, 0.1) if quick else (0.5, 0.2, 0.1, 0.05)
    parts = []
    for rate, (exploration, factor, episodes), gamma in product(rates, _SCHEDULES, _GAMMAS):
        schedule = {"exploration_factor": exploration, "rate_factor": factor, "episodes": episodes}
        settings: dict[str, Any] = {"rate": rate, **schedule, "gamma": gamma, **size}
        agent = "nominal" if gamma is None else f"gamma-{gamma:g}"
        parts.append(
            Part(f"rate-{rate:g}-exploration-{exploration:g}-{agent}", settings, _measure, float(episodes))
        )
    return parts


def _lengths_of(
    measured: Measured, schedule: Schedule, rate: float, gamma: float | None
) -> Mapping[str, Any]:
    wanted = (*schedule, rate, gamma)
    names = ("exploration_factor", "rate_factor", "episodes", "rate", "gamma")
    chosen = (result for result in measured.values() if tuple(result[name] for name in names) == wanted)
    return dict(next(chosen)["lengths"])


def _rates(measured: Measured) -> list[float]:
    return sorted({result["rate"] for result in measured.values()}, reverse=True)


def _gains(measured: Measured, system: str, gamma: float) -> Iterator[MeanEstimate]:
    """Yield the paired gain of every schedule at every first rate."""
    for schedule, rate in product(_SCHEDULES, _rates(measured)):
        robust, nominal = (_lengths_of(measured, schedule, rate, each)[system] for each in (gamma, None))
        yield estimate_mean(np.subtract(robust, nominal))


def _draw(measured: Measured) -> Figure:
    figure, rates = new_figure(10, 6.5), _rates(measured)
    panels = figure.subplots(len(_SYSTEMS), len(_SCHEDULES), sharex=True, sharey=True)
    for (row, system), (column, schedule) in product(enumerate(_SYSTEMS), enumerate(_SCHEDULES)):
        panel = panels[row][column]
        for gamma, colour in zip(_GAMMAS, (COLOURS[1], COLOURS[5], COLOURS[0], "#1a1a1a"), strict=True):
            estimates = [
                estimate_mean(_lengths_of(measured, schedule, rate, gamma)[system]) for rate in rates
            ]
            means, errors = (
                [estimate.mean for estimate in estimates],
                [estimate.error for estimate in estimates],
            )
            label = "nominal" if gamma is None else f"γ = {gamma:g}"
            panel.errorbar(rates, means, errors, marker="o", ms=3, lw=1.2, color=colour, label=label)
        panel.set(xscale="log", ylim=(0, 415))
        panel.set_xticks(rates, [f"{rate:g}" for rate in rates], minor=False)
        panel.minorticks_off()
        panel.spines[["top", "right"]].set_visible(False)
        if row == 0:
            slower = ", all slower" if schedule[1] != 0.998 else ""
            panel.set_title(f"{schedule[2]:,} episodes,\nexploration × {schedule[0]:g}{slower}", fontsize=9)
        if column == 0:
            panel.set_ylabel(f"{system}: steps")
    for panel in panels[-1]:
        panel.set_xlabel("first learning rate")
    legend_below(figure, *panels[0][0].get_legend_handles_labels())
    return figure


def _verdicts(measured: Measured) -> list[Verdict]:
    gains = {gamma: list(_gains(measured, "strong g", gamma)) for gamma in (100.0, 50.0)}
    return [
        Verdict(
            name=f"γ = {gamma:g}",
            label="",
            claim=f"Under strong gravity, does γ = {gamma:g} gain whatever the rate and the exploration?",
            rule="in every schedule a paired gain whose interval lies above 0; *partly*: in some, and below "
            "0 in none",
            outcome=outcome_of_gains(estimates),
            ours={
                "schedules": Quantity(len(estimates), places=0),
                "better in": Quantity(sum(estimate.low > 0 for estimate in estimates), places=0),
                "worse in": Quantity(sum(estimate.high < 0 for estimate in estimates), places=0),
            },
        )
        for gamma, estimates in gains.items()
    ]


def _text(measured: Measured) -> str:
    parts = []
    for system in _SYSTEMS:
        rows = []
        for schedule, rate in product(_SCHEDULES, _rates(measured)):
            nominal = np.array(_lengths_of(measured, schedule, rate, None)[system])
            cells = [f"{nominal.mean():.0f}"]
            for gamma in _GAMMAS[1:]:
                robust = np.array(_lengths_of(measured, schedule, rate, gamma)[system])
                cells.append(f"{robust.mean():.0f} ({gain_text(estimate_mean(robust - nominal), 0)})")
            rows.append([f"× {schedule[0]:g}, {schedule[2]:,}", f"{rate:g}", *cells])
        head = [
            "exploration, episodes",
            "first rate",
            "nominal",
            *(f"γ = {gamma:g}" for gamma in _GAMMAS[1:]),
        ]
        parts.append(f"**{system.capitalize()}**\n\n{markdown_table(head, rows)}")
    words = (
        "Mean episode length, at most 400; in brackets the paired gain with its 95% interval, each by "
        "itself. Learning rates are multiplied by 0.998 after each episode, in the last schedule by 0.9995, "
        "down to 0.02."
    )
    return "\n\n".join([words, *parts])


STUDY = Study(
    name="cartpole-schedules",
    title="Cart-pole: does the gain belong to the schedule?",
    labels=("sec:cartpole",),
    minutes={Scale.QUICK: 0.7, Scale.FULL: 11},
    parts=_parts,
    pictures=(
        Picture("schedules", "Episode length against the first learning rate, ± the standard error.", _draw),
    ),
    verdicts=_verdicts,
    text=_text,
    scope={Scale.QUICK: "Two seeds, a tenth of the episodes, 20 trials, two of the four first rates."},
    beyond=True,
)
