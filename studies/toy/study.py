"""The synthetic rings (sec:toy): pictures and verdicts; see ``networks.py`` for what is measured."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from certus.datasets.bundled import INNER_RADIUS, OUTER_RADIUS, rings
from certus.display.canvas import COLOURS, new_figure
from certus.kernel.evidence import Evidence
from studies.page import markdown_table
from studies.strictness import meets_share, outcome_of_cases, outcome_of_number
from studies.study import (
    Measured,
    Outcome,
    Part,
    Picture,
    Quantity,
    Scale,
    Study,
    Verdict,
    outcome_of,
    recorded_evidence,
    subscripted,
)
from studies.styles import METHOD_COLOURS
from studies.toy.networks import (
    BATCH_SIZE,
    LEARNING_RATE,
    METHODS,
    NOT_LEARNT,
    TOY_GAMMA,
    TOY_MODELS,
    has_learnt,
    measure_certificate,
    measure_networks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHOD_NAMES = {"erm": "ERM", "fgm": "FGM", "wrm": "WRM"}
_COLOUR_OF = {name: METHOD_COLOURS[words] for name, words in METHOD_NAMES.items()}
_ACTIVATIONS = {"relu": "ReLU", "elu": "ELU"}
_GROUPS = {  # activation, ascent and schedule → part
    "relu": ("relu", "paper", "cosine"),
    "elu": ("elu", "paper", "cosine"),
    "elu-adaptive": ("elu", "adaptive", "cosine"),
    "elu-constant": ("elu", "paper", "constant"),
    "elu-adaptive-constant": ("elu", "adaptive", "constant"),
}
_GROUP_NAMES = {
    "relu": "ReLU, 15 steps",
    "elu": "ELU, 15 steps",
    "elu-adaptive": "ELU, adaptive ascent",
    "elu-constant": "ELU, 15 steps, constant rate",
    "elu-adaptive-constant": "ELU, adaptive ascent, constant rate",
}


def _groups_of(measured: Measured) -> list[str]:
    return [name for name in _GROUPS if name in measured]


def draw_boundaries(measured: Measured) -> Figure:
    figure = new_figure(11.4, 8.2)
    grid = figure.subplots(2, 3, sharex=True, sharey=True)
    data = rings(train=600).train
    titles = {"relu": "(a) ReLU", "elu": "(b) ELU", "elu-adaptive": "ELU, adaptive ascent"}
    for column, (name, title) in enumerate(titles.items()):
        shown = measured[name]["shown"]
        with_data, alone = grid[0][column], grid[1][column]
        for label, colour in ((0, COLOURS[0]), (1, COLOURS[1])):
            points = data.inputs[data.targets == label]
            with_data.scatter(points[:, 0], points[:, 1], s=4, color=colour, alpha=0.5, linewidths=0)
        _circles(alone)
        for axes in (with_data, alone):
            _boundaries(axes, shown["lines"])
            axes.set(xlim=(-3.2, 3.2), ylim=(-3.2, 3.2), aspect="equal")
            axes.spines[["top", "right"]].set_visible(False)
        with_data.set_title(f"{title}: seed {shown['seed']}, with training data", fontsize="medium")
        alone.set_title("with the classes' own edges", fontsize="medium")
    handles, names = grid[0][0].get_legend_handles_labels()
    edges, edge_names = grid[1][0].get_legend_handles_labels()
    both = dict(zip([*names, *edge_names], [*handles, *edges], strict=True))
    figure.legend(both.values(), both.keys(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _circles(axes: Axes) -> None:
    angle = torch.linspace(0, 2 * math.pi, 200)
    for number, radius in enumerate((INNER_RADIUS, OUTER_RADIUS)):
        words = "edges of the two classes" if number == 0 else "_"
        axes.plot(radius * angle.cos(), radius * angle.sin(), color="#9a9a9a", linestyle="--", label=words)


def _boundaries(axes: Axes, lines: Mapping[str, Any]) -> None:
    for name, words in METHOD_NAMES.items():
        for number, line in enumerate(lines[name]):
            across, up = zip(*line, strict=True)
            label = words if number == 0 else "_"
            axes.plot(across, up, color=_COLOUR_OF[name], linewidth=2, label=label)


def draw_asymmetry(measured: Measured) -> Figure:
    """Draw the asymmetry of every network, and its median, on a logarithmic axis."""
    figure = new_figure(10.4, 4.4)
    axes = figure.subplots()
    groups = _groups_of(measured)
    for place, name in enumerate(groups):
        for shift, method in zip((-0.25, 0.0, 0.25), METHODS, strict=True):
            values = list(_values(measured, name, method, "asymmetry").values())
            spread = [place + shift + 0.06 * (number % 3 - 1) for number in range(len(values))]
            label = METHOD_NAMES[method] if place == 0 else "_"
            axes.plot(spread, values, ".", color=_COLOUR_OF[method], label=label)
            if values:
                ends = [place + shift - 0.1, place + shift + 0.1]
                axes.plot(ends, [median(values)] * 2, color="#303030", linewidth=1.5)
    axes.set(yscale="log", ylabel="asymmetry of the boundary")
    words = [_GROUP_NAMES[name].replace(", ", "\n") for name in groups]
    axes.set_xticks(range(len(groups)), words, fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    return figure


def draw_toy_certificate(measured: Measured) -> Figure:
    """Draw the certificate near ρ̂, where the bracket was computed, and over all γ_adv."""
    certificate = measured["certificate"]
    bracket = certificate["bracket"]
    figure = new_figure(9.6, 4.8)
    near, far = figure.subplots(1, 2)
    moved = [entry["rho"] for entry in certificate["adversary"]]
    reach = max(entry["rho"] for entry in bracket)
    _certificate(near, certificate, [0.0, reach])
    ends = min(moved), max(reach, *moved)
    _certificate(far, certificate, [ends[0] * (ends[1] / ends[0]) ** (step / 100) for step in range(101)])
    near.locator_params(axis="x", nbins=5)
    near.set(xlim=(0, 1.02 * reach), ylim=(0, 1.05 * bracket[-1]["at_most"]))
    far.set(xscale="log", yscale="log")
    for axes in (near, far):
        axes.set(xlabel="ρ, mean squared distance", ylabel="expected loss")
        axes.spines[["top", "right"]].set_visible(False)
    handles, names = far.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure


def _certificate(axes: Axes, certificate: Mapping[str, Any], along: Sequence[float]) -> None:
    """Draw the certificate as a line and measurements as marks."""
    line = [certificate["intercept"] + TOY_GAMMA * rho for rho in along]
    axes.plot(along, line, color=COLOURS[0], label=f"the paper's certificate, γ = {TOY_GAMMA:g} (estimated)")
    bracket = [
        entry for entry in certificate["bracket"] if entry["rho"] >= along[0]
    ]  # logarithmic axes have no 0
    rhos = [entry["rho"] for entry in bracket]
    low, high = [entry["at_least"] for entry in bracket], [entry["at_most"] for entry in bracket]
    axes.fill_between(rhos, low, high, color=COLOURS[2], alpha=0.25, linewidth=0)
    above = "worst case on test data: at most (proven)"
    axes.plot(rhos, high, ".-", color=COLOURS[2], label=above)
    axes.plot(rhos, low, ".:", color=COLOURS[2], label="at least (attained)")
    points = [(entry["rho"], entry["worst_case"]) for entry in certificate["adversary"]]
    words = subscripted("the paper's worst case on test data, one for each γ_adv (attained)")
    axes.plot(*zip(*points, strict=True), "s", ms=5, mfc="none", color=COLOURS[1], label=words)
    axes.axvline(certificate["rho_hat"], color="#5f5f5f", linewidth=1, label="ρ̂ on the training data")


def network_verdicts(measured: Measured) -> list[Verdict]:
    """Judge the networks of all seeds with the paper's ascent; medians are over those that have learnt."""
    boundaries = [_about_radii(measured), _about_symmetry(measured), _about_relus(measured)]
    return [*boundaries, *_about_concavity(measured["elu"])]


