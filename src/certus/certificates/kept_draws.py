"""What a model said at noisy copies, kept a portion of the samples at a time.

A portion is bound to its noise, by seed and stream, and to its samples, by their digest: points that moved
otherwise than when it was written are asked about again.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from certus.certificates.kept import KeptFiles
from certus.split import Split
from certus.storage.tensors import digest


@dataclass(frozen=True)
class DrawMemory(KeptFiles):
    """Labels and losses of noisy copies, in a folder."""

    def load(self, stream: int, first: int, data: Split, like: dict[str, Tensor]) -> dict[str, Tensor] | None:
        """What was kept of the samples from ``first`` on, if it has these names, shapes and types."""
        words = f"What was kept of samples {first} to {first + len(data) - 1}"
        name = f"{stream}-{first}"
        tensors = self.read(name, words, _about(stream, first, data))
        if tensors is None:
            return None
        same = tensors.keys() == like.keys() and all(
            tensors[key].shape == one.shape and tensors[key].dtype == one.dtype for key, one in like.items()
        )
        if not same or not _are_losses(tensors.get("losses")):
            self.drop(name, words, "it does not hold what was asked for")
            return None
        return tensors

    def save(self, stream: int, first: int, data: Split, tensors: dict[str, Tensor]) -> None:
        self.write(f"{stream}-{first}", tensors, _about(stream, first, data))


def _about(stream: int, first: int, data: Split) -> dict[str, object]:
    samples = digest({"inputs": data.inputs, "targets": data.targets})
    return {"stream": stream, "first": first, "samples": samples}


def _are_losses(losses: Tensor | None) -> bool:
    return losses is None or bool(((losses >= 0) & (losses <= 1)).all() & torch.isfinite(losses).all())
