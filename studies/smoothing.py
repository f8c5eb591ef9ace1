"""Certificates by smoothing of digits, MNIST and CIFAR-10, beside two rivals and the deterministic bracket.

The rivals see the same predictions, and each is as strong as it goes:

clopper   per-sample Clopper–Pearson bounds at a level α, F at the bound, plus α, one bet for each γ; α is the
          best on the calibration samples for each γ (after Cohen, Rosenfeld and Kolter)
affine    the least concave majorant of F at a bet on the mean error alone, so that no union over γ is needed
          and every γ is tried (after Kumar, Levine, Goldstein and Feizi)

Upper bounds on the mean error of a noisy network, and on that of its ideal vote, within √ρ of the population,
with confidence 0.95 for each number by itself: ours, and the two of ``smoothing_rivals``, on the same
predictions. The deterministic bracket is that of the network without noise, with the same confidence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, from_numpy

from certus._format import at_least, at_most
from certus.certificates.confidence import betting, clopper_pearson
from certus.costs import SquaredL2
from certus.data import Samples, Subset, random_order
from certus.display.figures import Curve, Panel, sweep_figure
from certus.kernel.binomial import Floats, normal_cdf
from certus.kernel.evidence import Evidence
from certus.kernel.smoothing import GammaDesign, VotingRule
from certus.runs.certification import certify_run
from certus.runs.loaded_run import LoadedRun
from certus.runs.records import METRICS
from certus.runs.settings import CertifySettings, Settings
from certus.smoothing._certify import ENOUGH
from certus.smoothing.design import make_design, neyman_pearson_bound, upper_means
from certus.smoothing.predictors import Predictor
from certus.smoothing.sampling import CALIBRATION, CERTIFIED, Noise, NoisyPredictions, predict_noisy
from certus.smoothing.voting import IDEAL_VOTE, ONE_DRAW
from certus.storage.files import code_digest
from studies.page import markdown_table
from studies.study import Measured, Part, Picture, Quantity, Scale, Study, Verdict, outcome_of_several
from studies.workspace import Workspace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RIVAL_LEVELS = (0.0003, 0.001, 0.003, 0.01, 0.03)


def clopper_bounds(
    designs: list[GammaDesign],
    rule: VotingRule,
    before: Tensor,
    seen: Tensor,
    draws: int,
    sigma: float,
    failure: float,
) -> dict[float, float]:
    """Return γ → a bound on E F from per-sample bounds on h: F ≤ F(h̄) but with probability α, and F ≤ 1 then.

    Args:
        before, seen: errors of calibration samples, and of (n,) others in the order of the bet.
    """
    tops = {
        level: np.array([1 - clopper_pearson(draws - k, draws, level) for k in range(draws + 1)])
        for level in RIVAL_LEVELS
    }
    bounds, errors_before = {}, before.numpy()
    for design in designs:
        envelope = neyman_pearson_bound(rule, design.gamma * sigma**2)
        grid = normal_cdf(envelope.scores)
        # At the next point of the grid, so that it is a bound between points too.
        values = {
            level: np.append(envelope.values, 1.0)[np.searchsorted(grid, top)] for level, top in tops.items()
        }
        level = min(RIVAL_LEVELS, key=lambda share: values[share][errors_before].mean() + share)
        bounds[design.gamma] = betting(from_numpy(values[level])[seen], 1.0, failure / len(designs)) + level
    return bounds


def majorant_bounds(
    rule: VotingRule, seen: Tensor, draws: int, sigma: float, failure: float
) -> dict[float, float]:
    """Return γ → the least concave majorant of F at a bound on the mean of h: all hold at once."""
    mean = betting(seen / draws, 1.0, failure)
    bounds = {}
    for kappa in np.geomspace(1e-2, 1e2, 60).tolist():
        envelope = neyman_pearson_bound(rule, kappa)
        bounds[kappa / sigma**2] = _majorant(normal_cdf(envelope.scores), envelope.values, mean)
    return bounds


def _majorant(points: Floats, values: Floats, at: float) -> float:
    """Evaluate the least concave function above (points, values) and (1, 1) at one place."""
    hull: list[tuple[float, float]] = []
    for point, value in zip([*points.tolist(), 1.0], [*values.tolist(), 1.0], strict=True):
        while len(hull) >= 2 and _below(hull[-2], hull[-1], (point, value)):
            hull.pop()
        hull.append((point, value))
    corners = np.array(hull)
    return float(np.interp(at, corners[:, 0], corners[:, 1]))


def _below(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    """Return whether the middle point does not lie above the chord of the others."""
    return (middle[1] - first[1]) * (last[0] - first[0]) <= (last[1] - first[1]) * (middle[0] - first[0])


_NAMES = {
    "ours": "ours",
    "clopper": "Clopper–Pearson per sample",
    "affine": "concave majorant of the mean",
}
_HEAD = """\
Upper bounds on the error rate under Gaussian noise of σ = {sigma:g}, over all distributions within √ρ of the
population of the test images, for networks that were trained with this noise. All bounds of one network rest
on the same {draws} predictions of each image, and each number has the confidence 0.95 by itself ([what is
certified, and why](../../docs/smoothing.md)). The smallest of the three is in bold. The last row is about the
network without noise: at least (attained) – at most (proven), for the population, with the same
confidence."""


def _entries(measured: Measured) -> dict[str, dict[str, Any]]:
    """Return data → the measurements with noise, and without."""
    entries: dict[str, dict[str, Any]] = {}
    for part, content in measured.items():
        name, _, kind = part.rpartition("-")
        entries.setdefault(name, {})[kind] = content
    return entries


def smoothing_text(measured: Measured) -> str:
    """Return the page's sections, one for each network."""
    entries = _entries(measured)
    about = next(iter(entries.values()))["noisy"]
    return "\n\n".join([_HEAD.format(**about), *(_section(name, entry) for name, entry in entries.items())])


