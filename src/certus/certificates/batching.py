"""Read the samples of a certification in batches, several times; check them, and count repeated rows.

A certification reads the samples several times: once to count and check them, then for the γ of its grid, the
nearest errors, each round of further γ, and each attack. Every pass must give the same samples in the same
order. So random numbers that torch draws while it reads start from one seed in every pass, and digests reveal
a sample that has changed. Data that can be read once only, such as a generator, are kept in memory.

A confidence assumes independent draws. Copied rows, as from oversampling or joined tables, would count as
evidence more than once. Copies cannot be distinguished from equal draws, so they are counted, and reported
beside the assumption.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, WeightedRandomSampler

from certus.certificates.problem import BATCH, Problem
from certus.data import (
    DataLike,
    Samples,
    SampleStream,
    as_samples,
    as_tensor,
    common_encoding,
    gather_samples,
)
from certus.errors import ArgumentError, LossError, require
from certus.losses import (
    BinaryCrossEntropy,
    Criterion,
    CrossEntropy,
    InferredCriterion,
    Logistic,
    MeanSquaredError,
    SquaredError,
    WeightedCrossEntropy,
    as_criterion,
    inferred_criterion,
)

Keys = np.ndarray[Any, np.dtype[np.int64]]
_MANY = 0.01  # the share of all rows from which repeats are named


def row_keys(inputs: Tensor, targets: Tensor) -> Keys:
    """Return (n,) 64-bit keys of n rows of (n, …) inputs and (n, …) targets; equal rows share a key.

    >>> inputs, targets = torch.tensor([[0.0], [-0.0], [0.0], [1.0]]), torch.tensor([3, 3, 4, 3])
    >>> repeats([row_keys(inputs, targets)])
    1
    """
    columns = [part.detach().cpu().reshape(len(part), -1).double() for part in (inputs, targets)]
    rows = (torch.cat(columns, 1) + 0.0).numpy()  # −0 becomes 0
    return np.fromiter((hash(row.tobytes()) for row in rows), np.int64, len(rows))


def repeats(keys: Sequence[Keys]) -> int:
    """The number of rows that are equal to an earlier one, from the keys of all of them."""
    joined = np.concatenate(keys)
    joined.sort()
    return int((joined[1:] == joined[:-1]).sum())


def repeat_words(repeats: int, samples: int) -> str:
    """Return a sentence that reports many repeated rows; empty for few."""
    if repeats <= _MANY * samples:
        return ""
    return (
        f" Of the {samples:,} rows, {repeats:,} repeat an earlier row and its target exactly. If they are "
        "copies rather than independent draws, the confidence does not hold."
    )


Readable = Samples | SampleStream | tuple[Tensor, None]
"""Data that can be read again; inputs without targets stand for the network's own predictions."""

_SEED = 0


def readable(data: DataLike) -> Readable:
    """Convert data to a form that can be read several times."""
    if isinstance(data, tuple) and len(data) == 2 and data[1] is None:
        return as_tensor(data[0], "inputs"), None
    samples = as_samples(data)
    if isinstance(samples, SampleStream) and not samples.repeatable:
        return gather_samples(samples)
    return samples


def provable_criterion(
    criterion: Criterion | None,
    source: Readable,
    class_weights: Sequence[float] | None,
    labels: str = "given",
) -> tuple[Criterion, Sequence[float] | None]:
    """Return the criterion as the bounds support it, if they do, and the class weights that it includes.

    A criterion that depends on the targets of data outside memory is inferred when they are read.
    """
    given = labels == "given"
    provable = as_criterion(criterion, source.targets if given and isinstance(source, Samples) else None)
    match provable:
        case InferredCriterion() if isinstance(source, Samples | tuple):
            return inferred_criterion(_some_targets(source) if given else None), class_weights
        case MeanSquaredError():
            targets = _some_targets(source) if given else None
            single = targets is not None and targets.numel() == len(targets)
            return (SquaredError() if single else provable), class_weights
        case WeightedCrossEntropy(label_smoothing=0.0):
            weights, provable = tuple(provable.weights.double().tolist()), CrossEntropy()
        case BinaryCrossEntropy(1.0):
            return Logistic(), class_weights
        case BinaryCrossEntropy(positive_weight):
            weights, provable = (1.0, positive_weight), Logistic()
        case _:
            return provable, class_weights
    rule = "be left out where the criterion has weights of its own"
    require(class_weights is None, "class_weights", rule, class_weights)
    return provable, weights


def _some_targets(source: Readable) -> Tensor | None:
    """Return the targets of the first portion, or of all samples in memory; None without targets."""
    first = source if isinstance(source, Samples) else next(iter(_portions(source, BATCH)), None)
    return first.targets if isinstance(first, Samples) else None


def require_one_draw(data: object) -> None:
    """Raise ``ArgumentError`` for data that are not independent draws: weights, samplers that repeat rows."""
    loader = data.source if isinstance(data, SampleStream) else data
    got = None
    if isinstance(data, Samples) and data.weights is not None:
        got = "weighted samples, which are not independent draws"
    elif isinstance(loader, DataLoader):
        samplers = (loader.sampler, getattr(loader.batch_sampler, "sampler", None))
        if any(map(_repeats, samplers)):
            got = "a loader whose sampler repeats samples or weights them"
        elif isinstance(loader.dataset, IterableDataset) and loader.num_workers > 1:
            got = "an IterableDataset with several workers, which may repeat samples: set num_workers=0"
    require(got is None, "data", "be independent draws from a population for a `confidence`", got)


