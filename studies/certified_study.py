"""All three of the paper's wishes at once: γ above a proven bound, low clean error, robustness beyond ERM
(section:three-choose-two).

Four trainings on each data set, all with the same network and steps: WRM and ERM with certified training at
γ = 1.5, and both without the constraint; and a longer one on MNIST, with warped images. Settings were chosen
on the calibration split of seed 0 by the parts named ``choice``; the seeds of the others differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import mean
from typing import Any

from certus.runs.directory import METRICS
from certus.runs.loaded_run import TrainedRun
from studies.certified_networks import certified_settings
from studies.certified_page import (
    certified_statements,
    certified_text,
    draw_certificates,
    draw_errors,
)
from studies.certified_trials import (
    SUP_TRIALS,
    certified_errors,
    clean_error,
    evenly_spaced,
    loss_certificate,
    proven_curvature,
)
from studies.reproduction import Extent, Part, Picture, Reproduction
from studies.workshop import Workshop

_RHOS = (0.001, 0.01, 0.1)
_WRM = {"method": "wrm", "clip": False, "gamma": 1.5}
_ERM = {"method": "erm", "clip": False}
_CERTIFIED = {"certified": True, "gamma": 1.5}


@dataclass(frozen=True)
class _Plan:
    """Options of ``certus train`` for one row of the table, and where it is run."""

    options: dict[str, Any]
    epochs: int = 10
    data: tuple[str, ...] = ("mnist", "fashion-mnist")


_PLANS = {
    "wrm-certified": _Plan({**_WRM, **_CERTIFIED, "temperature": 0.7}),
    "erm-certified": _Plan({**_ERM, **_CERTIFIED, "temperature": 0.7}),
    "wrm": _Plan(_WRM),
    "erm": _Plan(_ERM),
    "wrm-certified-long": _Plan(
        {**_WRM, **_CERTIFIED, "temperature": 0.53, "warp": 0.1}, epochs=100, data=("mnist",)
    ),
}


@dataclass(frozen=True)
class _Choice:
    """What one line of the choice changes."""

    words: str
    options: dict[str, Any] = field(default_factory=dict)


_CHOICES = {
    "start": _Choice("100 components, 1,024 log cosh units, temperature 0.7"),
    "cold": _Choice("temperature 0.5", {"temperature": 0.5}),
    "warm": _Choice("temperature 1", {"temperature": 1.0}),
    "margin": _Choice("a margin of 1", {"margin": 1.0}),
    "wide": _Choice("2,048 units", {"model": "certified-mlp:2048:logcosh:100"}),
    "abs": _Choice("smooth absolute values", {"model": "certified-mlp:1024:smoothabs:100"}),
    "components": _Choice("256 components", {"model": "certified-mlp:1024:logcosh:256"}),
    "deep": _Choice("a second hidden layer", {"model": "certified-mlp:1024,1024:logcosh:100"}),
    "warp": _Choice("warps of 0.1", {"warp": 0.1}),
    "cold-warp": _Choice("warps of 0.1, temperature 0.6", {"temperature": 0.6, "warp": 0.1}),
}


def _network(workshop: Workshop, settings: Mapping[str, Any]) -> TrainedRun:
    chosen = {name: settings[name] for name in ("data", "seed", "epochs")}
    return workshop.network(certified_settings(**chosen, **settings["options"]))


def _measure_attacks(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The proven bound, and errors on the test images, clean and under the paper's PGM."""
    trained = _network(workshop, settings)
    data = evenly_spaced(trained.data.test, settings["images"])
    lines = (trained.run.path / METRICS).read_text().splitlines()
    return {
        "seconds per epoch": mean(json.loads(line)["seconds"] for line in lines),
        "bound": proven_curvature(trained),
        "clean": clean_error(trained, data),
        "pgm": {trial.name: trial.weak(trained, data) for trial in SUP_TRIALS},
    }


