"""Gaussian noise in the geometry of a transport cost, the same whenever it is drawn again.

For c = (x − x₀)ᵀA(x − x₀) the noise has the covariance σ²A⁻¹: in the coordinates A^{½}x cost and noise are
those of squared L2. Under a mask it is in the free coordinates alone, where the block of A takes the part of
A.

What is drawn is a function of (seed, stream, sample): Philox 4x64-10 with the key (seed, stream), and a
counter that starts at the sample's number. So every sample has noise of its own, whatever the batches and
threads. Noise shared by all samples would make them dependent, and the confidence false.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from certus.costs import Cost, Mahalanobis, Masked, SquaredL2, WeightedL2
from certus.errors import UnsupportedError, require, require_number, require_seed

CERTIFIED, CALIBRATION, ATTACK, FRESH = 2, 3, 4, 5
"""Streams; 0 and 1 are those of ``certus.subsets``. From ``FRESH`` on, one for each measurement."""

_ROOM = 2**24  # numbers in a batch of noisy copies: 64 MB in float32
_ROWS = 16_384


@dataclass(frozen=True, eq=False)
class Noise:
    """σ A^{−½} Z for inputs of one shape."""

    sigma: float
    cost: Cost

    def __post_init__(self) -> None:
        require_number("sigma", self.sigma)
        require(isinstance(self.cost, Cost), "cost", "be a Cost, such as SquaredL2()", self.cost)
        inner = self.cost.inner if type(self.cost) is Masked else self.cost
        if type(inner) not in (SquaredL2, WeightedL2, Mahalanobis):
            raise UnsupportedError(
                f"Gaussian noise goes with SquaredL2, WeightedL2 and Mahalanobis, masked or not; "
                f"got {type(inner).__name__}, which would need noise of another kind."
            )

    def draws(self, like: Tensor, copies: int, generator: np.random.Generator) -> Tensor:
        """(copies, …) of noise, of the shape of one input; in float32 at least, which the sum is taken in, or
        the noise of coarse inputs would be far from Gaussian."""
        kind: type[np.float32] | type[np.float64]
        kind = np.float32 if like.dtype in (torch.float16, torch.bfloat16, torch.float32) else np.float64
        plain = torch.from_numpy(generator.standard_normal((copies, *like.shape), dtype=kind))
        return (self.sigma * self.cost.whiten(plain)).to(plain.dtype)


def sample_generator(seed: int, stream: int, sample: int) -> np.random.Generator:
    """The source of one sample's noise."""
    require_seed(seed)
    key = np.array([seed, stream], dtype=np.uint64)
    counter = np.array([0, 0, 0, sample], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


@dataclass(frozen=True, eq=False)
class NoisyBatch:
    """Noisy copies of some samples: ``points`` holds ``copies`` of each of the samples ``rows``."""

    rows: slice
    copies: slice
    points: Tensor


def noisy_batches(
    inputs: Tensor, noise: Noise, *, copies: int, seed: int, stream: int, rows: range | None = None
) -> Iterator[NoisyBatch]:
    """All noisy copies, of some samples if ``rows`` says which, a batch at a time: whole samples while they
    fit, parts of one where they do not."""
    rows = range(len(inputs)) if rows is None else rows
    limit = max(1, min(_ROWS, _ROOM // max(1, inputs[0].numel())))
    together = max(1, limit // copies)
    for start in range(rows.start, rows.stop, together):
        some = slice(start, min(start + together, rows.stop))
        sources = [sample_generator(seed, stream, row) for row in range(some.start, some.stop)]
        for first in range(0, copies, limit):
            count = min(limit, copies - first)
            parts = [
                inputs[row] + noise.draws(inputs[row], count, source)
                for row, source in enumerate(sources, some.start)
            ]
            yield NoisyBatch(some, slice(first, first + count), torch.cat(parts))
