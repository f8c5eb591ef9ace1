"""Handwritten digits, 8 × 8 pixels: 1,797 real images that come with scikit-learn."""

from __future__ import annotations

import torch

from certus.data.base import DataSet
from certus.data.images import PIXELS
from certus.data.splits import digest_arrays, in_fifths
from certus.domains import Box
from certus.split import Split


def digits(seed: int = 0) -> DataSet:
    """The digits as (n, 1, 8, 8) float32 images in [0, 1], in a random order: 60% / 20% / 20%.

    >>> data = digits()
    >>> tuple(data.train.inputs.shape), len(data.calibration), len(data.test)
    ((1079, 1, 8, 8), 359, 359)
    """
    from sklearn.datasets import load_digits  # here, because it takes a second to import

    pixels, labels = load_digits(return_X_y=True)
    # The file holds grey levels 0 … 16.
    inputs = torch.as_tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    everything = Split(inputs, torch.as_tensor(labels, dtype=torch.long))
    rows = in_fifths("digits", len(inputs), seed)
    return DataSet(
        name="digits",
        train=everything[rows["train"]],
        calibration=everything[rows["calibration"]],
        test=everything[rows["test"]],
        domain=Box(0.0, 1.0),
        classes=10,
        units=PIXELS,
        rows=rows,
        sha256=digest_arrays({"inputs": pixels, "targets": labels}),
    )
