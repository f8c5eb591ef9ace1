"""How long the smoothness bounds take, and how tight they are beside the paper's. On MNIST:

cnn   the bounds for all inputs of the paper's network, trained by ERM for two epochs with label smoothing
      0.1, beside the curvature found at test images
mlp   bounds on the balls around 10,000 test images, of a 784-512-10 network trained by ERM for one epoch

    certus data get mnist
    python -m benchmarks.smoothness                     # some minutes, mostly training
    python -m benchmarks.smoothness --entries mlp       # this one; the other stays as it is
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import nn

import certus
from benchmarks._options import OUTPUT, Entries, perform, read_options
from benchmarks._results import write_entry
from certus.bounds import norm_proposals
from certus.data import Samples, Subset
from certus.datasets import SplitDataset
from certus.training.metrics import clean_metrics

ENTRIES = ("cnn", "mlp")


@dataclass(frozen=True)
class Args:
    entries: Annotated[tuple[str, ...], "the networks", Entries(ENTRIES)] = ENTRIES
    share: Annotated[float, "of the training steps and of the test images, for a quick look"] = 1.0
    batch_size: Annotated[int, "of training"] = 256
    data: Annotated[str, "images of 28 x 28 pixels in ten classes, as for `certus train`"] = "mnist"
    seed: Annotated[int, "of the weights, the batches and the images"] = 0
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/smoothness.json")


def main(args: Args) -> None:
    torch.set_num_threads(1)
    data = certus.datasets.load(args.data)
    for name in args.entries:
        torch.manual_seed(args.seed)
        write_entry(args, name, everywhere(data, args) if name == "cnn" else around(data, args))


def everywhere(data: SplitDataset, args: Args) -> dict[str, Any]:
    """The bounds for all inputs of the paper's network, their time, and the curvature at test images."""
    model, epochs = certus.models.mnist_cnn(), 2
    train(model, data.train, epochs, args, label_smoothing=0.1)
    norm_proposals._CACHE.clear()
    start = time.process_time()
    bound = certus.input_smoothness(model, input_shape=(1, 28, 28))
    seconds = time.process_time() - start
    accuracy = clean_metrics(certus.ModelLoss(model), data.test)["accuracy"]
    test = some(data, 256, args)
    curved = certus.inner.largest_curvature(
        certus.ModelLoss(model.double()), test.inputs.double(), test.targets, max_products=20
    )
    sampled = float(curved.largest.max())
    print(f"the paper's network, ERM, {epochs} epochs, test accuracy {accuracy:.4f}")
    print(f"  bounds in {seconds:.2f} s of the processor")
    for name, value in bound.bounds.items():
        print(f"  {name:10s} {value:12.5g}   the paper's is {bound.bounds['paper'] / value:8.2f} times it")
    print(f"  sampled    {sampled:12.5g}   (estimated, {len(test)} test images)")
    return {
        "about": f"the paper's network, ERM with label smoothing 0.1, {epochs} epochs",
        "processor_seconds": seconds,
        "accuracy": accuracy,
        "bounds": bound.bounds,
        "images": len(test),
        "sampled": sampled,
    }


def some(data: SplitDataset, count: int, args: Args) -> Samples:
    """So many test images, or the share of them that was asked for: random, every class with its share."""
    count = max(1, round(count * args.share))
    return Subset.of(data.test, f"{args.data}@test", count, seed=args.seed, stratify=True).data


def around(data: SplitDataset, args: Args) -> dict[str, Any]:
    """Bounds on the balls around test images."""
    model, radius = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ELU(), nn.Linear(512, 10)), 0.1
    train(model, data.train, 1, args)
    test = some(data, 10_000, args)
    start = time.process_time()
    local = certus.bounds.local_smoothness(model, test.inputs, test.targets, radius)
    seconds = time.process_time() - start
    whole = certus.input_smoothness(model, input_shape=(1, 28, 28)).curvature
    median = float(local.curvature.median())
    print(f"784-512-10: {len(test)} balls of radius {radius} in {seconds:.1f} s of the processor")
    print(f"  everywhere {whole:.4g}; on a ball, median {median:.4g}")
    return {
        "about": f"784-512-10 ELU network, ERM, 1 epoch; balls of radius {radius}",
        "processor_seconds": seconds,
        "images": len(test),
        "everywhere": whole,
        "median": median,
    }


def train(model: nn.Module, data: Samples, epochs: int, args: Args, label_smoothing: float = 0.0) -> None:
    """ERM by Adam 0.001."""
    certus.fit(
        model,
        data[: max(args.batch_size, round(len(data) * args.share))],
        criterion=certus.CrossEntropy(label_smoothing),
        epochs=epochs,
        batch_size=args.batch_size,
        seed=args.seed,
    )


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
