"""Certified accuracy on MNIST at the distances of the literature (L2), beside the figures published there.

    certus data get mnist
    python -m experiments.certified_accuracy             # trains two networks, certifies all test images
    python -m experiments.certified_accuracy --resume    # go on after an interruption
    python -m experiments.certified_accuracy --page      # the page again, from the runs

One network for small distances and one for large ones, each of one hidden layer under certified training, on
images that two steps of PGM moved by about the distance of interest. Every test image has its own certified
radius and the distance of an error that was found; both are written down, and accuracies are counts of them.
Settings were chosen by ``experiments.accuracy_choice``, which sees no test image.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from benchmarks._options import RESUME, RUNS, Shows, perform, read_options
from benchmarks._results import how_measured, write_unfinished
from certus.certificates.attained.errors_found import errs
from certus.certificates.attained.search import costs_beyond
from certus.certificates.proven.problem import Problem
from certus.certificates.proven.radii import certified_radii
from certus.certificates.touching_points import touching_points
from certus.costs import SquaredL2
from certus.domains import Unbounded
from certus.errors import ContradictionError, require
from certus.losses import CrossEntropy
from certus.runs.directory import RunDirectory
from certus.runs.trained import TrainedRun, open_trained
from certus.split import Split
from experiments import certified_training
from experiments._accuracy_page import write_page
from experiments.certified_training import Plan, train

PORTION = 500


def plan(gamma: float, temperature: float, epsilon: float, margin: float = 0, epochs: int = 2) -> Plan:
    """Certified training at γ, on images that PGM moves by ε in L2."""
    far = f"{epsilon:g}"
    moves = f"--method pgm --norm 2 --epsilon {far} --steps 2 --step-size {far} --no-clip"
    options = f"--certified --gamma {gamma:g} --temperature {temperature:g} {moves}"
    options += f" --margin {margin:g}" if margin else ""
    return Plan(tuple(options.split()), epochs=epochs, data=("mnist",))


NETWORKS = {"near": plan(1.5, 0.3, 0.4, epochs=12), "far": plan(0.3, 0.3, 1.58, epochs=12)}


@dataclass(frozen=True)
class Args:
    epsilons: Annotated[tuple[float, ...], "distances, in L2"] = (0.3, 0.5, 1.0, 1.58)
    seed: Annotated[int, "of the networks; the settings were chosen with seed 0"] = 1
    resume: Annotated[bool, RESUME] = False
    page: Annotated[bool, "write the page from the runs, and measure nothing", Shows()] = False
    runs: Annotated[Path, RUNS] = Path("runs/certified-accuracy")
    output: Annotated[Path, "the folder for the page, its table and its picture"] = Path(
        "results/certified-accuracy"
    )


def main(args: Args) -> None:
    write_unfinished(args, {})
    for name, chosen in NETWORKS.items():
        path = args.runs / name
        train(path, "mnist", chosen, args.seed, certified_training.Args())
        trained = open_trained(RunDirectory.open(path))
        measure(path / "test.json", trained, trained.data.test)
    page(args)


def page(args: Args) -> None:
    """The page of both networks; it never replaces a complete one by that of some."""
    found = {}
    for name in NETWORKS:
        file = args.runs / name / "test.json"
        there = json.loads(file.read_text())["radius"] if file.exists() else []
        require(len(there) == 10_000, "runs", "be complete for the page", f"{len(there)} images of {name}")
        found[name] = json.loads(file.read_text())
    networks = {
        name: {
            "command": ["certus", "train", "mnist", *NETWORKS[name].options],
            "settings": json.loads((args.runs / name / "run.json").read_text())["settings"],
            **accuracies(each, args.epsilons),
            "curve": accuracies(each, [0.02 * step for step in range(126)])["within"],
        }
        for name, each in found.items()
    }
    write_page(args.output, {"measured": how_measured(args), "networks": networks})


def measure(file: Path, trained: TrainedRun, data: Split) -> dict[str, list[float]]:
    """Of every image the certified radius and the distance of an error that was found, portion by portion."""
    found: dict[str, list[float]] = {"radius": [], "found": []}
    if file.exists():
        found = json.loads(file.read_text())
    problem = Problem.of(trained.loss.model, data, CrossEntropy(), SquaredL2(), Unbounded())
    for first in range(len(found["radius"]), len(data), PORTION):
        radius, distance = distances(problem.select(slice(first, first + PORTION)))
        found["radius"] += radius.tolist()
        found["found"] += distance.tolist()
        file.write_text(json.dumps(found))
        print(f"{file}: {len(found['radius'])} of {len(data)}", flush=True)
    return found


def distances(problem: Problem) -> tuple[Tensor, Tensor]:
    """(n,) no error is nearer than this, and (n,) one was found at this distance, rounded up; 1e9 if none."""
    touches = touching_points(problem)
    assert touches is not None
    radius, found = certified_radii(problem, touches), costs_beyond(problem, touches).sqrt() * (1 + 1e-12)
    with torch.no_grad():
        found[errs(problem, problem.inputs, problem.targets)] = 0.0
    if not bool((radius <= found).all()):
        raise ContradictionError("An error was found within a certified radius: one of them is wrong.")
    return radius, found.clamp_max(1e9)


def accuracies(found: dict[str, list[float]], epsilons: Any) -> dict[str, Any]:
    """Shares: clean, and within every ε certified and attacked."""
    radius, distance = (torch.tensor(found[name], dtype=torch.float64) for name in ("radius", "found"))
    within = [
        {
            "epsilon": epsilon,
            "certified": float((radius > epsilon).double().mean()),
            "attacked": float((distance > epsilon).double().mean()),
        }
        for epsilon in epsilons
    ]
    right = distance > 0
    return {
        "images": len(radius),
        "clean": float(right.double().mean()),
        "close": float((radius >= 0.99 * distance)[right].double().mean()),
        "within": within,
    }


if __name__ == "__main__":
    options = read_options(Args, __doc__)
    perform(page if options.page else main, options)
