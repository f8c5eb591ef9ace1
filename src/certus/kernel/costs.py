"""Transport costs and domains as plain data, with norms that are rounded outwards.

A cost c(x, x₀) has a norm with c ≥ (growth/2)‖x − x₀‖², in which it is ``strong_convexity``-strongly convex
(assumption:strong-convexity). Coordinates that are not free do not move: there c = ∞. A norm with an inner
product has a linear map S such that every move of length 1 is Su with ‖u‖₂ ≤ length: behind S the cost is
Euclidean. Others have ‖v‖ ≥ m‖v‖₂, m = 1 for Lp with p ≤ 2; in the sup-norm |δᵢ| ≤ 1, and ‖δ‖₂ ≤ √d for d
free coordinates.

*The gap.* Let f be μ-strongly concave in this norm, and g = ∇f(x). Then

    sup_{z ∈ Z} f(z) − f(x) ≤ sup_{z ∈ Z} ⟨g, z − x⟩ − (μ/2)‖z − x‖²,

and the right side is at most the smallest of
- ‖g‖²_*/2μ, without Z;
- Σᵢ gᵢδᵢ − (μwᵢ/2)δᵢ², δᵢ = gᵢ/(μwᵢ) clipped to [loᵢ − xᵢ, hiᵢ − xᵢ], if Z is in a box and ‖v‖² ≥ Σ wᵢvᵢ²:
  the exact maximum of a separable majorant;
- ‖g − 2λq‖²/4(s + λ) + λ(R² − ‖q‖²) for every λ ≥ 0, with s = μm²/2 and q = x − center, if Z is in a ball:
  the Lagrangian of ‖z − center‖² ≤ R².
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from certus.kernel.norms import checked_quadratic
from certus.kernel.passes import Refused, Shape, norm, per_sample
from certus.kernel.rounding import FEW, MANY, SOME, TINY, slack, up

_MOST_LOST = 1e-3  # largest relative rounding of a quadratic cost
_EVERYWHERE = torch.tensor(math.inf, dtype=torch.float64)


@dataclass(frozen=True, eq=False)
class Domain:
    """Z ⊆ {z : lower ≤ z ≤ upper, ‖z − center‖₂ ≤ radius}; a larger set makes bounds loose, never wrong.

    All are float64 and broadcast to a point; bounds may be infinite, and ``center`` is None without a ball.
    """

    lower: Tensor = -_EVERYWHERE
    upper: Tensor = _EVERYWHERE
    center: Tensor | None = None
    radius: float = math.inf


@dataclass(frozen=True, eq=False, kw_only=True)
class Cost(ABC):
    """A cost of moving points of one shape: c(x, x₀) = ‖x − x₀‖² unless it is ``Claimed``.

    Attributes:
        free: (*shape) bool, the coordinates that may move; None for all.
        label_price: of replacing a label by another one.
        floor: m with ‖v‖ ≥ m‖v‖₂ for free moves v.
        whitening: S: a factor for each coordinate, (*shape), or a (size, size) matrix; None for the identity.
        length, unit: ‖u‖₂ ≤ length and |uᵢ| ≤ unit wherever Su has length 1.
        rounding: relative, of the cost, the norm and the dual norm.
    """

    shape: Shape
    free: Tensor | None = None
    label_price: float = math.inf
    growth: float = field(init=False, default=2.0)
    strong_convexity: float = field(init=False, default=2.0)
    floor: float = field(init=False, default=1.0)
    whitening: Tensor | None = field(init=False)
    length: float = field(init=False, default=1.0)
    unit: float = field(init=False, default=1.0)
    rounding: float = field(init=False)

    def __post_init__(self) -> None:
        """Check the data, and set the constants that differ from those of L2."""
        mask = None if self.free is None else self.free.double()
        vars(self).update(whitening=mask, rounding=slack(math.prod(self.shape)) + SOME)

    @abstractmethod
    def norm(self, moves: Tensor) -> Tensor:
        """‖move‖, as computed. Shapes (batch, *shape) → (batch,)."""

    @abstractmethod
    def _dual(self, gradients: Tensor) -> Tensor:
        """sup {⟨g, δ⟩ : ‖δ‖ ≤ 1}, as computed."""

    @abstractmethod
    def gradient(self, points: Tensor, origins: Tensor) -> Tensor:
        """∇c at the points, (batch, *shape); only its free coordinates count."""

    def _value(self, points: Tensor, origins: Tensor) -> Tensor:
        return self.norm(points - origins) ** 2

    def value(self, points: Tensor, origins: Tensor) -> Tensor:
        """c(point, origin), (batch,), as computed."""
        costs = self._value(points, origins)
        if self.free is None:
            return costs
        return torch.where(((points != origins) & ~self.free).flatten(1).any(1), math.inf, costs)

    def value_error(self, points: Tensor, origins: Tensor) -> Tensor:
        """(batch,) rounding of c that is not relative to c; a sum of positive terms has none."""
        return torch.zeros(len(points), dtype=torch.float64)

    def gradient_error(self, points: Tensor, origins: Tensor) -> Tensor:
        """(batch,) rounding of ∇c in L2 that is not relative to it."""
        return torch.zeros(len(points), dtype=torch.float64)

    def raised(self, points: Tensor, origins: Tensor) -> Tensor:
        """(batch,) upper bounds on c."""
        return up(self.value(points, origins), self.rounding) + self.value_error(points, origins)

    def freed(self, vectors: Tensor) -> Tensor:
        """Vectors without the coordinates that do not move."""
        return vectors if self.free is None else torch.where(self.free, vectors, 0.0)

    def dual(self, gradients: Tensor) -> Tensor:
        """(batch,) upper bounds on sup {⟨g, δ⟩ : ‖δ‖ ≤ 1} over free moves."""
        return up(self._dual(self.freed(gradients)), self.rounding)

    def dual_size(self, lengths: Tensor) -> Tensor:
        """(batch,) upper bounds on ``dual`` for gradients of at most these (batch,) L2 norms."""
        return up(lengths / self.floor, MANY + self.rounding)

    def farthest(self, room: Tensor) -> Tensor:
        """(batch,) upper bounds on the length of free moves with |δᵢ| ≤ roomᵢ: that of a corner for Lp."""
        room = self.freed(room)
        finite = torch.isfinite(room).flatten(1).all(1) & isinstance(self, Lp)
        return torch.where(finite, up(self.norm(room)), math.inf)

    @property
    def weights(self) -> Tensor | float:
        """w with ‖v‖² ≥ Σ wᵢvᵢ²."""
        return self.floor**2

    def gap(self, gradient: Tensor, point: Tensor, modulus: Tensor, domain: Domain) -> Tensor:
        """(batch,) the bound of the module's docstring at (batch, *shape) points, for (batch,) μ > 0."""
        gradient = self.freed(gradient)
        best = self.dual(gradient) ** 2 / (2 * modulus)
        scale = per_sample(modulus, point) * self.weights
        move = (gradient / scale).clamp(domain.lower - point, domain.upper - point)
        gains = (gradient * move - scale / 2 * move**2).flatten(1).sum(1)
        best = torch.minimum(best, gains.clamp_min(0))
        if domain.center is not None:
            half, away, most = modulus * self.floor**2 / 2, point - domain.center, domain.radius
            ahead = norm(away + gradient / per_sample(2 * half, point))
            multiplier = half * (ahead / most - 1).clamp_min(0)
            rest = norm(gradient - per_sample(2 * multiplier, point) * away)
            rest = rest + self.rounding * (norm(gradient) + 2 * multiplier * norm(away))
            inside = most**2 - norm(away) ** 2 + self.rounding * (most**2 + norm(away) ** 2)
            best = torch.minimum(best, rest**2 / (4 * (half + multiplier)) + multiplier * inside)
        return best


