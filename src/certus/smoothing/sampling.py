"""Gaussian noise, the predictions at noisy copies of samples, and their cache.

For c = (x − x₀)ᵀA(x − x₀) the noise has the covariance σ²A⁻¹: in the coordinates A^{½}x, cost and noise are
those of squared L2. Under a mask there is noise in the free coordinates only, and A is their block.

Noise is a function of (seed, stream, sample): Philox 4x64-10 with the key (seed, stream), and a counter that
starts at the sample's number. So every sample has noise of its own, whatever the batches and threads. Noise
shared by all samples would make them dependent, and the confidence false.

Cached predictions are bound to their noise, by seed and stream, and to their samples, by a digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from certus.certificates.cache import TensorCache
from certus.costs import Cost, Mahalanobis, Masked, SquaredL2, WeightedL2
from certus.data import Samples
from certus.errors import UnsupportedError, require, require_number, require_seed
from certus.losses import Criterion
from certus.smoothing.predictors import Predictor
from certus.storage.tensors import digest

CERTIFIED, CALIBRATION, ATTACK, FRESH = 2, 3, 4, 5
"""Streams; 0 and 1 are those of ``certus.data``. From ``FRESH`` on, one for each measurement."""

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
        double = like.dtype not in (torch.float16, torch.bfloat16, torch.float32)
        shape = (copies, *like.shape)
        plain = torch.from_numpy(generator.standard_normal(shape, np.float64 if double else np.float32))
        return (self.sigma * self.cost.whiten(plain)).to(plain.dtype)


def sample_generator(seed: int, stream: int, sample: int) -> np.random.Generator:
    """Return the random generator of one sample's noise."""
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
    """Yield the noisy copies of all samples, or of ``rows``, in batches: of whole samples if they fit,
    else of parts of one sample."""
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


_PORTION = 512  # samples that are cached together


@dataclass(frozen=True)
class ClippedLoss:
    """min(ℓ, B)/B, between 0 and 1; a NaN loss counts as 1."""

    criterion: Criterion
    clip: float

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = self.criterion(outputs, targets).double()
        low = float(losses.nan_to_num(0.0).min()) if len(losses) else 0.0
        require(low >= 0, "criterion", "have no negative losses", low)
        return (losses / self.clip).nan_to_num(1.0, posinf=1.0).clamp(0, 1)


@dataclass(frozen=True, eq=False)
class NoisyPredictions:
    """Predictions at m noisy copies of each of n samples.

    Attributes:
        labels: (n, m) int32 codes; None for a regression.
        errors: (n,) int64, number of wrong labels; None for a regression.
        losses: (n, m) float64 between 0 and 1; None without a loss.
    """

    labels: Tensor | None
    errors: Tensor | None
    losses: Tensor | None


def predict_noisy(
    predictor: Predictor,
    data: Samples,
    noise: Noise,
    *,
    copies: int,
    seed: int,
    stream: int,
    loss: ClippedLoss | None = None,
    progress: Callable[[int], None] = lambda copies: None,
    cache: PredictionCache | None = None,
) -> NoisyPredictions:
    """Predict the noisy copies of every sample, or take portions of samples from the cache."""
    labelled, count = not data.targets.is_floating_point(), len(data)
    predictions: dict[str, Tensor] = {}
    if labelled:
        predictions["labels"] = torch.empty(count, copies, dtype=torch.int32)
    if loss is not None:
        predictions["losses"] = torch.empty(count, copies, dtype=torch.float64)

    def ask(rows: range) -> None:
        for batch in noisy_batches(data.inputs, noise, copies=copies, seed=seed, stream=stream, rows=rows):
            points, place = batch.points, (batch.rows, batch.copies)
            size, scores = (batch.rows.stop - batch.rows.start, -1), None
            if loss is not None:
                scores = predictor.scores(points)
                targets = data.targets[batch.rows].repeat_interleave(len(points) // size[0], 0)
                predictions["losses"][place] = loss(scores, targets).reshape(size)
            if labelled:
                shared = scores is not None and predictor.predict is None
                labels = predictor.label_codes(scores, len(points)) if shared else predictor.labels(points)
                predictions["labels"][place] = labels.int().reshape(size)
            progress(len(batch.points))

    for first in range(0, count, _PORTION):
        rows, portion = range(first, min(first + _PORTION, count)), slice(first, first + _PORTION)
        some, part = data[portion], {name: each[portion] for name, each in predictions.items()}
        cached = None if cache is None else cache.load(stream, first, some, part)
        if cached is None:
            ask(rows)
            if cache is not None:
                cache.save(stream, first, some, {name: each.clone() for name, each in part.items()})
            continue
        for name, each in part.items():
            each.copy_(cached[name])
        progress(len(rows) * copies)
    errors = (predictions["labels"] != data.targets[:, None]).sum(1) if labelled else None
    return NoisyPredictions(predictions.get("labels"), errors, predictions.get("losses"))


@dataclass(frozen=True)
class PredictionCache(TensorCache):
    """Labels and losses of noisy copies, in a folder."""

    def load(
        self, stream: int, first: int, data: Samples, like: dict[str, Tensor]
    ) -> dict[str, Tensor] | None:
        """Return the cached tensors of the samples from ``first`` on, if they have these names, shapes and
        types."""
        words = f"What was kept of samples {first} to {first + len(data) - 1}"
        name = f"{stream}-{first}"
        tensors = self.read(name, words, _about_draws(stream, first, data))
        if tensors is None:
            return None
        kinds = [
            {key: (tensor.shape, tensor.dtype) for key, tensor in each.items()} for each in (tensors, like)
        ]
        losses = tensors.get("losses", torch.zeros(0))
        if kinds[0] == kinds[1] and bool(((losses >= 0) & (losses <= 1)).all()):  # NaN fails, too
            return tensors
        self.drop(name, words, "its tensors have other names, shapes or types")
        return None

    def save(self, stream: int, first: int, data: Samples, tensors: dict[str, Tensor]) -> None:
        self.write(f"{stream}-{first}", tensors, _about_draws(stream, first, data))


def _about_draws(stream: int, first: int, data: Samples) -> dict[str, object]:
    samples = digest({"inputs": data.inputs, "targets": data.targets})
    return {"stream": stream, "first": first, "samples": samples}
