"""The synthetic rings (sec:toy): boundaries of ERM, FGM and WRM, and the certificate beside the worst case.

The network is 2-4-2-2 with ReLU or ELU units; WRM has γ = 2, and FGM moves by ε with ε² = ρ̂_n(θ_WRM). The
paper gives neither the number of samples nor the optimizer: here 10,000 points, Adam with a step of 0.01,
batches of 128. A constant step never settles; some networks are trained again with one that falls to 0.

What "radial asymmetry" is, the paper does not say. Here: along 360 rays from the centre, the distance r at
which the predicted class first changes, at most 4; its standard deviation over its mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from certus.evidence import Evidence
from certus.reproduce.page import markdown_table
from certus.reproduce.reproduction import Comparison, Extent, Measured, Part, Picture, Reproduction
from certus.reproduce.toy_figures import draw_boundaries, draw_toy_certificate
from certus.reproduce.toy_networks import (
    METHOD_NAMES,
    TOY_GAMMA,
    TOY_MODELS,
    measure_boundaries,
    measure_toy_certificate,
)

_FAILED = 0.01  # an error from which on a network of the rings has not learnt them


def _parts(extent: Extent) -> list[Part]:
    quick = extent is Extent.QUICK
    epochs = 3 if quick else 30
    seeds = range(1 if quick else 10)
    networks = [
        Part(
            f"{activation}-{seed}",
            {"activation": activation, "seed": seed, "epochs": epochs},
            measure_boundaries,
        )
        for seed, activation in itertools.product(seeds, TOY_MODELS)
    ]
    settled = [
        Part(
            f"settled-{seed}",
            {"activation": "elu", "seed": seed, "epochs": epochs, "schedule": "cosine"},
            measure_boundaries,
        )
        for seed in range(1 if quick else 6)
    ]
    gammas = [1.0, 2.0, 4.0] if quick else [0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.7, 8.0, 16.0]
    rhos = [0.01, 0.05, 0.15] if quick else [0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2]
    settings = {"seed": 0, "epochs": epochs, "gammas": gammas, "rhos": rhos, "test": 200 if quick else 4000}
    return [*networks, *settled, Part("certificate", settings, measure_toy_certificate, effort=2.0)]


def _of(measured: Measured, activation: str, schedule: str = "constant") -> list[Mapping[str, Any]]:
    return [
        one
        for one in measured.values()
        if one.get("activation") == activation and one.get("schedule", "constant") == schedule
    ]


def _has_learnt(network: Mapping[str, Any]) -> bool:
    """A boundary that is not closed has no radius, and one in the wrong place says nothing of a method."""
    return bool(network["open_rays"] == 0 and network["test_error"] < _FAILED)


def _values(
    measured: Measured, activation: str, name: str, what: str, schedule: str = "constant"
) -> dict[int, float]:
    """Seed → the number of a method's network, of those that have learnt."""
    found = [one["methods"][name] for one in _of(measured, activation, schedule)]
    return {seed: float(one[what]) for seed, one in enumerate(found) if _has_learnt(one)}


def _medians(measured: Measured, activation: str, what: str, schedule: str = "constant") -> dict[str, float]:
    """NaN, which is below nothing, where none has learnt."""
    found = {name: _values(measured, activation, name, what, schedule) for name in METHOD_NAMES}
    return {name: median(ones.values()) if ones else math.nan for name, ones in found.items()}


def _statements(measured: Measured) -> list[Comparison]:
    return [*_about_boundaries(measured), *_about_concavity(measured), *_about_certificate(measured)]


def _about_boundaries(measured: Measured) -> list[Comparison]:
    outward = {name: _medians(measured, name, "mean_radius") for name in TOY_MODELS}
    uneven = {name: _medians(measured, name, "asymmetry") for name in TOY_MODELS}
    seeds = len(_of(measured, "elu"))
    among = "one seed" if seeds == 1 else f"medians of {seeds} seeds"

    def words(values: Mapping[str, float]) -> str:
        shown = {name: "has not learnt" if math.isnan(one) else f"{one:.3f}" for name, one in values.items()}
        return ", ".join(f"{METHOD_NAMES[name]} {one}" for name, one in shown.items())

    pushed = all(radii["wrm"] > max(radii["erm"], radii["fgm"]) for radii in outward.values())
    steadier = uneven["elu"]["wrm"] < min(uneven["elu"]["erm"], uneven["elu"]["fgm"])
    settled = {name: _values(measured, "elu", name, "asymmetry", "cosine") for name in ("fgm", "wrm")}
    both = settled["fgm"].keys() & settled["wrm"].keys()
    lower = sum(settled["wrm"][seed] < settled["fgm"][seed] for seed in both)
    settles = (
        "A constant step never settles, and so neither do the boundaries. With a step that falls to 0: "
        f"{words(_medians(measured, 'elu', 'asymmetry', 'cosine'))}"
    ) + (f"; WRM's is below FGM's on {lower} of {len(both)} seeds." if both else ".")
    return [
        Comparison(
            "fig:toy",
            "With both activations WRM pushes the boundary further outwards than ERM and FGM.",
            f"Mean radius of the boundary, ReLU: {words(outward['relu'])}; ELU: "
            f"{words(outward['elu'])} ({among}).",
            pushed,
        ),
        Comparison(
            "fig:toy",
            "WRM with ELUs has an axisymmetric boundary; ERM and FGM lack symmetry.",
            f"Asymmetry with ELU: {words(uneven['elu'])} ({among}).",
            steadier,
            reason="" if steadier else settles,
        ),
        Comparison(
            "fig:toy",
            "WRM with ReLUs still suffers from radial asymmetry.",
            f"Asymmetry of WRM: ReLU {uneven['relu']['wrm']:.3f}, ELU {uneven['elu']['wrm']:.3f} ({among}).",
            uneven["relu"]["wrm"] > uneven["elu"]["wrm"],
        ),
    ]


