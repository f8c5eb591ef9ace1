"""What robust training costs beside ERM (sec:intro): the paper's "5–10 times", its own schedule, and ours.

All methods start from the same weights, see the same batches and take turns step by step on one thread, timed
by the processor's clock: other work on the machine disturbs neighbours alike. The first steps warm up and are
not counted. Each step costs one gradient in the weights; the gradients in the inputs are counted beside it.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import torch

from certus.attacks.projected_gradient_descent import FGM, PGM
from certus.data import choose_rows
from certus.datasets import load
from certus.inner import WRM, PaperAscent
from certus.inner.methods import ERM, Method
from certus.losses import CrossEntropy, ModelLoss
from certus.models.networks import mnist_cnn
from studies.mnist.networks import MEAN_LENGTH, SMALL_BUDGET
from studies.page import markdown_table
from studies.strictness import SAME_FACTOR, outcome_of_number
from studies.study import Measured, Outcome, Part, Quantity, Scale, Study, Verdict
from studies.workspace import Workspace

_REACH = 0.06 * MEAN_LENGTH  # about √ρ̂ of that WRM
_ALIKE = SAME_FACTOR  # times as long, or as short
_TIMED = {
    "erm": "ERM",
    "fgm": "FGM",
    "pgm": "PGM, 15 steps",
    "paper": "WRM, the paper's 15 steps",
    "wrm": "WRM, ours",
}


def _methods() -> dict[str, tuple[Method, float | None]]:
    """Return each method with its gradients in the inputs; None if they are counted sample by sample."""
    return {
        "erm": (ERM(), 0.0),
        "fgm": (FGM(_REACH, 2.0), 1.0),
        "pgm": (PGM(_REACH, 2.0), 15.0),
        "paper": (WRM(SMALL_BUDGET, maximizer=PaperAscent(15)), None),
        "wrm": (WRM(SMALL_BUDGET), None),
    }


def _measure(workspace: Workspace, settings: Mapping[str, Any]) -> dict[str, Any]:
    batch, steps, warm = settings["batch"], settings["steps"], settings["warm"]
    train = load("mnist").train
    train = train[choose_rows(len(train), batch * (steps + warm), settings["seed"])]
    with torch.random.fork_rng():
        torch.manual_seed(settings["seed"])
        first = mnist_cnn()
    methods, losses, optimizers = _methods(), {}, {}
    for name in methods:
        losses[name] = ModelLoss(copy.deepcopy(first), CrossEntropy())
        optimizers[name] = torch.optim.Adam(losses[name].model.parameters(), lr=1e-3)
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    gradients: dict[str, list[float]] = {name: [] for name in methods}
    for step in range(steps + warm):
        part = train[step * batch : (step + 1) * batch]
        for name, (method, fixed) in methods.items():
            began, loss = time.process_time(), losses[name]
            solution = method.perturb(loss, part.inputs, part.targets)
            loss(solution.inputs, part.targets).mean().backward()
            optimizers[name].step()
            optimizers[name].zero_grad()
            seconds[name].append(time.process_time() - began)
            gradients[name].append(
                float(solution.measured["gradients"].double().mean()) if fixed is None else fixed
            )
    return {
        name: {"seconds": fmean(seconds[name][warm:]), "gradients": fmean(gradients[name][warm:])}
        for name in methods
    }


def _parts(scale: Scale) -> list[Part]:
    quick = scale is Scale.QUICK
    seeds = range(1 if quick else 3)
    size = {"batch": 64, "steps": 6, "warm": 2} if quick else {"batch": 256, "steps": 60, "warm": 10}
    return [Part(f"seed-{seed}", {"seed": seed, **size}, _measure, effort=10.0) for seed in seeds]


def _ratio(measured: Measured, name: str) -> float:
    return fmean(result[name]["seconds"] / result["erm"]["seconds"] for result in measured.values())


def _gradients(measured: Measured, name: str) -> float:
    return fmean(result[name]["gradients"] for result in measured.values())


def _verdicts(measured: Measured) -> list[Verdict]:
    ratios = {name: _ratio(measured, name) for name in ("paper", "wrm", "pgm", "fgm")}
    alike = [1 / _ALIKE <= ratios["paper"] / ratios[name] <= _ALIKE for name in ("pgm", "fgm")]
    return [
        Verdict(
            name="runtime",
            label="sec:intro",
            claim="Robust training takes 5–10 times as long as ERM.",
            rule="with the paper's 15 steps, between 5 and 10 times the processor time of ERM, or within a "
            "factor of 1.25 of that; *partly*: of 2",
            outcome=outcome_of_number(ratios["paper"], min(max(ratios["paper"], 5.0), 10.0)),
            ours={
                "times ERM": Quantity(ratios["paper"], places=1),
                "gradients of a sample": Quantity(_gradients(measured, "paper"), places=0),
            },
            paper={"times ERM, at least": 5, "at most": 10},
        ),
        Verdict(
            name="our ascent",
            label="sec:intro",
            claim="Nothing is said of a faster ascent.",
            rule="",
            outcome=Outcome.NOT_COMPARABLE,
            ours={
                "times ERM": Quantity(ratios["wrm"], places=1),
                "gradients of a sample": Quantity(_gradients(measured, "wrm"), places=1),
            },
        ),
        Verdict(
            name="other methods",
            label="sec:intro",
            claim="That is as long as other adversarial methods take: FGM, IFGM, PGM.",
            rule=f"WRM's time within a factor {_ALIKE:g} of PGM's and of FGM's; *partly*: of one of them",
            outcome=Outcome.YES if all(alike) else Outcome.PARTLY if any(alike) else Outcome.NO,
            ours={
                f"{name}, times ERM": Quantity(ratios[key], places=1)
                for name, key in (("WRM", "paper"), ("PGM of 15 steps", "pgm"), ("FGM", "fgm"))
            },
        ),
    ]


def _text(measured: Measured) -> str:
    rows = [
        [
            words,
            f"{_gradients(measured, name):.2f}",
            f"{1000 * fmean(result[name]['seconds'] for result in measured.values()):.0f}",
            f"{_ratio(measured, name):.2f}",
        ]
        for name, words in _TIMED.items()
    ]
    head = ["method", "gradients in the inputs, per sample", "processor ms per step", "times ERM"]
    return markdown_table(head, rows)


STUDY = Study(
    name="cost",
    title="What robust training costs beside ERM",
    labels=("sec:intro",),
    minutes={Scale.QUICK: 0.2, Scale.FULL: 15},
    parts=_parts,
    pictures=(),
    verdicts=_verdicts,
    text=_text,
    scope={
        Scale.QUICK: "6 steps of 64 images, one seed.",
        Scale.FULL: "Steps 11 to 70 of 256 images, early in training when inner problems are hardest; "
        "three seeds.",
    },
    datasets=("mnist",),
)
