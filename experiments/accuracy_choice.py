"""Settings of ``experiments.certified_accuracy``, compared on MNIST's calibration split.

    certus data get mnist
    python -m experiments.accuracy_choice                                # writes choice.json
    python -m experiments.accuracy_choice --resume                       # go on after an interruption
    python -m experiments.accuracy_choice --entries "near" "near, farther"   # these alone; the others stay

Seed 0 only, two epochs, 500 images, and never a test image.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from benchmarks._options import OUTPUT, RESUME, RUNS, Entries, perform, read_options
from benchmarks._results import write_entry, write_unfinished
from certus.runs.directory import RunDirectory
from certus.runs.trained import open_trained
from experiments import certified_training
from experiments.certified_accuracy import Args as Measured
from experiments.certified_accuracy import accuracies, measure, plan
from experiments.certified_training import train

IMAGES = 500
CHOICES = {
    "near": plan(1.5, 0.3, 0.4),
    "near, farther": plan(1.5, 0.3, 0.6),
    "near, smoother": plan(0.7, 0.3, 0.6),
    "far": plan(0.3, 0.3, 1.58),
    "far, farther": plan(0.3, 0.3, 2.2),
    "far, smoother": plan(0.2, 0.2, 1.58),
    "far, margin": plan(0.3, 0.3, 1.58, margin=0.5),
}


@dataclass(frozen=True)
class Args:
    entries: Annotated[tuple[str, ...], "the lines of the table", Entries(CHOICES)] = tuple(CHOICES)
    resume: Annotated[bool, RESUME] = False
    runs: Annotated[Path, RUNS] = Path("runs/accuracy-choice")
    output: Annotated[Path, OUTPUT] = Path("results/certified-accuracy/choice.json")


def main(args: Args) -> None:
    write_unfinished(args, {})
    for name in args.entries:
        path, chosen = args.runs / name.replace(", ", "-"), CHOICES[name]
        train(path, "mnist", chosen, 0, certified_training.Args())
        trained = open_trained(RunDirectory.open(path))
        data = trained.data.calibration
        assert data is not None
        found = accuracies(measure(path / "calibration.json", trained, data[:IMAGES]), Measured().epsilons)
        print(name, json.dumps(found), flush=True)
        write_entry(args, name, {"options": list(chosen.options), **found})


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
