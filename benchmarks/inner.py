"""The inner maximisation: the default maximiser against the paper's schedule, in one run.

On the paper's MNIST network, trained briefly by WRM on the bundled digits (enlarged to 28 × 28), it asks:

1. how far from the best value known does each method end, and after how many gradients per sample?
2. how few gradients reach the gap that the paper's schedule leaves after 16?
3. how much time does the library spend beyond the raw gradients that it asks for?

    python -m benchmarks.inner

One thread, timed by the processor's clock, which other work disturbs less than the wall's. Ratios of the best
times within this run are the result; the times themselves depend on the machine.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional

import certus
from benchmarks._options import OUTPUT, perform, read_options
from benchmarks._results import write_result
from certus.data import Samples

TOLERANCES = (3e-2, 2e-2, 1e-2, 5e-3, 2e-3, 1e-3)


@dataclass(frozen=True)
class Args:
    gamma: Annotated[float, "penalty on moving the data"] = 0.3846
    label_smoothing: Annotated[float, "in the loss"] = 0.1
    train_steps: Annotated[tuple[int, ...], "WRM steps after which to compare, ascending"] = (30, 60, 120)
    batch_size: Annotated[int, "of these steps"] = 128
    samples: Annotated[int, "on which the maximisers are compared"] = 256
    repeats: Annotated[int, "how often each time is taken"] = 9
    tolerances: Annotated[tuple[float, ...], "tried, to end where the paper's schedule does"] = TOLERANCES
    # With more, they wait for each other, and the waiting hides a few percent.
    threads: Annotated[int, "of torch"] = 1
    seed: Annotated[int, "of the data's split and the weights"] = 0
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/inner.json")


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    data = certus.datasets.digits(args.seed).train
    images = functional.interpolate(data.inputs, size=(28, 28), mode="bilinear")
    data = Samples(images.clamp(0, 1), data.targets)
    loss = certus.ModelLoss(certus.models.mnist_cnn(), certus.CrossEntropy(args.label_smoothing))
    optimizer = torch.optim.Adam(loss.model.parameters(), lr=1e-3)
    wrm = certus.WRM(args.gamma)
    rows, trained = [], 0
    for target in args.train_steps:
        train(loss, optimizer, wrm, data, args, first=trained, last=target)
        trained = target
        row = {"train_steps": trained} | compare(loss, data[: args.samples], args)
        print(
            f"{trained:4d} training steps | paper: gap {row['paper_gap']:.4f} with 16 gradients | "
            f"certus: gap {row['certus_gap']:.4f} with {row['certus_gradients']:.2f}, "
            f"{row['speedup']:.1f} times as fast, overhead {row['overhead']:+.1%} | "
            f"the paper's gap is reached with {row['gradients_to_paper_gap'] or math.nan:.2f}"
        )
        rows.append(row)
    write_result(args, {"rows": rows})


def train(
    loss: certus.ModelLoss,
    optimizer: torch.optim.Optimizer,
    wrm: certus.WRM,
    data: Samples,
    args: Args,
    first: int,
    last: int,
) -> None:
    """WRM steps number ``first`` to ``last``, each on a random batch."""
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        batch = data[torch.randperm(len(data), generator=generator)[: args.batch_size]]
        moved = wrm(loss, batch.inputs, batch.targets)
        loss(moved, batch.targets).mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def compare(loss: certus.ModelLoss, data: Samples, args: Args) -> dict[str, Any]:
    """Gaps to the best value known, gradients, and times of both methods on the same samples."""

    def solve(maximizer: certus.inner.Maximizer) -> certus.inner.InnerSolution:
        return certus.WRM(args.gamma, maximizer=maximizer).solve(loss, data.inputs, data.targets)

    paper = solve(certus.inner.PaperAscent(steps=16))
    default = solve(certus.inner.BarzilaiBorwein())
    thorough = solve(certus.inner.BarzilaiBorwein(tolerance=1e-6, max_gradients=100))
    reached = value_at(default.onward, loss, data, args.gamma)
    best = torch.stack([paper.value, default.value, reached, thorough.value]).amax(0)
    paper_gap = float((best - paper.value).mean())
    enough = [
        float(tried.gradients.double().mean())
        for tried in (solve(certus.inner.BarzilaiBorwein(tolerance)) for tolerance in args.tolerances)
        if float((best - value_at(tried.onward, loss, data, args.gamma)).mean()) <= paper_gap
    ]
    # One gradient of the paper's seventeen only measures; it is left out of the paper's time.
    moving, spent = times(
        [lambda: raw_gradients(loss, data, 16), lambda: solve(certus.inner.BarzilaiBorwein())],
        args.repeats,
    )
    return {
        "paper_gap": paper_gap,
        "gradients_to_paper_gap": min(enough, default=None),
        "certus_gap": float((best - reached).mean()),
        "certus_gap_where_measured": float((best - default.value).mean()),
        "certus_gradients": float(default.gradients.double().mean()),
        "certus_converged": float(default.converged.double().mean()),
        "speedup": min(moving) / min(spent),
        "overhead": median(overhead(loss, data, args) for _ in range(args.repeats)),
    }


@torch.no_grad()
def value_at(points: Tensor, loss: certus.ModelLoss, data: Samples, gamma: float) -> Tensor:
    """(batch,) f at the points that training would use."""
    return loss(points, data.targets) - gamma * certus.SquaredL2()(points, data.inputs)


def overhead(loss: certus.ModelLoss, data: Samples, args: Args) -> float:
    """The time of one solution outside the forward and backward passes, as a share of the time inside."""
    inside = Stopwatch()
    differentiate = torch.autograd.grad
    torch.autograd.grad = inside.around(differentiate)
    try:
        start = time.process_time()
        wrm = certus.WRM(args.gamma, maximizer=certus.inner.BarzilaiBorwein())
        wrm.solve(inside.around(loss), data.inputs, data.targets)
        whole = time.process_time() - start
    finally:
        torch.autograd.grad = differentiate
    return whole / inside.seconds - 1


class Stopwatch:
    """Adds up the time spent in the functions it is put around."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: object, **options: object) -> Any:
            start = time.process_time()
            try:
                return function(*args, **options)
            finally:
                self.seconds += time.process_time() - start

        return timed


def raw_gradients(loss: certus.ModelLoss, data: Samples, count: int) -> None:
    """Nothing but input gradients, so many of every sample."""
    for _ in range(count):
        inputs = data.inputs.clone().requires_grad_()
        losses: Tensor = loss.criterion(loss.model(inputs), data.targets)
        torch.autograd.grad(losses.sum(), inputs)


def times(works: list[Callable[[], object]], repeats: int) -> list[list[float]]:
    """Seconds of each work, again and again in turns, so that neighbours can be compared."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, mine in zip(works, taken, strict=True):
            start = time.process_time()
            work()
            mine.append(time.process_time() - start)
    return taken


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
