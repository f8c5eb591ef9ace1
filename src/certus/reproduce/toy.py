"""The synthetic rings (sec:toy): boundaries of ERM, FGM and WRM, and the certificate beside the worst case.

The network is 2-4-2-2 with ReLU or ELU units; WRM has γ = 2, and FGM moves by ε with ε² = ρ̂_n(θ_WRM). The
paper gives neither the number of samples nor the optimizer: here 10,000 points, Adam with a step of 0.01,
batches of 128. A constant step never settles; some networks are trained again with one that falls to 0.

What "radial asymmetry" is, the paper does not say. Here: along 360 rays from the centre, the distance r at
which the predicted class first changes, at most 4; its standard deviation over its mean.
"""

from __future__ import annotations

import itertools
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
    rhos = [0.01, 0.05, 0.1] if quick else [0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2]
    settings = {"seed": 0, "epochs": epochs, "gammas": gammas, "rhos": rhos, "test": 200 if quick else 4000}
    return [*networks, *settled, Part("certificate", settings, measure_toy_certificate, effort=2.0)]


def _of(measured: Measured, activation: str, schedule: str = "constant") -> list[Mapping[str, Any]]:
    return [
        one
        for one in measured.values()
        if one.get("activation") == activation and one.get("schedule", "constant") == schedule
    ]


def _means(measured: Measured, activation: str, what: str) -> dict[str, float]:
    found = _of(measured, activation)
    return {name: fmean(one["methods"][name][what] for one in found) for name in METHOD_NAMES}


def _medians(measured: Measured, activation: str, what: str, schedule: str = "constant") -> dict[str, float]:
    """A network whose boundary is open would decide the mean of ten alone."""
    found = _of(measured, activation, schedule)
    return {name: median(one["methods"][name][what] for one in found) for name in METHOD_NAMES}


def _statements(measured: Measured) -> list[Comparison]:
    return [*_about_boundaries(measured), *_about_concavity(measured), *_about_certificate(measured)]


def _about_boundaries(measured: Measured) -> list[Comparison]:
    outward = {name: _means(measured, name, "mean_radius") for name in TOY_MODELS}
    uneven = {name: _medians(measured, name, "asymmetry") for name in TOY_MODELS}
    seeds = len(_of(measured, "elu"))
    over = "one seed" if seeds == 1 else f"means over {seeds} seeds"
    among = "one seed" if seeds == 1 else f"medians of {seeds} seeds"

    def words(values: Mapping[str, float]) -> str:
        return ", ".join(f"{METHOD_NAMES[name]} {value:.3f}" for name, value in values.items())

    pushed = all(radii["wrm"] > max(radii["erm"], radii["fgm"]) for radii in outward.values())
    steadier = uneven["elu"]["wrm"] < min(uneven["elu"]["erm"], uneven["elu"]["fgm"])
    settled = _medians(measured, "elu", "asymmetry", "cosine")
    least = METHOD_NAMES[min(settled, key=lambda name: settled[name])]
    settles = (
        "A constant step never settles, and so neither do the boundaries. With a step that falls to 0: "
        f"{words(settled)}; the least is {least}'s."
    )
    return [
        Comparison(
            "fig:toy",
            "With both activations WRM pushes the boundary further outwards than ERM and FGM.",
            f"Mean radius of the boundary, ReLU: {words(outward['relu'])}; ELU: "
            f"{words(outward['elu'])} ({over}).",
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
    shown = ", ".join(f"{share:.1%}" for share in shares)
    return [
        Comparison(
            "sec:toy",
            "With ELUs γ = 2 makes the inner problem strongly concave over the training data.",
            f"At {shown} of the training points (seeds 0 to {len(chosen) - 1}).",
            min(shares) > 0.999,
        ),
        Comparison(
            "section:examples",
            "γ above a bound on the smoothness makes it concave everywhere.",
            f"Proven curvature at most {', '.join(f'{bound:.1f}' for bound in bounds)}, against 2γ = 4.",
            smooth,
            reason=""
            if smooth
            else "At the data it is concave, as far as points tell; everywhere it is not proven.",
            evidence=Evidence.PROVEN,
        ),
    ]


def _about_certificate(measured: Measured) -> list[Comparison]:
    found = measured["certificate"]
    line = {one["rho"]: found["intercept"] + TOY_GAMMA * one["rho"] for one in found["bracket"]}
    held = all(line[one["rho"]] >= one["at_least"] for one in found["bracket"])
    nearest = min(found["adversary"], key=lambda one: abs(one["rho"] - found["rho_hat"]))
    above = found["intercept"] + TOY_GAMMA * nearest["rho"]
    gap = above / nearest["worst_case"] - 1
    return [
        Comparison(
            "fig:loss-bound",
            "(a) The certificate bounds the worst case on the test data at every ρ.",
            "It is above what is attained on the test data at every ρ that was tried."
            if held
            else "It is below what is attained on the test data at some ρ.",
            held,
            reason="The curve is an estimate from below, without ε_n: no bound by itself.",
            evidence=Evidence.ATTAINED,
        ),
        Comparison(
            "fig:loss-bound",
            "(a) It is almost tight near ρ̂_n(θ_WRM).",
            f"At ρ = {nearest['rho']:.3f} it is {above:.3f} against {nearest['worst_case']:.3f}: {gap:+.1%}.",
            abs(gap) < 0.1,
        ),
    ]


def _text(measured: Measured) -> str:
    rows = []
    groups = [*((name, "constant", name) for name in TOY_MODELS), ("elu", "cosine", "elu, step falls to 0")]
    for (activation, schedule, words), name in itertools.product(groups, METHOD_NAMES):
        found = [one["methods"][name] for one in _of(measured, activation, schedule)]
        rows.append([f"{METHOD_NAMES[name]}, {words}", *_columns(found)])
    head = ["network", "mean radius", "asymmetry, median", "smallest", "largest", "open rays", "test error"]
    return markdown_table(head, rows)


def _columns(found: Sequence[Mapping[str, Any]]) -> list[str]:
    uneven = [one["asymmetry"] for one in found]
    radius, error = fmean(one["mean_radius"] for one in found), fmean(one["test_error"] for one in found)
    rays = sum(one["open_rays"] for one in found)
    numbers = [f"{value:.3f}" for value in (radius, median(uneven), min(uneven), max(uneven))]
    return [*numbers, f"{rays} of {360 * len(found)}", f"{error:.2%}"]


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
