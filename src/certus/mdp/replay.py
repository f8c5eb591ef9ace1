"""The memory of deep Q-learning: the last transitions, drawn from at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


class Replay:
    """Transitions (s, a, s′, ended), the oldest overwritten; ``ended`` means that s′ has no future.

    Args:
        capacity: how many are kept.
        width: coordinates of a state.
    """

    def __init__(self, capacity: int, width: int) -> None:
        self._states, self._following = np.zeros((2, capacity, width), dtype=np.float32)
        self._actions = np.zeros(capacity, dtype=np.int64)
        self._ended = np.zeros(capacity, dtype=np.float32)
        self._written = 0

    def __len__(self) -> int:
        return min(self._written, len(self._states))

    def add(self, states: Any, actions: Any, following: Any, ended: Any) -> None:
        """Some transitions, one per row."""
        places = (self._written + np.arange(len(states))) % len(self._states)
        self._states[places], self._actions[places] = states, actions
        self._following[places], self._ended[places] = following, ended
        self._written += len(states)

    def draw(self, count: int, generator: np.random.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``count`` transitions with replacement: (count, width), (count,), (count, width), (count,)."""
        places = generator.integers(len(self), size=count)
        states, following = self._states[places], self._following[places]
        return (
            torch.from_numpy(states),
            torch.from_numpy(self._actions[places]),
            torch.from_numpy(following),
            torch.from_numpy(self._ended[places]),
        )
