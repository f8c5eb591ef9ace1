"""Norms: each maps a batch of vectors to one length per sample, and has a dual.

The dual norm ‖g‖_* = sup {⟨g, v⟩ : ‖v‖ ≤ 1} measures gradients (assumption:smoothness).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from certus._tensor import as_float64
from certus.errors import require


class Norm(Protocol):
    """A norm on points, with its dual."""

    def __call__(self, vectors: Tensor) -> Tensor:
        """Lengths, shapes (batch, …) → (batch,)."""
        ...

    @property
    def dual(self) -> Norm:
        """The dual norm, which measures gradients."""
        ...

    @property
    def euclidean_floor(self) -> float:
        """A number m ≥ 0 with ‖v‖ ≥ m‖v‖₂ for every v; 0 if none holds in every dimension."""
        ...


@dataclass(frozen=True)
class Lp:
    """‖v‖_p for 1 ≤ p ≤ ∞; its dual is ‖·‖_q with 1/p + 1/q = 1.

    >>> Lp(1.0)(torch.tensor([[3.0, -4.0]])), Lp(1.0).dual
    (tensor([7.]), Lp(p=inf))
    """

    p: float

    def __post_init__(self) -> None:
        require(self.p >= 1, "p", "be at least 1", self.p)

    def __call__(self, vectors: Tensor) -> Tensor:
        flat = vectors.flatten(1)
        if self.p not in (1, 2, math.inf):
            # Scaled by the largest entry, whose power would overflow or vanish for a large p.
            largest = flat.abs().amax(1).clamp_min(torch.finfo(flat.dtype).tiny)
            scaled: Tensor = torch.linalg.vector_norm(flat / largest.unsqueeze(1), self.p, dim=1)
            return largest * scaled
        lengths: Tensor = torch.linalg.vector_norm(flat, self.p, dim=1)
        return lengths

    @property
    def dual(self) -> Lp:
        if self.p == 1:
            return Lp(math.inf)
        return Lp(1.0 if math.isinf(self.p) else self.p / (self.p - 1))

    @property
    def euclidean_floor(self) -> float:
        return 1.0 if self.p <= 2 else 0.0


@dataclass(frozen=True, eq=False)
class DiagonalNorm:
    """√(Σ wᵢ vᵢ²) for positive weights of the point's shape; its dual has the weights 1/w."""

    weights: Tensor

    def __call__(self, vectors: Tensor) -> Tensor:
        # In float64, whatever the weights are in: bounds rest on it.
        squares = as_float64(self.weights) * as_float64(vectors) ** 2
        return squares.flatten(1).sum(1).sqrt().to(vectors)

    @property
    def dual(self) -> DiagonalNorm:
        return DiagonalNorm(1 / as_float64(self.weights))

    @property
    def euclidean_floor(self) -> float:
        return math.sqrt(self.weights.min().item())


@dataclass(frozen=True, eq=False)
class MatrixNorm:
    """√(vᵀMv) for a symmetric positive-definite M acting on the flattened point; its dual has M⁻¹."""

    matrix: Tensor

    def __call__(self, vectors: Tensor) -> Tensor:
        # In float64, as above: with an ill-conditioned M, float32 would lose all digits of an inverse.
        flat = as_float64(vectors.flatten(1))
        squares = ((flat @ self._double) * flat).sum(1)
        return squares.clamp_min(0).sqrt().to(vectors)

    @cached_property
    def _double(self) -> Tensor:
        matrix = as_float64(self.matrix).detach()
        return (matrix + matrix.T) / 2  # which has the same vᵀMv

    @cached_property
    def dual(self) -> MatrixNorm:
        return MatrixNorm(torch.linalg.inv(self._double))

    @cached_property
    def euclidean_floor(self) -> float:
        return math.sqrt(max(torch.linalg.eigvalsh(self._double)[0].item(), 0.0))


L2 = Lp(2.0)
SUP = Lp(math.inf)
