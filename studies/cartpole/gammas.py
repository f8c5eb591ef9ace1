"""Price and gain of robustness on cart-pole: a sweep of γ, and worst-case values within transition balls."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from certus.display.canvas import COLOURS, new_figure
from certus.mdp.tabular import Landing, cartpole_learner, fit_cartpole
from certus.mdp.transition import WeakPenaltyWarning
from studies.cartpole.cells import cartpole_worst_case
from studies.cartpole.pairs import MeanEstimate, estimate_mean, mean_lengths, try_out
from studies.page import markdown_table
from studies.study import Measured, Outcome, Part, Picture, Quantity, Scale, Study, Verdict, outcome_of
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROUNDED = (500.0, 200.0, 100.0, 50.0, 30.0, 20.0, 17.5, 15.0, 10.0)
_COVERED = (3e5, 1e5, 3e4, 1e4)
_RHOS = (0.0, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
_NOMINAL, _ROBUST = "nominal", "round-50"  # whose worst-case values are computed, too
_SYSTEMS = ("original", "long", "short", "strong g")


def _measure(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Train the agents of one γ, and measure them on all systems."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeakPenaltyWarning)  # a part of the sweep is about them
        landing = Landing[settings["landing"].upper()]
        learner = cartpole_learner(settings["gamma"], landing=landing, episodes=settings["episodes"])
    trained = [fit_cartpole(learner, seed) for seed in range(settings["seeds"])]
    result: dict[str, Any] = {
        "gamma": settings["gamma"],
        "landing": settings["landing"],
        "lengths": mean_lengths(try_out([entry.policy for entry in trained], trials=settings["trials"])),
        "training": [float(entry.lengths.mean()) for entry in trained],
        "rho_hat": [float(entry.transport[-500:].mean()) for entry in trained],
    }
    if settings["rhos"]:
        result["worst-case value"] = {
            f"{rho:g}": [cartpole_worst_case(entry.policy, rho) for entry in trained[: settings["bracketed"]]]
            for rho in settings["rhos"]
        }
    return result


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
    size = {"seeds": 2 if quick else 10, "trials": 30 if quick else 300, "episodes": 400 if quick else 4000}
    rounded, covered = ((100.0, 50.0), (1e5,)) if quick else (_ROUNDED, _COVERED)
    rhos, bracketed = ((0.0, 1e-4), 2) if quick else (_RHOS, 5)
    plan: list[tuple[str, float | None, str]] = [(_NOMINAL, None, "round")]
    plan += [(f"round-{gamma:g}", gamma, "round") for gamma in rounded]
    plan += [(f"cover-{gamma:g}", gamma, "cover") for gamma in covered]
    return [
        Part(
            name,
            {
                "gamma": gamma,
                "landing": landing,
                **size,
                "rhos": list(rhos) if name in (_NOMINAL, _ROBUST) else [],
                "bracketed": bracketed,
            },
            _measure,
        )
        for name, gamma, landing in plan
    ]


def _lengths(measured: Measured, name: str, system: str) -> MeanEstimate:
    return estimate_mean(measured[name]["lengths"][system])


def _rounded(measured: Measured) -> list[str]:
    return [name for name in measured if name.startswith("round-")]


def _draw(measured: Measured) -> Figure:
    figure = new_figure(9, 3.8)
    left, right = figure.subplots(1, 2)
    names = _rounded(measured)
    gammas = [measured[name]["gamma"] for name in names]
    for system, colour in zip(("original", "short", "strong g"), ("#1a1a1a", *COLOURS), strict=False):
        estimates = [_lengths(measured, name, system) for name in names]
        means, errors = [estimate.mean for estimate in estimates], [estimate.error for estimate in estimates]
        left.errorbar(gammas, means, errors, marker="o", ms=4, color=colour, label=system)
        left.axhline(_lengths(measured, _NOMINAL, system).mean, color=colour, lw=1, ls=":")
    left.set(xscale="log", xlabel="γ", ylabel="episode length", title="Robust agents ± s.e.; dotted: nominal")
    for name, label, colour in ((_NOMINAL, "nominal", COLOURS[1]), (_ROBUST, "robust, γ = 50", COLOURS[0])):
        values = measured[name]["worst-case value"]
        radii, means = [float(rho) ** 0.5 for rho in values], [estimate_mean(v).mean for v in values.values()]
        right.plot(radii, means, "o-", ms=4, color=colour, label=label)
    right.set(xlabel="√ρ per step", ylabel="discounted reward", title="Worst case in a ball (estimated)")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
    return figure


def _verdicts(measured: Measured) -> list[Verdict]:
    best = max(_rounded(measured), key=lambda name: _lengths(measured, name, "strong g").mean)
    strong, nominal = (_lengths(measured, name, "strong g") for name in (best, _NOMINAL))
    balls = measured[_NOMINAL]["worst-case value"], measured[_ROBUST]["worst-case value"]
    largest = max(balls[0], key=float)
    worst = [estimate_mean(ball[largest]).mean for ball in balls]
    return [
        Verdict(
            name="strong gravity",
            label="",
            claim="Which γ is best under strong gravity?",
            rule="",
            outcome=Outcome.NOT_COMPARABLE,
            ours={
                "best γ": Quantity(measured[best]["gamma"], digits=3),
                "episode length": Quantity(strong.mean, places=0),
                "standard error": Quantity(strong.error, places=0),
                "nominal": Quantity(nominal.mean, places=0),
                "standard error, nominal": Quantity(nominal.error, places=0),
            },
        ),
        Verdict(
            name="transition ball",
            label="",
            claim="Is the robust agent better in the worst case of a transition ball?",
            rule="a larger worst-case value than the nominal agent's at the largest ρ",
            outcome=outcome_of(worst[1] > worst[0]),
            ours={
                "ρ": Quantity(float(largest)),
                "nominal": Quantity(worst[0], places=1),
                "robust": Quantity(worst[1], places=1),
            },
        ),
    ]


def _text(measured: Measured) -> str:
    rows = []
    for name, result in measured.items():
        over = "over the covering, " if result["landing"] == "cover" else ""
        agent = "nominal" if result["gamma"] is None else f"{over}{result['gamma']:g}"
        rho_hat, training = estimate_mean(result["rho_hat"]).mean, estimate_mean(result["training"]).mean
        lengths = [_lengths(measured, name, system) for system in _SYSTEMS]
        cells = [f"{length.mean:.0f} ± {length.error:.0f}" for length in lengths]
        rows.append([agent, f"{rho_hat**0.5:.2g}", f"{training:.0f}", *cells])
    table = markdown_table(["γ", "√ρ̂", "training", *_SYSTEMS], rows)
    balls = {
        label: measured[name]["worst-case value"]
        for label, name in (("nominal", _NOMINAL), ("γ = 50", _ROBUST))
    }
    values = {label: [estimate_mean(each) for each in result.values()] for label, result in balls.items()}
    worst = markdown_table(
        ["ρ", *balls["nominal"]],
        [
            [label, *(f"{length.mean:.1f} ± {length.error:.1f}" for length in result)]
            for label, result in values.items()
        ],
    )
    return (
        "Episode length, ± the standard error over the seeds. ρ̂ is the mean squared perturbation in the last "
        f"500 episodes; *training* is the mean length of all training episodes.\n\n{table}\n\nThe worst-case "
        "discounted reward over transitions within ρ, on the cells: a bound for that model, *estimated* for "
        f"the system itself.\n\n{worst}"
    )


STUDY = Study(
    name="cartpole-gamma",
    title="Cart-pole: price and gain of γ, and worst cases in transition balls",
    labels=("sec:cartpole",),
    minutes={Scale.QUICK: 0.5, Scale.FULL: 8},
    parts=_parts,
    pictures=(
        Picture("sweep", "Left: a sweep of γ. Right: worst-case values within transition balls.", _draw),
    ),
    verdicts=_verdicts,
    text=_text,
    scope={Scale.QUICK: "Two seeds, 400 episodes instead of 4,000, 30 trials, two of the nine γ."},
    beyond=True,
)
