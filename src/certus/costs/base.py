"""The interface of a transport cost c(z, z₀), and the norm balls of attacks.

An ascent on f = ℓ − γc linearises the loss at its current point and queries the cost for a target:

    target(x) = argmax_{z ∈ Z} ⟨∇ℓ(x), z⟩ − γ c(z, z₀),

which for c = ‖z − z₀‖₂² is the familiar Π_Z(z₀ + ∇ℓ(x)/2γ). The move to the target is one gradient step of
length 1/2γ in the cost's own geometry; a schedule or a line search takes a multiple of it. So every maximizer
works with every cost, and a proximal step is another way to find a target.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import final

import torch
from torch import Tensor

from certus._tensor import as_float64, inner, per_sample
from certus.domains import Domain
from certus.errors import UnsupportedError, require, require_count
from certus.kernel import costs as kernel_costs
from certus.kernel.rounding import down, slack
from certus.norms import L2, MatrixNorm, Norm

_FLOOR = 1e-6  # least Euclidean floor of attack balls


class Support(Enum):
    """Compatibility of a cost and a domain; an incompatible pair raises ``UnsupportedError``."""

    EXACT = "exact"
    """The ascent stands still only at stationary points of ℓ − γc over Z."""

    HEURISTIC = "heuristic"
    """The ascent stays in Z and never loses value, but it may stop short of a stationary point."""


@dataclass(frozen=True)
class Response:
    """The direction of an ascent from a point.

    Attributes:
        target: (batch, …) points of Z.
        gain: (batch,) increase of f that the cost's local model promises on the way to the target; never
            negative, and zero exactly where the target is the point itself.
    """

    target: Tensor
    gain: Tensor


class Cost(ABC):
    """c(z, z₀) ≥ 0, convex in z, with c(z, z) = 0 (sec:approach).

    The traits of a subclass outside of certus are claims. They are tested on first use, and named among the
    assumptions of bounds that rest on them (``certus.costs.claims``).
    """

    @property
    @abstractmethod
    def norm(self) -> Norm:
        """The norm ‖·‖ of ``growth`` and ``strong_convexity``."""

    @property
    @abstractmethod
    def growth(self) -> float:
        """The largest s with c(z, z₀) ≥ (s/2)‖z − z₀‖²."""

    @property
    @abstractmethod
    def strong_convexity(self) -> float:
        """The modulus s of z ↦ c(z, z₀): the inner problem is strongly concave when sγ > L⁺.

        The paper scales its costs to s = 1 (assumption:strong-convexity); nothing is scaled here, so its
        γ − L reads sγ − L⁺.
        """

    @abstractmethod
    def value(self, moved: Tensor, origin: Tensor) -> Tensor:
        """c(moved, origin) for points of one shape. Shapes (batch, …) → (batch,)."""

    @abstractmethod
    def gradient(self, moved: Tensor, origin: Tensor) -> Tensor:
        """∇_z c(z, z₀) at z = moved. Shapes (batch, …) → (batch, …)."""

    @abstractmethod
    def support(self, domain: Domain) -> Support:
        """Compatibility of the cost with a domain; raises ``UnsupportedError`` if there is none."""

    @abstractmethod
    def respond(
        self, slope: Tensor, point: Tensor, origin: Tensor, gamma: Tensor, domain: Domain
    ) -> Response:
        """The target and the gain of an ascent step.

        Args:
            slope, point, origin: (batch, …) ∇ℓ(point), the point, and z₀.
            gamma: (batch,) positive penalties.
        """

    @final
    def __call__(self, moved: Tensor, origin: Tensor) -> Tensor:
        """c(moved, origin), one value per sample. Shapes (batch, …) → (batch,)."""
        require(moved.dim() >= 2, "moved", "have shape (batch, …)", f"shape {tuple(moved.shape)}")
        rule = f"have the shape {tuple(origin.shape)} of `origin`"
        require(moved.shape == origin.shape, "moved", rule, tuple(moved.shape))
        return self.value(moved, origin)

    def gap(self, gradient: Tensor, point: Tensor, modulus: Tensor, domain: Domain) -> Tensor:
        """Upper bound on the remaining gain if f is ``modulus``-strongly concave in the cost's norm:

            sup_{z ∈ Z} f(z) − f(point) ≤ sup_{z ∈ Z} ⟨g, z − point⟩ − (μ/2)‖z − point‖²   (g = ∇f(point))

        The right side is bounded by the smaller of two: without Z it is ‖g‖²_*/2μ; and since ‖v‖ ≥ m‖v‖₂, it
        is at most its Euclidean counterpart with μm², which a projection solves exactly and which vanishes at
        a maximiser on the boundary of Z. Infinite where μ ≤ 0.

        Args:
            gradient: (batch, …) ∇f at the point, the cost's part included.
            modulus: (batch,) μ.
        """
        safe = modulus.clamp_min(torch.finfo(modulus.dtype).tiny)
        bound = self.norm.dual(gradient) ** 2 / (2 * safe)
        floor = self.norm.euclidean_floor**2
        if floor > 0:
            scale = per_sample(safe / 2 * floor, point)
            bound = torch.minimum(bound, separable_response(gradient, point, scale, domain).gain)
        return infinite_unless(modulus > 0, bound)

    def estimated_gap(
        self, gain: Tensor, slope: Tensor, point: Tensor, origin: Tensor, gamma: Tensor, domain: Domain
    ) -> Tensor:
        """The value of ``gap`` if L⁺ were half of the cost's own curvature: for L2, ‖∇f‖²/2γ.

        ``gain`` is that of the response; for an exact response, twice the gain is the same number.
        """
        gradient = slope - per_sample(gamma, point) * self.gradient(point, origin)
        return self.gap(gradient, point, self.strong_convexity * gamma / 2, domain)

    def has_prox(self, domain: Domain) -> bool:
        """Whether ``prox`` is implemented on this domain."""
        return False

    def prox(self, point: Tensor, origin: Tensor, weight: Tensor, domain: Domain) -> Tensor:
        """argmin_{z ∈ Z} weight·c(z, z₀) + ½‖z − point‖₂², the backward half of a proximal step (eqn:prox).

        Raises ``UnsupportedError`` unless ``has_prox(domain)``.

        Args:
            point, origin: (batch, …) any point, and z₀ in Z.
            weight: (batch,) positive weights.
        """
        raise UnsupportedError(
            f"{self} has no proximal step on {type(domain).__name__}; only SquaredSup and SquaredLp(1), "
            "masked or not, have one, on Unbounded and Box. BarzilaiBorwein() works with every cost."
        )

    def whiten(self, vectors: Tensor) -> Tensor:
        """A symmetric linear map W with ‖Wv‖ = ‖v‖₂, which turns curvature in this norm into eigenvalues.

        Raises ``UnsupportedError`` where the norm has no inner product.
        """
        if self.norm == L2:
            return vectors
        raise UnsupportedError(f"{self} has no inner product: curvature in its norm is not an eigenvalue.")

    def kernel(self, shape: tuple[int, ...], free: Tensor | None = None) -> kernel_costs.Cost:
        """The cost as data of the trusted kernel, for points of one shape; ``free`` coordinates may move.

        By default all of its constants are claims. The costs of certus override it for their exact class,
        since a subclass may have another norm.
        """
        from certus.costs.claims import cost_assumptions  # which is about costs

        floor = self.norm.euclidean_floor
        if not 0 < floor < math.inf:
            raise UnsupportedError(
                f"`euclidean_floor` of {self.norm} must be positive for a proof; it is {floor}."
            )
        lost = 0.0
        if isinstance(self.norm, MatrixNorm):  # vᵀMv and its dual lose up to the condition of M, squared
            size = float(torch.linalg.matrix_norm(as_float64(self.norm.matrix)))
            lost = slack(8 * math.prod(shape)) * (size / floor**2) ** 2
        return kernel_costs.Claimed(
            shape=shape,
            free=free,
            assumptions=cost_assumptions(self),
            growth=self.growth,
            strong_convexity=self.strong_convexity,
            floor=down(floor, lost),
            values=self.value,
            slopes=self.gradient,
            length_of=self.norm,
            dual_of=self.norm.dual,
            value_terms=self.value_terms,
            gradient_terms=self.gradient_terms,
            lost=lost,
        )

    def attack_ball(self, domain: Domain) -> AttackBall:
        """The balls of attacks on this domain; by default L2 balls that contain the cost's own."""
        return AttackBall(2.0, floor=max(self.norm.euclidean_floor, _FLOOR))

    def fraction(self, share: Tensor) -> Tensor:
        """The fraction of the line from z₀ to z that costs at most the (batch,) share of c(z, z₀).

        The root, if c is a squared norm; ``share`` itself is valid for any convex cost.
        """
        return share.sqrt()

    def value_terms(self, moved: Tensor, origin: Tensor) -> Tensor:
        """(batch,) magnitude of the terms that cancel in c(moved, origin); its rounding is relative to them.

        The default is for an unknown cost: growth·(‖z‖₂ + ‖z₀‖₂)². The squared norms of certus do not cancel.
        """
        return self.growth * (L2(moved) + L2(origin)) ** 2

    def gradient_terms(self, moved: Tensor, origin: Tensor) -> Tensor:
        """(batch,) magnitude of the terms that cancel in the gradient, in L2."""
        return self.growth * (L2(moved) + L2(origin))

    @property
    def unmasked(self) -> Cost:
        """The cost inside a mask, or the cost itself."""
        return self

    @property
    def finite(self) -> bool:
        """Whether every point can be moved to every other."""
        return True

    def free_part(self, vectors: Tensor) -> Tensor:
        """(batch, …) vectors with zeros in the coordinates that may not move."""
        return vectors

    def restore_frozen(self, points: Tensor, origin: Tensor) -> Tensor:
        """(batch, …) points with the coordinates that may not move reset to those of z₀."""
        return points

    def check_shape(self, points: Tensor) -> None:  # noqa: B027  (most costs fit any shape)
        """Raise ``ArgumentError`` if this cost does not fit points of this shape."""


