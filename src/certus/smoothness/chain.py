"""Affine layers one after another, which no single matrix or convolution stands for."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from certus.outward import slack, up
from certus.smoothness.operators import Operator, Weights
from certus.smoothness.spectral import matrix_norm

Entrywise = Callable[[Tensor], Tensor]


class Chain(Operator):
    """Operators one after another. |A| becomes the product of the |Aᵢ|; norms are those of the written-out
    product, with its rounding added, where that is small, and products of norms otherwise."""

    def __init__(self, parts: list[Operator]) -> None:
        super().__init__(parts[0].in_shape, parts[-1].out_shape, (), None)
        self.parts = parts
        bias = size = torch.zeros(1, *self.in_shape, dtype=torch.float64)
        for part in parts:
            bias, size = part.apply(bias), part.sizes(size)
        self.bias, self.bias_size = bias[0], size[0]
        self.weights = tuple(weight for part in parts for weight in part.weights)

    def _act(self, points: Tensor, weights: Weights) -> Tensor:
        start = 0
        for part in self.parts:
            points = part._act(points, weights[start : start + len(part.weights)])
            start += len(part.weights)
        return points

    def _pull(self, rows: Tensor, weights: Weights) -> Tensor:
        end = len(weights)
        for part in reversed(self.parts):
            rows = part._pull(rows, weights[end - len(part.weights) : end])
            end -= len(part.weights)
        return rows

    @cached_property
    def _product(self) -> tuple[Tensor, float] | None:
        """The matrix, and a bound on the Frobenius norm of its rounding; None if it is large."""
        if not self.small:
            return None
        sizes = math.prod(float(torch.linalg.vector_norm(part.row_norms)) for part in self.parts)
        return self.matrix(), self.rounding * sizes

    @cached_property
    def row_norms(self) -> Tensor:
        if self._product is not None:
            matrix, error = self._product
            sizes: Tensor = torch.linalg.vector_norm(matrix, dim=1)
            return (sizes * (1 + self.rounding) + error).reshape(self.out_shape)
        return _prefix_norms([(part.row_norms, part.norm, part.absolute) for part in self.parts])

    @cached_property
    def column_norms(self) -> Tensor:
        if self._product is not None:
            matrix, error = self._product
            sizes: Tensor = torch.linalg.vector_norm(matrix, dim=0)
            return (sizes * (1 + self.rounding) + error).reshape(self.in_shape)
        return _prefix_norms(
            [(part.column_norms, part.norm, part.absolute_transpose) for part in reversed(self.parts)]
        )

    def _spectral_norm(self) -> float:
        separate = up(math.prod(part.norm for part in self.parts), slack(len(self.parts)))
        if self._product is None:
            return separate
        matrix, error = self._product
        return min(separate, matrix_norm(matrix) + error)

    def _signature(self) -> tuple[object, ...]:
        return tuple((type(part).__name__, part.out_shape, part._signature()) for part in self.parts)

    @property
    def printed_norm(self) -> float:
        return math.prod(part.printed_norm for part in self.parts)

    def swell(self, size: float) -> float:
        for part in self.parts:
            size = part.swell(size)
        return size

    @property
    def terms(self) -> int:
        return sum(part.terms + 8 for part in self.parts)


def _prefix_norms(parts: list[tuple[Tensor, float, Entrywise]]) -> Tensor:
    """Norms of the rows of Aₙ⋯A₁ from the row norms, the norm and |·| of each part, A₁ first.

    Row i of A·P, P the product of all parts before A, is at most ‖row i of A‖·‖P‖, and at most |A| times the
    row norms of P.
    """
    norms, length, _ = parts[0]
    for own, norm, absolute in parts[1:]:
        norms = torch.minimum(own * length, absolute(norms[None])[0]) * (1 + slack(1))
        length *= norm * (1 + slack(1))
    return norms
