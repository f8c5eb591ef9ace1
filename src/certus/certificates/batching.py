"""Samples to certify: read again in batches, checked, with repeated rows counted.

A certification reads the samples several times: once to count and check them, then for the γ of its grid, the
nearest errors, each round of further γ, and each attack. Every pass must give the same samples in the same
order. So random numbers that torch draws while it reads start from one seed in every pass, and digests reveal
a sample that has changed. Data that can be read once only, such as a generator, are kept in memory.

A confidence assumes independent draws. Copied rows, as of oversampling or of joined tables, would count as
evidence more than once. Copies cannot be told from draws that happen to be equal: they are counted, and named
beside the assumption.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

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

_MANY = 0.01  # the share of all rows from which repeats are named


def row_keys(inputs: Tensor, targets: Tensor) -> set[int]:
    """A 64-bit key of each (input, target) of (n, …) and (n, …) rows, the same for equal ones.

    >>> inputs, targets = torch.tensor([[0.0], [-0.0], [0.0], [1.0]]), torch.tensor([3, 3, 4, 3])
    >>> len(row_keys(inputs, targets))
    3
    """
    columns = [part.detach().cpu().reshape(len(part), -1).double() for part in (inputs, targets)]
    rows = (torch.cat(columns, 1) + 0.0).numpy()  # −0 becomes 0
    return {hash(row.tobytes()) for row in rows}


def repeat_words(repeats: int, samples: int) -> str:
    """A sentence that names the repeats, if they are many; else nothing."""
    if repeats <= _MANY * samples:
        return ""
    return (
        f" Of the {samples:,} rows, {repeats:,} repeat an earlier row and its target exactly. If they are "
        "copies rather than independent draws, the confidence does not hold."
    )


Readable = Samples | SampleStream | tuple[Tensor, None]
"""What can be read again; inputs without targets stand for the network's own predictions."""

_SEED = 0


def readable(data: DataLike) -> Readable:
    """Samples of whatever form as something that can be read again."""
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
    """The criterion as the bounds know it, if they do, and the weights of the classes that are part of it.

    That of data which are not in memory is inferred when they are read.
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
    """Targets of the first portion, or of all samples where these are in memory; None if there are none."""
    first = source if isinstance(source, Samples) else next(iter(_portions(source)), None)
    return first.targets if isinstance(first, Samples) else None


def require_one_draw(data: object) -> None:
    """Refuse weights, and loaders that repeat or prefer samples, for what is said with a confidence."""
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
    """Whether a sampler may give one sample twice, or some more often than others."""
    if isinstance(sampler, RandomSampler):
        return sampler.replacement or sampler.num_samples > len(sampler.data_source)
    return isinstance(sampler, WeightedRandomSampler)


@dataclass(frozen=True, eq=False)
class Portions:
    """One question about many samples; an iteration is a reading of them, in problems of at most ``BATCH``.

    Attributes:
        question: the problem, about the first portion.
        count: n; repeats: rows that are equal to an earlier one, with its target.
        digests: of the portions of data that are not in memory.
        predicted: whether the model's predictions replace the targets.
    """

    question: Problem
    source: Readable
    count: int
    repeats: int = 0
    digests: list[bytes] = field(default_factory=list)
    predicted: bool = False

    @staticmethod
    def of(source: Readable, ask: Callable[[DataLike], Problem], *, predicted: bool = False) -> Portions:
        """Count and check all samples; ``ask`` constructs the problem from the first portion."""
        question, count, digests = None, 0, []
        keys: set[int] = set()
        for part in _portions(source):
            try:
                about = ask(part) if question is None else question.about(_labelled(part, predicted))
            except (ArgumentError, LossError) as reason:
                if count == 0:
                    raise
                raise type(reason)(f"{reason} (Counted from sample {count:,} on.)") from None
            question = about if question is None else question
            count += len(about)
            keys |= row_keys(about.inputs, about.targets)
            if isinstance(source, SampleStream):
                digests.append(_digest(about))
        if question is None:
            raise ArgumentError("`data` must hold at least one batch; got none.")
        return Portions(question, source, count, count - len(keys), digests, predicted)

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Problem]:
        digests = iter(self.digests)
        for part in _portions(self.source):
            about = self.question.about(_labelled(part, self.predicted))
            if isinstance(self.source, SampleStream) and next(digests, None) != _digest(about):
                raise _changed()
            yield about
        if next(digests, None) is not None:
            raise _changed()


def _labelled(part: DataLike, predicted: bool) -> DataLike:
    """The samples, without their targets where predictions replace them."""
    return (part.inputs, None) if predicted and isinstance(part, Samples) else part


def _changed() -> ArgumentError:
    return ArgumentError(
        "`data` must return the same samples in the same order each time, since certification reads it "
        "several times; got others. Pass tensors, or remove shuffling and random transforms that do not use "
        "torch's global generator."
    )


def _portions(source: Readable) -> Iterator[DataLike]:
    """The samples in order, ``BATCH`` at a time; the last portion may be smaller."""
    if isinstance(source, tuple):
        for part in source[0].split(BATCH):
            yield part, None
        return
    if isinstance(source, Samples):
        yield from source.batches(BATCH)
        return
    waiting: list[Samples] = []
    shape, encoding = None, None
    for piece in _repeatable(source):
        require(
            piece.weights is None, "data", "be one `Samples` where samples have weights", "them in batches"
        )
        own = tuple(piece.inputs.shape[1:])
        if shape is None:
            shape, encoding = own, piece.encoding
        require(own == shape, "inputs", f"all have the shape {shape} of the first one", own)
        common_encoding([encoding, piece.encoding])
        while len(piece) > 0:
            room = BATCH - sum(map(len, waiting))
            waiting.append(piece[:room])
            piece = piece[room:]
            if len(waiting[-1]) == room:
                yield Samples.concatenate(waiting)
                waiting = []
    if waiting:
        yield Samples.concatenate(waiting)


def _repeatable(source: SampleStream) -> Iterator[Samples]:
    """Read with random numbers of its own, the same at every reading; the caller's stay as they are."""
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
