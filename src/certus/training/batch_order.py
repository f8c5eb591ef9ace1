"""Which samples a step sees: a function of the seed, the epoch and the rank, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.errors import ArgumentError, require


@dataclass(frozen=True)
class BatchOrder:
    """The batches of every epoch, cut into equal shares for each process.

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
    """One seed from several numbers, so that neighbours have nothing in common (FNV-1a over 32-bit words)."""
    state = 0xCBF29CE484222325
    for number in numbers:
        state = ((state ^ (number & 0xFFFFFFFF)) * 0x100000001B3) % 2**64
    return state >> 1  # torch takes 63 bits