@dataclass(frozen=True, eq=False, kw_only=True)
class Lp(Cost):
    """‖D(x − x₀)‖_p², D = diag(√wᵢ): for 1 ≤ p ≤ 2 of modulus 2(p − 1), for p = ∞ of modulus 0.

    Its dual is ‖D⁻¹g‖_q, 1/p + 1/q = 1, and ‖v‖² ≥ Σ wᵢvᵢ² for p ≤ 2. S divides by √wᵢ, rounded up.

    Attributes:
        scales: (*shape) w > 0; None for 1.

    >>> cost = Lp(shape=(2,), scales=torch.tensor([1.0, 4.0], dtype=torch.float64))
    >>> cost.norm(torch.ones(1, 2).double()) ** 2, cost.whitening
    (tensor([5.0000], dtype=torch.float64), tensor([1.0000, 0.5000], dtype=torch.float64))
    """

    p: float = 2.0
    scales: Tensor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (1 <= self.p <= 2 or self.p == math.inf):
            raise Refused(f"the exponent of a cost must lie between 1 and 2, or be infinite; got {self.p}")
        if self.p < 2:
            vars(self).update(strong_convexity=2 * (self.p - 1), length=1 + FEW, unit=1 + FEW)
        elif self.p > 2:
            count = math.prod(self.shape)
            free = count if self.free is None else int(self.free.sum())
            floor, length = 1 / math.sqrt(count), math.sqrt(free) * (1 + FEW)
            vars(self).update(strong_convexity=0.0, floor=floor, length=length)
        if self.scales is not None:
            scales = self.scales.double()
            if not bool((torch.isfinite(scales) & (scales > 0)).all()):
                raise Refused("the weights of a cost must be positive and finite")
            whitening = self.freed((1 / scales.sqrt()).expand(self.shape) * (1 + slack(1)))
            floor = self.floor * math.sqrt(float(scales.min()))
            vars(self).update(scales=scales, floor=floor, whitening=whitening)

    @property
    def weights(self) -> Tensor | float:
        return self.floor**2 if self.scales is None or self.p > 2 else self.scales

    @property
    def stretch(self) -> Tensor | float:
        """D, as computed."""
        return 1.0 if self.scales is None else self.scales.sqrt()

    def norm(self, moves: Tensor) -> Tensor:
        return _power_norm(moves * self.stretch, self.p)

    def _dual(self, gradients: Tensor) -> Tensor:
        return _power_norm(gradients / self.stretch, 1 / (1 - 1 / self.p) if self.p > 1 else math.inf)

    def gradient(self, points: Tensor, origins: Tensor) -> Tensor:
        """2‖v‖^(2−p)|v|^(p−1) with the sign of v = D(x − x₀), times D; not used for p = 1 and p = ∞."""
        move = (points - origins) * self.stretch
        length = per_sample(_power_norm(move, self.p), move)
        shares = (move.abs() / length.clamp_min(TINY)) ** (self.p - 1)  # so that nothing overflows
        return 2 * length * shares * move.sign() * self.stretch