def smoothing_verdicts(measured: Measured) -> list[Verdict]:
    """Judge whether our bound is the least of the three."""
    verdicts = []
    for name, entry in _entries(measured).items():
        bounds = entry["noisy"]["bounds"]
        least = [row["ours"] < min(row["clopper"], row["affine"]) for row in bounds if row["ours"] < 1]
        far = next(row for row in bounds if row["distance"] == 0.2)
        verdicts.append(
            Verdict(
                name=name,
                label="",
                claim=f"{name}: is our bound below those of two rivals, on the same predictions?",
                rule="wherever it is below 1; *partly*: in some of these cells",
                outcome=outcome_of_several(least),
                ours={
                    "cells below 1": Quantity(len(least), places=0),
                    "least in": Quantity(sum(least), places=0),
                    **{
                        f"{words}, √ρ = 0.2": Quantity(far[which], places=3, side="at most")
                        for which, words in _NAMES.items()
                    },
                },
                evidence=Evidence.STATED,  # the rivals do not go through the kernel
            )
        )
    return verdicts


def draw_bounds(measured: Measured) -> Figure:
    """Draw a panel for each network."""
    panels = [_panel(name, entry) for name, entry in _entries(measured).items()]
    return sweep_figure(panels, "Mean error in noise, at most, with confidence 0.95 each")


def _section(name: str, entry: Mapping[str, Any]) -> str:
    noisy = entry["noisy"]
    words = (
        f"`{noisy['model']}`, {noisy['parameters']:,} weights, {noisy['epochs']} epochs "
        f"({noisy['seconds of training'] / 60:.1f} minutes of wall time, on one shared core). "
        f"Mean error under noise, on {noisy['rows']['test']['words']}: {noisy['mean error in noise']:.3f}. "
        f"The design was chosen on {noisy['rows']['calibration']['words']}."
    )
    table = []
    for kind in dict.fromkeys(row["kind"] for row in noisy["bounds"]):
        rows = [row for row in noisy["bounds"] if row["kind"] == kind]
        table += [[f"{kind}: {words}", *_cells(rows, which)] for which, words in _NAMES.items()]
    if "plain" in entry:
        table.append(_plain(entry["plain"]))
    distances = dict.fromkeys(row["distance"] for row in noisy["bounds"])
    bounds_table = markdown_table(["within √ρ =", *(f"{distance:g}" for distance in distances)], table)
    return "\n\n".join([f"## {name}", words, bounds_table, _summary(noisy)])


def _cells(rows: Sequence[Mapping[str, Any]], which: str) -> list[str]:
    cells = []
    for row in rows:
        high = at_most(row[which], 3)
        least = row[which] < 1 and row[which] <= min(row[other] for other in _NAMES)
        cells.append(f"**{high}**" if least else high)
    return cells


def _plain(plain: Mapping[str, Any]) -> list[str]:
    """Return the row of the network without noise."""
    cells = []
    for bracket in plain["brackets"]:
        vacuous = " (vacuous)" if bracket["population_error"] >= 1 else ""
        low, high = at_least(bracket["population_error_low"], 3), at_most(bracket["population_error"], 3)
        cells.append(f"{low} – {high}{vacuous}")
    return [f"without noise, by its layers ({plain['rows']['words']})", *cells]


def _summary(noisy: Mapping[str, Any]) -> str:
    return (
        f"{noisy['predictions per second']:,} predictions per second of processor time, with at most "
        f"{noisy['megabytes of noisy copies']:g} MB of noisy copies at once; the design took "
        f"{noisy['seconds of planning']:g} s, {noisy['share of planning']:.1%} of the total time."
    )


