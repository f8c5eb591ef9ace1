"""Convolutions and average pooling as operators."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional, grad

from certus.smoothness.operators import Operator, Weights
from certus.smoothness.spectral import circulant_norm, matrix_norm
from certus.smoothness.stage import Shape


class Convolution(Operator):
    """A convolution with zero padding; stride, dilation and groups as in torch, in 1 to 3 dimensions."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        in_shape: Shape,
        *,
        stride: Shape,
        padding: tuple[tuple[int, int], ...],
        dilation: Shape,
        groups: int,
    ) -> None:
        self.axes = weight.dim() - 2
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.padded = tuple(n + sum(pad) for n, pad in zip(in_shape[1:], padding, strict=True))
        sizes = (
            (self.padded[i] - dilation[i] * (weight.shape[2 + i] - 1) - 1) // stride[i] + 1
            for i in range(self.axes)
        )
        # torch pads the last axis first.
        self._pads = [amount for pair in reversed(padding) for amount in pair]
        super().__init__(in_shape, (weight.shape[0], *sizes), (weight,), bias)

    def _options(self) -> dict[str, Any]:
        return {"stride": self.stride, "dilation": self.dilation, "groups": self.groups}

    def _act(self, points: Tensor, weights: Weights) -> Tensor:
        convolve = (functional.conv1d, functional.conv2d, functional.conv3d)[self.axes - 1]
        made: Tensor = convolve(functional.pad(points, self._pads), weights[0], **self._options())
        return made

    def _pull(self, rows: Tensor, weights: Weights) -> Tensor:
        pull = (grad.conv1d_input, grad.conv2d_input, grad.conv3d_input)[self.axes - 1]
        shape = [len(rows), self.in_shape[0], *self.padded]
        whole: Tensor = pull(shape, weights[0], rows, **self._options())  # type: ignore[no-untyped-call]  # torch's own
        inside = tuple(
            slice(pad[0], pad[0] + n) for n, pad in zip(self.in_shape[1:], self.padding, strict=True)
        )
        return whole[(slice(None), slice(None), *inside)]

    def _spectral_norm(self) -> float:
        torus = circulant_norm(self.weights[0], self.padded, self.stride, self.dilation, self.groups)
        return min(torus, matrix_norm(self.matrix())) if self.small and self.entries <= 2_000_000 else torus

    def _signature(self) -> tuple[object, ...]:
        return self.stride, self.padding, self.dilation, self.groups

    @property
    def terms(self) -> int:
        return int(self.weights[0][0].numel()) + int(self.weights[0][:, 0].numel())

    def scaled(self, before: Tensor | None, after: Tensor | None, bias: Tensor | None) -> Convolution:
        """diag(after)·A·diag(before), for one factor per channel."""
        weight = self.weights[0]
        if before is not None:
            parts = before.reshape(self.groups, 1, -1).expand(-1, len(weight) // self.groups, -1)
            weight = weight * parts.reshape(*weight.shape[:2], *([1] * self.axes))
        if after is not None:
            weight = weight * after.reshape(-1, *([1] * (self.axes + 1)))
        return Convolution(
            *(weight, bias, self.in_shape),
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )


class AxisProduct(Operator):
    """The same non-negative matrix along each spatial axis for every channel: average pooling.

    The windows of a pooling are products of intervals, and so are their sizes: A = I ⊗ P₁ ⊗ P₂.
    """

    def __init__(self, matrices: Weights, in_shape: Shape) -> None:
        out_shape = (in_shape[0], *(matrix.shape[0] for matrix in matrices))
        super().__init__(in_shape, out_shape, matrices, None)

    def _act(self, points: Tensor, weights: Weights) -> Tensor:
        for axis, matrix in enumerate(weights, start=2):
            points = torch.movedim(torch.movedim(points, axis, -1) @ matrix.T, -1, axis)
        return points

    def _pull(self, rows: Tensor, weights: Weights) -> Tensor:
        return self._act(rows, tuple(matrix.T for matrix in weights))

    def _spectral_norm(self) -> float:
        return math.prod(matrix_norm(matrix) for matrix in self.weights)

    @property
    def terms(self) -> int:
        return math.prod(max(matrix.shape) for matrix in self.weights)

    @property
    def printed_norm(self) -> float:
        """√(N·m_u)/m_l: windows of m_l to m_u entries, N of which share one (the paper's average pooling)."""
        members = [(matrix > 0).sum(1) for matrix in self.weights]
        shared = math.prod(int((matrix > 0).sum(0).max()) for matrix in self.weights)
        largest = math.prod(int(count.max()) for count in members)
        smallest = math.prod(int(count.min()) for count in members)
        return max(math.sqrt(shared * largest) / smallest, self.norm)
