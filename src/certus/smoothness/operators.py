"""Affine layers as operators: what a bound needs of x ↦ Ax + b, without the matrix where it is large.

Each kind of operator says how it acts with given weights, forwards and transposed. With |A| in place of A the
same code gives |A|x, and with A∘A the norms of rows and columns, for every shape of stride, padding and
group.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from certus.outward import FEW, slack, up
from certus.smoothness.affine import Affine
from certus.smoothness.spectral import cached, matrix_norm
from certus.smoothness.stage import Shape

Weights = tuple[Tensor, ...]

_DENSE_ENTRIES = 10_000_000  # 80 MB: the largest matrix that is ever written out
_SMALL_SIDE = 1024
_LOST = 2.0**-510  # twice what a square loses that vanishes


class Operator(Affine):
    """x ↦ Ax + b for x of shape (batch, *in_shape)."""

    def __init__(self, in_shape: Shape, out_shape: Shape, weights: Weights, bias: Tensor | None) -> None:
        self.in_shape, self.out_shape = in_shape, out_shape
        self.weights, self.bias = weights, bias
        self.bias_size = None if bias is None else bias.abs()  # of the terms that b was summed from
        self.folds = 0  # how often weights were multiplied into these

    @abstractmethod
    def _act(self, points: Tensor, weights: Weights) -> Tensor:
        """A·points. Shapes (batch, *in) → (batch, *out)."""

    @abstractmethod
    def _pull(self, rows: Tensor, weights: Weights) -> Tensor:
        """Aᵀ·rows. Shapes (batch, *out) → (batch, *in)."""

    @abstractmethod
    def _spectral_norm(self) -> float:
        """An upper bound on ‖A‖, the best that is affordable."""

    @property
    @abstractmethod
    def terms(self) -> int:
        """The most products that are summed for one entry, forwards or transposed."""

    @final
    def apply(self, points: Tensor) -> Tensor:
        image = self._act(points, self.weights)
        return image if self.bias is None else image + self.bias

    @final
    def transpose(self, rows: Tensor) -> Tensor:
        return self._pull(rows, self.weights)

    @final
    def absolute(self, points: Tensor) -> Tensor:
        """|A|·points, for points ≥ 0, rounded up."""
        return self._act(points, self._sizes) * (1 + self.rounding)

    @final
    def sizes(self, points: Tensor) -> Tensor:
        """|A|·points + |b|, for points ≥ 0: what the rounding of ``apply`` is relative to."""
        image = self.absolute(points)
        return image if self.bias_size is None else image + self.bias_size

    @final
    def absolute_transpose(self, rows: Tensor) -> Tensor:
        """|A|ᵀ·rows, for rows ≥ 0, rounded up."""
        return self._pull(rows, self._sizes) * (1 + self.rounding)

    @cached_property
    def _sizes(self) -> Weights:
        return tuple(weight.abs() for weight in self.weights)

    @property
    def rounding(self) -> float:
        return slack(self.terms + self.folds)

    @cached_property
    def row_norms(self) -> Tensor:
        """(*out_shape) Euclidean norms of the rows of A, rounded up."""
        return self._entry_norms(self._act, self.in_shape)

    @cached_property
    def column_norms(self) -> Tensor:
        """(*in_shape) Euclidean norms of the columns of A, rounded up."""
        return self._entry_norms(self._pull, self.out_shape)

    def _entry_norms(self, move: Callable[[Tensor, Weights], Tensor], shape: Shape) -> Tensor:
        """√(Σ A²) along one side: A∘A, moved over ones.

        Each tensor of weights is scaled by its largest entry, or squares would overflow or vanish. What still
        vanishes, a square below 2⁻¹⁰²², is at most 2⁻⁵¹¹ of it for each term.
        """
        scales = [float(weight.abs().max()) or 1.0 if weight.numel() else 1.0 for weight in self.weights]
        squares = tuple((weight / size) ** 2 for weight, size in zip(self.weights, scales, strict=True))
        ones = torch.ones(1, *shape, dtype=torch.float64)
        norms = move(ones, squares)[0].sqrt() * (1 + self.rounding)
        lost = torch.where(move(ones, self._sizes)[0] > 0, math.sqrt(self.terms) * _LOST, 0.0)
        return (norms + lost) * (math.prod(scales) * (1 + slack(len(scales))))

    @cached_property
    def absolute_norm(self) -> float:
        """Upper bound on ‖|A|‖: √(‖A‖₁‖A‖_∞)."""
        rows = self.absolute(torch.ones(1, *self.in_shape, dtype=torch.float64)).max()
        columns = self.absolute_transpose(torch.ones(1, *self.out_shape, dtype=torch.float64)).max()
        return up(math.sqrt(float(rows) * float(columns)), FEW)

    @cached_property
    def norm(self) -> float:
        """Upper bound on ‖A‖: the better of a spectral one and ``absolute_norm``."""
        content = (type(self).__name__, self.in_shape, self.out_shape, *self._signature())
        return min(self.absolute_norm, cached(self._spectral_norm, *content, *self.weights))

    @property
    def printed_norm(self) -> float:
        """‖A‖ as the paper would have it."""
        return self.norm

    def _signature(self) -> tuple[object, ...]:
        return ()

    def matrix(self) -> Tensor:
        """A written out, (outputs, inputs)."""
        inputs, outputs = math.prod(self.in_shape), math.prod(self.out_shape)
        basis = torch.eye(min(inputs, outputs), dtype=torch.float64)
        if outputs < inputs:
            return self._pull(basis.reshape(-1, *self.out_shape), self.weights).flatten(1)
        return self._act(basis.reshape(-1, *self.in_shape), self.weights).flatten(1).T.contiguous()

    @property
    def entries(self) -> int:
        return math.prod(self.in_shape) * math.prod(self.out_shape)

    @property
    def small(self) -> bool:
        """Whether the matrix may be written out and decomposed."""
        side = min(math.prod(self.in_shape), math.prod(self.out_shape))
        return self.entries <= _DENSE_ENTRIES and side <= _SMALL_SIDE


class Dense(Operator):
    """An explicit matrix, between points of any shapes."""

    def __init__(
        self,
        matrix: Tensor,
        bias: Tensor | None,
        in_shape: Shape | None = None,
        out_shape: Shape | None = None,
    ) -> None:
        rows, columns = matrix.shape
        super().__init__(in_shape or (columns,), out_shape or (rows,), (matrix,), bias)

    def _act(self, points: Tensor, weights: Weights) -> Tensor:
        return (points.flatten(1) @ weights[0].T).reshape(-1, *self.out_shape)

    def _pull(self, rows: Tensor, weights: Weights) -> Tensor:
        return (rows.flatten(1) @ weights[0]).reshape(-1, *self.in_shape)

    def _spectral_norm(self) -> float:
        return matrix_norm(self.weights[0])

    @property
    def terms(self) -> int:
        return max(self.weights[0].shape)

    def matrix(self) -> Tensor:
        return self.weights[0]

    @property
    def written(self) -> Tensor:
        return self.weights[0]


class Diagonal(Operator):
    """A factor for each coordinate, of a shape that broadcasts: normalisation, batch norm, scaling, masks."""

    def __init__(self, factors: Tensor, bias: Tensor | None, shape: Shape) -> None:
        super().__init__(shape, shape, (factors.expand(shape).contiguous(),), bias)

    def _act(self, points: Tensor, weights: Weights) -> Tensor:
        return points * weights[0]

    def _pull(self, rows: Tensor, weights: Weights) -> Tensor:
        return rows * weights[0]

    def _spectral_norm(self) -> float:
        return float(self.weights[0].abs().max())

    @property
    def terms(self) -> int:
        return 1


class Reshape(Operator):
    """The same numbers in another shape; also the identity."""

    def __init__(self, in_shape: Shape, out_shape: Shape) -> None:
        super().__init__(in_shape, out_shape, (), None)

    def _act(self, points: Tensor, weights: Weights) -> Tensor:
        return points.reshape(-1, *self.out_shape)

    def _pull(self, rows: Tensor, weights: Weights) -> Tensor:
        return rows.reshape(-1, *self.in_shape)

    def _spectral_norm(self) -> float:
        return 1.0

    @property
    def terms(self) -> int:
        return 0
