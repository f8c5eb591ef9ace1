"""All three of the paper's wishes at once: γ above a proven bound, low clean error, robustness beyond ERM
(section:three-choose-two).

    certus data get mnist && certus data get fashion-mnist
    python -m experiments.certified_training            # everything that is missing, then the page
    python -m experiments.certified_training page       # the page from what is there

Four trainings on each data set, all with the same network and steps: WRM and ERM with certified training at
γ = 1.5, and both without the constraint. Settings were chosen on the calibration split of seed 0; the seeds
here are others, and test images are looked at once, at the end. What is done is kept: an interrupted run goes
on. Results: ``results/certified-training``.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import certus
from certus.attacks import Margin, attack_data, pgm, worst_of
from certus.data import Split
from certus.domains import Unbounded
from certus.losses import CrossEntropy, ModelLoss
from certus.runs.directory import RunDirectory
from certus.runs.trained import TrainedRun, open_trained
from certus.training import evaluate
from experiments.certified_page import write_page

METHODS = {
    "wrm-certified": ["--method", "wrm", "--certified", "--gamma", "1.5", "--temperature", "0.7"],
    "erm-certified": ["--method", "erm", "--certified", "--gamma", "1.5", "--temperature", "0.7"],
    "wrm": ["--method", "wrm", "--gamma", "1.5"],
    "erm": ["--method", "erm"],
}


@dataclass(frozen=True)
class Args:
    model: str = "certified-mlp:1024:logcosh:100"
    epochs: int = 10
    batch_size: int = 512
    learning_rate: float = 0.01
    shift: int = 1
    seeds: tuple[int, ...] = (1, 2, 3)
    data: tuple[str, ...] = ("mnist", "fashion-mnist")
    epsilons: tuple[float, ...] = (0.05, 0.10)
    rhos: tuple[float, ...] = (0.001, 0.01, 0.1)
    strongly_attacked: int = 1_000
    certified: int = 1_000
    runs: Path = Path("runs/certified-training")
    output: Path = Path("results/certified-training")


def main(args: Args) -> None:
    for data in args.data:
        for seed in args.seeds:
            for name in METHODS:
                path = args.runs / f"{data}-{name}-{seed}"
                train(path, data, METHODS[name], seed, args)
                measure(path, args)
                write_page(args.runs, args.output, list(METHODS))


def train(path: Path, data: str, options: list[str], seed: int, args: Args) -> None:
    """``certus train`` or ``certus resume``, unless it is complete."""
    if (path / "result.json").exists():
        return
    if (path / "run.json").exists():
        command = ["resume", str(path)]
    else:
        command = ["train", data, *options, "--model", args.model, "--no-clip", "-o", str(path)]
        command += ["--epochs", str(args.epochs), "--batch-size", str(args.batch_size), "--seed", str(seed)]
        command += ["--lr", str(args.learning_rate), "--schedule", "cosine", "--shift", str(args.shift)]
    subprocess.run([sys.executable, "-m", "certus", *command], check=True)


def measure(path: Path, args: Args) -> None:
    """Everything that the table shows of one network, a part at a time, into ``measured.json`` beside it."""
    file = path / "measured.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    parts: dict[str, Callable[[TrainedRun, Args], Any]] = {
        "bound": bound,
        "clean": clean,
        "pgm": weak,
        "strong": strong,
        "certificate": certificate,
    }
    missing = [name for name in parts if name not in found]
    if not missing:
        return
    trained = open_trained(RunDirectory.open(path))
    for name in missing:
        found[name] = parts[name](trained, args)
        file.write_text(json.dumps(found, indent=1) + "\n")
        print(f"{path.name} {name}: {json.dumps(found[name])}", flush=True)


def plain(trained: TrainedRun) -> ModelLoss:
    """Cross-entropy, whatever the network was trained with."""
    return ModelLoss(trained.loss.model, CrossEntropy())


def bound(trained: TrainedRun, args: Args) -> dict[str, float | None]:
    """L̄ of cross-entropy, proven, by the best rule and as the paper prints it."""
    shape = tuple(trained.data.test.inputs.shape[1:])
    found = certus.input_smoothness(trained.loss.model, input_shape=shape)
    return {"curvature": found.curvature, "paper": found.bounds["paper"]}


def clean(trained: TrainedRun, args: Args) -> dict[str, float]:
    found = evaluate(plain(trained), trained.data.test)
    return {"error": 1 - found["accuracy"], "loss": found["loss"]}


def weak(trained: TrainedRun, args: Args) -> dict[str, float]:
    """PGM-∞ on all test images: 15 steps of ε/4, as the paper has it, from a random start."""
    return {
        key: share_wrong(plain(trained), trained.data.test, trained, epsilon, clipped, 15, 1)
        for key, epsilon, clipped in trials(args)
    }


def strong(trained: TrainedRun, args: Args) -> dict[str, float]:
    """The worst of cross-entropy and margin, 40 steps, two random starts each, on the first test images."""
    data = trained.data.test[: args.strongly_attacked]
    return {
        key: share_wrong(plain(trained), data, trained, epsilon, clipped, 40, 2)
        for key, epsilon, clipped in trials(args)
    }


def trials(args: Args) -> list[tuple[str, float, bool]]:
    names = {True: "clipped", False: "unclipped"}
    return [(f"{names[kind]} {eps:.2f}", eps, kind) for kind in (True, False) for eps in args.epsilons]


def share_wrong(
    loss: ModelLoss,
    data: Split,
    trained: TrainedRun,
    epsilon: float,
    clipped: bool,
    steps: int,
    restarts: int,
) -> float:
    domain = trained.data.domain if clipped else Unbounded()
    step = epsilon / 4 if steps == 15 else 2.5 * epsilon / steps
    attack = pgm(epsilon, math.inf, steps=steps, step_size=step, domain=domain, restarts=restarts)
    outcomes = [attack_data(loss, data, attack, batch_size=500, seed=0)]
    if restarts > 1:
        outcomes.append(attack_data(ModelLoss(loss.model, Margin()), data, attack, batch_size=500, seed=1))
    error = worst_of(outcomes).error()
    assert error is not None
    return error.value


def certificate(trained: TrainedRun, args: Args) -> list[dict[str, float | None]]:
    """Attained and proven loss and error at each ρ, on the first test images, in all of space."""
    data = trained.data.test[: args.certified]
    found = certus.certify(trained.loss.model, data, rho=list(args.rhos), balls=0, refine=0, attack_steps=5)
    return [
        {
            "rho": bracket.rho,
            "error attacked": bracket.error_low,
            "error certified": bracket.error_high,
            "loss attacked": bracket.loss_low,
            "loss certified": bracket.loss_high,
        }
        for bracket in found.curve()
    ]


if __name__ == "__main__":
    if sys.argv[1:] == ["page"]:
        write_page(Args.runs, Args.output, list(METHODS))
    else:
        main(Args())