def infinite_unless(valid: Tensor, bound: Tensor) -> Tensor:
    """The bound where ``valid``, and ∞ elsewhere or where a tiny modulus overflowed to ∞ − ∞."""
    return torch.where(valid, bound.nan_to_num(torch.inf, torch.inf), torch.inf)


def separable_response(gradient: Tensor, point: Tensor, scale: Tensor, domain: Domain) -> Response:
    """argmax_{z ∈ Z} ⟨g, z − x⟩ − Σᵢ scaleᵢ (zᵢ − xᵢ)², and the maximum: projected gradient ascent. Exact
    when Z is a product of intervals, or when ``scale`` is the same for all coordinates of a sample."""
    target = domain.project(point + gradient / (2 * scale))
    move = target - point
    return Response(target, (inner(gradient, move) - inner(scale * move, move)).clamp_min(0))


@dataclass(frozen=True, eq=False)
class AttackBall:
    """Balls that contain {z : c(z, z₀) ≤ ρ}: ‖scale·(z − z₀)‖_p ≤ √(2ρ/s)/floor, s the cost's growth."""

    p: float  # 1, 2 or ∞
    scale: Tensor | None = None  # a positive factor for each coordinate, or 1
    floor: float = 1.0
    own: bool = False  # whether c = ‖z − z₀‖_p² for every move, so that the balls are the cost's own


@dataclass(frozen=True)
class LabelCost:
    """The cost ``price`` of replacing a label by any other of ``classes`` labels (eqn:supervised-cost):

        c((x, y), (x₀, y₀)) = c_x(x, x₀) + price · 1{y ≠ y₀}

    Without one, labels never move. With it, the surrogate also maximises over labels,
    φ_γ = max(φ_γ(x₀, y₀), max_{y ≠ y₀} φ_γ(x₀, y) − γ·price): one ascent per label.
    """

    price: float
    classes: int

    def __post_init__(self) -> None:
        rule = "be positive and finite (labels never move without a LabelCost)"
        require(0 < self.price < math.inf, "price", rule, self.price)
        require_count("classes", self.classes, least=2)