def _values(measured: Measured, group: str, method: str, what: str) -> dict[int, float]:
    """Return seed → a number of a method's network, of those that have learnt."""
    entries = measured[group]["methods"][method]
    return {seed: float(entry[what]) for seed, entry in enumerate(entries) if has_learnt(entry)}


def _median(values: Mapping[int, float]) -> float:
    return median(values.values()) if values else math.nan


def _more(first: Mapping[int, float], *others: Mapping[int, float]) -> list[bool]:
    """Return, for each seed that all have, whether the first number is larger than the others."""
    return [
        value > max(other[seed] for other in others)
        for seed, value in first.items()
        if all(seed in other for other in others)
    ]


def _less(first: Mapping[int, float], *others: Mapping[int, float]) -> list[bool]:
    def negative(values: Mapping[int, float]) -> dict[int, float]:
        return {seed: -value for seed, value in values.items()}

    return _more(negative(first), *(negative(other) for other in others))


def _counted(hold: Sequence[bool]) -> dict[str, Quantity]:
    return {"seeds": Quantity(len(hold), places=0), "of them as claimed": Quantity(sum(hold), places=0)}


_CASES = "on at least nine tenths of the seeds on which all have learnt; *partly*: on half of them"


def _about_radii(measured: Measured) -> Verdict:
    radii = {
        name: {method: _values(measured, name, method, "mean_radius") for method in METHODS}
        for name in TOY_MODELS
    }
    cases = [case for values in radii.values() for case in _more(values["wrm"], values["erm"], values["fgm"])]
    return Verdict(
        name="radius",
        label="fig:toy",
        claim="With both activations WRM pushes the boundary further outwards than ERM and FGM.",
        rule=f"with both activations, the largest mean radius, {_CASES}",
        outcome=outcome_of_cases(cases),
        ours={
            f"{METHOD_NAMES[method]}, {_ACTIVATIONS[name]}": Quantity(_median(numbers), places=3)
            for name, values in radii.items()
            for method, numbers in values.items()
        }
        | _counted(cases),
    )