def _power_norm(vectors: Tensor, p: float) -> Tensor:
    """‖v‖_p, scaled by the largest entry where its power would overflow or vanish."""
    flat = vectors.flatten(1)
    largest = flat.abs().amax(1).clamp_min(TINY) if p not in (1, 2, math.inf) else torch.ones(1).double()
    lengths: Tensor = torch.linalg.vector_norm(flat / largest.unsqueeze(1), p, dim=1)
    return largest * lengths


@dataclass(frozen=True, eq=False, kw_only=True)
class Quadratic(Cost):
    """(x − x₀)ᵀM(x − x₀) on the flattened point, from a proposed root S of M⁻¹.

    *Theorem.* Let Δ ≥ ‖SᵀMS − I‖_F on the free coordinates, Δ < 1. Then ‖Su‖² = uᵀSᵀMSu ≥ (1 − Δ)‖u‖₂², S is
    invertible there, every move of length 1 is Su with ‖u‖₂ ≤ 1/√(1 − Δ), and ‖v‖ ≥ ‖v‖₂√(1 − Δ)/‖S‖.

    Attributes:
        matrix: (size, size) M, symmetric; root: (size, size) S, whose free part counts.
    """

    matrix: Tensor
    root: Tensor

    def __post_init__(self) -> None:
        size, count = float(torch.linalg.matrix_norm(self.matrix)), len(self.matrix)
        free = torch.ones(count, dtype=torch.bool) if self.free is None else self.free.flatten()
        root = torch.where(free[:, None] & free[None, :], self.root, 0.0)
        off = root.T @ self.matrix @ root - torch.diag(free.double())
        sizes = root.T.abs() @ self.matrix.abs() @ root.abs()
        error, rounding = (float(torch.linalg.matrix_norm(each)) for each in (off, sizes))
        error += slack(3 * count) * rounding
        if not (error < 0.5 and torch.equal(self.matrix, self.matrix.T)):
            raise Refused("the matrix of a cost must be symmetric, and its root close to that of its inverse")
        length = (1 + FEW) / math.sqrt(1 - error)
        largest = float(checked_quadratic(root, torch.ones(count, dtype=torch.float64)))
        floor = (1 - FEW) / (math.sqrt(largest) * length)
        # vᵀMv and ‖Sᵀg‖ lose up to the condition of M, squared.
        lost = slack(8 * count) * (size / floor**2) ** 2
        if not lost < _MOST_LOST:
            raise Refused("the matrix of the cost is too ill-conditioned for a proof in float64")
        vars(self).update(whitening=root, length=length, unit=length, floor=floor, rounding=lost + SOME)

    def norm(self, moves: Tensor) -> Tensor:
        flat = moves.flatten(1)
        return ((flat @ self.matrix) * flat).sum(1).clamp_min(0).sqrt()

    def _dual(self, gradients: Tensor) -> Tensor:
        assert self.whitening is not None
        return norm(gradients.flatten(1) @ self.whitening) * self.length

    def gradient(self, points: Tensor, origins: Tensor) -> Tensor:
        return 2 * ((points - origins).flatten(1) @ self.matrix).reshape(points.shape)


