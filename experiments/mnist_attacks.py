"""ERM, FGM, IFGM, PGM and WRM on MNIST under PGM attacks with fair budgets (fig:mnist).

    certus data get mnist
    python -m experiments.mnist_attacks             # train, attack, write JSON and a picture
    python -m experiments.mnist_attacks --resume    # go on after an interruption

The paper's network, γ = 0.3846 and label smoothing 0.1 as its authors ran it, two epochs for each method on
the 55,000 training images, not clipped in training; attacks on 2,000 random test images. FGM, IFGM and PGM
move by ε = √ρ̂(θ_WRM) in L2 (eqn:fgm-fair).
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from benchmarks._options import OUTPUT, RESUME, RUNS, perform, read_options
from benchmarks._results import write_result, write_unfinished
from certus.attacks.budgets import typical_length
from certus.attacks.sweeps import Trial, as_row, sweep
from certus.figures.attack_curves import Curve, Panel, draw_sweeps
from certus.runs.directory import RunDirectory
from certus.runs.trained import open_trained
from certus.storage.writing import write_atomically
from certus.subsets import Subset

METHODS = ("erm", "fgm", "ifgm", "pgm", "wrm")
NORMS = {"2": 2.0, "inf": math.inf}
SHARES = (0.0, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class Args:
    gamma: Annotated[float, "penalty on moving the data, of wrm"] = 0.3846
    epochs: Annotated[int, "of training, for each method"] = 2
    batch_size: Annotated[int, "images of one step"] = 256
    label_smoothing: Annotated[float, "in the loss"] = 0.1
    seed: Annotated[int, "of the split, the weights, the batches and the attacks' starts"] = 0
    samples: Annotated[int, "test images that are attacked, chosen at random by the seed"] = 2_000
    shares: Annotated[tuple[float, ...], "of C_p = E|X|_p, the paper's axis: how far to attack"] = SHARES
    resume: Annotated[bool, RESUME] = False
    runs: Annotated[Path, RUNS] = Path("runs/mnist-attacks")
    output: Annotated[Path, OUTPUT] = Path("experiments/results/mnist_attacks.json")


def main(args: Args) -> None:
    write_unfinished(args, {})
    for name in sorted(METHODS, key=lambda method: method != "wrm"):  # the others take their budget from it
        train(name, args)
    for name in METHODS:
        attack(name, args)
    gather(args)


def train(name: str, args: Args) -> None:
    """``certus train`` or ``certus resume``, unless it is complete."""
    path = args.runs / name
    if (path / "result.json").exists():
        return
    if (path / "run.json").exists():
        command = ["resume", str(path)]
    else:
        budget = {
            "erm": [],
            "wrm": ["--gamma", str(args.gamma), "--no-clip"],
        }.get(name, ["--norm", "2", "--epsilon", f"from:{args.runs / 'wrm'}", "--no-clip"])
        command = ["train", "mnist", "--method", name, *budget, "-o", str(path)]
        command += ["--epochs", str(args.epochs), "--batch-size", str(args.batch_size)]
        command += ["--label-smoothing", str(args.label_smoothing), "--seed", str(args.seed)]
    subprocess.run([sys.executable, "-m", "certus", *command], check=True)


def attack(name: str, args: Args) -> None:
    """PGM-2 and PGM-∞ sweeps, clipped and not; one file for each model, written after every trial."""
    path = args.runs / f"{name}-attacks.json"
    done: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    trained = open_trained(RunDirectory.open(args.runs / name))
    data = Subset.of(trained.data.test, "mnist@test", args.samples, seed=args.seed, stratify=False).data
    for norm in NORMS:
        unit = typical_length(trained.data.train, NORMS[norm])
        for clipped in (True, False):
            for share in args.shares:
                key = {"norm": norm, "share": share, "clipped": clipped}
                if any(all(row[what] == value for what, value in key.items()) for row in done):
                    continue
                trial = Trial("pgm", NORMS[norm], share * unit, clipped=clipped)
                ((_, outcome),) = sweep(
                    trained.loss, data, [trial], domain=trained.data.domain, seed=args.seed
                )
                done.append({**as_row(trial, outcome), **key})
                write_atomically(path, json.dumps(done, indent=1).encode())
                print(f"{name} pgm-{norm} {share:.2f} C clipped={clipped}: {done[-1]['error']}", flush=True)


def gather(args: Args) -> None:
    """One file with every curve, what the runs reached, and the picture."""
    curves = {name: json.loads((args.runs / f"{name}-attacks.json").read_text()) for name in METHODS}
    results = {name: RunDirectory.open(args.runs / name).result for name in METHODS}
    settings = {name: RunDirectory.open(args.runs / name).settings["settings"] for name in METHODS}
    wrm = open_trained(RunDirectory.open(args.runs / "wrm"))
    assert wrm.rho_hat is not None
    units = {norm: typical_length(wrm.data.train, p) for norm, p in NORMS.items()}
    write_result(args, {"units": units, "settings": settings, "results": results, "curves": curves})
    panels = []
    for norm in NORMS:
        for clipped in (True, False):
            lines = {}
            for name in METHODS:
                rows = [row for row in curves[name] if (row["norm"], row["clipped"]) == (norm, clipped)]
                rows.sort(key=lambda row: row["share"])
                lines[name.upper()] = Curve(
                    [row["share"] for row in rows],
                    *([row["error"][end] for row in rows] for end in ("value", "low", "high")),
                )
            marked = math.sqrt(wrm.rho_hat) / units["2"] if norm == "2" else None
            where = "clipped to [0, 1]" if clipped else "not clipped"
            strength = f"ε / mean L{norm} length of an input"
            panels.append(Panel(f"PGM-{norm}, {where}", strength, "test error", lines, marked))
    draw_sweeps(panels, args.output.with_suffix(".png"), "MNIST under PGM attacks (15 steps)")


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