def _measure_strong(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """A stronger attack, and the paper's on the same images."""
    trained = _network(workshop, settings)
    data = evenly_spaced(trained.data.test, settings["images"])
    return {
        "strong": {trial.name: trial.strong(trained, data) for trial in SUP_TRIALS},
        "same": {trial.name: trial.weak(trained, data) for trial in SUP_TRIALS},
    }


def _measure_auto(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    trained = _network(workshop, settings)
    data = evenly_spaced(trained.data.test, settings["images"])
    return {"auto": {trial.name: trial.auto(trained, data) for trial in SUP_TRIALS if trial.clipped}}


def _measure_certified(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    trained = _network(workshop, settings)
    data = evenly_spaced(trained.data.test, settings["images"])
    return {"certified": certified_errors(workshop, trained, data, _RHOS)}


def _measure_certificate(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    trained = _network(workshop, settings)
    data = evenly_spaced(trained.data.test, settings["images"])
    return {"certificate": loss_certificate(workshop, trained, data, _RHOS)}


def _measure_choice(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Errors on some training images and on the calibration split."""
    trained = _network(workshop, settings)
    assert trained.data.calibration is not None
    data = trained.data.calibration[: settings["images"]]
    return {
        "change": settings["change"],
        "curvature": proven_curvature(trained)["curvature"],
        "training": clean_error(trained, trained.data.train[: 2 * settings["images"]])["error"],
        "clean": clean_error(trained, data)["error"],
        **{trial.name: trial.weak(trained, data) for trial in SUP_TRIALS},
    }


_Measure = Callable[[Workshop, Mapping[str, Any]], dict[str, Any]]


def _told(measure: _Measure, workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """With which network it is of."""
    return {name: settings[name] for name in ("data", "plan", "seed")} | measure(workshop, settings)


def _parts(extent: Extent) -> list[Part]:
    quick = extent is Extent.QUICK
    every, some = (200, 20) if quick else (10_000, 500)
    jobs = [
        (data, name, seed)
        for data in ("mnist", "fashion-mnist")
        for name, plan in _PLANS.items()
        for seed in (1, 2, 3)
        if data in plan.data
    ]
    if quick:
        jobs = [("mnist", "wrm-certified", 1), ("mnist", "erm", 1)]
    parts = []
    for data, name, seed in jobs:
        epochs = 1 if quick else _PLANS[name].epochs
        asked: dict[str, tuple[_Measure, int]] = {
            "attacks": (_measure_attacks, every),
            "strong": (_measure_strong, some),
            "certificate": (_measure_certificate, some),
        }
        if seed == 1 and not quick:
            asked["auto"] = (_measure_auto, some)
        if name != "erm":  # nothing of use is proven of all images there
            asked["certified"] = (_measure_certified, every)
        about = {"data": data, "plan": name, "seed": seed, "epochs": epochs, "options": _PLANS[name].options}
        for kind, (measure, images) in asked.items():
            packages = ("torchattacks",) if kind == "auto" else ()
            work = partial(_told, measure)
            settings = {**about, "images": images}
            parts.append(
                Part(f"{data}-{name}-{seed}-{kind}", settings, work, float(epochs), packages, data=(data,))
            )
    return [*parts, *_choices(quick)]


def _choices(quick: bool) -> list[Part]:
    first = {**_WRM, **_CERTIFIED, "temperature": 0.7, "warp": 0.0}
    size: dict[str, Any] = {
        "data": "mnist",
        "seed": 0,
        "epochs": 1 if quick else 10,
        "images": 200 if quick else 5_000,
    }
    chosen = {"start": _CHOICES["start"]} if quick else _CHOICES
    return [
        Part(
            f"choice-{name}",
            {**size, "change": choice.words, "options": {**first, **choice.options}},
            _measure_choice,
            float(size["epochs"]),
        )
        for name, choice in chosen.items()
    ]


REPRODUCTION = Reproduction(
    name="certified-training",
    title="Certified training",
    shows=("section:three-choose-two",),
    minutes={Extent.QUICK: 1, Extent.PAPER: 900},
    parts=_parts,
    pictures=(
        Picture("errors", "Test error under PGM-∞: mean and range over the seeds.", draw_errors),
        Picture(
            "certificates", "What is proven (line), and attained (lower end of the band).", draw_certificates
        ),
    ),
    statements=certified_statements,
    text=certified_text,
    smaller={
        Extent.QUICK: "MNIST, one epoch, one seed, two of five trainings, one setting of ten tried; 200 test "
        "images stand for all, 20 for the 500."
    },
    needs=("mnist",),
    beyond=True,
)