def _panel(name: str, entry: Mapping[str, Any]) -> Panel:
    rows = [row for row in entry["noisy"]["bounds"] if row["kind"] == "error"]
    places = [row["distance"] for row in rows]
    curves = {}
    for which, words in _NAMES.items():
        values = [row[which] for row in rows]
        curves[words] = Curve(places, values, values, values)
    if plain := entry.get("plain"):
        low = [bracket["population_error_low"] for bracket in plain["brackets"]]
        high = [bracket["population_error"] for bracket in plain["brackets"]]
        curves["without noise: at least to at most"] = Curve(places, high, low, high)
    return Panel(name, "√ρ, in pixels from black to white", "mean error, at most", curves)


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


def _network(workspace: Workspace, entry: _Entry) -> LoadedRun:
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
    return workspace.network(settings)


def _measure_noisy(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the three bounds at every distance, for both kinds, and the cost of ours."""
    entry = _Entry(**settings)
    trained = _network(workspace, entry)
    model, noise = Predictor.of(trained.loss.model), Noise(entry.sigma, SquaredL2())
    chosen = {
        part: Subset.of(split, f"{entry.data}@{part}", count, seed=entry.seed, stratify=False)
        for part, split, count in (
            ("calibration", trained.data.calibration, entry.calibration),
            ("test", trained.data.test, entry.samples),
        )
    }

    def ask(data: Samples, stream: int) -> NoisyPredictions:
        return predict_noisy(model, data, noise, copies=entry.draws, seed=entry.seed, stream=stream)

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
        "parameters": sum(parameter.numel() for parameter in trained.loss.model.parameters()),
        "seconds of training": round(_seconds(trained.run.path), 1),
        "rows": {part: subset.as_json() for part, subset in chosen.items()},
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
    """Return every kind of bound at every distance, and the processor's seconds of planning.

    Args:
        before, seen: (n,) errors among the draws of each calibration sample, and of each test sample.
    """
    rhos, rows, planning = [distance**2 for distance in _DISTANCES], [], 0.0
    order, draws, sigma = random_order(len(seen), entry.seed), entry.draws, entry.sigma
    for kind, rule in _BALLOTS.items():
        began = time.process_time()
        errors = before.double().numpy()
        designs = make_design(rule, errors, draws, rhos, sigma, samples=len(seen), failure=_FAILURE)
        planning += time.process_time() - began
        bounds = {
            "ours": upper_means(designs, seen, order, _FAILURE),
            "clopper": clopper_bounds(designs, rule, before, seen[order], draws, sigma, _FAILURE),
            "affine": majorant_bounds(rule, seen[order], draws, sigma, _FAILURE),
        }
        for distance, rho in zip(_DISTANCES, rhos, strict=True):
            highs = {
                name: min(1.0, *(gamma * rho + mean for gamma, mean in means.items()))
                for name, means in bounds.items()
            }
            rows.append({"kind": kind, "distance": distance, **highs})
    return rows, planning


def _measure_plain(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the population's bracket of the network without noise, with the same confidence."""
    entry = _Entry(**settings)
    options = CertifySettings(
        rho=tuple(distance**2 for distance in _DISTANCES),
        confidence=1 - _FAILURE,
        samples=entry.read,
        seed=entry.seed,
        local_radii=0,
        gamma_rounds=0,
        attack_steps=2,
    )
    began = time.process_time()
    certificate = certify_run(_network(workspace, entry), options)
    brackets = [certificate.bracket(rho) for rho in options.rho]
    names = ("distance", "error_low", "error_high", "population_error_low", "population_error")
    return {
        "rows": certificate.about["rows"],
        "seconds": round(time.process_time() - began, 1),
        "brackets": [{name: getattr(bracket, name) for name in names} for bracket in brackets],
    }


def _seconds(run: Path) -> float:
    """Return the wall-clock seconds of a training's epochs."""
    lines = (run / METRICS).read_text().splitlines()
    return float(sum(json.loads(line)["seconds"] for line in lines))


def _parts(scale: Scale) -> list[Part]:
    return [
        Part(
            f"{entry.data}-{name}",
            asdict(entry),
            measure,
            effort=entry.epochs * effort,
            data=() if entry.data == "digits" else (entry.data,),
        )
        for entry in (_QUICK if scale is Scale.QUICK else _WHOLE)
        for name, measure, effort in (("noisy", _measure_noisy, 1.0), ("plain", _measure_plain, 0.1))
    ]


STUDY = Study(
    name="smoothing",
    title="Certificates by smoothing, beside two rivals",
    labels=(),
    minutes={Scale.QUICK: 0.3, Scale.FULL: 35},
    parts=_parts,
    pictures=(Picture("bounds", "Upper bounds on the mean error, by the distance.", draw_bounds),),
    verdicts=smoothing_verdicts,
    text=smoothing_text,
    scope={Scale.QUICK: "Digits alone, 5 epochs instead of 60, 20 noisy copies of 100 images."},
    beyond=True,
)
