"""The paper's synthetic data (sec:toy): a Gaussian disc inside a ring, with a wide margin between.

X ~ N(0, I₂),  Y = 1{‖X‖₂ > √2},  without the points with ‖X‖₂ ∈ (√2/1.3, 1.3·√2)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from certus.data.base import DataSet
from certus.data.splits import digest_arrays
from certus.domains import Unbounded
from certus.errors import require
from certus.split import Split

INNER_RADIUS, OUTER_RADIUS = math.sqrt(2) / 1.3, 1.3 * math.sqrt(2)


def rings(train: int = 10_000, calibration: int = 4_000, test: int = 4_000, seed: int = 0) -> DataSet:
    """Samples of the paper's toy distribution, as (n, 2) float32 inputs with labels 0 (disc) and 1 (ring).

    Args:
        train, calibration, test: numbers of samples *after* the margin is removed.

    About 71% of the samples are of class 0.

    >>> data = rings(train=100)
    >>> tuple(data.train.inputs.shape), len(data.test)
    ((100, 2), 4000)
    """
    sizes = [train, calibration, test]
    for name, size in zip(("train", "calibration", "test"), sizes, strict=True):
        require(size >= 1, name, "be at least 1", size)
    points = _outside_margin(sum(sizes), torch.Generator().manual_seed(seed))
    labels = (points.norm(dim=1) > math.sqrt(2)).long()
    everything = Split(points, labels)
    # The points are drawn in a random order as it is.
    rows = dict(zip(("train", "calibration", "test"), torch.arange(sum(sizes)).split(sizes), strict=True))
    return DataSet(
        name="rings",
        train=everything[rows["train"]],
        calibration=everything[rows["calibration"]],
        test=everything[rows["test"]],
        domain=Unbounded(),
        classes=2,
        units="units of the plane, in which the Gaussian has standard deviation 1",
        class_names=("disc", "ring"),
        rows=rows,
        sha256=digest_arrays({"inputs": points.numpy(), "targets": labels.numpy()}),
    )


def _outside_margin(count: int, generator: torch.Generator) -> Tensor:
    """The first ``count`` Gaussian points that do not fall into the margin."""
    kept = torch.empty(0, 2)
    while len(kept) < count:
        # 63% of the draws survive.
        drawn = torch.randn(2 * count, 2, generator=generator)
        radius = drawn.norm(dim=1)
        kept = torch.cat([kept, drawn[(radius <= INNER_RADIUS) | (radius >= OUTER_RADIUS)]])
    return kept[:count]
