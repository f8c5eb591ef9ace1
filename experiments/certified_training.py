"""All three of the paper's wishes at once: γ above a proven bound, low clean error, robustness beyond ERM
(section:three-choose-two).

    pip install --no-deps torchattacks                  # for AutoAttack
    certus data get mnist && certus data get fashion-mnist
    python -m experiments.certified_training            # many hours, then the page
    python -m experiments.certified_training --resume   # go on after an interruption
    python -m experiments.certified_training --page     # the page again, from the runs

Four trainings on each data set, all with the same network and steps: WRM and ERM with certified training at
γ = 1.5, and both without the constraint; and a longer one on MNIST, with warped images. Settings were chosen
on the calibration split of seed 0; the seeds here are others.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import torchattacks

import certus
from benchmarks._options import RESUME, RUNS, Shows, perform, read_options
from benchmarks._results import unfinished_options, write_unfinished
from certus.attacks import Margin, Outcome, Torchattacks, attack_data, pgm, worst_of
from certus.certificates.kept import FileMemory
from certus.certificates.proven.knapsack import worst_error
from certus.data import Split
from certus.domains import Unbounded
from certus.errors import require
from certus.losses import CrossEntropy, ModelLoss
from certus.runs.directory import RunDirectory
from certus.runs.trained import TrainedRun, open_trained
from certus.storage.tensors import digest
from certus.storage.writing import write_atomically
from certus.training import evaluate
from experiments._certified_page import write_page

DATA = ("mnist", "fashion-mnist")


@dataclass(frozen=True)
class Plan:
    """One row of the table: options of ``certus train``, and where it is run."""

    options: tuple[str, ...]
    epochs: int = 10
    data: tuple[str, ...] = DATA
    model: str = "certified-mlp:1024:logcosh:100"


WRM = ("--method", "wrm", "--no-clip")
CERTIFIED = ("--certified", "--gamma", "1.5", "--temperature")
METHODS = {
    "wrm-certified": Plan((*WRM, *CERTIFIED, "0.7")),
    "erm-certified": Plan(("--method", "erm", *CERTIFIED, "0.7")),
    "wrm": Plan((*WRM, "--gamma", "1.5")),
    "erm": Plan(("--method", "erm")),
    "wrm-certified-long": Plan((*WRM, *CERTIFIED, "0.53", "--warp", "0.1"), epochs=100, data=("mnist",)),
}


FIRST = {("mnist", "wrm-certified"), ("mnist", "erm-certified")}


@dataclass(frozen=True)
class Args:
    batch_size: Annotated[int, "images of one step"] = 512
    learning_rate: Annotated[float, "of Adam in the first epoch; a cosine leads to 0"] = 0.01
    jitter: Annotated[int, "pixels by which training images are moved at random"] = 1
    seeds: Annotated[tuple[int, ...], "of every training"] = (1, 2, 3)
    epsilons: Annotated[tuple[float, ...], "how far PGM moves, in the sup-norm"] = (0.05, 0.10)
    rhos: Annotated[tuple[float, ...], "of the certificates"] = (0.001, 0.01, 0.1)
    strongly_attacked: Annotated[int, "test images for the stronger attacks"] = 500
    certified: Annotated[int, "test images for the certificates"] = 500
    resume: Annotated[bool, RESUME] = False
    page: Annotated[bool, "write the page from the runs, and measure nothing", Shows()] = False
    runs: Annotated[Path, RUNS] = Path("runs/certified-training")
    output: Annotated[Path, "the folder for the page, its table and its pictures"] = Path(
        "results/certified-training"
    )


def main(args: Args) -> None:
    """Trainings and quick measurements first; then, for all of them, strong attacks and certificates."""
    write_unfinished(args, {})
    for quick in (True, False):
        for path, (data, name, seed) in planned(args).items():
            train(path, data, METHODS[name], seed, args)
            measure(path, args, quick)
            write_page(args.runs, args.runs / "page", unfinished_options(args))  # of what is there
    page(args)


def page(args: Args) -> None:
    """The page of all runs; it never replaces a complete one by that of some."""
    missing = [path.name for path in planned(args) if "certificate" not in _measured(path)]
    require(not missing, "runs", "be complete for the page", f"{args.runs} without {', '.join(missing)}")
    write_page(args.runs, args.output, unfinished_options(args))


def planned(args: Args) -> dict[Path, tuple[str, str, int]]:
    """Run directory → data, method and seed, in the order in which they are run."""
    jobs = [
        (data, name, seed)
        for data in DATA
        for name, plan in METHODS.items()
        for seed in args.seeds
        if data in plan.data
    ]
    # MNIST under the constraint, then one seed of everything else, then the other seeds; the long ones last.
    jobs.sort(key=lambda job: (METHODS[job[1]].epochs, 0 if job[:2] in FIRST else job[2]))
    return {args.runs / f"{data}-{name}-{seed}": (data, name, seed) for data, name, seed in jobs}


def train(path: Path, data: str, plan: Plan, seed: int, args: Args) -> None:
    """``certus train`` or ``certus resume``, unless it is complete."""
    if (path / "result.json").exists():
        return
    if (path / "run.json").exists():
        command = ["resume", str(path)]
    else:
        command = ["train", data, *plan.options, "--model", plan.model, "-o", str(path)]
        command += ["--epochs", str(plan.epochs), "--batch-size", str(args.batch_size), "--seed", str(seed)]
        command += ["--lr", str(args.learning_rate), "--schedule", "cosine", "--jitter", str(args.jitter)]
    subprocess.run([sys.executable, "-m", "certus", *command], check=True)


def measure(path: Path, args: Args, quick: bool) -> None:
    """What the table shows of one network, number by number, into ``measured.json`` beside it."""
    file, found = path / "measured.json", _measured(path)
    trials = [Trial(epsilon, clipped) for clipped in (True, False) for epsilon in args.epsilons]
    jobs: list[tuple[str, str, Callable[[TrainedRun], Any]]] = [("bound", "", bound), ("clean", "", clean)]
    jobs += [("pgm", trial.name, partial(weak, trial=trial)) for trial in trials]
    if not quick:
        count = args.strongly_attacked
        jobs += [("strong", trial.name, partial(strong, trial=trial, count=count)) for trial in trials]
        jobs += [("same", trial.name, partial(weak, trial=trial, count=count)) for trial in trials]
        if path.name.endswith(f"-{args.seeds[0]}"):
            clipped = [trial for trial in trials if trial.clipped]
            jobs += [("auto", trial.name, partial(auto, trial=trial, count=count)) for trial in clipped]
        if "wrm" in path.name or "certified" in path.name:  # ERM by itself is left out
            jobs.append(("certified", "", partial(certified_error, args=args)))
        jobs.append(("certificate", "", partial(certificate, args=args)))
    missing = [job for job in jobs if job[0] not in found or (job[1] and job[1] not in found[job[0]])]
    if not missing:
        return
    trained = open_trained(RunDirectory.open(path))
    for kind, name, measured in missing:
        value = measured(trained)
        if name:
            found.setdefault(kind, {})[name] = value
        else:
            found[kind] = value
        write_atomically(file, f"{json.dumps(found, indent=1)}\n".encode())
        print(f"{path.name} {kind} {name}: {json.dumps(value)}", flush=True)


def _measured(path: Path) -> dict[str, Any]:
    file = path / "measured.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


@dataclass(frozen=True)
class Trial:
    """PGM-∞ of one strength, with images kept in [0, 1] or not."""

    epsilon: float
    clipped: bool

    @property
    def name(self) -> str:
        return f"{'clipped' if self.clipped else 'unclipped'} {self.epsilon:.2f}"

    def run(
        self, trained: TrainedRun, loss: ModelLoss, data: Split, steps: int, step: float, starts: int
    ) -> Outcome:
        domain = trained.data.domain if self.clipped else Unbounded()
        attack = pgm(self.epsilon, math.inf, steps=steps, step_size=step, domain=domain, restarts=starts)
        return attack_data(loss, data, attack, batch_size=500)


def plain(trained: TrainedRun) -> ModelLoss:
    """Cross-entropy, whatever the network was trained with."""
    return ModelLoss(trained.loss.model, CrossEntropy())


def bound(trained: TrainedRun) -> dict[str, float | None]:
    """L̄ of cross-entropy, proven, by the best rule and as the paper prints it."""
    shape = tuple(trained.data.test.inputs.shape[1:])
    found = certus.input_smoothness(trained.loss.model, input_shape=shape)
    return {"curvature": found.curvature, "paper": found.bounds["paper"]}


def clean(trained: TrainedRun) -> dict[str, float]:
    found = evaluate(plain(trained), trained.data.test)
    return {"error": 1 - found["accuracy"], "loss": found["loss"]}


def weak(trained: TrainedRun, trial: Trial, count: int | None = None) -> float:
    """On all test images, or some: 15 steps of ε/4, as the paper has it, from a random start."""
    data = trained.data.test if count is None else some(trained.data.test, count)
    return error_of(trial.run(trained, plain(trained), data, 15, trial.epsilon / 4, 1))


def strong(trained: TrainedRun, trial: Trial, count: int) -> float:
    """The worst of cross-entropy and margin, 40 steps, two random starts each, on some test images."""
    losses = [plain(trained), ModelLoss(trained.loss.model, Margin())]
    data = some(trained.data.test, count)
    return error_of(worst_of([trial.run(trained, loss, data, 40, trial.epsilon / 16, 2) for loss in losses]))


def auto(trained: TrainedRun, trial: Trial, count: int) -> float:
    """AutoAttack (APGD, targeted APGD and FAB, Square) on the same images; it always clips."""
    attack = Torchattacks(partial(torchattacks.AutoAttack, norm="Linf", eps=trial.epsilon, seed=0))
    return error_of(attack_data(plain(trained), some(trained.data.test, count), attack, batch_size=count))


def some(data: Split, count: int) -> Split:
    """So many samples, evenly spaced: the first half of MNIST's test images differs from the second."""
    return data[:: len(data) // count]


def error_of(outcome: Outcome) -> float:
    error = outcome.error()
    assert error is not None
    return error.value


def certified_error(trained: TrainedRun, args: Args) -> dict[str, float]:
    """The proven error rate at each ρ on all test images, a thousand at a time."""
    file, data = trained.run.path / "floors.json", trained.data.test
    floors: list[list[float]] = json.loads(file.read_text()) if file.exists() else []
    for first in range(1_000 * len(floors), len(data), 1_000):
        part = data[first : first + 1_000]
        found = certus.certify(
            *(trained.loss.model, part), rho=args.rhos, gammas=[4.0], balls=0, refine=0, attack_steps=0
        )
        assert found.error_floor is not None
        floors.append(found.error_floor.tolist())
        write_atomically(file, json.dumps(floors).encode())
    costs = torch.tensor([cost for part in floors for cost in part], dtype=torch.float64)
    file.unlink()
    return dict(zip(map(str, args.rhos), worst_error(costs, args.rhos), strict=True))


def certificate(trained: TrainedRun, args: Args) -> list[dict[str, float | None]]:
    """Attained and proven loss and error at each ρ, on some test images, in all of space."""
    data = some(trained.data.test, args.certified)
    samples = {"inputs": data.inputs, "targets": data.targets}
    question = [args.rhos, digest(dict(trained.loss.model.state_dict())), digest(samples)]
    memory = FileMemory(trained.run.path / "unfinished", question)
    found = certus.certify(
        *(trained.loss.model, data), rho=args.rhos, balls=0, refine=0, attack_steps=5, memory=memory
    )
    memory.forget()
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
    chosen = read_options(Args, __doc__)
    perform(page if chosen.page else main, chosen)
