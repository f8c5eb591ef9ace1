"""Batches of a training loop, reproducible for any source of samples.

A batch is a function of the seed, the epoch, the step and the rank: torch's random numbers are set anew
before it is read, so that random transforms repeat, too. A ``DataLoader`` decides on its own order; it is
given the epoch's seed when it is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from certus._defaults import PLAIN
from certus._validation import checked_weights
from certus.data import DataLike, Samples, SampleStream, as_samples
from certus.errors import as_count, require


@dataclass(frozen=True, eq=False)
class _LoaderFields:
    """Samples of a training loop, batch by batch, on the device and in the precision of the model."""

    samples: Samples | SampleStream
    batch_size: int  # of one step, over *all* processes
    seed: int
    rank: int  # of this process, which reads its share of every batch
    processes: int
    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class IndexedLoader(_LoaderFields):
    """Samples by their index, in a random order of each epoch: in memory, or of a torch data set."""

    def __post_init__(self) -> None:
        require(self.count >= 1, "data", "hold at least one sample", self.count)
        rule = f"give each of the {self.processes} processes a share of every batch"
        last = f"{self.batch_size}: the last of {self.count} samples make a batch of {self.smallest_batch}"
        require(self.smallest_batch >= self.processes, "batch_size", rule, last)

    @property
    def count(self) -> int:
        return len(self.samples)

    @property
    def steps(self) -> int:
        """Number of steps of an epoch."""
        return -(-self.count // self.batch_size)

    @property
    def smallest_batch(self) -> int:
        """Samples of the last step of an epoch, over all processes."""
        return self.count % self.batch_size or min(self.batch_size, self.count)

    def epoch(self, number: int, first: int = 0) -> Iterator[tuple[int, Samples, int]]:
        """(step, this process's share of the batch, size of the whole batch), from step ``first`` on."""
        generator = torch.Generator().manual_seed(mix(self.seed, number))
        order = torch.randperm(self.count, generator=generator)
        for step, batch in enumerate(order.split(self.batch_size)):
            if step >= first:
                torch.manual_seed(mix(self.seed, number, step, self.rank))
                yield step, self._take(batch[self.rank :: self.processes]), len(batch)

    def some(self, count: int) -> Samples:
        """Return at most ``count`` samples, spread over the data where that costs nothing."""
        return self._take(torch.arange(0, self.count, -(-self.count // count)))

    def one_pass(self, at_most: int | None = None) -> Iterator[Samples]:
        """Yield this process's share of one pass over all samples, or over ``at_most``, drawn by the seed."""
        order = torch.arange(self.count)
        if at_most is not None and at_most < self.count:
            generator = torch.Generator().manual_seed(mix(self.seed, self.count))
            order = torch.randperm(self.count, generator=generator)[:at_most].sort().values
        for index in order[self.rank :: self.processes].split(self.batch_size):
            yield self._take(index)

    def _take(self, index: Tensor) -> Samples:
        return _placed(self.samples[index], self.device, self.dtype)


@dataclass(frozen=True, eq=False)
class StreamLoader(_LoaderFields):
    """Batches of an iterable. Every process reads all of them, and keeps its share of each."""

    samples: SampleStream
    count: ClassVar[None] = None

    @property
    def steps(self) -> int | None:
        return self.samples.batch_count

    def epoch(self, number: int, first: int = 0) -> Iterator[tuple[int, Samples, int]]:
        step = -1
        for step, batch in self._seeded(number):
            if step >= first:
                yield step, self._share(batch), len(batch)
        require(step >= 0, "data", "hold at least one batch", f"none in epoch {number + 1}")

    def some(self, count: int) -> Samples:
        parts: list[Samples] = []
        for part in self.samples.batches():
            parts.append(_placed(part, self.device, self.dtype))
            if sum(map(len, parts)) >= count:
                break
        return Samples.concatenate(parts)[:count]

    def one_pass(self, at_most: int | None = None) -> Iterator[Samples]:
        """Yield this process's share of one pass over all samples: a stream has no random subset."""
        for _, batch in self._seeded(0):
            yield self._share(batch)

    def _seeded(self, number: int) -> Iterator[tuple[int, Samples]]:
        """Yield the batches of an epoch. The first is read with the seed that all processes share, since a
        loader then draws its order."""
        torch.manual_seed(mix(self.seed, number))
        for step, batch in enumerate(self.samples.batches()):
            if step == 0:
                torch.manual_seed(mix(self.seed, number, 0, self.rank))
            yield step, batch
            torch.manual_seed(mix(self.seed, number, step + 1, self.rank))

    def _share(self, batch: Samples) -> Samples:
        rule = f"have a sample for each of the {self.processes} processes in every batch"
        require(len(batch) >= self.processes, "data", rule, len(batch))
        return _placed(batch[slice(self.rank, None, self.processes)], self.device, self.dtype)


BatchLoader = IndexedLoader | StreamLoader


def make_loader(
    data: DataLike,
    model: nn.Module,
    batch_size: int | None,
    seed: int,
    *,
    rank: int = 0,
    processes: int = 1,
    device: torch.device | None = None,
) -> BatchLoader:
    """Return a loader of samples in the model's precision; ``batch_size`` is over all processes, 128 when
    None, and a ``DataLoader`` has its own."""
    seed = as_count("seed", seed, least=0)
    require(seed < 2**32, "seed", "lie between 0 and 2³² − 1", seed)
    batch_size = None if batch_size is None else as_count("batch_size", batch_size)
    size = batch_size or PLAIN.batch_size
    samples, place = as_samples(data, size), device or torch.device("cpu")
    if isinstance(samples, Samples):
        samples = in_memory(samples, model, place)
    elif not samples.indexed:
        remedy = "Give a DataLoader, a Dataset, or a list of batches"
        got = f"a generator, which is read once. {remedy}"
        require(samples.repeatable, "data", "be readable again, once in every epoch", got)
        size = getattr(samples.source, "batch_size", None) or PLAIN.batch_size
        own = batch_size is None or batch_size == size
        require(own, "batch_size", f"be left out for a loader, which has its own, {size}", batch_size)
        return StreamLoader(samples, size, seed, rank, processes, place, _precision(model))
    return IndexedLoader(samples, size, seed, rank, processes, place, _precision(model))


def in_memory(samples: Samples, model: nn.Module, device: torch.device) -> Samples:
    """Return all samples on the device, in the model's precision, with weights of mean 1."""
    if samples.weights is not None:
        samples = replace(samples, weights=checked_weights(samples.weights, len(samples)))
    return _placed(samples, device, _precision(model))


def mix(*numbers: int) -> int:
    """Return one seed from several numbers, decorrelated for neighbours (FNV-1a over 32-bit words)."""
    state = 0xCBF29CE484222325
    for number in numbers:
        state = ((state ^ (number & 0xFFFFFFFF)) * 0x100000001B3) % 2**64
    return state >> 1  # torch takes 63 bits


def _precision(model: nn.Module) -> torch.dtype:
    return next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), torch.float32)


def _placed(batch: Samples, device: torch.device, dtype: torch.dtype) -> Samples:
    """Return the batch on the device, floating-point numbers in the model's precision."""

    def moved(values: Tensor) -> Tensor:
        kind = dtype if values.is_floating_point() else values.dtype
        if device.type == "cuda" and values.device.type == "cpu":  # pinned memory is copied without waiting
            return values.to(kind).pin_memory().to(device, non_blocking=True)
        return values.to(device, kind)

    weights = None if batch.weights is None else moved(batch.weights)
    return Samples(moved(batch.inputs), moved(batch.targets), weights)
