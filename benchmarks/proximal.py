"""The price of a proximal step, and what it buys, in one run.

1. one proximal step of a batch of 256 × 3,072 numbers, as a share of one forward and backward pass of the
   paper's MNIST network on 256 images;
2. on that network, trained briefly on the bundled digits (enlarged to 28 × 28): the value that proximal
   ascent reaches, and at how many gradients, beside the conditional gradients of ``BarzilaiBorwein``.

    python -m benchmarks.proximal

Ratios within this run are the result; the times themselves depend on the machine and on its other work.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional

import certus
from benchmarks._options import OUTPUT, perform, read_options
from benchmarks._results import write_result
from benchmarks.inner import times
from certus.costs import Cost
from certus.data import Samples


@dataclass(frozen=True)
class Args:
    batch_size: Annotated[int, "rows of a proximal step, and images of a pass"] = 256
    numbers: Annotated[int, "columns of a proximal step"] = 3072
    gammas: Annotated[tuple[float, ...], "penalties at which the ascents are compared"] = (300.0, 100.0)
    train_steps: Annotated[int, "of the network, beforehand"] = 60
    samples: Annotated[int, "on which the ascents are compared"] = 128
    repeats: Annotated[int, "how often each time is taken; the shortest counts"] = 7
    seed: Annotated[int, "of the data's split and the weights"] = 0
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/proximal.json")


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    data = certus.datasets.digits(args.seed).train
    images = functional.interpolate(data.inputs, size=(28, 28), mode="bilinear").clamp(0, 1)
    data = Samples(images, data.targets)
    loss = certus.ModelLoss(certus.models.mnist_cnn(), certus.CrossEntropy(label_smoothing=0.1))
    train(loss, data, args)
    shares = step_shares(loss, data[: args.batch_size], args)
    for name, share in shares.items():
        print(f"{name:22s} {share:.2f} of a forward and backward pass")
    rows = [compare(loss, data[: args.samples], gamma) for gamma in args.gammas]
    write_result(args, {"step_over_gradient": shares, "ascent": rows})


def train(loss: certus.ModelLoss, data: Samples, args: Args) -> None:
    optimizer = torch.optim.Adam(loss.model.parameters(), lr=1e-3)
    for _ in range(args.train_steps):
        chosen = torch.randint(len(data), (128,))
        optimizer.zero_grad()
        loss(data.inputs[chosen], data.targets[chosen]).mean().backward()
        optimizer.step()


def step_shares(loss: certus.ModelLoss, data: Samples, args: Args) -> dict[str, float]:
    """Time of one proximal step over that of one training pass, and over that of one input gradient."""
    origin = torch.rand(args.batch_size, args.numbers)
    point = origin + torch.randn(args.batch_size, args.numbers)
    weight = torch.logspace(-2, 4, args.batch_size)
    cases: dict[str, tuple[Cost, certus.domains.Unbounded | certus.Box]] = {
        "sup-norm": (certus.costs.SquaredSup(), certus.domains.Unbounded()),
        "sup-norm in a box": (certus.costs.SquaredSup(), certus.Box(0, 1)),
        "L1": (certus.costs.SquaredLp(1.0), certus.domains.Unbounded()),
        "L1 in a box": (certus.costs.SquaredLp(1.0), certus.Box(0, 1)),
    }
    works = [
        lambda cost=cost, domain=domain: cost.prox(point, origin, weight, domain)
        for cost, domain in cases.values()
    ]
    all_times = times(
        [lambda: training_pass(loss, data), lambda: input_gradient(loss, data), *works], args.repeats
    )
    training, inputs, *steps = (min(taken) for taken in all_times)  # noise only ever adds
    shares = {name: taken / training for name, taken in zip(cases, steps, strict=True)}
    return shares | {"input gradient alone": inputs / training}


def training_pass(loss: certus.ModelLoss, data: Samples) -> None:
    """Forward, and backward to the weights."""
    loss(data.inputs, data.targets).mean().backward()


def input_gradient(loss: certus.ModelLoss, data: Samples) -> Tensor:
    """Forward, and backward to the inputs only: the cheaper pass that an ascent pays for."""
    leaf = data.inputs.clone().requires_grad_()
    (slope,) = torch.autograd.grad(loss(leaf, data.targets).sum(), leaf)
    return slope


def compare(loss: certus.ModelLoss, data: Samples, gamma: float) -> dict[str, float]:
    """Mean gap to the best value known, and gradients spent, of both maximisers at three tolerances."""
    row: dict[str, float] = {"gamma": gamma}
    result = {}
    for kind in (certus.inner.ProximalAscent, certus.inner.BarzilaiBorwein):
        for tolerance, most in ((5e-3, 8), (1e-3, 15), (1e-4, 60)):
            wrm = certus.WRM(
                gamma,
                cost=certus.costs.SquaredSup(),
                domain=certus.Box(0, 1),
                maximizer=kind(tolerance, most),
            )
            result[f"{kind.__name__} {tolerance:g}"] = wrm.solve(loss, data.inputs, data.targets)
    best = torch.stack([solution.value for solution in result.values()]).amax(0)
    for name, solution in result.items():
        row[f"{name}: gap"] = float((best - solution.value).mean())
        row[f"{name}: gradients"] = float(solution.gradients.double().mean())
        row[f"{name}: converged"] = float(solution.converged.double().mean())
        print(
            f"γ = {gamma:g} | {name:22s} | gap {row[f'{name}: gap']:.5f} "
            f"with {row[f'{name}: gradients']:.2f} gradients, {row[f'{name}: converged']:.0%} converged"
        )
    return row


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
