"""How long the smoothness bounds take, and how tight they are beside the paper's.

On the paper's MNIST network, trained without robustness for a few epochs, and on a 784-512-10 network:

    python -m benchmarks.smoothness cnn     # minutes of training for each epoch
    python -m benchmarks.smoothness mlp
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import nn

import certus
from certus.data import DataSet, Split
from certus.smoothness import spectral


@dataclass(frozen=True)
class Args:
    epochs: int = 1
    batch_size: int = 256
    samples: int = 256
    radius: float = 0.1
    seed: int = 0
    folder: Path = Path("benchmarks/results")


def main(part: str, args: Args) -> None:
    data = certus.data.load("mnist")
    torch.manual_seed(args.seed)
    found = everywhere(certus.models.mnist_cnn(), data, args) if part == "cnn" else around(data, args)
    config = {name: str(value) for name, value in asdict(args).items()}
    output = args.folder / f"smoothness_{part}.json"
    output.write_text(json.dumps({"args": config, **found}, indent=2) + "\n")
    print(f"written to {output}")


def everywhere(model: nn.Module, data: DataSet, args: Args) -> dict[str, object]:
    """The bounds for all inputs after ordinary training, their time, and the curvature at test images."""
    train(model, data.train, args)
    spectral._CACHE.clear()
    start = time.perf_counter()
    bound = certus.input_smoothness(model, input_shape=(1, 28, 28))
    seconds = time.perf_counter() - start
    test = data.test[: args.samples]
    curved = certus.largest_curvature(
        certus.ModelLoss(model.double()), test.inputs.double(), test.targets, max_products=20
    )
    sampled = float(curved.largest.max())
    with torch.no_grad():
        accuracy = float((model(data.test.inputs.double()).argmax(1) == data.test.targets).double().mean())
    print(f"MNIST network, ERM, test accuracy {accuracy:.4f}: bounds in {seconds:.2f} s")
    for name, value in bound.bounds.items():
        print(f"  {name:10s} {value:12.5g}   the paper's is {bound.bounds['paper'] / value:8.2f} times it")
    print(f"  sampled    {sampled:12.5g}   (estimated, {args.samples} test images)")
    return {"seconds": seconds, "accuracy": accuracy, "bounds": bound.bounds, "sampled": sampled}


def around(data: DataSet, args: Args) -> dict[str, object]:
    """Bounds on the balls around 10,000 test images."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 512), nn.ELU(), nn.Linear(512, 10))
    train(model, data.train, args)
    start = time.perf_counter()
    local = certus.local_smoothness(model, data.test.inputs, data.test.targets, args.radius)
    seconds = time.perf_counter() - start
    whole = certus.input_smoothness(model, input_shape=(1, 28, 28)).curvature
    median = float(local.curvature.median())
    print(f"784-512-10: {len(data.test)} balls of radius {args.radius} in {seconds:.1f} s")
    print(f"  everywhere {whole:.4g}; on a ball, median {median:.4g}")
    return {"seconds": seconds, "images": len(data.test), "everywhere": whole, "median": median}


def train(model: nn.Module, data: Split, args: Args) -> None:
    torch.manual_seed(args.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(args.epochs):
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(epoch))
        for rows in order.split(args.batch_size):
            batch = data[rows]
            nn.functional.cross_entropy(model(batch.inputs), batch.targets).backward()
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "mlp", Args())
