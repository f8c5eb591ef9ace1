"""What a step of WRM costs beside one of ERM, with the default ascent and with the paper's, in one run.

On MNIST with the paper's network, its γ = 0.3846, label smoothing 0.1, Adam 0.001 and batches of 256:

early   20 steps of ERM, of WRM and of WRM with the paper's 16 inner steps, for each of three seeds: early in
        training, when the inner problems are hardest; do both kinds of WRM end at the same φ, ρ̂ and accuracy?
epoch   a whole epoch, 215 steps, of ERM and of WRM, and how the ratio falls while the network learns
cnn     60 steps of 128 images of ERM, of WRM as it is by default (its ascents in bfloat16 where the processor
        has instructions for it), and of WRM in float32, on the paper's network
mlp     300 such steps on 784-512-10 with ELU
resnet  60 such steps on a ReLU network of three residual blocks with 16, 32 and 64 channels
memory  the largest resident memory of each, in a process of its own, over three steps (on Linux)

    certus data get mnist
    python -m benchmarks.training                       # some quarter of an hour
    python -m benchmarks.training --entries epoch       # this one; the other stays as it is
    python -m benchmarks.training --resume              # go on after an interruption

All methods start from the same weights and see the same batches. They take turns, step by step, on one
thread, timed by the processor's clock: other work on the machine disturbs neighbours alike.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any

import torch
from torch import nn

import certus
from benchmarks._options import OUTPUT, RESUME, Entries, perform, read_options
from benchmarks._results import forget_unfinished, read_unfinished, write_entry, write_unfinished
from certus.data import Samples, Subset
from certus.inner import Maximizer
from certus.inner.methods import ERM, Method
from certus.models.networks import mlp, resnet
from certus.training.metrics import clean_metrics

METHODS: dict[str, Maximizer | None] = {
    "erm": None,
    "wrm": certus.inner.BarzilaiBorwein(),
    "wrm-float32": certus.inner.BarzilaiBorwein(),
    "wrm-paper": certus.inner.PaperAscent(steps=16),
}
ABOUT = {
    "erm": "ordinary training",
    "wrm": "WRM with the default ascent, which stops sample by sample",
    "wrm-float32": "the same, with ascents in float32",
    "wrm-paper": "WRM with the paper's schedule: 16 gradients of every sample",
}


@dataclass(frozen=True)
class Entry:
    methods: tuple[str, ...]
    steps: int
    seeds: tuple[int, ...]
    network: str = "mnist-cnn"
    batch_size: int | None = None  # that of the options


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "mnist-cnn": certus.models.mnist_cnn,
    "mlp": lambda: mlp(784, [512], 10),
    "resnet": lambda: resnet((1, 28, 28), [16, 32, 64], 10),
}
_THREE = ("erm", "wrm", "wrm-float32")


ENTRIES = {
    "early": Entry(("erm", "wrm", "wrm-paper"), steps=20, seeds=(0, 1, 2)),
    "epoch": Entry(("erm", "wrm"), steps=215, seeds=(0,)),
    "cnn": Entry(_THREE, steps=60, seeds=(0,), batch_size=128),
    "mlp": Entry(_THREE, steps=300, seeds=(0,), network="mlp", batch_size=128),
    "resnet": Entry(_THREE, steps=60, seeds=(0,), network="resnet", batch_size=128),
}
NAMES = (*ENTRIES, "memory")


@dataclass(frozen=True)
class Args:
    entries: Annotated[tuple[str, ...], "what to measure", Entries(NAMES)] = NAMES
    share: Annotated[float, "of each entry's steps, for a quick look"] = 1.0
    gamma: Annotated[float, "penalty on moving the data"] = 0.3846
    label_smoothing: Annotated[float, "in the loss"] = 0.1
    batch_size: Annotated[int, "images of one step"] = 256
    evaluated: Annotated[int, "test images on which the ends are compared, chosen at random"] = 500
    data: Annotated[str, "images of 28 x 28 pixels in ten classes, as for `certus train`"] = "mnist"
    resume: Annotated[bool, RESUME] = False
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/training.json")


def main(args: Args) -> None:
    torch.set_num_threads(1)
    done = read_unfinished(args)
    for name in args.entries:
        write_entry(args, name, memory(args) if name == "memory" else measure(name, done, args))
    forget_unfinished(args)


def measure(name: str, done: dict[str, Any], args: Args) -> dict[str, Any]:
    """An entry, seed by seed; what is ``done`` already is not done again."""
    entry, runs = ENTRIES[name], []
    for seed in entry.seeds:
        key = f"{name} {seed}"
        if key not in done:
            done[key] = train_side_by_side(entry, seed, args)
            write_unfinished(args, done)
        runs.append(done[key])
        print(key, {of: round(ratio, 2) for of, ratio in done[key]["times an ERM step"].items()}, flush=True)
    return summarise(entry, runs, args)


class Learner:
    """One method in training, step by step, and the processor's time of each step."""

    def __init__(self, name: str, seed: int, args: Args, network: str = "mnist-cnn") -> None:
        torch.manual_seed(seed)
        criterion = certus.CrossEntropy(args.label_smoothing)
        self.loss = certus.ModelLoss(NETWORKS[network](), criterion)
        self.maximizer = METHODS[name]
        self.method: Method = ERM()
        if self.maximizer is not None:
            precision = "float32" if name == "wrm-float32" else "auto"
            self.method = certus.WRM(args.gamma, maximizer=self.maximizer, precision=precision)
        self.optimizer = torch.optim.Adam(self.loss.model.parameters(), lr=1e-3)
        self.times: list[float] = []

    def step(self, batch: Samples) -> None:
        start = time.process_time()
        moved = self.method(self.loss, batch.inputs, batch.targets)
        self.loss(moved, batch.targets).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.times.append(time.process_time() - start)


