"""The network of deep Q-learning: small and smooth."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from certus.errors import require, require_count


@dataclass(frozen=True)
class NetworkShape:
    """What a Q-network is made from.

    Args:
        actions: how many there are.
        scales: a typical size of each coordinate; states are divided by them.
        hidden: width of both hidden layers.
        discount: λ; outputs are multiplied by 1/(1 − λ), the sum of discounted ones.
    """

    actions: int
    scales: tuple[float, ...]
    hidden: int = 64
    discount: float = 0.99

    def __post_init__(self) -> None:
        require_count("actions", self.actions)
        require_count("hidden", self.hidden)
        require(len(self.scales) > 0 and min(self.scales) > 0, "scales", "be positive", self.scales)
        require(0 <= self.discount < 1, "discount", "lie in [0, 1)", self.discount)


class QNetwork(nn.Module):
    """Q(s, ·), two hidden layers of ELU units. Shapes (batch, coordinates) → (batch, actions)."""

    scales: Tensor

    def __init__(self, shape: NetworkShape) -> None:
        super().__init__()
        self.shape = shape
        self.register_buffer("scales", torch.tensor(shape.scales), persistent=False)
        self.layers = nn.Sequential(
            nn.Linear(len(shape.scales), shape.hidden),
            nn.ELU(),
            nn.Linear(shape.hidden, shape.hidden),
            nn.ELU(),
            nn.Linear(shape.hidden, shape.actions),
        )

    def forward(self, states: Tensor) -> Tensor:
        outputs: Tensor = self.layers(states / self.scales)
        return outputs / (1 - self.shape.discount)
