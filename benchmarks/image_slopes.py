"""Slopes in images: through PyTorch's own gradient of convolutions, and by the short way, side by side.

    python -m benchmarks.image_slopes

One thread, timed by the processor's clock, in turns. The result is the ratio of the best times within this
run: below 1 the short way is quicker. Windows of 3 × 3 do not take it, and show what asking costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import nn

import certus
from benchmarks._options import OUTPUT, perform, read_options
from benchmarks._results import write_result
from benchmarks.inner import times
from certus.losses import loss_and_slope


@dataclass(frozen=True)
class Args:
    images: Annotated[int, "in a batch"] = 128
    repeats: Annotated[int, "how often each time is taken"] = 9
    seed: Annotated[int, "of the weights and images"] = 0
    output: Annotated[Path, OUTPUT] = Path("benchmarks/results/image_slopes.json")


def networks() -> dict[str, tuple[nn.Module, tuple[int, int, int]]]:
    """Name → network and the shape of its images."""
    thirds = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ELU(), nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ELU()
    )
    wide = nn.Sequential(nn.Conv2d(3, 64, 7, stride=2, padding=3), nn.ELU(), nn.AvgPool2d(8))
    return {
        "the paper's, 1 × 28 × 28": (certus.models.mnist_cnn(), (1, 28, 28)),
        "3 × 3 windows, 3 × 32 × 32": (
            nn.Sequential(thirds, nn.Flatten(), nn.Linear(64 * 256, 10)),
            (3, 32, 32),
        ),
        "7 × 7 windows, 3 × 96 × 96": (
            nn.Sequential(wide, nn.Flatten(), nn.Linear(64 * 36, 10)),
            (3, 96, 96),
        ),
    }


def main(args: Args) -> None:
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    targets = torch.arange(args.images) % 10
    rows = []
    for name, (model, shape) in networks().items():
        loss = certus.ModelLoss(model)
        images = torch.rand(args.images, *shape)

        def plain(loss: certus.ModelLoss = loss, images: torch.Tensor = images) -> None:
            leaf = images.clone().requires_grad_()
            torch.autograd.grad(loss(leaf, targets).sum(), leaf)

        def short(loss: certus.ModelLoss = loss, images: torch.Tensor = images) -> None:
            loss_and_slope(loss, images.clone().requires_grad_(), targets)

        own, quick = times([plain, short], args.repeats)
        rows.append({"network": name, "ratio": min(quick) / min(own)})
        print(f"{name}: {min(quick) / min(own):.2f} of the time of PyTorch's own")
    write_result(args, {"rows": rows})


if __name__ == "__main__":
    perform(main, read_options(Args, __doc__))
