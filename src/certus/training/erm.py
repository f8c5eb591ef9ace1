"""Perturbers: what Algorithm 1 does to a batch before it takes its step; ERM does nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from certus.losses import AnyLoss


class Perturber(Protocol):
    """Moves inputs against the loss: ``perturber(loss, inputs, targets) -> moved inputs``."""

    def __call__(self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, /) -> Tensor:
        """(batch, …) → (batch, …), detached."""
        ...


@dataclass(frozen=True)
class ERM:
    """Empirical risk minimisation: the inputs stay where they are."""

    def __call__(self, loss: AnyLoss, inputs: Tensor, targets: Tensor | None = None, /) -> Tensor:
        return inputs
