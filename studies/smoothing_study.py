"""Certificates by smoothing of digits, MNIST and CIFAR-10, beside two rivals and the deterministic bracket.

Upper bounds on the mean error of a noisy network, and on that of its ideal vote, within √ρ of the population,
with confidence 0.95 for each number by itself: ours, and the two of ``smoothing_rivals``, on the same
predictions. The deterministic bracket is that of the network without noise, with the same confidence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from certus.costs import SquaredL2
from certus.data import Split, Subset, random_order
from certus.runs.certification import CertifySettings, certify_run
from certus.runs.directory import METRICS
from certus.runs.loaded_run import TrainedRun
from certus.runs.settings import Settings
from certus.smoothing._certify import ENOUGH
from certus.smoothing.confidence import upper_means
from certus.smoothing.design import make_plan
from certus.smoothing.predictors import Predictor
from certus.smoothing.sampling import CALIBRATION, CERTIFIED, Noise, Observed, observe
from certus.smoothing.voting import IDEAL_VOTE, ONE_DRAW
from certus.storage.code import code_digest
from studies.reproduction import Extent, Part, Picture, Reproduction
from studies.smoothing_page import draw_bounds, smoothing_statements, smoothing_text
from studies.smoothing_rivals import clopper_bounds, majorant_bounds
from studies.workshop import Workshop

_DISTANCES = (0.02, 0.03, 0.05, 0.1, 0.2, 0.32, 0.5)
_FAILURE = 0.05
_BALLOTS = {"error": ONE_DRAW, "ideal vote": IDEAL_VOTE}
_PROBED = 40  # samples that the speed of predictions is measured with


@dataclass(frozen=True)
class _Entry:
    """A network that is trained in noise by ERM, with Adam.

    Attributes:
        samples: test rows, at random; calibration: others that choose the plan.
        read: test rows of the deterministic bracket.
    """

    data: str
    model: str
    epochs: int
    learning_rate: float
    samples: int
    calibration: int
    read: int
    schedule: str = "constant"
    sigma: float = 0.25
    draws: int = 100
    seed: int = 0


_WHOLE = (
    _Entry("digits", "mlp:256,256:relu", 60, 0.001, samples=359, calibration=359, read=359),
    _Entry("mnist", "mlp:256,256:relu", 3, 0.001, samples=10_000, calibration=ENOUGH, read=500),
    _Entry(
        "cifar10", "resnet:16,32,64", 8, 0.004, samples=1_000, calibration=250, read=20, schedule="cosine"
    ),
)
_QUICK = (_Entry("digits", "mlp:256,256:relu", 5, 0.001, samples=100, calibration=100, read=20, draws=20),)


def _network(workshop: Workshop, entry: _Entry) -> TrainedRun:
    settings = Settings(
        data=entry.data,
        model=entry.model,
        method="erm",
        noise=entry.sigma,
        epochs=entry.epochs,
        learning_rate=entry.learning_rate,
        schedule=entry.schedule,
        seed=entry.seed,
    )
    return workshop.network(settings)


def _measure_noisy(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The three bounds at every distance, for both kinds, and what ours cost."""
    entry = _Entry(**settings)
    trained = _network(workshop, entry)
    model, noise = Predictor.of(trained.loss.model), Noise(entry.sigma, SquaredL2())
    chosen = {
        part: Subset.of(split, f"{entry.data}@{part}", count, seed=entry.seed, stratify=False)
        for part, split, count in (
            ("calibration", trained.data.calibration, entry.calibration),
            ("test", trained.data.test, entry.samples),
        )
    }

    def ask(data: Split, stream: int) -> Observed:
        return observe(model, data, noise, copies=entry.draws, seed=entry.seed, stream=stream)

    probed = chosen["test"].data[:_PROBED]
    began = time.process_time()
    ask(probed, CERTIFIED)
    speed = entry.draws * len(probed) / (time.process_time() - began)
    before = ask(chosen["calibration"].data, CALIBRATION).errors
    seen = ask(chosen["test"].data, CERTIFIED).errors
    assert before is not None
    assert seen is not None
    rows, planning = _bounds(before, seen, entry)
    predictions = entry.draws * sum(len(part.data) for part in chosen.values())
    numbers = probed.inputs[0].numel()
    return {
        **asdict(entry),
        "parameters": sum(one.numel() for one in trained.loss.model.parameters()),
        "seconds of training": round(_seconds(trained.run.path), 1),
        "rows": {part: one.as_json() for part, one in chosen.items()},
        "code digest": code_digest(),
        "mean error in noise": float((seen / entry.draws).mean()),
        "bounds": rows,
        "predictions": predictions,
        "predictions per second": round(speed),
        "megabytes of noisy copies": round(4 * min(16_384, 2**24 // numbers) * numbers / 2**20, 1),
        "seconds of planning": round(planning, 2),
        "share of planning": round(planning / (planning + predictions / speed), 4),
    }


def _bounds(before: Tensor, seen: Tensor, entry: _Entry) -> tuple[list[dict[str, Any]], float]:
    """Every kind at every distance, and the processor's seconds that our plans took.

    Args:
        before, seen: (n,) errors among the draws of each calibration sample, and of each test sample.
    """
    rhos, rows, planning = [one**2 for one in _DISTANCES], [], 0.0
    order, draws, sigma = random_order(len(seen), entry.seed), entry.draws, entry.sigma
    for kind, ballot in _BALLOTS.items():
        began = time.process_time()
        errors = before.double().numpy()
        stakes = make_plan(ballot, errors, draws, rhos, sigma, samples=len(seen), failure=_FAILURE)
        planning += time.process_time() - began
        found = {
            "ours": upper_means(stakes, Observed(None, seen, None), order, _FAILURE),
            "clopper": clopper_bounds(stakes, ballot, before, seen[order], draws, sigma, _FAILURE),
            "affine": majorant_bounds(ballot, seen[order], draws, sigma, _FAILURE),
        }
        for distance, rho in zip(_DISTANCES, rhos, strict=True):
            highs = {
                name: min(1.0, *(gamma * rho + mean for gamma, mean in one.items()))
                for name, one in found.items()
            }
            rows.append({"kind": kind, "distance": distance, **highs})
    return rows, planning


def _measure_plain(workshop: Workshop, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The bracket of the network itself, without noise: its population's error, with the same confidence."""
    entry = _Entry(**settings)
    asked = CertifySettings(
        rho=tuple(one**2 for one in _DISTANCES),
        confidence=1 - _FAILURE,
        samples=entry.read,
        seed=entry.seed,
        balls=0,
        refine=0,
        attack_steps=2,
    )
    began = time.process_time()
    found = certify_run(_network(workshop, entry), asked)
    brackets = [found.bracket(rho) for rho in asked.rho]
    names = ("distance", "error_low", "error_high", "population_error_low", "population_error")
    return {
        "rows": found.about["rows"],
        "seconds": round(time.process_time() - began, 1),
        "brackets": [{name: getattr(one, name) for name in names} for one in brackets],
    }


def _seconds(run: Path) -> float:
    """The epochs of a training, by the wall clock."""
    lines = (run / METRICS).read_text().splitlines()
    return float(sum(json.loads(line)["seconds"] for line in lines))


def _parts(extent: Extent) -> list[Part]:
    return [
        Part(
            f"{entry.data}-{name}",
            asdict(entry),
            measure,
            effort=entry.epochs * effort,
            data=() if entry.data == "digits" else (entry.data,),
        )
        for entry in (_QUICK if extent is Extent.QUICK else _WHOLE)
        for name, measure, effort in (("noisy", _measure_noisy, 1.0), ("plain", _measure_plain, 0.1))
    ]


REPRODUCTION = Reproduction(
    name="smoothing",
    title="Certificates by smoothing, beside two rivals",
    shows=(),
    minutes={Extent.QUICK: 0.3, Extent.PAPER: 35},
    parts=_parts,
    pictures=(Picture("bounds", "Upper bounds on the mean error, by the distance.", draw_bounds),),
    statements=smoothing_statements,
    text=smoothing_text,
    smaller={Extent.QUICK: "Digits alone, 5 epochs instead of 60, 20 noisy copies of 100 images."},
    beyond=True,
)