def _about_symmetry(measured: Measured) -> Verdict:
    uneven = {method: _values(measured, "elu", method, "asymmetry") for method in METHODS}
    cases = _less(uneven["wrm"], uneven["erm"], uneven["fgm"])
    return Verdict(
        name="symmetry",
        label="fig:toy",
        claim="WRM with ELUs has an axisymmetric boundary; ERM and FGM lack symmetry.",
        rule=f"the smallest asymmetry, {_CASES}",
        outcome=outcome_of_cases(cases),
        ours={METHOD_NAMES[name]: Quantity(_median(values), places=4) for name, values in uneven.items()}
        | {"below FGM's": Quantity(sum(_less(uneven["wrm"], uneven["fgm"])), places=0)}
        | _counted(cases),
    )


def _about_relus(measured: Measured) -> Verdict:
    relu, elu = (_values(measured, name, "wrm", "asymmetry") for name in ("relu", "elu"))
    cases = _more(relu, elu)
    return Verdict(
        name="ReLU",
        label="fig:toy",
        claim="WRM with ReLUs still suffers from radial asymmetry.",
        rule=f"a larger asymmetry of WRM with ReLUs than with ELUs, {_CASES}",
        outcome=outcome_of_cases(cases),
        ours={"ReLU": Quantity(_median(relu), places=4), "ELU": Quantity(_median(elu), places=4)}
        | _counted(cases),
    )


def _about_concavity(group: Mapping[str, Any]) -> list[Verdict]:
    shares = group["concave"]
    bounds = [math.inf if bound is None else bound for bound in group["curvature"]]
    concave = [meets_share(share, 1.0) for share in shares]
    smooth = [bound < 2 * TOY_GAMMA for bound in bounds]
    contradicted = any(below and share < 1 for below, share in zip(smooth, shares, strict=True))
    proven = {"best seed": min(bounds), "worst seed": max(bounds)}
    return [
        Verdict(
            name="concave",
            label="sec:toy",
            claim="With ELUs γ = 2 makes the inner problem strongly concave over the training data.",
            rule="strong concavity at all training points but half a point of per cent, on at least nine "
            "tenths of the seeds; *partly*: on half of them",
            outcome=outcome_of_cases(concave),
            ours=_counted(concave)
            | {
                "concave at all points": Quantity(sum(share == 1 for share in shares), places=0),
                "smallest share of points": Quantity(min(shares), places=2, percent=True),
            },
        ),
        Verdict(
            name="threshold",
            label="section:examples",
            claim="γ above a bound on the smoothness makes it concave everywhere.",
            rule=f"on every seed, a proven curvature below 2γ = {2 * TOY_GAMMA:g}; *no* where it is below "
            "and f is not concave at a point",
            outcome=outcome_of(False if contradicted else True if all(smooth) else None),
            ours={name: Quantity(bound, places=1, side="at most") for name, bound in proven.items()},
            evidence=recorded_evidence(group),
        ),
    ]


