"""The synthetic rings (sec:toy): boundaries of ERM, FGM and WRM, and the certificate beside the worst case.

The network is 2-4-2-2 with ReLU or ELU units; WRM has γ = 2, and FGM moves by ε with ε² = ρ̂_n(θ_WRM). The
paper gives neither the number of samples nor the optimizer: here 10,000 points, Adam with a step of 0.01,
batches of 128. Some networks are trained again with a step that falls to 0. The inner problem of WRM is
solved by this library's ascent until its tolerance, not by the paper's 15 steps.

What "radial asymmetry" is, the paper does not say. Here: along 360 rays from the centre, the distance r at
which the predicted class first changes, at most 4; its standard deviation over its mean.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from studies.page import markdown_table
from studies.reproduction import Extent, Measured, Part, Picture, Reproduction, Verdict
from studies.told_settings import told_settings
from studies.toy_certificate_claims import certificate_claims
from studies.toy_claims import NOT_LEARNT, has_learnt, network_claims, networks_of
from studies.toy_figures import draw_boundaries, draw_toy_certificate
from studies.toy_networks import (
    METHOD_NAMES,
    TOY_MODELS,
    measure_boundaries,
    measure_toy_certificate,
    toy_settings,
)

_EPOCHS = {Extent.QUICK: 3, Extent.PAPER: 30}


def _parts(extent: Extent) -> list[Part]:
    quick = extent is Extent.QUICK
    epochs = _EPOCHS[extent]
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


def _size(extent: Extent) -> str:
    return f"10,000 training points, {_EPOCHS[extent]} epochs. The paper gives no optimizer, step or batch."


def _statements(measured: Measured) -> list[Verdict]:
    return [*network_claims(measured), *certificate_claims(measured["certificate"])]


def _text(measured: Measured) -> str:
    rows = []
    groups = [*((name, "constant", name) for name in TOY_MODELS), ("elu", "cosine", "elu, step falls to 0")]
    for (activation, schedule, words), name in itertools.product(groups, METHOD_NAMES):
        found = [one["methods"][name] for one in networks_of(measured, activation, schedule)]
        rows.append([f"{METHOD_NAMES[name]}, {words}", *_columns(found)])
    head = ["network", "radius, median", "asymmetry, median", "smallest", "largest", "learnt", "test error"]
    words = (
        f"*Learnt*: networks with a closed boundary and less than {NOT_LEARNT:.0%} test error; radii and "
        "asymmetries are of these. The error is the mean of all."
    )
    return f"{markdown_table(head, rows)}\n\n{words}"


def _columns(found: Sequence[Mapping[str, Any]]) -> list[str]:
    learnt = [one for one in found if has_learnt(one)]
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
            "WRM with ELUs: the paper's certificate and worst case, and the bracket of this library; marks "
            "are what was measured. Left: near ρ̂. Right: every γ_adv that was tried, on logarithmic axes.",
            draw_toy_certificate,
        ),
    ),
    statements=_statements,
    text=_text,
    smaller={
        Extent.QUICK: f"One seed; the certificate is about 200 test points. {_size(Extent.QUICK)}",
        Extent.PAPER: _size(Extent.PAPER),
    },
    training=lambda extent: told_settings(toy_settings("elu", 0, _EPOCHS[extent], "constant", method="erm")),
)
