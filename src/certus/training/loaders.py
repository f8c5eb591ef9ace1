"""Batches of a training loop, reproducible for any source of samples.

A batch is a function of the seed, the epoch, the step and the rank: torch's random numbers are set anew
before it is read, so that random transforms repeat, too. A loader decides on its own order; it is given the
epoch's seed when it is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from certus._defaults import PLAIN
from certus._validation import checked_weights
from certus.data import DataLike, Samples, SampleStream, as_samples
from certus.errors import ArgumentError, as_count, require


@dataclass(frozen=True)
class BatchOrder:
    """Order of the batches of every epoch, cut into equal shares for each process.

    Attributes:
        count: samples; batch_size: samples of one step over *all* processes.
        rank, processes: which share is this process's.
    """

    count: int
    batch_size: int
    seed: int
    rank: int = 0
    processes: int = 1

    def __post_init__(self) -> None:
        require(self.count >= 1, "data", "hold at least one sample", self.count)
        require(self.batch_size >= 1, "batch_size", "be at least 1", self.batch_size)
        require(0 <= self.seed < 2**32, "seed", "lie between 0 and 2³² − 1", self.seed)
        smallest = self._smallest
        if smallest < self.processes:
            raise ArgumentError(
                f"`batch_size` must give each of the {self.processes} processes a share of every batch; with "
                f"{self.batch_size} the last of {self.count} samples make a batch of {smallest}."
            )

    @property
    def _smallest(self) -> int:
        return self.count % self.batch_size or min(self.batch_size, self.count)

    @property
    def smallest_share(self) -> int:
        """The fewest samples that a process may get in one step."""
        return self._smallest // self.processes

    def __len__(self) -> int:
        """Steps of an epoch."""
        return -(-self.count // self.batch_size)

    def epoch(self, number: int, first: int = 0) -> Iterator[tuple[int, Tensor, int]]:
        """(step, this process's sample indices, size of the whole batch), from step ``first`` on."""
        generator = torch.Generator().manual_seed(mix(self.seed, number))
        order = torch.randperm(self.count, generator=generator)
        for step, batch in enumerate(order.split(self.batch_size)):
            if step >= first:
                yield step, batch[self.rank :: self.processes], len(batch)


def mix(*numbers: int) -> int:
    """Return one seed from several numbers, decorrelated for neighbours (FNV-1a over 32-bit words)."""
    state = 0xCBF29CE484222325
    for number in numbers:
        state = ((state ^ (number & 0xFFFFFFFF)) * 0x100000001B3) % 2**64
    return state >> 1  # torch takes 63 bits


class Feed(Protocol):
    """Samples of a training loop, batch by batch."""

    @property
    def batch_size(self) -> int:
        """Samples of one step, over all processes."""

    @property
    def count(self) -> int | None:
        """Number of samples; None if unknown."""

    @property
    def steps(self) -> int | None:
        """Number of steps of an epoch; None if unknown."""

    def epoch(self, number: int, first: int = 0) -> Iterator[tuple[int, Samples, int]]:
        """(step, this process's share of the batch, size of the whole batch), from step ``first`` on."""

    def some(self, count: int) -> Samples:
        """Return at most ``count`` samples, spread over the data where that costs nothing."""

    def portions(self) -> Iterator[Samples]:
        """Yield this process's share of one pass over all samples."""


@dataclass(frozen=True, eq=False)
class Indexed:
    """Samples by their number: ``Samples`` in memory, or a torch data set."""

    samples: Samples | SampleStream
    order: BatchOrder
    device: torch.device
    dtype: torch.dtype

    @property
    def batch_size(self) -> int:
        return self.order.batch_size

    @property
    def count(self) -> int | None:
        return len(self.samples)

    @property
    def steps(self) -> int | None:
        return len(self.order)

    def epoch(self, number: int, first: int = 0) -> Iterator[tuple[int, Samples, int]]:
        for step, index, whole in self.order.epoch(number, first):
            torch.manual_seed(mix(self.order.seed, number, step, self.order.rank))
            yield step, self._take(index), whole

    def some(self, count: int) -> Samples:
        return self._take(torch.arange(0, len(self.samples), -(-len(self.samples) // count)))

    def portions(self) -> Iterator[Samples]:
        mine = torch.arange(self.order.rank, len(self.samples), self.order.processes)
        for index in mine.split(self.batch_size):
            yield self._take(index)

    def _take(self, index: Tensor) -> Samples:
        return _placed(self.samples[index], self.device, self.dtype)


@dataclass(frozen=True, eq=False)
class Loaded:
    """Batches of a loader. Every process reads all of them, and keeps its share of each."""

    stream: SampleStream
    batch_size: int
    count: int | None
    seed: int
    rank: int
    processes: int
    device: torch.device
    dtype: torch.dtype

    @property
    def steps(self) -> int | None:
        return self.stream.batch_count

    def epoch(self, number: int, first: int = 0) -> Iterator[tuple[int, Samples, int]]:
        step = -1
        for step, batch in self._seeded(number):
            if step >= first:
                yield step, self._share(batch), len(batch)
        require(step >= 0, "data", "hold at least one batch", f"none in epoch {number + 1}")

    def some(self, count: int) -> Samples:
        parts: list[Samples] = []
        for part in self.stream.batches():
            parts.append(_placed(part, self.device, self.dtype))
            if sum(map(len, parts)) >= count:
                break
        return Samples.concatenate(parts)[:count]

    def portions(self) -> Iterator[Samples]:
        for _, batch in self._seeded(0):
            yield self._share(batch)

    def _seeded(self, number: int) -> Iterator[tuple[int, Samples]]:
        """Yield the batches of an epoch.

        A loader draws its order with the first of them, which is read with the seed that all processes share.
        """
        torch.manual_seed(mix(self.seed, number))
        batches, step = self.stream.batches(), 0
        while (batch := next(batches, None)) is not None:
            if step == 0:
                torch.manual_seed(mix(self.seed, number, 0, self.rank))
            yield step, batch
            step += 1
            torch.manual_seed(mix(self.seed, number, step, self.rank))

    def _share(self, batch: Samples) -> Samples:
        rule = f"have a sample for each of the {self.processes} processes in every batch"
        require(len(batch) >= self.processes, "data", rule, len(batch))
        return _placed(batch[slice(self.rank, None, self.processes)], self.device, self.dtype)


def make_feed(
    data: DataLike,
    model: nn.Module,
    batch_size: int | None,
    seed: int,
    *,
    rank: int = 0,
    processes: int = 1,
    device: torch.device | None = None,
) -> Feed:
    """Return a feed of samples in the model's precision.

    Args:
        batch_size: samples of one step, over all processes; 128 when None. A loader has its own.
    """
    seed = as_count("seed", seed, least=0)
    require(seed < 2**32, "seed", "lie between 0 and 2³² − 1", seed)
    batch_size = None if batch_size is None else as_count("batch_size", batch_size)
    samples = as_samples(data, batch_size or PLAIN.batch_size)
    place = device or torch.device("cpu")
    own = _precision(model)
    if isinstance(samples, Samples) or samples.indexed:
        if isinstance(samples, Samples):
            samples = in_memory(samples, model, place)
        size = PLAIN.batch_size if batch_size is None else batch_size
        return Indexed(samples, BatchOrder(len(samples), size, seed, rank, processes), place, own)
    if not samples.repeatable:
        raise ArgumentError(
            "`data` must be readable again, once in every epoch; got a generator, which is read once. Give a "
            "DataLoader, a Dataset, or a list of batches."
        )
    size = getattr(samples.source, "batch_size", None) or PLAIN.batch_size
    chosen = batch_size is None or batch_size == size
    require(chosen, "batch_size", f"be left out for a loader, which has its own, {size}", batch_size)
    return Loaded(samples, size, None, seed, rank, processes, place, own)


def in_memory(samples: Samples, model: nn.Module, device: torch.device) -> Samples:
    """Return all samples on the device, in the model's precision, with weights of mean 1."""
    if samples.weights is not None:
        samples = replace(samples, weights=checked_weights(samples.weights, len(samples)))
    return _placed(samples, device, _precision(model))


def _precision(model: nn.Module) -> torch.dtype:
    return next((weight.dtype for weight in model.parameters() if weight.is_floating_point()), torch.float32)


def _placed(batch: Samples, device: torch.device, dtype: torch.dtype) -> Samples:
    """Return the batch on the device, floating-point numbers in the model's precision."""

    def moved(values: Tensor) -> Tensor:
        return values.to(device, dtype if values.is_floating_point() else None)

    weights = None if batch.weights is None else moved(batch.weights)
    return Samples(moved(batch.inputs), moved(batch.targets), weights)
