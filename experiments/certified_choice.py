"""What certified training gains from its settings: one change at a time, on MNIST's calibration split.

    certus data get mnist
    python -m experiments.certified_choice                          # writes choice.json, and a table of it
    python -m experiments.certified_choice --resume                 # go on after an interruption
    python -m experiments.certified_choice --entries cold warm      # these lines; the others stay as they are

Seed 0 only, 10 epochs, and never a test image: from this table the settings of
``experiments.certified_training`` were chosen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from benchmarks._options import OUTPUT, RESUME, RUNS, Entries, perform, read_options
from benchmarks._results import write_entry, write_unfinished
from certus.runs.directory import RunDirectory
from certus.runs.trained import TrainedRun, open_trained
from certus.storage.writing import write_atomically
from certus.training import evaluate
from experiments import certified_training
from experiments.certified_training import Plan, Trial, bound, error_of, plain, train

CERTIFIED = (*certified_training.WRM, *certified_training.CERTIFIED)


@dataclass(frozen=True)
class Choice:
    """One line: what is changed, and with which options of ``certus train``."""

    name: str
    temperature: float = 0.7
    model: str = Plan.model
    warp: float = 0.0
    more: tuple[str, ...] = ()


CHOICES = {
    "start": Choice("100 components, 1,024 log cosh units, temperature 0.7"),
    "cold": Choice("temperature 0.5", temperature=0.5),
    "warm": Choice("temperature 1", temperature=1.0),
    "margin": Choice("a margin of 1", more=("--margin", "1")),
    "wide": Choice("2,048 units", model="certified-mlp:2048:logcosh:100"),
    "abs": Choice("smooth absolute values", model="certified-mlp:1024:smoothabs:100"),
    "components": Choice("256 components", model="certified-mlp:1024:logcosh:256"),
    "deep": Choice("a second hidden layer", model="certified-mlp:1024,1024:logcosh:100"),
    "warp": Choice("warps of 0.1", warp=0.1),
    "cold-warp": Choice("warps of 0.1, temperature 0.6", temperature=0.6, warp=0.1),
}


@dataclass(frozen=True)
class Args:
    entries: Annotated[tuple[str, ...], "the lines of the table", Entries(CHOICES)] = tuple(CHOICES)
    resume: Annotated[bool, RESUME] = False
    runs: Annotated[Path, RUNS] = Path("runs/certified-choice")
    output: Annotated[Path, OUTPUT] = Path("results/certified-training/choice.json")


def main(args: Args) -> None:
    write_unfinished(args, {})
    for name in args.entries:
        choice, path = CHOICES[name], args.runs / name
        options = (*CERTIFIED, str(choice.temperature), "--warp", str(choice.warp), *choice.more)
        train(path, "mnist", Plan(options, model=choice.model), 0, certified_training.Args())
        file = path / "measured.json"
        if not file.exists():
            found = json.dumps(measure(open_trained(RunDirectory.open(path))))
            write_atomically(file, f"{found}\n".encode())
        print(name, file.read_text().strip(), flush=True)
        write_entry(args, name, {"change": choice.name, **json.loads(file.read_text())})
    write_table(args.output)


def measure(trained: TrainedRun) -> dict[str, float | None]:
    """Errors on the training images (some of them) and on the calibration split, clean and under PGM-∞."""
    data, loss = trained.data.calibration, plain(trained)
    assert data is not None
    found: dict[str, float | None] = {
        "curvature": bound(trained)["curvature"],
        "training": 1 - evaluate(loss, trained.data.train[:10_000])["accuracy"],
        "clean": 1 - evaluate(loss, data)["accuracy"],
    }
    for trial in (Trial(0.05, True), Trial(0.10, True), Trial(0.05, False), Trial(0.10, False)):
        found[trial.name] = error_of(trial.run(trained, loss, data, 15, trial.epsilon / 4, 1))
    return found


def write_table(file: Path) -> None:
    """``choice.md`` beside ``choice.json``."""
    done: dict[str, dict[str, Any]] = json.loads(file.read_text())
    keys = ["training", "clean", "clipped 0.05", "clipped 0.10", "unclipped 0.05", "unclipped 0.10"]
    head = ["", *keys]
    rows = [[row["change"], *(f"{row[key]:.4f}" for key in keys)] for row in done.values()]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]
    write_atomically(file.with_suffix(".md"), "\n".join([_HEAD, *lines, ""]).encode())


_HEAD = """# What certified training gains from its settings

MNIST, γ = 1.5, one seed, errors on the calibration split (5,000 images; one image is 0.0002) and on 10,000
training images; PGM-∞ of 15 steps of ε/4 from a random start. Each line changes the first as it says, and
trains for 10 epochs. All have the same proven bound. Made by `python -m experiments.certified_choice`.
"""


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
