"""Affine layers that move numbers about: slices, permutations, padding, repetition; and those that act along
the last axis, or as the transpose of another."""

from __future__ import annotations

import hashlib
import math
from functools import cached_property

import torch
from torch import Tensor

from certus.bounds.operators import Operator, Weights
from certus.bounds.passes import Shape
from certus.bounds.spectral import matrix_norm


class Movement(Operator):
    """Each output is one of the inputs, or 0.

    Every row of A has one 1 at most, so AᵀA is diagonal: how often each input is used.

    Args:
        index: (*out_shape) which entry of the flattened input each output is; −1 for 0.
    """

    def __init__(self, index: Tensor, in_shape: Shape) -> None:
        super().__init__(in_shape, tuple(index.shape), (), None)
        self._index = torch.where(index < 0, math.prod(in_shape), index).flatten()

    @cached_property
    def _uses(self) -> int:
        """How often an input is used, at most."""
        size = math.prod(self.in_shape)
        return int(torch.bincount(self._index, minlength=size + 1)[:size].max())

    def _act(self, points: Tensor, weights: Weights) -> Tensor:
        with_zero = torch.cat([points.flatten(1), points.new_zeros(len(points), 1)], 1)
        return with_zero[:, self._index].reshape(-1, *self.out_shape)

    def _pull(self, rows: Tensor, weights: Weights) -> Tensor:
        size = math.prod(self.in_shape)
        summed = rows.new_zeros(len(rows), size + 1).index_add_(1, self._index, rows.flatten(1))
        return summed[:, :size].reshape(-1, *self.in_shape)

    def _spectral_norm(self) -> float:
        return math.sqrt(self._uses) * (1 + self.rounding)

    def _signature(self) -> tuple[object, ...]:
        return (hashlib.sha256(self._index.numpy().tobytes()).hexdigest(),)

    @property
    def terms(self) -> int:
        return max(1, self._uses)


class LastAxis(Operator):
    """The same matrix, (outputs, inputs), along the last axis at every position of the others."""

    def __init__(self, matrix: Tensor, bias: Tensor | None, in_shape: Shape) -> None:
        super().__init__(in_shape, (*in_shape[:-1], len(matrix)), (matrix,), bias)

    def _act(self, points: Tensor, weights: Weights) -> Tensor:
        return points @ weights[0].T

    def _pull(self, rows: Tensor, weights: Weights) -> Tensor:
        return rows @ weights[0]

    def _spectral_norm(self) -> float:
        return matrix_norm(self.weights[0])

    @property
    def terms(self) -> int:
        return max(self.weights[0].shape)


class Transposed(Operator):
    """The transpose of another operator, with a bias of its own: a transposed convolution."""

    def __init__(self, turned: Operator, bias: Tensor | None) -> None:
        super().__init__(turned.out_shape, turned.in_shape, turned.weights, bias)
        self._turned = turned

    def _act(self, points: Tensor, weights: Weights) -> Tensor:
        return self._turned._pull(points, weights)

    def _pull(self, rows: Tensor, weights: Weights) -> Tensor:
        return self._turned._act(rows, weights)

    def _spectral_norm(self) -> float:
        return self._turned.norm

    def _signature(self) -> tuple[object, ...]:
        return type(self._turned).__name__, self._turned._signature()

    @property
    def terms(self) -> int:
        return self._turned.terms
