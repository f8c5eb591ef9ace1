"""The norm of a cost with safe roundings, for moves of one shape.

A quadratic cost has a linear map S with ‖Su‖ = ‖u‖₂; behind it the cost is Euclidean. For the sup-norm, a
move of length 1 has |δᵢ| ≤ 1 and ‖δ‖₂ ≤ √d, d the number of coordinates that may move. A norm with
‖v‖ ≥ m‖v‖₂ (all Lp for p ≤ 2 have m = 1) has ‖δ‖₂ ≤ 1/m. A mask drops the frozen coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from certus.errors import UnsupportedError
from certus.norms import L2, MatrixNorm, Norm
from certus.rounding import FEW, MANY, SOME, slack

_ILL = "The matrix of the cost is too ill-conditioned for a proof in float64; regularise it."


class Metric:
    """Any norm with ‖v‖ ≥ m‖v‖₂, m > 0; only m, its dual, and that it is a norm are used.

    Args:
        shape: of one point.
        mask: bool, broadcasts to the shape; True marks free coordinates. None if all are free.

    Attributes:
        whitening: S, which maps u to the moves that the cost allows: a factor for each coordinate, (*shape),
            or a (size, size) matrix; None for the identity.
        length: ‖u‖₂ ≤ length wherever ‖Su‖ ≤ 1.
        unit: |uᵢ| ≤ unit for every coordinate, there too.
    """

    whitening: Tensor | None
    length: float
    unit: float

    def __init__(self, norm: Norm, shape: tuple[int, ...], mask: Tensor | None = None) -> None:
        self.norm, self.shape, self.count = norm, shape, math.prod(shape)
        self.mask = None if mask is None else mask.cpu().expand(shape)
        self.whitening = None if self.mask is None else self.mask.double()
        self._measure()

    def _measure(self) -> None:
        """Set ``length`` and ``unit``, and ``whitening`` unless it is the mask."""
        floor = self.norm.euclidean_floor
        if not 0 < floor < math.inf:
            raise UnsupportedError(
                f"`euclidean_floor` of {self.norm} must be positive for a proof; it is {floor}."
            )
        self.length = self.unit = (1 + FEW) / floor

    @property
    def coupled(self) -> bool:
        """Whether coordinates are coupled, so that dropping one may lengthen a vector."""
        return isinstance(self.norm, MatrixNorm)

    @cached_property
    def rounding(self) -> float:
        """Relative rounding of the cost, of its norm and of the dual norm.

        Sums of positive terms have little. vᵀMv and its dual lose up to the condition of M, squared.
        """
        if not isinstance(self.norm, MatrixNorm):
            return slack(self.count) + SOME
        size = float(torch.linalg.matrix_norm(self.norm.matrix.cpu().double()))
        floor = self.norm.euclidean_floor
        lost = slack(8 * self.count) * (size / floor**2) ** 2 if floor > 0 else math.inf
        if not lost < 1e-3:
            raise UnsupportedError(_ILL)
        return lost + SOME

    def dual(self, gradients: Tensor) -> Tensor:
        """Upper bound on sup {⟨g, δ⟩ : ‖δ‖ ≤ 1} over moves that the cost allows. Shapes (batch, …) →
        (batch,)."""
        lengths: Tensor = self.norm.dual(gradients)
        return lengths * (1 + self.rounding)

    def dual_size(self, lengths: Tensor) -> Tensor:
        """(batch,) upper bound on ``dual`` for gradients of at most these (batch,) L2 norms."""
        return lengths / self._floor * (1 + MANY + self.rounding)

    @property
    def _floor(self) -> float:
        """m for points of this shape."""
        return self.norm.euclidean_floor

    def farthest(self, room: Tensor) -> Tensor:
        """(batch,) upper bound on the length of allowed moves with |δᵢ| ≤ roomᵢ; may be ∞.

        Args:
            room: (batch, …) not negative; may be ∞.
        """
        return torch.full((len(room),), math.inf, dtype=torch.float64)

    def _freed(self, vectors: Tensor) -> Tensor:
        """Vectors without the frozen coordinates."""
        return vectors if self.mask is None else torch.where(self.mask.to(vectors.device), vectors, 0)


class Absolute(Metric):
    """A norm that depends on the |vᵢ| only and increases with each: the longest move is a corner."""

    def farthest(self, room: Tensor) -> Tensor:
        room = self._freed(room)
        lengths: Tensor = self.norm(room)
        return torch.where(torch.isfinite(room).flatten(1).all(1), lengths * (1 + MANY), math.inf)


class Sup(Absolute):
    """The sup-norm."""

    def _measure(self) -> None:
        free = self.count if self.mask is None else int(self.mask.sum())
        self.length, self.unit = math.sqrt(free) * (1 + FEW), 1.0

    @property
    def _floor(self) -> float:
        return 1 / math.sqrt(self.count)


class Whitened(Metric):
    """A norm with an inner product; ``whiten`` is S without a mask, (batch, …) → (batch, …)."""

    def __init__(
        self,
        norm: Norm,
        shape: tuple[int, ...],
        mask: Tensor | None,
        whiten: Callable[[Tensor], Tensor],
    ) -> None:
        self._whiten = whiten
        super().__init__(norm, shape, mask)

    def dual(self, gradients: Tensor) -> Tensor:
        # The computed root of a matrix is not quite one: moves are that much longer behind it.
        return L2(self._behind(gradients)) * ((1 + self.rounding) * self.length)

    def _behind(self, vectors: Tensor) -> Tensor:
        return self._freed(self._whiten(self._freed(vectors)))


class Euclidean(Whitened, Absolute):
    """‖v‖₂, which is its own dual."""

    def _measure(self) -> None:
        self.length = self.unit = 1.0


class Weighted(Euclidean):
    """√(Σ wᵢ vᵢ²): S divides by √wᵢ."""

    def _measure(self) -> None:
        super()._measure()
        ones = torch.ones(1, *self.shape, dtype=torch.float64)
        self.whitening = self._behind(ones)[0] * (1 + slack(1))


class Full(Whitened):
    """√(vᵀMv): S is the computed root of M⁻¹; ``whiten`` ignores the mask."""

    def _measure(self) -> None:
        """Bound the rounding of S: with Δ = ‖S M S − I‖_F on the free coordinates, ‖u‖₂² ≤ ‖Su‖²_M/(1 −
        Δ)."""
        assert isinstance(self.norm, MatrixNorm)
        basis = torch.eye(self.count, dtype=torch.float64)
        root = self._behind(basis.reshape(-1, *self.shape)).flatten(1)
        root = (root + root.T) / 2
        free = torch.ones(self.count, dtype=torch.bool) if self.mask is None else self.mask.flatten()
        part, matrix = (whole[free][:, free] for whole in (root, self.norm.matrix.detach().cpu().double()))
        off = part @ matrix @ part - torch.eye(len(part), dtype=torch.float64)
        sizes = part.abs() @ matrix.abs() @ part.abs()
        rounding = slack(3 * self.count) * float(torch.linalg.matrix_norm(sizes))
        error = float(torch.linalg.matrix_norm(off)) + rounding
        if not error < 0.5:
            raise UnsupportedError(_ILL)
        self.whitening = root.contiguous()
        self.length = self.unit = (1 + FEW) / math.sqrt(1 - error)
