"""Linear operators with proven norms, and the merging of adjacent affine layers.

Each operator defines how it acts with given weights, forwards and transposed. With |A| in place of A the same
code gives |A|x, and with A∘A the norms of rows and columns, for any stride, padding and groups. Large
operators are never written out as matrices.

Adjacent affine layers are merged, so that their norm is that of the product and not a product of norms.
Batch norm (eval mode) is folded into the convolution or matrix beside it, and so are an input normalisation,
a scaling, and the weights or the mask of a cost in front of the first layer.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional, grad

from certus._tensor import per_sample
from certus.bounds.passes import (
    Position,
    Reach,
    Rounded,
    Rows,
    Saved,
    Shape,
    Stage,
    Step,
    Totals,
    assumptions_of,
    size,
    times,
)
from certus.bounds.smoothness import LayerBound
from certus.bounds.spectral import cached, circulant_norm, matrix_norm
from certus.rounding import FEW, slack, up

Weights = tuple[Tensor, ...]

_DENSE_ENTRIES = 10_000_000  # 80 MB: the largest explicit matrix
_SMALL_SIDE = 1024
_LOST = 2.0**-510  # twice the root of a square that underflows


class Operator(Stage):
    """An affine layer x ↦ Ax + b for x of shape (batch, *in_shape).

    Attributes:
        norm: ‖A‖; absolute_norm: ‖|A|‖; paper_norm: ‖A‖ by the paper's formula.
        row_norms, column_norms: (*out_shape) and (*in_shape) Euclidean norms.
        rounding: relative error of ``apply`` and ``transpose``.
        bias_size: absolute sum of the terms of b.
    """

    def __init__(self, in_shape: Shape, out_shape: Shape, weights: Weights, bias: Tensor | None) -> None:
        self.in_shape, self.out_shape = in_shape, out_shape
        self.weights, self.bias = weights, bias
        self.bias_size = None if bias is None else bias.abs()  # absolute sum of the terms of b
        self.folds = 0  # number of products folded into the weights

    @abstractmethod
    def _apply(self, points: Tensor, weights: Weights) -> Tensor:
        """A·points. Shapes (batch, *in) → (batch, *out)."""

    @abstractmethod
    def _transpose(self, rows: Tensor, weights: Weights) -> Tensor:
        """Aᵀ·rows. Shapes (batch, *out) → (batch, *in)."""

    @abstractmethod
    def _spectral_norm(self) -> float:
        """Upper bound on ‖A‖, as tight as is affordable."""

    @property
    @abstractmethod
    def terms(self) -> int:
        """Largest number of products in the sum of one entry, forwards or transposed."""

    @final
    def apply(self, points: Tensor) -> Tensor:
        image = self._apply(points, self.weights)
        return image if self.bias is None else image + self.bias

    @final
    def transpose(self, rows: Tensor) -> Tensor:
        return self._transpose(rows, self.weights)

    @final
    def absolute(self, points: Tensor) -> Tensor:
        """|A|·points, for points ≥ 0, rounded up."""
        return self._apply(points, self._sizes) * (1 + self.rounding)

    @final
    def sizes(self, points: Tensor) -> Tensor:
        """|A|·points + |b| for points ≥ 0: the rounding of ``apply`` is relative to it."""
        image = self.absolute(points)
        return image if self.bias_size is None else image + self.bias_size

    @final
    def absolute_transpose(self, rows: Tensor) -> Tensor:
        """|A|ᵀ·rows, for rows ≥ 0, rounded up."""
        return self._transpose(rows, self._sizes) * (1 + self.rounding)

    @cached_property
    def _sizes(self) -> Weights:
        return tuple(weight.abs() for weight in self.weights)

    @property
    def rounding(self) -> float:
        return slack(self.terms + self.folds)

    @cached_property
    def row_norms(self) -> Tensor:
        """(*out_shape) Euclidean norms of the rows of A, rounded up."""
        return self._entry_norms(self._apply, self.in_shape)

    @cached_property
    def column_norms(self) -> Tensor:
        """(*in_shape) Euclidean norms of the columns of A, rounded up."""
        return self._entry_norms(self._transpose, self.out_shape)

    def _entry_norms(self, move: Callable[[Tensor, Weights], Tensor], shape: Shape) -> Tensor:
        """√(Σ A²) along one side: A∘A applied to ones.

        Each weight tensor is scaled by its largest entry, or squares would overflow or underflow. A square
        that
        still underflows, below 2⁻¹⁰²², is at most 2⁻⁵¹¹ of it for each term.
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
        """Upper bound on ‖A‖: the smaller of the spectral bound and ``absolute_norm``."""
        content = (type(self).__name__, self.in_shape, self.out_shape, *self._signature())
        return min(self.absolute_norm, cached(self._spectral_norm, *content, *self.weights))

    @property
    def paper_norm(self) -> float:
        """‖A‖ by the paper's formula."""
        return self.norm

    def _signature(self) -> tuple[object, ...]:
        return ()

    def matrix(self) -> Tensor:
        """A as an explicit matrix, (outputs, inputs)."""
        inputs, outputs = math.prod(self.in_shape), math.prod(self.out_shape)
        basis = torch.eye(min(inputs, outputs), dtype=torch.float64)
        if outputs < inputs:
            return self._transpose(basis.reshape(-1, *self.out_shape), self.weights).flatten(1)
        return self._apply(basis.reshape(-1, *self.in_shape), self.weights).flatten(1).T.contiguous()

    @property
    def entries(self) -> int:
        return math.prod(self.in_shape) * math.prod(self.out_shape)

    @property
    def small(self) -> bool:
        """Whether the matrix may be written out and decomposed."""
        side = min(math.prod(self.in_shape), math.prod(self.out_shape))
        return self.entries <= _DENSE_ENTRIES and side <= _SMALL_SIDE

    @property
    def written(self) -> Tensor | None:
        """A, if it is stored as a matrix."""
        return None

    def output_shape(self, shape: Shape) -> Shape:
        return self.out_shape

    def forward(self, before: Reach, radius: Tensor | None, values: Stage) -> tuple[Reach, Saved]:
        unit = torch.minimum(
            self.row_norms * per_sample(before.length, before.unit.new_empty(1, *self.out_shape)),
            self.absolute(before.unit),
        )
        center = error = None
        if before.center is not None and before.error is not None:
            assert isinstance(values, Operator)
            center = values.apply(before.center)
            error = values.absolute(before.error) + values.rounding * values.sizes(before.center.abs())
        length = torch.minimum(self.norm * before.length, size(unit))
        matrix = self.written if before.identity else None
        return Reach(length, unit, self.norm * before.curvature, center, error, matrix=matrix), None

    def backward(self, rows: Rows, saved: Saved, totals: Totals, position: Position) -> Rows:
        curvature = rows.curvature
        if curvature is not None:
            curvature = times(curvature, rows.length.new_tensor(self.norm * self.norm))
        totals.gain = totals.gain * self.norm
        if position.ends:
            return replace(rows, curvature=curvature)
        center, room = (rows.low + rows.high) / 2, (rows.high - rows.low) / 2
        room = room + (self.rounding + slack(1)) * rows.largest
        form = (*rows.low.shape[:2], *self.in_shape)
        pulled = self.transpose(center.flatten(0, 1)).reshape(form)
        spread = self.absolute_transpose(room.flatten(0, 1)).reshape(form)
        cap = self.column_norms * rows.length.reshape(*form[:2], *([1] * len(self.in_shape)))
        low, high = torch.maximum(pulled - spread, -cap), torch.minimum(pulled + spread, cap)
        return Rows(low, high, self.norm * rows.length, curvature).capped()

    def forward_rounding(self, value: Tensor, error: Tensor) -> Rounded:
        error = self.absolute(error + self.rounding * value.abs())
        if self.bias_size is not None:
            error = error + self.rounding * self.bias_size
        return Rounded(self.apply(value), error, None)

    def backward_rounding(self, size: Tensor, error: Tensor, saved: Saved) -> tuple[Tensor, Tensor]:
        error = self.norm * error + self.rounding * self.absolute_norm * (size + error)
        return self.norm * size, error

    def paper_constants(self, length: float, curvature: float) -> tuple[float, float]:
        return self.paper_norm * length, self.paper_norm * curvature

    def table_rows(
        self, path: str, kind: str, before: Reach, behind: float, added: dict[str, Tensor]
    ) -> list[LayerBound]:
        return [LayerBound(path, kind, self.norm, 0.0, behind, 0.0)]


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

    def _apply(self, points: Tensor, weights: Weights) -> Tensor:
        return (points.flatten(1) @ weights[0].T).reshape(-1, *self.out_shape)

    def _transpose(self, rows: Tensor, weights: Weights) -> Tensor:
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
    """A factor for each coordinate, broadcast to the shape: normalisation, batch norm, scaling, masks."""

    def __init__(self, factors: Tensor, bias: Tensor | None, shape: Shape) -> None:
        super().__init__(shape, shape, (factors.expand(shape).contiguous(),), bias)

    def _apply(self, points: Tensor, weights: Weights) -> Tensor:
        return points * weights[0]

    def _transpose(self, rows: Tensor, weights: Weights) -> Tensor:
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

    def _apply(self, points: Tensor, weights: Weights) -> Tensor:
        return points.reshape(-1, *self.out_shape)

    def _transpose(self, rows: Tensor, weights: Weights) -> Tensor:
        return rows.reshape(-1, *self.in_shape)

    def _spectral_norm(self) -> float:
        return 1.0

    @property
    def terms(self) -> int:
        return 0


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

    def _apply(self, points: Tensor, weights: Weights) -> Tensor:
        convolve = (functional.conv1d, functional.conv2d, functional.conv3d)[self.axes - 1]
        image: Tensor = convolve(functional.pad(points, self._pads), weights[0], **self._options())
        return image

    def _transpose(self, rows: Tensor, weights: Weights) -> Tensor:
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

    Pooling windows are products of intervals, and so are their sizes: A = I ⊗ P₁ ⊗ P₂.
    """

    def __init__(self, matrices: Weights, in_shape: Shape) -> None:
        out_shape = (in_shape[0], *(matrix.shape[0] for matrix in matrices))
        super().__init__(in_shape, out_shape, matrices, None)

    def _apply(self, points: Tensor, weights: Weights) -> Tensor:
        for axis, matrix in enumerate(weights, start=2):
            points = torch.movedim(torch.movedim(points, axis, -1) @ matrix.T, -1, axis)
        return points

    def _transpose(self, rows: Tensor, weights: Weights) -> Tensor:
        return self._apply(rows, tuple(matrix.T for matrix in weights))

    def _spectral_norm(self) -> float:
        return math.prod(matrix_norm(matrix) for matrix in self.weights)

    @property
    def terms(self) -> int:
        return math.prod(max(matrix.shape) for matrix in self.weights)

    @property
    def paper_norm(self) -> float:
        """√(N·m_u)/m_l: windows of m_l to m_u entries, N of which share one (the paper's average pooling)."""
        members = [(matrix > 0).sum(1) for matrix in self.weights]
        shared = math.prod(int((matrix > 0).sum(0).max()) for matrix in self.weights)
        largest = math.prod(int(count.max()) for count in members)
        smallest = math.prod(int(count.min()) for count in members)
        return max(math.sqrt(shared * largest) / smallest, self.norm)


Entrywise = Callable[[Tensor], Tensor]


class Chain(Operator):
    """A composition of operators. |A| is replaced by the product of the |Aᵢ|; norms are those of the explicit
    product, with its rounding added, if that is small, and products of norms otherwise.
    """

    def __init__(self, parts: list[Operator]) -> None:
        super().__init__(parts[0].in_shape, parts[-1].out_shape, (), None)
        self.parts = parts
        bias = size = torch.zeros(1, *self.in_shape, dtype=torch.float64)
        for part in parts:
            bias, size = part.apply(bias), part.sizes(size)
        self.bias, self.bias_size = bias[0], size[0]
        self.weights = tuple(weight for part in parts for weight in part.weights)

    def _apply(self, points: Tensor, weights: Weights) -> Tensor:
        start = 0
        for part in self.parts:
            points = part._apply(points, weights[start : start + len(part.weights)])
            start += len(part.weights)
        return points

    def _transpose(self, rows: Tensor, weights: Weights) -> Tensor:
        end = len(weights)
        for part in reversed(self.parts):
            rows = part._transpose(rows, weights[end - len(part.weights) : end])
            end -= len(part.weights)
        return rows

    @cached_property
    def _product(self) -> tuple[Tensor, float] | None:
        """The explicit matrix, and a bound on the Frobenius norm of its rounding; None if it is large."""
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
    def paper_norm(self) -> float:
        return math.prod(part.paper_norm for part in self.parts)

    def amplify(self, size: float) -> float:
        for part in self.parts:
            size = part.amplify(size)
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


class Gather(Operator):
    """An operator whose outputs are inputs or 0: slices, permutations, padding, repetition.

    Every row of A has at most one 1, so AᵀA is diagonal: the number of uses of each input.

    Args:
        index: (*out_shape) index into the flattened input for each output; −1 for 0.
    """

    def __init__(self, index: Tensor, in_shape: Shape) -> None:
        super().__init__(in_shape, tuple(index.shape), (), None)
        self._index = torch.where(index < 0, math.prod(in_shape), index).flatten()

    @cached_property
    def _uses(self) -> int:
        """Largest number of uses of an input."""
        size = math.prod(self.in_shape)
        return int(torch.bincount(self._index, minlength=size + 1)[:size].max())

    def _apply(self, points: Tensor, weights: Weights) -> Tensor:
        with_zero = torch.cat([points.flatten(1), points.new_zeros(len(points), 1)], 1)
        return with_zero[:, self._index].reshape(-1, *self.out_shape)

    def _transpose(self, rows: Tensor, weights: Weights) -> Tensor:
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

    def _apply(self, points: Tensor, weights: Weights) -> Tensor:
        return points @ weights[0].T

    def _transpose(self, rows: Tensor, weights: Weights) -> Tensor:
        return rows @ weights[0]

    def _spectral_norm(self) -> float:
        return matrix_norm(self.weights[0])

    @property
    def terms(self) -> int:
        return max(self.weights[0].shape)


class Transposed(Operator):
    """The transpose of another operator, with its own bias: a transposed convolution."""

    def __init__(self, turned: Operator, bias: Tensor | None) -> None:
        super().__init__(turned.out_shape, turned.in_shape, turned.weights, bias)
        self._turned = turned

    def _apply(self, points: Tensor, weights: Weights) -> Tensor:
        return self._turned._transpose(points, weights)

    def _transpose(self, rows: Tensor, weights: Weights) -> Tensor:
        return self._turned._apply(rows, weights)

    def _spectral_norm(self) -> float:
        return self._turned.norm

    def _signature(self) -> tuple[object, ...]:
        return type(self._turned).__name__, self._turned._signature()

    @property
    def terms(self) -> int:
        return self._turned.terms


def merge(run: list[Operator]) -> Operator:
    """Merge a non-empty run of operators into one; identities are dropped."""
    merged: list[Operator] = []
    moving = [part for part in run if not isinstance(part, Reshape) or part.in_shape != part.out_shape]
    for operator in moving or run[:1]:
        merged.append(operator)
        while len(merged) > 1 and (joined := _join(*merged[-2:])) is not None:
            joined.folds = merged[-2].folds + merged[-1].folds + 1
            if joined.bias is not None:
                start = torch.zeros(1, *joined.in_shape, dtype=torch.float64)
                joined.bias_size = merged[-1].sizes(merged[-2].sizes(start))[0]
            merged[-2:] = [joined]
    return merged[0] if len(merged) == 1 else Chain(merged)


def merge_affine_steps(steps: list[Step]) -> list[Step]:
    """Merge runs of affine layers into one step each; the names of mere reshapes are dropped."""
    merged: list[Step] = []
    run: list[Step] = []
    for step in [*steps, None]:
        if step is not None and isinstance(step.stage, Operator):
            run.append(step)
            continue
        if run:
            operator = merge([part.stage for part in run if isinstance(part.stage, Operator)])
            named = [part for part in run if not isinstance(part.stage, Reshape)] or run[-1:]
            path, kind = "+".join(part.path for part in named), "+".join(part.kind for part in named)
            shapes, assumed = (run[0].in_shape, run[-1].out_shape), assumptions_of(run)
            merged.append(Step(path, kind, operator, *shapes, assumptions=assumed))
            run = []
        if step is not None:
            merged.append(step)
    return merged


def _join(first: Operator, second: Operator) -> Operator | None:
    """The product, if its weights are exact up to one rounding each; otherwise None."""
    bias = _bias(first, second)
    if isinstance(second, Reshape) and isinstance(first, Reshape):
        return Reshape(first.in_shape, second.out_shape)
    if isinstance(second, Reshape) and isinstance(first, Dense):
        return Dense(first.weights[0], bias, first.in_shape, second.out_shape)
    if isinstance(first, Reshape) and isinstance(second, Dense):
        return Dense(second.weights[0], bias, first.in_shape, second.out_shape)
    return _fold(first, second, bias)


def _fold(first: Operator, second: Operator, bias: Tensor | None) -> Operator | None:
    """Fold the factors of a diagonal operator into its neighbour."""
    if isinstance(first, Diagonal):
        factors = first.weights[0]
        if isinstance(second, Diagonal):
            return Diagonal(factors * second.weights[0], bias, second.out_shape)
        if isinstance(second, Dense):
            return Dense(second.weights[0] * factors.flatten(), bias, second.in_shape, second.out_shape)
        if isinstance(second, Convolution) and (channels := _per_channel(factors)) is not None:
            return second.scaled(channels, None, bias)
    if isinstance(second, Diagonal):
        factors = second.weights[0]
        if isinstance(first, Dense):
            return Dense(first.weights[0] * factors.reshape(-1, 1), bias, first.in_shape, first.out_shape)
        if isinstance(first, Convolution) and (channels := _per_channel(factors)) is not None:
            return first.scaled(None, channels, bias)
    return None


def _per_channel(factors: Tensor) -> Tensor | None:
    """One factor for each channel, if all positions share it."""
    flat = factors.flatten(1)
    return flat[:, 0].clone() if bool((flat == flat[:, :1]).all()) else None


def _bias(first: Operator, second: Operator) -> Tensor | None:
    """b of the product, (*out_shape); None if there is none."""
    if first.bias is None and second.bias is None:
        return None
    start = torch.zeros(1, *first.in_shape, dtype=torch.float64)
    return second.apply(first.apply(start))[0]
