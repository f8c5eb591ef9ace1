"""Images of 8 bits as a data set: scaled to [0, 1], channels first, in the box of all images."""

from __future__ import annotations

import torch
from torch import Tensor

from certus.data.arrays import Bytes
from certus.data.base import DataSet
from certus.data.targets import Targets
from certus.domains import Box
from certus.split import Split

PIXELS = "pixels in [0, 1]"


def image_set(name: str, pixels: Bytes, targets: Targets, rows: dict[str, Tensor], sha256: str) -> DataSet:
    """A data set of images.

    Args:
        pixels: (n, height, width) or (n, channels, height, width) uint8; grey images get a channel of 1.
        targets: of all n images.
    """
    images = torch.from_numpy(pixels if pixels.ndim != 3 else pixels[:, None])
    values = targets.tensor(name)

    def part(rows: Tensor) -> Split:
        # Chosen as bytes and scaled afterwards: a quarter of the memory is moved about.
        return Split(images[rows].float().div_(255), values[rows])

    return DataSet(
        name=name,
        train=part(rows["train"]),
        calibration=part(rows["calibration"]),
        test=part(rows["test"]),
        domain=Box(0.0, 1.0),
        classes=targets.classes,
        units=PIXELS,
        class_names=targets.class_names,
        rows=rows,
        sha256=sha256,
    )