def _repeats(sampler: object) -> bool:
    """Whether a sampler may repeat samples, or prefer some to others."""
    if isinstance(sampler, RandomSampler):
        return sampler.replacement or sampler.num_samples > len(sampler.data_source)
    return isinstance(sampler, WeightedRandomSampler)


_SMALL, _FACTOR, _PORTIONS = 64, 8, 4


def portion_factor(inputs: Tensor, count: int) -> int:
    """Return the size of a portion in units of ``BATCH``: a function of the data alone, never of the workers.

    Small inputs take longer one by one than together; but there should be portions for several workers.

    Args:
        inputs: some of them; count: the number of all.
    """
    return max(1, min(_FACTOR, count // (_PORTIONS * BATCH))) if inputs[0].numel() <= _SMALL else 1


@dataclass(frozen=True, eq=False)
class Portions:
    """A problem about many samples; each iteration reads all of them, as problems of at most ``factor`` times
    ``BATCH`` samples.

    Attributes:
        question: the problem for the first portion.
        count: n; repeats: number of rows that equal an earlier row and its target.
        digests: digests of each ``BATCH`` of data that are not in memory; sha256: of all.
        predicted: whether the model's predictions replace the targets.
        offset: the number of the first portion, for the cache.
    """

    question: Problem
    source: Readable
    count: int
    repeats: int = 0
    digests: list[bytes] = field(default_factory=list)
    sha256: str = ""
    predicted: bool = False
    factor: int = 1
    offset: int = 0

    @staticmethod
    def of(source: Readable, ask: Callable[[DataLike], Problem], *, predicted: bool = False) -> Portions:
        """Count and check all samples; ``ask`` constructs the problem from the first portion."""
        question, count, digests = None, 0, []
        keys, whole = list[Keys](), hashlib.sha256()
        for part in _portions(source, BATCH):
            try:
                about = ask(part) if question is None else question.about(_labelled(part, predicted))
            except (ArgumentError, LossError) as reason:
                if count == 0:
                    raise
                raise type(reason)(f"{reason} (Counted from sample {count:,} on.)") from None
            question = about if question is None else question
            count += len(about)
            keys.append(row_keys(about.inputs, about.targets))
            own = _digest(about)
            whole.update(own)
            if isinstance(source, SampleStream):
                digests.append(own)
        if question is None:
            raise ArgumentError("`data` must hold at least one batch; got none.")
        sha256, factor = whole.hexdigest(), portion_factor(about.inputs, count)
        return Portions(question, source, count, repeats(keys), digests, sha256, predicted, factor)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Problem]:
        digests = iter(self.digests)
        for part in _portions(self.source, self.factor * BATCH):
            about = self.question.about(_labelled(part, self.predicted))
            for chunk in torch.arange(len(about)).split(BATCH) if self.digests else ():
                if next(digests, None) != _digest(about.select(chunk)):
                    raise _changed()
            yield about
        if next(digests, None) is not None:
            raise _changed()

    def blocks(self, first: int, others: int) -> Iterator[Portions]:
        """Read all samples once, some portions at a time, which are then in memory.

        Args:
            first, others: numbers of portions in the first block, and in each of the others.
        """
        portions, offset, size = iter(self), 0, first
        while block := list(islice(portions, size)):
            inputs, targets = (
                torch.cat([getattr(each, name) for each in block]) for name in ("inputs", "targets")
            )
            samples = Samples(inputs, targets)
            yield replace(
                self, source=samples, count=len(samples), digests=[], predicted=False, offset=offset
            )
            offset, size = offset + len(block), others


def _labelled(part: DataLike, predicted: bool) -> DataLike:
    """Return the samples, without targets if predictions replace them."""
    return (part.inputs, None) if predicted and isinstance(part, Samples) else part


def _changed() -> ArgumentError:
    return ArgumentError(
        "`data` must return the same samples in the same order each time, since certification reads it "
        "several times; got others. Pass tensors, or remove shuffling and random transforms that do not use "
        "torch's global generator."
    )


def _portions(source: Readable, size: int) -> Iterator[DataLike]:
    """The samples in order, ``size`` at a time; the last portion may be smaller."""
    if isinstance(source, tuple):
        for part in source[0].split(size):
            yield part, None
        return
    if isinstance(source, Samples):
        yield from source.batches(size)
        return
    waiting: list[Samples] = []
    shape, encoding = None, None
    for piece in _repeatable(source):
        require(piece.weights is None, "data", "be one `Samples` object if samples have weights", "batches")
        own = tuple(piece.inputs.shape[1:])
        if shape is None:
            shape, encoding = own, piece.encoding
        require(own == shape, "inputs", f"all have the shape {shape} of the first one", own)
        common_encoding([encoding, piece.encoding])
        while len(piece) > 0:
            room = size - sum(map(len, waiting))
            waiting.append(piece[:room])
            piece = piece[room:]
            if len(waiting[-1]) == room:
                yield Samples.concatenate(waiting)
                waiting = []
    if waiting:
        yield Samples.concatenate(waiting)


def _repeatable(source: SampleStream) -> Iterator[Samples]:
    """Use the same random numbers at every reading, and restore the caller's random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        pieces, state = source.batches(), torch.get_rng_state()
    while True:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            piece, state = next(pieces, None), torch.get_rng_state()
        if piece is None:
            return
        yield piece


def _digest(portion: Problem) -> bytes:
    hasher = hashlib.sha256(portion.inputs.numpy().tobytes())
    hasher.update(portion.targets.numpy().tobytes())
    return hasher.digest()
