"""Inputs of the paper's feature network: 7×7×2048 numbers in [0, 1] for each photograph (section:dogs).

    photograph → enlarged to 224 × 224 → ResNet-50 with ImageNet's weights → (2048, 7, 7) → ÷ the largest

The photographs are CIFAR-10's, in place of Stanford Dogs. Features are kept in files of 100 photographs each,
as float16, so that an interrupted pass goes on; in use they are float32, and divided by one number, the
largest feature of the training photographs. A test feature above that becomes 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from torch import Tensor

from certus.data import Samples
from certus.datasets.base import digest_arrays
from certus.datasets.fetched import CIFAR10, CIFAR10_CLASSES
from certus.storage.files import RunError
from certus.storage.write import write_atomically
from studies.dogs.resnet50 import EXPECTED as WEIGHTS
from studies.dogs.resnet50 import Resnet50, pretrained, resnet50_weights
from studies.workspace import Workspace

FEATURE_SIDE, PORTION, AT_ONCE = 224, 100, 20
DOG = CIFAR10_CLASSES.index("dog")
DOG_BREEDS = range(151, 269)
"""The classes of ImageNet that are breeds of dogs."""


@dataclass(frozen=True)
class Features:
    """(n, 2048, 7, 7) features in [0, 1] of training and test photographs, and what they were divided by."""

    train: Samples
    test: Samples
    largest: float


def photographs(part: str, count: int) -> Samples:
    """Return the first photographs of CIFAR-10's "train" or "test", (count, 3, 32, 32) in [0, 1]."""
    arrays, _ = CIFAR10.read()
    images, labels = arrays[f"{part}_images"][:count], arrays[f"{part}_labels"][:count]
    return Samples(torch.from_numpy(images).float() / 255, torch.from_numpy(labels.astype(np.int64)))


def enlarged(images: Tensor, side: int = FEATURE_SIDE) -> Tensor:
    """Resize to (n, 3, side, side), bilinear, channels last, which is the fastest on CPUs."""
    grown = torch.nn.functional.interpolate(images, (side, side), mode="bilinear", align_corners=False)
    return grown.contiguous(memory_format=torch.channels_last)


def photo_features(workspace: Workspace, train: int, test: int) -> Features:
    """Load or compute the features of training and test photographs."""
    network: list[Resnet50] = []  # read when the first portion is missing
    parts = {
        name: (_load_or_compute(workspace.folder, name, photographs(name, count), network))
        for name, count in (("train", train), ("test", test))
    }
    largest = float(parts["train"].inputs.max())
    return Features(scaled(parts["train"], largest), scaled(parts["test"], largest), largest)


def scaled(raw: Samples, largest: float) -> Samples:
    """Divide features by ``largest``, and clip them at 1."""
    return Samples(raw.inputs.div_(largest).clamp_(max=1), raw.targets)


def _load_or_compute(folder: Path, part: str, pictures: Samples, network: list[Resnet50]) -> Samples:
    """Return the features of all pictures as float32, portion by portion."""
    whole = torch.empty(len(pictures), 2048, FEATURE_SIDE // 32, FEATURE_SIDE // 32)
    place = (
        folder / "features" / f"resnet50-{WEIGHTS['sha256'][:12]}-cifar10-{CIFAR10.expected['sha256'][:12]}"
    )
    for first in range(0, len(pictures), PORTION):
        images = pictures.inputs[first : first + PORTION]
        path = place / f"{part}-{first:05d}-{len(images)}.safetensors"
        portion = read_portion(path) if path.exists() else None
        if portion is None:
            network = network or [feature_network()]
            portion = _computed(network[0], images)
            write_portion(path, portion)
        whole[first : first + PORTION] = torch.from_numpy(portion)
    return Samples(whole, pictures.targets)


def feature_network() -> Resnet50:
    """Return ResNet-50 for ImageNet's classes, in eval mode."""
    return pretrained(resnet50_weights()).eval()


def _computed(network: Resnet50, images: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float16]]:
    with torch.no_grad():
        parts = [
            network.features(enlarged(images[at : at + AT_ONCE])) for at in range(0, len(images), AT_ONCE)
        ]
    return torch.cat(parts).contiguous().half().numpy()


def write_portion(path: Path, features: np.ndarray[tuple[int, ...], np.dtype[np.float16]]) -> None:
    """Write a portion atomically, with its checksum."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {"features": features}
    write_atomically(path, save(arrays, {"sha256": digest_arrays(arrays)}))


def read_portion(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float16]]:
    """Read a portion; raise ``RunError`` if its checksum does not match."""
    from safetensors import safe_open

    try:
        with safe_open(path, framework="np") as stored:
            checksum = (stored.metadata() or {}).get("sha256")
        arrays = load_file(path)
        fits = checksum == digest_arrays(arrays)
    except (OSError, ValueError, SafetensorError):
        fits = False
    if not fits:
        raise RunError(f"{path} is corrupt: remove it, and its features are computed again.")
    return arrays["features"]