def train_side_by_side(entry: Entry, seed: int, args: Args) -> dict[str, Any]:
    """All methods of an entry, in turns; the time of every step, and what each has reached."""
    data = certus.datasets.load(args.data, seed=seed)
    learners = {name: Learner(name, seed, args, entry.network) for name in entry.methods}
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))
    batches = order.split(entry.batch_size or args.batch_size)
    for step in range(max(2, round(entry.steps * args.share))):
        batch = data.train[batches[step % len(batches)]]
        names = list(learners)
        turn = step % len(names)  # no one always follows the same other
        for name in names[turn:] + names[:turn]:
            learners[name].step(batch)
    total = {name: sum(item.times) for name, item in learners.items()}
    held_out = Subset.of(data.test, args.data, args.evaluated, seed=seed, stratify=False).data
    return {
        "times an ERM step": {name: spent / total["erm"] for name, spent in total.items()},
        "reached": {name: reached(item, held_out, args) for name, item in learners.items()},
        "processor seconds of each step": {
            name: [round(spent, 4) for spent in item.times] for name, item in learners.items()
        },
    }


def reached(learner: Learner, data: Samples, args: Args) -> dict[str, float]:
    """φ and ρ̂ by a careful ascent on held-out samples, accuracy as they are, and the method's own gap."""
    loss, maximizer = learner.loss, learner.maximizer

    def solve(by: Maximizer) -> certus.inner.InnerSolution:
        return certus.WRM(args.gamma, maximizer=by).solve(loss, data.inputs, data.targets)

    careful = solve(certus.inner.BarzilaiBorwein(tolerance=1e-5, max_gradients=60))
    result = {
        "phi": float(careful.value.mean()),
        "rho_hat": float(careful.transport_cost.mean()),
        "accuracy": clean_metrics(loss, data)["accuracy"],
    }
    if maximizer is not None:
        own, paper = solve(maximizer), solve(certus.inner.PaperAscent(steps=16))
        with torch.no_grad():
            cost = certus.SquaredL2()(own.onward, data.inputs)
            used = loss(own.onward, data.targets) - args.gamma * cost  # where training takes its step
        best = torch.stack([careful.value, own.value, used, paper.value]).amax(0)
        result["gap"] = float((best - used).mean())
        result["gap of the paper's schedule"] = float((best - paper.value).mean())
        result["gradients"] = float(own.gradients.double().mean())
    return result


def summarise(entry: Entry, runs: list[dict[str, Any]], args: Args) -> dict[str, Any]:
    """Ratios to ERM and what was reached: means over the seeds, with standard deviations."""
    methods: dict[str, Any] = {}
    for name in entry.methods:
        row = {"times an ERM step": _spread([run["times an ERM step"][name] for run in runs])}
        for what in runs[0]["reached"][name]:
            row[what] = _spread([run["reached"][name][what] for run in runs])
        methods[name] = {"about": ABOUT[name], **row}
        print(f"  {name:10s}", "  ".join(f"{what} {value['mean']:.4g}" for what, value in row.items()))
    steps = len(runs[0]["processor seconds of each step"]["erm"])
    return {
        "about": f"{entry.network}, {steps} steps of {entry.batch_size or args.batch_size} images",
        "seeds": entry.seeds,
        "steps": steps,
        "methods": methods,
        "times an ERM step, by step": _by_step(runs, entry.methods, steps),
        "runs": runs,
    }


def _spread(values: list[float]) -> dict[str, float]:
    return {"mean": mean(values)} | ({"deviation": stdev(values)} if len(values) > 1 else {})


def _by_step(runs: list[dict[str, Any]], methods: tuple[str, ...], steps: int) -> dict[str, dict[str, float]]:
    """The ratio to ERM in parts of the training: steps 1–20, 21–40, 41–80 and so on, each twice as long."""
    ends = [0, *(20 * 2**power for power in range(10) if 20 * 2**power < steps), steps]
    result = {}
    for first, last in pairwise(ends):
        times = [run["processor seconds of each step"] for run in runs]
        total = {name: sum(sum(time[name][first:last]) for time in times) for name in methods}
        result[f"{first + 1}-{last}"] = {name: total[name] / total["erm"] for name in methods}
    return result


def memory(args: Args) -> dict[str, Any]:
    """Megabytes of each method, and ratios to ERM."""
    peaks = {}
    for name in ("erm", "wrm", "wrm-paper"):
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as process:
            peaks[name] = process.submit(peak_memory, name, args).result()
    ratios = {name: peak / peaks["erm"] for name, peak in peaks.items()}
    print("times the memory of ERM:", {name: round(ratio, 2) for name, ratio in ratios.items()})
    return {"megabytes": peaks, "times ERM": ratios}


def peak_memory(name: str, args: Args) -> float:
    """Megabytes of this process, which does nothing but three steps on random images."""
    torch.set_num_threads(1)
    learner = Learner(name, 0, args)
    for _ in range(3):
        inputs = torch.rand(args.batch_size, 1, 28, 28)
        learner.step(Samples(inputs, torch.randint(10, (args.batch_size,))))
    # Not ru_maxrss: a process inherits that of the one that started it.
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
