"""Quadratic costs: squared L2, per-feature weights, and a full positive-definite matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from certus._tensor import as_float64, check_broadcast, inner, per_sample
from certus.costs.base import AttackBall, Cost, Response, Support, infinite_unless, separable_response
from certus.domains import Domain, Intervals, Unbounded
from certus.errors import require
from certus.kernel import costs as kernel_costs
from certus.kernel.rounding import TINY
from certus.norms import L2, DiagonalNorm, MatrixNorm, Norm

_SKEW = 1e-5  # largest asymmetry of a matrix that is symmetrised, relative to its largest entry


class _Quadratic(Cost):
    """c = ‖z − z₀‖² for a norm with an inner product."""

    growth = strong_convexity = 2.0

    def support(self, domain: Domain) -> Support:
        return Support.EXACT


@dataclass(frozen=True)
class SquaredL2(_Quadratic):
    """c(z, z₀) = ‖z − z₀‖₂², the paper's default.

    >>> SquaredL2()(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
    tensor([25.])
    """

    norm = L2

    def value(self, moved: Tensor, origin: Tensor) -> Tensor:
        move = moved - origin
        return inner(move, move)

    def gradient(self, moved: Tensor, origin: Tensor) -> Tensor:
        return 2 * (moved - origin)

    def respond(
        self, slope: Tensor, point: Tensor, origin: Tensor, gamma: Tensor, domain: Domain
    ) -> Response:
        free = torch.addcdiv(origin, slope, per_sample(2 * gamma, point))
        target = domain.project(free)
        move = target - point
        squared = inner(move, move)
        # ⟨∇f, move⟩ − γ‖move‖² with ∇f = 2γ(free − point), which is 2γ·move where Z does not cut it off.
        promised = squared if target is free else (2 * inner(free - point, move) - squared).clamp_min(0)
        return Response(target, gamma * promised)

    def estimated_gap(
        self, gain: Tensor, slope: Tensor, point: Tensor, origin: Tensor, gamma: Tensor, domain: Domain
    ) -> Tensor:
        return 2 * gain

    def kernel(self, shape: tuple[int, ...], free: Tensor | None = None) -> kernel_costs.Cost:
        own = type(self) is SquaredL2
        return kernel_costs.Lp(shape=shape, free=free) if own else super().kernel(shape, free)

    def attack_ball(self, domain: Domain) -> AttackBall:
        return AttackBall(2.0, own=True)


@dataclass(frozen=True, eq=False)
class WeightedL2(_Quadratic):
    """c(z, z₀) = Σᵢ wᵢ (zᵢ − z₀ᵢ)²: features in different units, or with different costs.

    Args:
        weights: positive, finite; a tensor that broadcasts to the shape of one point.

    >>> WeightedL2(torch.tensor([1.0, 10.0]))(torch.ones(1, 2), torch.zeros(1, 2))
    tensor([11.])
    """

    weights: Tensor

    def __post_init__(self) -> None:
        require(isinstance(self.weights, Tensor), "weights", "be a tensor", type(self.weights))
        valid = bool((torch.isfinite(self.weights) & (self.weights > 0)).all())
        require(valid, "weights", "be positive and finite", self.weights)

    @property
    def norm(self) -> Norm:
        return DiagonalNorm(self.weights)

    def value(self, moved: Tensor, origin: Tensor) -> Tensor:
        move = moved - origin
        return inner(self.weights.to(move) * move, move)

    def gradient(self, moved: Tensor, origin: Tensor) -> Tensor:
        move = moved - origin
        return 2 * self.weights.to(move) * move

    def respond(
        self, slope: Tensor, point: Tensor, origin: Tensor, gamma: Tensor, domain: Domain
    ) -> Response:
        weight = per_sample(gamma, point)
        gradient = slope - weight * self.gradient(point, origin)
        weights = self.weights.to(point)
        if not isinstance(domain, Intervals):
            weights = weights.max()  # makes the projection exact, and the step not too long
        return separable_response(gradient, point, weight * weights, domain)

    def gap(self, gradient: Tensor, point: Tensor, modulus: Tensor, domain: Domain) -> Tensor:
        if not isinstance(domain, Intervals):
            return super().gap(gradient, point, modulus, domain)
        safe = modulus.clamp_min(torch.finfo(modulus.dtype).tiny)
        scale = per_sample(safe / 2, point) * self.weights.to(point)
        return infinite_unless(modulus > 0, separable_response(gradient, point, scale, domain).gain)

    def whiten(self, vectors: Tensor) -> Tensor:
        return vectors / self.weights.to(vectors).sqrt()

    def kernel(self, shape: tuple[int, ...], free: Tensor | None = None) -> kernel_costs.Cost:
        if type(self) is not WeightedL2:
            return super().kernel(shape, free)
        scales = as_float64(self.weights).detach().expand(shape)
        return kernel_costs.Lp(shape=shape, free=free, scales=scales)

    def attack_ball(self, domain: Domain) -> AttackBall:
        if not isinstance(domain, Intervals):
            return super().attack_ball(domain)
        return AttackBall(2.0, self.weights.cpu().double().sqrt())

    def check_shape(self, points: Tensor) -> None:
        check_broadcast("weights", self.weights, points)


@dataclass(frozen=True, eq=False)
class Mahalanobis(_Quadratic):
    """c(z, z₀) = (z − z₀)ᵀ M (z − z₀) on the flattened point, M symmetric positive definite.

    Args:
        matrix: M; if rounding made it slightly asymmetric, (M + Mᵀ)/2 is used.

    >>> matrix = torch.tensor([[2.0, 1.0], [1.0, 2.0]])
    >>> Mahalanobis(matrix)(torch.ones(1, 2), torch.zeros(1, 2))
    tensor([6.])
    """

    matrix: Tensor

    def __post_init__(self) -> None:
        matrix = self.matrix
        floating = isinstance(matrix, Tensor) and matrix.is_floating_point()
        require(floating, "matrix", "be a tensor of a floating-point dtype", matrix)
        square = matrix.dim() == 2 and matrix.shape[0] == matrix.shape[1]
        require(square, "matrix", "be square", f"shape {tuple(matrix.shape)}")
        require(bool(torch.isfinite(matrix).all()), "matrix", "be finite", matrix)
        double = as_float64(matrix).detach()
        skew = float((double - double.T).abs().max() / double.abs().max().clamp_min(TINY))
        rule = "be symmetric, to 1e-5 of its largest entry; (M + M.T) / 2 is"
        require(skew < _SKEW, "matrix", rule, f"a relative asymmetry of {skew:.3g}")
        if skew > 0:
            object.__setattr__(self, "matrix", matrix / 2 + matrix.T / 2)
        smallest = self._spectrum[0][0].item()
        require(smallest > 0, "matrix", "be positive definite", f"smallest eigenvalue {smallest:.3g}")

    @cached_property
    def _spectrum(self) -> tuple[Tensor, Tensor]:
        """Eigenvalues in increasing order, and eigenvectors, in float64 on the CPU."""
        values, vectors = torch.linalg.eigh(as_float64(self.matrix).detach())
        return values, vectors

    def _power(self, exponent: float, like: Tensor) -> Tensor:
        values, vectors = self._spectrum
        return ((vectors * values**exponent) @ vectors.T).to(like)

    @cached_property
    def norm(self) -> Norm:
        return MatrixNorm(self.matrix)

    def value(self, moved: Tensor, origin: Tensor) -> Tensor:
        move = (moved - origin).flatten(1)
        return inner(move @ self.matrix.to(move), move)

    def gradient(self, moved: Tensor, origin: Tensor) -> Tensor:
        return 2 * _apply(self.matrix, moved - origin)

    def respond(
        self, slope: Tensor, point: Tensor, origin: Tensor, gamma: Tensor, domain: Domain
    ) -> Response:
        weight = per_sample(gamma, point)
        gradient = slope - weight * self.gradient(point, origin)
        if not isinstance(domain, Unbounded):
            # The projection in the M-norm is a quadratic program; with λ_max(M) it is an exact
            # Euclidean one, and the fixed points are the same.
            return separable_response(gradient, point, weight * self._spectrum[0][-1].to(point), domain)
        move = _apply(self._power(-1.0, gradient), gradient) / (2 * weight)
        return Response(point + move, inner(gradient, move) / 2)

    def whiten(self, vectors: Tensor) -> Tensor:
        return _apply(self._power(-0.5, vectors), vectors)

    def kernel(self, shape: tuple[int, ...], free: Tensor | None = None) -> kernel_costs.Cost:
        if type(self) is not Mahalanobis:
            return super().kernel(shape, free)
        matrix = as_float64(self.matrix).detach()
        alone = self if free is None else self.uncoupled(free.flatten())
        root = alone._power(-0.5, matrix)
        return kernel_costs.Quadratic(shape=shape, free=free, matrix=(matrix + matrix.T) / 2, root=root)

    def uncoupled(self, mask: Tensor) -> Mahalanobis:
        """Return the cost for moves inside a (size,) mask, without terms between inside and outside."""
        both = mask[:, None] & mask[None, :]
        identity = torch.eye(len(mask), dtype=self.matrix.dtype, device=self.matrix.device)
        return Mahalanobis(torch.where(both.to(self.matrix.device), self.matrix.detach(), identity))

    def check_shape(self, points: Tensor) -> None:
        size, own = points[0].numel(), tuple(self.matrix.shape)
        require(own[0] == size, "matrix", f"be {size} × {size} for inputs of {size} numbers", own)


def _apply(matrix: Tensor, points: Tensor) -> Tensor:
    """The symmetric matrix times each flattened point, in the points' shape."""
    return (points.flatten(1) @ matrix.to(points)).reshape(points.shape)
