"""What certified training adds to an epoch of WRM: the same network, data and steps, with and without it.

    certus data get mnist
    python -m benchmarks.certified
    python -m benchmarks.certified --entries digits     # this case; the others stay as they are

Both take turns in one process, on one thread; the ratio is that of the smallest processor times of an epoch's
steps, which other work on the machine hardly changes. The proof at the end of an epoch is not in it, but in a
column of its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch

import certus
from benchmarks._options import OUTPUT, Entries, perform, read_options
from benchmarks._results import write_entry
from certus.datasets import SplitDataset, load
from certus.models import build_model
from certus.training import Callback, CertifiedTraining, TrainingState, fit

CASES = {  # what it is, data, network, batch size
    "mnist-100": ("MNIST, 100 components", "mnist", "certified-mlp:1024:logcosh:100", 512),
    "mnist-256": ("MNIST, 256 components (default)", "mnist", "certified-mlp", 512),
    "mnist-256-small": ("MNIST, 256 components, small batches", "mnist", "certified-mlp", 128),
    "mnist-784": ("MNIST, all 784 inputs", "mnist", "certified-mlp:1024:logcosh:0", 512),
    "digits": ("digits", "digits", "certified-mlp", 128),
}


@dataclass(frozen=True)
class Args:
    entries: Annotated[tuple[str, ...], "the cases", Entries(CASES)] = tuple(CASES)
    gamma: Annotated[float, "penalty on moving the data"] = 1.5
    samples: Annotated[int, "training samples, at most"] = 10_240
    repeats: Annotated[int, "how often each epoch is timed; the shortest counts"] = 2
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/certified.json")


class Clock(Callback):
    """Processor time of the steps, and of the proof behind them."""

    steps = proof = 0.0

    def on_train_start(self, state: TrainingState, epochs: int, steps: int | None) -> None:
        self._began = time.process_time()

    def on_step_end(self, state: TrainingState) -> None:
        self.steps = time.process_time() - self._began

    def on_epoch_end(self, state: TrainingState) -> None:
        self.proof = time.process_time() - self._began - self.steps


def main(args: Args) -> None:
    torch.set_num_threads(1)
    for name in args.entries:
        about, source, network, batch_size = CASES[name]
        data = load(source, seed=0)
        clocks: dict[bool, list[Clock]] = {False: [], True: []}
        for _ in range(args.repeats):
            for kind, times in clocks.items():
                times.append(_epoch(data, network, kind, batch_size, args))
        plain, certified = (min(clock.steps for clock in times) for times in clocks.values())
        proof = min(clock.proof for clock in clocks[True])
        result = {"plain": plain, "certified": certified, "ratio": certified / plain, "proof": proof}
        print(f"{about:38s}", "  ".join(f"{what} {value:.2f}" for what, value in result.items()), flush=True)
        write_entry(args, name, {"about": about, "network": network, "batch_size": batch_size, **result})


def _epoch(data: SplitDataset, network: str, certified: bool, batch_size: int, args: Args) -> Clock:
    """One epoch."""
    model, clock = build_model(network, data, seed=0), Clock()
    fit(
        model,
        data.train[: args.samples],
        method=certus.WRM(args.gamma),
        certified=CertifiedTraining() if certified else None,
        epochs=1,
        batch_size=batch_size,
        callbacks=[clock],
    )
    return clock


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