_SAME = 1e-9  # of two losses that are equal but for rounding


def certificate_verdicts(certificate: Mapping[str, Any]) -> list[Verdict]:
    """Judge the measurements of ``measure_certificate``."""
    attained = _attained(certificate)
    line = [certificate["intercept"] + TOY_GAMMA * rho for rho, _ in attained]
    short = [
        1 - bound / value for (_, value), bound in zip(attained, line, strict=True) if bound < value - _SAME
    ]
    level = certificate["rho_hat"]
    nearest = min(certificate["adversary"], key=lambda entry: abs(entry["rho"] - level))
    above = certificate["intercept"] + TOY_GAMMA * nearest["rho"]
    gap = above / nearest["worst_case"] - 1
    near = level / 2 <= nearest["rho"] <= 2 * level
    return [
        Verdict(
            name="bound",
            label="fig:loss-bound",
            claim="(a) The certificate bounds the worst case on the test data at every ρ.",
            rule="a certificate that is not below a loss that test data attain, for at least nine tenths of "
            "the values of ρ; *partly*: for half of them",
            outcome=outcome_of_cases([True] * (len(line) - len(short)) + [False] * len(short)),
            ours={
                "values of ρ": Quantity(len(line), places=0),
                "below at": Quantity(len(short), places=0),
                "by up to": Quantity(max(short, default=0.0), places=1, percent=True),
            },
            evidence=Evidence.ATTAINED,
        ),
        Verdict(
            name="tightness",
            label="fig:loss-bound",
            claim="(a) It is almost tight near ρ̂_n(θ_WRM).",
            rule="within a factor of 1.25 of the attained loss, at the ρ nearest to ρ̂_n; *partly*: of 2; not "
            "comparable where that ρ is not within a factor of 2",
            outcome=outcome_of_number(above, nearest["worst_case"]) if near else Outcome.NOT_COMPARABLE,
            ours={
                "ρ̂_n": Quantity(level, places=3),
                "nearest ρ": Quantity(nearest["rho"], places=3),
                "certificate": Quantity(above, places=3),
                "attained": Quantity(nearest["worst_case"], places=3),
                "difference": Quantity(gap, places=1, percent=True),
            },
        ),
    ]


def _attained(certificate: Mapping[str, Any]) -> list[tuple[float, float]]:
    """ρ and a loss that test data within ρ attain: by the search for a bracket, and by the paper's worst
    case, the mean loss at T_γ of the test data."""
    searched = [(entry["rho"], entry["at_least"]) for entry in certificate["bracket"]]
    return searched + [(entry["rho"], entry["worst_case"]) for entry in certificate["adversary"]]


_EPOCHS = {Scale.QUICK: 2, Scale.FULL: 30}
_SEEDS = {Scale.QUICK: 2, Scale.FULL: 24}


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
    common = {"epochs": _EPOCHS[scale], "seeds": _SEEDS[scale]}
    groups = [
        Part(
            name,
            {"activation": activation, "ascent": ascent, "schedule": schedule, **common},
            measure_networks,
        )
        for name, (activation, ascent, schedule) in _GROUPS.items()
        if not (quick and schedule == "constant")
    ]
    gammas = [1.0, 2.0, 4.0] if quick else [0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.7, 8.0, 16.0]
    rhos = [0.01, 0.05, 0.15] if quick else [0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2]
    usual = {"activation": "elu", "ascent": "paper", "schedule": "cosine", **common}
    settings = {**usual, "gammas": gammas, "rhos": rhos, "test": 200 if quick else 4000}
    return [*groups, Part("certificate", settings, measure_certificate, effort=0.5)]


def _verdicts(measured: Measured) -> list[Verdict]:
    return [*network_verdicts(measured), *certificate_verdicts(measured["certificate"])]


