"""Affine primitives x ↦ Ax + b, without the matrix where it is large.

Each kind of operator says how it acts with given weights, forwards and transposed. With |A| in place of A the
same code gives |A|x, and with A∘A the norms of rows and columns, for every stride, padding and group.

The norm ‖A‖ is a claim, which ``norms`` checks; without one, √(‖A‖₁‖A‖_∞) bounds it.

A weight may be a product of several numbers of the model that was read (a scaling folded into a matrix), and
then stands for a real number that it is off from by as many roundings, ``folds``; likewise a bias, whose
rounding is relative to the sizes of its terms, ``bias_size``. All bounds hold for the real numbers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import Any, final

import torch
from torch import Tensor

from certus.kernel.norms import checked_norm, circulant_blocks
from certus.kernel.passes import (
    ForwardBound,
    GradientBound,
    Memory,
    Place,
    Precision,
    Primitive,
    Range,
    Refused,
    Rounded,
    Shape,
    Totals,
    norm,
    per_sample,
    times,
)
from certus.kernel.rounding import FEW, slack, up

Weights = tuple[Tensor, ...]
Claim = tuple[float, ...]

_LOST = 2.0**-510  # twice what a square loses that vanishes
_AT_ONCE = 1 << 20  # numbers in the matrices that are checked together


class Affine(Primitive):
    """x ↦ Ax + b for x of shape (batch, *in_shape).

    Attributes:
        weights, bias: float64; the bias broadcasts to out_shape.
        terms: the most products that are summed for one entry, forwards or transposed.
        folds, bias_size: the rounding of the weights and of the bias.
        claim: a number that is at least ‖A‖ (one for each matrix of an ``AxisProduct``); empty without one.
        written: whether the claim was checked on A written out, where another check would be cheaper.
        explicit: A, where it is a matrix already.
    """

    explicit: Tensor | None = None

    def __init__(
        self, in_shape: Shape, out_shape: Shape, weights: Weights, bias: Tensor | None, terms: int
    ) -> None:
        self.in_shape, self.out_shape = in_shape, out_shape
        self.weights, self.bias, self.terms = weights, bias, terms
        self.bias_size = None if bias is None else bias.abs()
        self.folds, self.written = 0, False
        self.claim: Claim = ()
        self._claimed_norm = math.inf

    @abstractmethod
    def act(self, points: Tensor, weights: Weights) -> Tensor:
        """A·points. Shapes (batch, *in) → (batch, *out)."""

    @abstractmethod
    def transposed(self, rows: Tensor, weights: Weights) -> Tensor:
        """Aᵀ·rows. Shapes (batch, *out) → (batch, *in)."""

    @final
    def apply(self, points: Tensor) -> Tensor:
        image = self.act(points, self.weights)
        return image if self.bias is None else image + self.bias

    @final
    def transpose(self, rows: Tensor) -> Tensor:
        """Aᵀ·rows."""
        return self.transposed(rows, self.weights)

    @final
    def absolute(self, points: Tensor) -> Tensor:
        """|A|·points, for points ≥ 0, rounded up."""
        return self.act(points, self._sizes) * (1 + self.rounding)

    @final
    def absolute_transpose(self, rows: Tensor) -> Tensor:
        """|A|ᵀ·rows, for rows ≥ 0, rounded up."""
        return self.transposed(rows, self._sizes) * (1 + self.rounding)

    @cached_property
    def _sizes(self) -> Weights:
        return tuple(weight.abs() for weight in self.weights)

    @property
    def rounding(self) -> float:
        """Relative rounding of ``apply`` and ``transpose``."""
        return slack(self.terms + self.folds)

    @final
    def sizes(self, points: Tensor) -> Tensor:
        """|A|·points + |b| for points ≥ 0: the rounding of ``apply`` is relative to it."""
        image = self.absolute(points)
        return image if self.bias_size is None else image + self.bias_size

    def matrix(self) -> Tensor:
        """(outputs, inputs) A written out."""
        inputs, outputs = math.prod(self.in_shape), math.prod(self.out_shape)
        basis = torch.eye(min(inputs, outputs), dtype=torch.float64)
        if outputs < inputs:
            return self.transpose(basis.reshape(-1, *self.out_shape)).flatten(1)
        return self.act(basis.reshape(-1, *self.in_shape), self.weights).flatten(1).T.contiguous()

    @cached_property
    def row_norms(self) -> Tensor:
        """(*out_shape) Euclidean norms of the rows of A, rounded up."""
        return self._entry_norms(self.act, self.in_shape)

    @cached_property
    def column_norms(self) -> Tensor:
        """(*in_shape) Euclidean norms of the columns of A, rounded up."""
        return self._entry_norms(self.transposed, self.out_shape)

    def _entry_norms(self, move: Callable[[Tensor, Weights], Tensor], shape: Shape) -> Tensor:
        """√(Σ A²) along one side: A∘A, applied to ones.

        Each tensor of weights is scaled by its largest entry, or squares would overflow or vanish. What still
        vanishes, a square below 2⁻¹⁰²², is at most 2⁻⁵¹¹ of it for each term.
        """
        scales = [float(weight.abs().max()) or 1.0 if weight.numel() else 1.0 for weight in self.weights]
        squares = tuple((weight / size) ** 2 for weight, size in zip(self.weights, scales, strict=True))
        ones = torch.ones(1, *shape, dtype=torch.float64)
        norms = move(ones, squares)[0].sqrt() * (1 + self.rounding)
        lost = torch.where(move(ones, self._sizes)[0] > 0, math.sqrt(self.terms) * _LOST, 0.0)
        return (norms + lost) * (math.prod(scales) * (1 + slack(len(scales))))

    @final
    def accept(self, claim: Claim, *, written: bool = False) -> None:
        """Check a claimed norm, and use it from now on; raise ``Refused`` if it is too small."""
        self.written = written
        self._claimed_norm = self.check(claim)
        self.claim = claim

    def check(self, claim: Claim) -> float:
        """Return a bound on the norm of A as stored from a claim; raise ``Refused`` if that is too small."""
        return checked_norm(self.matrix().unsqueeze(0), claim[0])

    @cached_property
    def absolute_norm(self) -> float:
        """Bound on ‖|A|‖: √(‖A‖₁‖A‖_∞)."""
        rows = self.absolute(torch.ones(1, *self.in_shape, dtype=torch.float64)).max()
        columns = self.absolute_transpose(torch.ones(1, *self.out_shape, dtype=torch.float64)).max()
        return up(math.sqrt(float(rows) * float(columns)), FEW)

    @property
    def composed_norm(self) -> float:
        """Bound on ‖A‖ from the parts of A; infinite if it has none."""
        return math.inf

    @property
    def norm(self) -> float:
        """Bound on ‖A‖: the smallest of ``absolute_norm``, ``composed_norm`` and the accepted claim."""
        bound = min(self.composed_norm, self._claimed_norm)
        if self.folds:  # each entry is off by as many roundings
            bound = bound + slack(self.folds) * self.absolute_norm
        return min(bound, self.absolute_norm)

    @property
    def summed(self) -> int:
        """The most products that are summed for one output."""
        return self.terms

    def rounded(self, value: Tensor, error: Tensor) -> Rounded:
        """e ← |A|e + slack·(|A||x| + |b|)."""
        return Rounded(self.apply(value), self.absolute(error) + self.rounding * self.sizes(value.abs()))

    def length_error(
        self, size: Tensor, error: Tensor, precision: Precision, spread: Tensor | None = None
    ) -> Tensor:
        """t ← ‖A‖t + u_k(‖|A|‖‖x‖ + ‖b‖), and what vanishes in k products for each output.

        A weight that stands for several of the model takes 8 operations for each, such as a batch norm.
        """
        offset = 0.0 if self.bias_size is None else float(norm(self.bias_size.expand(self.out_shape)[None]))
        spread = self.absolute_norm * size + offset if spread is None else spread + self.absolute_norm * error
        own = precision.relative(self.summed + 8 * self.folds + 2) * spread
        root = math.sqrt(self.summed)
        lost = (2 * self.summed + root * (self.norm + size)) * precision.least
        return self.norm * error + own + math.sqrt(math.prod(self.out_shape)) * lost

    def forward(self, before: ForwardBound, within: Range | None) -> tuple[ForwardBound, Memory]:
        """‖Aδ‖ ≤ ‖A‖‖δ‖; |(Aδ)_n| is at most ‖row n‖·‖δ‖, and at most |A||δ|."""
        rows = self.row_norms.unsqueeze(0)
        unit = torch.minimum(rows * per_sample(before.lipschitz, rows), self.absolute(before.unit))
        lipschitz = torch.minimum(self.norm * before.lipschitz, norm(unit))
        matrix = self.explicit if before.identity else None
        return ForwardBound(lipschitz, unit, times(self.norm, before.curvature), matrix=matrix), None

    def backward(self, rows: GradientBound, memory: Memory, totals: Totals, place: Place) -> GradientBound:
        """Aᵀv for v in an interval; M becomes M‖A‖²."""
        curvature = rows.curvature
        if curvature is not None:
            curvature = times(self.norm * self.norm, curvature)
        totals.gain = totals.gain * self.norm
        if place.last:
            return replace(rows, curvature=curvature)
        center, room = (rows.low + rows.high) / 2, (rows.high - rows.low) / 2
        room = room + (self.rounding + slack(1)) * rows.largest
        form = (*rows.low.shape[:2], *self.in_shape)
        pulled = self.transpose(center.flatten(0, 1)).reshape(form)
        spread = self.absolute_transpose(room.flatten(0, 1)).reshape(form)
        cap = self.column_norms * rows.norm.reshape(*form[:2], *([1] * len(self.in_shape)))
        low, high = torch.maximum(pulled - spread, -cap), torch.minimum(pulled + spread, cap)
        return GradientBound(low, high, self.norm * rows.norm, curvature).tightened()

    def backward_error(self, size: Tensor, error: Tensor, at: Rounded) -> tuple[Tensor, Tensor]:
        """e ← ‖A‖e + slack·‖|A|‖(‖v‖ + e)."""
        error = self.norm * error + self.rounding * self.absolute_norm * (size + error)
        return self.norm * size, error

    def amplify(self, size: float) -> float:
        return size * max(1.0, self.norm)


class Dense(Affine):
    """An explicit matrix, between points of any shapes."""

    def __init__(
        self,
        matrix: Tensor,
        bias: Tensor | None,
        in_shape: Shape | None = None,
        out_shape: Shape | None = None,
    ) -> None:
        rows, columns = matrix.shape
        super().__init__(in_shape or (columns,), out_shape or (rows,), (matrix,), bias, max(rows, columns))
        self.explicit = matrix

    def act(self, points: Tensor, weights: Weights) -> Tensor:
        return (points.flatten(1) @ weights[0].T).reshape(-1, *self.out_shape)

    def transposed(self, rows: Tensor, weights: Weights) -> Tensor:
        return (rows.flatten(1) @ weights[0]).reshape(-1, *self.in_shape)

    def matrix(self) -> Tensor:
        return self.weights[0]

    @property
    def summed(self) -> int:
        return self.weights[0].shape[1]


class Diagonal(Affine):
    """A factor for each coordinate: normalisation, batch norm, scaling, masks."""

    def __init__(self, factors: Tensor, bias: Tensor | None, shape: Shape) -> None:
        super().__init__(shape, shape, (factors.expand(shape).contiguous(),), bias, 1)

    def act(self, points: Tensor, weights: Weights) -> Tensor:
        return points * weights[0]

    def transposed(self, rows: Tensor, weights: Weights) -> Tensor:
        return rows * weights[0]

    @property
    def composed_norm(self) -> float:
        return float(self.weights[0].abs().max())


class Reshape(Affine):
    """Reshape to another shape; also the identity."""

    def __init__(self, in_shape: Shape, out_shape: Shape) -> None:
        super().__init__(in_shape, out_shape, (), None, 0)

    def act(self, points: Tensor, weights: Weights) -> Tensor:
        return points.reshape(-1, *self.out_shape)

    def transposed(self, rows: Tensor, weights: Weights) -> Tensor:
        return rows.reshape(-1, *self.in_shape)

    def length_error(
        self, size: Tensor, error: Tensor, precision: Precision, spread: Tensor | None = None
    ) -> Tensor:
        return error

    @property
    def composed_norm(self) -> float:
        return 1.0


class Gather(Affine):
    """Each output is one of the inputs, or 0: slices, permutations, padding, repetition.

    Every row of A has at most one 1, so AᵀA is diagonal: the number of uses of each input.

    Args:
        index: (*out_shape) the entry of the flattened input that each output is; −1 for 0.
    """

    def __init__(self, index: Tensor, in_shape: Shape) -> None:
        self.index, self._size = index, math.prod(in_shape)
        if bool((index >= self._size).any()):
            raise Refused("an index is out of range")
        self._places = torch.where(index < 0, self._size, index).flatten()
        uses = int(torch.bincount(self._places, minlength=self._size + 1)[: self._size].max())
        super().__init__(in_shape, tuple(index.shape), (), None, max(1, uses))
        self._uses = uses

    def act(self, points: Tensor, weights: Weights) -> Tensor:
        with_zero = torch.cat([points.flatten(1), points.new_zeros(len(points), 1)], 1)
        return with_zero[:, self._places].reshape(-1, *self.out_shape)

    def transposed(self, rows: Tensor, weights: Weights) -> Tensor:
        summed = rows.new_zeros(len(rows), self._size + 1).index_add_(1, self._places, rows.flatten(1))
        return summed[:, : self._size].reshape(-1, *self.in_shape)

    def length_error(
        self, size: Tensor, error: Tensor, precision: Precision, spread: Tensor | None = None
    ) -> Tensor:
        return self.norm * error

    @property
    def composed_norm(self) -> float:
        return math.sqrt(self._uses) * (1 + self.rounding)


class AxisProduct(Affine):
    """A matrix, (outputs, inputs), along each of the last axes, at every position of the others:
    A = I ⊗ P₁ ⊗ P₂. A linear layer of sequences has one matrix. Average pooling has one for each spatial
    axis, since its windows are products of intervals, and so are their sizes.
    """

    def __init__(self, matrices: Weights, bias: Tensor | None, in_shape: Shape) -> None:
        out_shape = (*in_shape[: -len(matrices)], *map(len, matrices))
        terms = math.prod(max(matrix.shape) for matrix in matrices)
        super().__init__(in_shape, out_shape, matrices, bias, terms)

    def act(self, points: Tensor, weights: Weights) -> Tensor:
        for axis, matrix in enumerate(weights, start=-len(weights)):
            points = torch.movedim(torch.movedim(points, axis, -1) @ matrix.T, -1, axis)
        return points

    def transposed(self, rows: Tensor, weights: Weights) -> Tensor:
        return self.act(rows, tuple(matrix.T for matrix in weights))

    @property
    def summed(self) -> int:
        return math.prod(matrix.shape[1] for matrix in self.weights)

    def check(self, claim: Claim) -> float:
        """‖I ⊗ P₁ ⊗ P₂‖ = ‖P₁‖‖P₂‖, each of them claimed."""
        norms = [checked_norm(part.unsqueeze(0), own) for part, own in zip(self.weights, claim, strict=True)]
        return up(math.prod(norms), slack(len(norms)))


class Convolution(Affine):
    """A convolution with zero padding; stride, dilation and groups as in torch, in 1 to 3 dimensions.

    Attributes:
        padded: size of the input along each axis, both paddings included.
    """

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
        self.axes, kernel = weight.dim() - 2, weight.shape[2:]
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.padded = tuple(n + sum(pad) for n, pad in zip(in_shape[1:], padding, strict=True))
        room = [self.padded[i] - dilation[i] * (kernel[i] - 1) - 1 for i in range(self.axes)]
        sizes = (room[i] // stride[i] + 1 for i in range(self.axes))
        # Positions at the end of the padded input that no window reaches.
        self._cut_off = [room[i] % stride[i] for i in range(self.axes)]
        terms = int(weight[0].numel()) + int(weight[:, 0].numel())
        super().__init__(in_shape, (weight.shape[0], *sizes), (weight,), bias, terms)

    def act(self, points: Tensor, weights: Weights) -> Tensor:
        convolve: Any = (torch.conv1d, torch.conv2d, torch.conv3d)[self.axes - 1]
        # torch pads the last axis first.
        padded = torch.constant_pad_nd(points, [amount for pair in reversed(self.padding) for amount in pair])
        image: Tensor = convolve(padded, weights[0], None, self.stride, 0, self.dilation, self.groups)
        return image

    def transposed(self, rows: Tensor, weights: Weights) -> Tensor:
        pull: Any = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)[self.axes - 1]
        options = (self.stride, 0, self._cut_off, self.groups, self.dilation)
        whole: Tensor = pull(rows, weights[0], None, *options)
        starts = (slice(pad[0], pad[0] + n) for n, pad in zip(self.in_shape[1:], self.padding, strict=True))
        return whole[(slice(None), slice(None), *starts)]

    def with_weight(self, weight: Tensor, bias: Tensor | None = None) -> Convolution:
        """Return a convolution with the same windows and other weights."""
        options: Any = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        return Convolution(weight, bias, self.in_shape, groups=self.groups, **options)

    def check(self, claim: Claim) -> float:
        """The norm of the circular convolution on the torus of the padded input, block by block."""
        if self.written:
            return super().check(claim)
        options = (self.padded, self.stride, self.dilation, self.groups)
        blocks, error = circulant_blocks(self.weights[0], *options)
        few = max(1, _AT_ONCE // blocks[0].numel())
        return max(checked_norm(part, claim[0], error) for part in blocks.split(few))


class Transposed(Affine):
    """The transpose of another operator, with a bias of its own: a transposed convolution."""

    def __init__(self, original: Affine, bias: Tensor | None) -> None:
        shapes = original.out_shape, original.in_shape
        super().__init__(*shapes, original.weights, bias, original.terms)
        self.original = original

    def act(self, points: Tensor, weights: Weights) -> Tensor:
        return self.original.transposed(points, weights)

    def transposed(self, rows: Tensor, weights: Weights) -> Tensor:
        return self.original.act(rows, weights)

    @property
    def composed_norm(self) -> float:
        return self.original.norm


class Product(Affine):
    """Operators one after another, which no single matrix or convolution stands for.

    |A| becomes the product of the |Aᵢ|. ‖A‖ is at most the product of their norms; a claim about a small
    product is checked on the matrix written out, with its rounding added.
    """

    def __init__(self, parts: tuple[Affine, ...]) -> None:
        weights = tuple(weight for part in parts for weight in part.weights)
        terms = sum(part.terms + part.folds + 8 for part in parts)
        super().__init__(parts[0].in_shape, parts[-1].out_shape, weights, None, terms)
        self.parts = parts
        bias = size = torch.zeros(1, *self.in_shape, dtype=torch.float64)
        for part in parts:
            bias, size = part.apply(bias), part.sizes(size)
        self.bias, self.bias_size = bias[0], size[0]

    def _with(self, weights: Weights) -> list[tuple[Affine, Weights]]:
        """Each part, and its share of the weights."""
        ends = accumulate(len(part.weights) for part in self.parts)
        return [
            (part, weights[end - len(part.weights) : end]) for part, end in zip(self.parts, ends, strict=True)
        ]

    def act(self, points: Tensor, weights: Weights) -> Tensor:
        for part, own in self._with(weights):
            points = part.act(points, own)
        return points

    def transposed(self, rows: Tensor, weights: Weights) -> Tensor:
        for part, own in reversed(self._with(weights)):
            rows = part.transposed(rows, own)
        return rows

    @cached_property
    def product(self) -> tuple[Tensor, float]:
        """The matrix and a bound on the Frobenius norm of its rounding."""
        sizes = math.prod(float(torch.linalg.vector_norm(part.row_norms)) for part in self.parts)
        return self.matrix(), self.rounding * sizes

    @cached_property
    def row_norms(self) -> Tensor:
        if self.written:
            return self._written_norms(1).reshape(self.out_shape)
        return _prefix_norms([(part.row_norms, part.norm, part.absolute) for part in self.parts])

    @cached_property
    def column_norms(self) -> Tensor:
        if self.written:
            return self._written_norms(0).reshape(self.in_shape)
        parts = reversed(self.parts)
        return _prefix_norms([(part.column_norms, part.norm, part.absolute_transpose) for part in parts])

    def _written_norms(self, axis: int) -> Tensor:
        matrix, error = self.product
        sizes: Tensor = torch.linalg.vector_norm(matrix, dim=axis)
        return sizes * (1 + self.rounding) + error

    @property
    def composed_norm(self) -> float:
        return up(math.prod(part.norm for part in self.parts), slack(len(self.parts)))

    def length_error(
        self, size: Tensor, error: Tensor, precision: Precision, spread: Tensor | None = None
    ) -> Tensor:
        rounding = [part for part in self.parts if not isinstance(part, Gather | Reshape)]
        for part in self.parts:
            known = spread if rounding == [part] else None
            after = part.length_error(size, error, precision, known)
            offset = 0.0 if part.bias_size is None else norm(part.bias_size.expand(part.out_shape)[None])
            size, error = part.norm * size + offset + after, after
        return error

    def check(self, claim: Claim) -> float:
        matrix, error = self.product
        return checked_norm(matrix.unsqueeze(0), claim[0], error)

    def amplify(self, size: float) -> float:
        for part in self.parts:
            size = part.amplify(size)
        return size


def _prefix_norms(parts: list[tuple[Tensor, float, Callable[[Tensor], Tensor]]]) -> Tensor:
    """Norms of the rows of Aₙ⋯A₁ from the row norms, the norm and |·| of each part, A₁ first.

    Row i of A·P, P the product of all parts before A, is at most ‖row i of A‖·‖P‖, and at most |A| times the
    row norms of P.
    """
    norms, length, _ = parts[0]
    for own, size, absolute in parts[1:]:
        norms = torch.minimum(own * length, absolute(norms[None])[0]) * (1 + slack(1))
        length *= size * (1 + slack(1))
    return norms
