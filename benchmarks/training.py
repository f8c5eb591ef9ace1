"""A WRM epoch against an ERM epoch, and against WRM with the paper's inner schedule, in one run.

On MNIST with the paper's network and γ = 0.3846 it asks, for each of several seeds:

1. how many ERM epochs does a WRM epoch cost, with the default maximiser and with the paper's 16 steps?
2. do both end at the same surrogate φ, robustness ρ̂ and accuracy?
3. how far from the maximum do both end, and how much more memory than ERM do they need?

    certus data get mnist
    python -m benchmarks.training          # three seeds on a part of the data, three methods
    python -m benchmarks.training epoch    # one whole epoch of ERM and of WRM

Each method and seed runs in a process and with a thread of its own, one after the other; times are the
processor's, which other work disturbs less than the clock's. What is done already is kept, so that an
interrupted benchmark goes on where it stopped. The whole epoch uses every thread, and the clock.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, stdev

import torch

import certus
from certus.data import Split
from certus.surrogate import Maximizer
from certus.training import ERM, Observer, Perturber, TrainingState, evaluate, fit

METHODS: dict[str, Maximizer | None] = {
    "erm": None,
    "wrm": certus.BarzilaiBorwein(),
    "wrm-paper": certus.PaperAscent(steps=16),
}


@dataclass(frozen=True)
class Args:
    gamma: float = 0.3846
    label_smoothing: float = 0.1
    samples: int = 5_120
    epochs: int = 2
    batch_size: int = 256
    evaluated: int = 500
    seeds: tuple[int, ...] = (0, 1, 2)
    output: Path = Path("benchmarks/results/training.json")


def main(args: Args) -> None:
    done = json.loads(args.output.read_text())["runs"] if args.output.exists() else {}
    for seed in args.seeds:
        for name in METHODS:
            key = f"{name} {seed}"
            if key not in done:
                command = [sys.executable, "-m", "benchmarks.training", name, str(seed)]
                printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                done[key] = json.loads(printed.splitlines()[-1])
                write(args, done)
            print(
                f"{key:12s}",
                "  ".join(f"{what} {value:.4g}" for what, value in done[key].items()),
                flush=True,
            )
    summary = summarise(args, done)
    write(args, done, summary)
    print(json.dumps(summary, indent=2))


def write(args: Args, runs: dict[str, dict[str, float]], summary: object = None) -> None:
    args.output.parent.mkdir(parents=True, exist_ok=True)
    config = {name: str(value) for name, value in asdict(args).items()}
    args.output.write_text(json.dumps({"args": config, "runs": runs, "summary": summary}, indent=2) + "\n")


def summarise(args: Args, runs: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Ratios to ERM and means with standard deviations over the seeds."""
    table: dict[str, dict[str, float]] = {}
    for name in METHODS:
        mine = [runs[f"{name} {seed}"] for seed in args.seeds]
        base = [runs[f"erm {seed}"] for seed in args.seeds]
        times = [one["processor"] / other["processor"] for one, other in zip(mine, base, strict=True)]
        memory = [one["memory"] / other["memory"] for one, other in zip(mine, base, strict=True)]
        row = {"times an ERM epoch": mean(times), "times its memory": mean(memory)}
        for what in mine[0]:
            if what not in ("seconds", "processor", "memory"):
                values = [one[what] for one in mine]
                row |= {what: mean(values), f"{what} ±": stdev(values)}
        table[name] = row
    return table


def run_one(name: str, seed: int, args: Args) -> dict[str, float]:
    """Train once; the shortest epoch by both clocks, the peak memory, and what was reached."""
    data = certus.data.load("mnist", seed=seed)
    train = data.train[: args.samples]
    torch.manual_seed(seed)
    model = certus.models.mnist_cnn()
    criterion = certus.CrossEntropy(args.label_smoothing)
    maximizer = METHODS[name]
    clock = ProcessorClock()
    method: Perturber = ERM() if maximizer is None else certus.WRM(args.gamma, maximizer=maximizer)
    done = fit(
        model,
        train,
        method=method,
        criterion=criterion,
        epochs=args.epochs,
        batch_size=args.batch_size,
        seed=seed,
        observers=[clock],
    )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    seconds = min(entry.seconds for entry in done.history)
    found = {"seconds": seconds, "processor": min(clock.epochs), "memory": memory}
    held_out = data.test[: args.evaluated]
    loss = certus.ModelLoss(model, criterion)
    return found | reached(loss, held_out, maximizer, args)


class ProcessorClock(Observer):
    """The processor's time of each epoch."""

    def __init__(self) -> None:
        self.epochs: list[float] = []
        self.last = 0.0

    def start(self, state: TrainingState, epochs: int, steps: int) -> None:
        self.last = time.process_time()

    def after_epoch(self, state: TrainingState) -> None:
        now = time.process_time()
        self.epochs.append(now - self.last)
        self.last = now


def reached(loss: certus.ModelLoss, data: Split, maximizer: Maximizer | None, args: Args) -> dict[str, float]:
    """φ and ρ̂ by a careful ascent on held-out samples, accuracy as they are, and the method's own gap."""

    def solve(by: Maximizer) -> certus.InnerSolution:
        return certus.WRM(args.gamma, maximizer=by).solve(loss, data.inputs, data.targets)

    careful = solve(certus.BarzilaiBorwein(tolerance=1e-5, max_gradients=60))
    found = {
        "phi": float(careful.value.mean()),
        "rho_hat": float(careful.transport_cost.mean()),
        "accuracy": evaluate(loss, data)["accuracy"],
    }
    if maximizer is not None:
        own, paper = solve(maximizer), solve(certus.PaperAscent(steps=16))
        with torch.no_grad():
            cost = certus.SquaredL2()(own.onward, data.inputs)
            used = loss(own.onward, data.targets) - args.gamma * cost  # where training takes its step
        best = torch.stack([careful.value, own.value, used, paper.value]).amax(0)
        found["gap"] = float((best - used).mean())
        found["gap of the paper's schedule"] = float((best - paper.value).mean())
        found["gradients"] = float(own.gradients.double().mean())
    return found


def whole_epoch(args: Args) -> None:
    """One epoch on all training images by ERM and by WRM, and both maximisers' gaps at the robust model."""
    args = replace(args, samples=55_000, epochs=1)
    found = {name: run_one(name, 0, args) for name in ("erm", "wrm")}
    ratio = found["wrm"]["seconds"] / found["erm"]["seconds"]
    summary = {"times an ERM epoch": ratio, **found["wrm"]}
    path = args.output.with_name("training_epoch.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"erm": found["erm"], "summary": summary}, indent=2) + "\n")
    print(json.dumps(summary, indent=2))


if __name__ == "__main__":
    if sys.argv[1:] == ["epoch"]:
        whole_epoch(Args())
    elif len(sys.argv) > 1:
        torch.set_num_threads(1)
        print(json.dumps(run_one(sys.argv[1], int(sys.argv[2]), Args())))
    else:
        main(Args())
