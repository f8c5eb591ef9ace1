"""Data sets without a download: three tables and the digits of scikit-learn, and the paper's rings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from certus.data import Samples
from certus.datasets.base import (
    PARTS,
    PIXELS,
    SplitDataset,
    Targets,
    digest_arrays,
    in_fifths,
    split_samples,
)
from certus.datasets.encoding import Column, contents, table
from certus.domains import Box, Unbounded
from certus.errors import require


def breast_cancer(seed: int = 0, *, standardize: bool = True) -> SplitDataset:
    """569 tumours, 30 measurements each: malignant (0) or benign (1).

    >>> data = breast_cancer()
    >>> tuple(data.train.inputs.shape), data.classes, data.class_names
    ((343, 30), 2, ('malignant', 'benign'))
    """
    return _sklearn_table("breast-cancer", seed, standardize)


def wine(seed: int = 0, *, standardize: bool = True) -> SplitDataset:
    """178 wines, 13 chemical measurements each, of three cultivars.

    >>> tuple(wine().train.inputs.shape), wine().classes
    ((108, 13), 3)
    """
    return _sklearn_table("wine", seed, standardize)


def diabetes(seed: int = 0, *, standardize: bool = True) -> SplitDataset:
    """442 patients, 10 measurements each, and the progression of their diabetes a year later: a regression.

    The source codes sex as 1 or 2; it is left a number.

    >>> data = diabetes()
    >>> tuple(data.train.inputs.shape), data.classes, [round(number) for number in data.target_scale]
    ((266, 10), None, [155, 77])
    """
    return _sklearn_table("diabetes", seed, standardize, scaled=False)


def _sklearn_table(name: str, seed: int, standardize: bool, **options: Any) -> SplitDataset:
    from sklearn import datasets  # here, because it takes a second to import

    source = getattr(datasets, f"load_{name.replace('-', '_')}")(**options)
    columns = [
        Column(str(label), np.asarray(values, dtype=np.float64))
        for label, values in zip(source.feature_names, source.data.T, strict=True)
    ]
    classes = tuple(str(label) for label in source.target_names) if "target_names" in source else None
    values = np.asarray(source.target, dtype=np.int64 if classes else np.float64)
    targets = Targets(values, len(classes) if classes else None, classes)
    rows = in_fifths(name, len(values), seed)
    sha256 = digest_arrays(contents(columns, targets))
    return table(name, columns, targets, rows, sha256=sha256, standardize=standardize)


def digits(seed: int = 0) -> SplitDataset:
    """Load 1,797 handwritten digits as (n, 1, 8, 8) float32 images in [0, 1], split 60% / 20% / 20%.

    >>> data = digits()
    >>> tuple(data.train.inputs.shape), len(data.calibration), len(data.test)
    ((1079, 1, 8, 8), 359, 359)
    """
    from sklearn.datasets import load_digits  # here, because it takes a second to import

    pixels, labels = load_digits(return_X_y=True)
    # The file holds grey levels 0 … 16.
    inputs = torch.as_tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    samples = Samples(inputs, torch.as_tensor(labels, dtype=torch.long))
    return SplitDataset(
        name="digits",
        **split_samples(samples, in_fifths("digits", len(inputs), seed)),
        domain=Box(0.0, 1.0),
        classes=10,
        units=PIXELS,
        sha256=digest_arrays({"inputs": pixels, "targets": labels}),
    )


INNER_RADIUS, OUTER_RADIUS = math.sqrt(2) / 1.3, 1.3 * math.sqrt(2)


def rings(train: int = 10_000, calibration: int = 4_000, test: int = 4_000, seed: int = 0) -> SplitDataset:
    """Sample the paper's toy distribution (sec:toy): (n, 2) float32 inputs, labels 0 (disc) and 1 (ring).

        X ~ N(0, I₂),  Y = 1{‖X‖₂ > √2},  without the points with ‖X‖₂ ∈ (√2/1.3, 1.3·√2)

    About 71% of the samples are of class 0.

    Args:
        train, calibration, test: numbers of samples *after* the margin is removed.

    >>> data = rings(train=100)
    >>> tuple(data.train.inputs.shape), len(data.test)
    ((100, 2), 4000)
    """
    sizes = [train, calibration, test]
    for name, size in zip(PARTS, sizes, strict=True):
        require(size >= 1, name, "be at least 1", size)
    count, generator = sum(sizes), torch.Generator().manual_seed(seed)
    points = torch.empty(0, 2)
    while len(points) < count:
        # 63% of the draws lie outside the margin.
        draws = torch.randn(2 * count, 2, generator=generator)
        radius = draws.norm(dim=1)
        points = torch.cat([points, draws[(radius <= INNER_RADIUS) | (radius >= OUTER_RADIUS)]])
    points = points[:count]
    labels = (points.norm(dim=1) > math.sqrt(2)).long()
    # The points are drawn in a random order as it is.
    rows = dict(zip(PARTS, torch.arange(count).split(sizes), strict=True))
    return SplitDataset(
        name="rings",
        **split_samples(Samples(points, labels), rows),
        domain=Unbounded(),
        classes=2,
        units="units of the plane, in which the Gaussian has standard deviation 1",
        class_names=("disc", "ring"),
        sha256=digest_arrays({"inputs": points.numpy(), "targets": labels.numpy()}),
    )