def _about_concavity(measured: Measured) -> list[Comparison]:
    chosen = _of(measured, "elu")[:3]
    shares = [one["concave_share"] for one in chosen]
    bounds = [one["proven_curvature"] for one in chosen]
    smooth = all(bound < 2 * TOY_GAMMA for bound in bounds)
    shown = ", ".join(f"{share:.2%}" for share in shares)
    whole = min(shares) == 1
    return [
        Comparison(
            "sec:toy",
            "With ELUs γ = 2 makes the inner problem strongly concave over the training data.",
            f"At {shown} of the training points ({_spoken_seeds(len(chosen))}).",
            whole,
            reason="" if whole else "It is not at all of them, and the network depends on the seed.",
        ),
        Comparison(
            "section:examples",
            "γ above a bound on the smoothness makes it concave everywhere.",
            f"Proven curvature at most {', '.join(f'{bound:.1f}' for bound in bounds)}, against 2γ = 4.",
            True if smooth else None,
            reason=""
            if smooth
            else "γ = 2 is not above this bound. At the data it is concave, as far as points tell.",
            evidence=Evidence.PROVEN,
        ),
    ]


def _about_certificate(measured: Measured) -> list[Comparison]:
    found = measured["certificate"]
    line = {one["rho"]: found["intercept"] + TOY_GAMMA * one["rho"] for one in found["bracket"]}
    short = {
        one["rho"]: one["at_least"] / line[one["rho"]] - 1
        for one in found["bracket"]
        if one["at_least"] > line[one["rho"]]
    }
    nearest = min(found["adversary"], key=lambda one: abs(one["rho"] - found["rho_hat"]))
    above = found["intercept"] + TOY_GAMMA * nearest["rho"]
    gap = above / nearest["worst_case"] - 1
    return [
        Comparison(
            "fig:loss-bound",
            "(a) The certificate bounds the worst case on the test data at every ρ.",
            f"It is below what is attained on the test data at {len(short)} of {len(line)} ρ, by "
            f"{max(short.values()):.1%} at most."
            if short
            else "It is above what is attained on the test data at every ρ that was tried.",
            not short,
            reason=_why_short(found) if short else "",
            evidence=Evidence.ATTAINED,
        ),
        Comparison(
            "fig:loss-bound",
            "(a) It is almost tight near ρ̂_n(θ_WRM).",
            f"At ρ = {nearest['rho']:.3f} it is {above:.3f} against {nearest['worst_case']:.3f}: {gap:+.1%}.",
            abs(gap) < 0.1,
        ),
    ]


def _why_short(found: Mapping[str, Any]) -> str:
    """Whether the mean of φ over the test data, in place of the training data, would make it a bound."""
    words = "It is about the training data, and ε_n is left out."
    same = [one for one in found["adversary"] if one["gamma"] == TOY_GAMMA]
    if not same:
        return words
    own = same[0]["worst_case"] - TOY_GAMMA * same[0]["rho"]
    holds = all(own + TOY_GAMMA * one["rho"] >= one["at_least"] for one in found["bracket"])
    return (
        f"{words} With the test data's own mean of φ, {own:.4f} in place of {found['intercept']:.4f}, it "
        f"{'would be above everywhere' if holds else 'would still be below'}."
    )


def _spoken_seeds(count: int) -> str:
    return "one seed" if count == 1 else f"{count} seeds"


def _text(measured: Measured) -> str:
    rows = []
    groups = [*((name, "constant", name) for name in TOY_MODELS), ("elu", "cosine", "elu, step falls to 0")]
    for (activation, schedule, words), name in itertools.product(groups, METHOD_NAMES):
        found = [one["methods"][name] for one in _of(measured, activation, schedule)]
        rows.append([f"{METHOD_NAMES[name]}, {words}", *_columns(found)])
    head = ["network", "radius, median", "asymmetry, median", "smallest", "largest", "learnt", "test error"]
    words = (
        f"*Learnt*: networks with a closed boundary and less than {_FAILED:.0%} test error; radii and "
        "asymmetries are of these. The error is the mean of all."
    )
    return f"{markdown_table(head, rows)}\n\n{words}"


def _columns(found: Sequence[Mapping[str, Any]]) -> list[str]:
    learnt = [one for one in found if _has_learnt(one)]
    error = fmean(one["test_error"] for one in found)
    counts = [f"{len(learnt)} of {len(found)}", f"{error:.2%}"]
    if not learnt:
        return ["–"] * 4 + counts
    uneven = [one["asymmetry"] for one in learnt]
    radius = median(one["mean_radius"] for one in learnt)
    return [*(f"{value:.3f}" for value in (radius, median(uneven), min(uneven), max(uneven))), *counts]


REPRODUCTION = Reproduction(
    name="toy",
    title="Synthetic rings: boundaries and a certificate",
    shows=("fig:toy", "fig:loss-bound", "sec:toy"),
    minutes={Extent.QUICK: 0.5, Extent.PAPER: 25},
    parts=_parts,
    pictures=(
        Picture(
            "boundaries",
            "Where the predicted class changes (seed 0). Top, with training data; bottom, with the "
            "edges of the two classes.",
            draw_boundaries,
        ),
        Picture(
            "certificate",
            "WRM with ELUs: the paper's certificate and worst case, and the bracket of this library.",
            draw_toy_certificate,
        ),
    ),
    statements=_statements,
    text=_text,
    smaller={Extent.QUICK: "One seed and three epochs; the certificate is about 200 test points."},
)