@dataclass(frozen=True, eq=False, kw_only=True)
class Claimed(Cost):
    """A user's own cost: all of it is *claimed*, and what follows is proven under the named assumptions.

    Attributes:
        assumptions: names of the claims.
        values, slopes: c and ∇c at (batch, *shape) points and origins; length_of, dual_of: norm and dual.
        value_terms, gradient_terms: (batch,) sizes of the terms that cancel in c, and in ∇c in L2.
        lost: relative rounding of the norm and its dual, beside that of a sum of positive terms.
    """

    assumptions: tuple[str, ...]
    growth: float
    strong_convexity: float
    floor: float
    values: Callable[[Tensor, Tensor], Tensor]
    slopes: Callable[[Tensor, Tensor], Tensor]
    length_of: Callable[[Tensor], Tensor]
    dual_of: Callable[[Tensor], Tensor]
    value_terms: Callable[[Tensor, Tensor], Tensor]
    gradient_terms: Callable[[Tensor, Tensor], Tensor]
    lost: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        constants = (self.growth, self.floor, self.strong_convexity + TINY)
        if not 0 <= self.lost < _MOST_LOST:
            raise Refused("the matrix of the cost is too ill-conditioned for a proof in float64")
        if not all(0 < constant < math.inf for constant in constants):
            raise Refused("the constants of a claimed cost must be positive and finite")
        length = (1 + FEW) / self.floor
        vars(self).update(length=length, unit=length, rounding=self.rounding + self.lost)

    def norm(self, moves: Tensor) -> Tensor:
        return self.length_of(moves)

    def _dual(self, gradients: Tensor) -> Tensor:
        return self.dual_of(gradients)

    def _value(self, points: Tensor, origins: Tensor) -> Tensor:
        return self.values(points, origins)

    def gradient(self, points: Tensor, origins: Tensor) -> Tensor:
        return self.slopes(points, origins)

    def value_error(self, points: Tensor, origins: Tensor) -> Tensor:
        return slack(8 * points[0].numel()) * self.value_terms(points, origins)

    def gradient_error(self, points: Tensor, origins: Tensor) -> Tensor:
        return slack(8 * points[0].numel()) * self.gradient_terms(points, origins)