def _text(measured: Measured) -> str:
    rows = [
        [f"{METHOD_NAMES[method]}, {_GROUP_NAMES[name]}", *_columns(measured, name, method)]
        for name, method in itertools.product(_groups_of(measured), METHODS)
    ]
    head = ["network", "radius", "asymmetry", "smallest", "largest", "learnt", "below FGM's", "below ERM's"]
    return "\n\n".join(
        [
            "Medians over the seeds that have learnt: those with a closed boundary and less than "
            f"{NOT_LEARNT:.0%} test error.",
            markdown_table(head, rows),
            "## ρ̂ depends on the ascent that measures it",
            "ρ̂_n(θ_WRM) of the *same* networks, in the median over seeds: by the paper's 15 steps, by the "
            "adaptive ascent, and by one that goes on to a gap of 10⁻⁵; and the mean of φ that each finds.",
            _levels_table(measured),
        ]
    )


def _columns(measured: Measured, name: str, method: str) -> list[str]:
    radii = _values(measured, name, method, "mean_radius")
    uneven = {each: _values(measured, name, each, "asymmetry") for each in METHODS}
    own = uneven[method]
    count = f"{len(own)} of {len(measured[name]['methods'][method])}"
    if not own:
        return ["–"] * 4 + [count, "–", "–"]
    numbers = (_median(radii), _median(own), min(own.values()), max(own.values()))
    below = []
    for rival in ("fgm", "erm"):
        hold = _less(own, uneven[rival])
        below.append("–" if rival == method else f"{sum(hold)} of {len(hold)}")
    return [*(f"{number:.3f}" for number in numbers), count, *below]


def _levels_table(measured: Measured) -> str:
    rows = []
    for name in _groups_of(measured):
        levels = measured[name]["levels"]
        ascents = [levels.get(ascent) for ascent in ("paper", "adaptive", "precise")]
        numbers = ["–" if entry is None else f"{median(entry['rho_hat']):.3f}" for entry in ascents]
        numbers += ["–" if entry is None else f"{median(entry['phi']):.4f}" for entry in ascents]
        short = levels.get("short")
        numbers += (
            ["–", "–"] if short is None else [f"{median(short[what]):.1%}" for what in ("share", "part")]
        )
        rows.append([_GROUP_NAMES[name], *numbers])
    head = ["trained with", "ρ̂, 15 steps", "ρ̂, adaptive", "ρ̂, 10⁻⁵", "φ, 15 steps", "φ, adaptive", "φ, 10⁻⁵"]
    return markdown_table([*head, "points cut short", "their part of the difference of ρ̂"], rows)


def _size(scale: Scale) -> str:
    return (
        f"{_SEEDS[scale]} seeds, 10,000 training points, {_EPOCHS[scale]} epochs, Adam with batches of "
        f"{BATCH_SIZE} and a step of {LEARNING_RATE} that falls to 0 as a cosine; the paper gives none of "
        "these. T_adv = 15 steps of (1/2γ)/√t, as the authors' code for MNIST has them."
    )


STUDY = Study(
    name="toy",
    title="Synthetic rings: boundaries and a certificate",
    labels=("fig:toy", "fig:loss-bound", "sec:toy"),
    minutes={Scale.QUICK: 0.5, Scale.FULL: 15},
    parts=_parts,
    pictures=(
        Picture(
            "boundaries",
            "Where the predicted class changes, for the seed in the middle by WRM's asymmetry. Top, with "
            "training data; bottom, with the edges of the two classes.",
            draw_boundaries,
        ),
        Picture(
            "asymmetry",
            "The asymmetry of the boundary of every network that has learnt, and medians (lines).",
            draw_asymmetry,
        ),
        Picture(
            "certificate",
            "WRM with ELUs, the seed in the middle: the paper's certificate and worst case, and the bracket "
            "of this library; marks are what was measured. Left: near ρ̂. Right: every γ_adv that was tried, "
            "on logarithmic axes.",
            draw_toy_certificate,
        ),
    ),
    verdicts=_verdicts,
    text=_text,
    revision=2,
    scope={
        Scale.QUICK: f"The certificate is about 200 test points. {_size(Scale.QUICK)}",
        Scale.FULL: _size(Scale.FULL),
    },
)
