"""Squared Lp costs for 1 ≤ p ≤ 2, and the squared sup-norm (eqn:sup-cost).

Each response δ = argmax ⟨g, δ⟩ − γ‖δ‖_p² over a product of intervals follows the signs of g, and its sizes
|δᵢ| depend on one scalar, which sorting (p = 1, ∞) or bisection (1 < p < 2) finds exactly.

For p = 1 and p = ∞ the cost is neither smooth nor strongly convex: nothing is strongly concave, and the
ascent along these responses is a generalised conditional gradient, which converges slowly. These two have
a proximal step instead (prop:prox).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from certus._tensor import inner, per_sample
from certus.costs.base import AttackBall, Cost, Response, Support
from certus.costs.prox import prox_l1, prox_sup
from certus.domains import Domain, Intervals, Unbounded
from certus.errors import UnsupportedError, require
from certus.kernel import costs as kernel_costs
from certus.norms import Lp, Norm


class _SquaredNorm(Cost):
    """c = ‖z − z₀‖_p²."""

    p: float
    growth = 2.0

    @property
    def norm(self) -> Norm:
        return Lp(self.p)

    def value(self, moved: Tensor, origin: Tensor) -> Tensor:
        lengths: Tensor = self.norm(moved - origin) ** 2
        return lengths

    def support(self, domain: Domain) -> Support:
        return Support.EXACT if isinstance(domain, Intervals) else Support.HEURISTIC

    def respond(
        self, slope: Tensor, point: Tensor, origin: Tensor, gamma: Tensor, domain: Domain
    ) -> Response:
        intervals = domain if isinstance(domain, Intervals) else Unbounded()
        lower, upper = intervals.bounds(point)
        room = torch.where(slope > 0, upper - origin, origin - lower).flatten(1).clamp_min(0)
        sizes = self._sizes(slope.flatten(1).abs(), room, gamma.unsqueeze(1))
        # The projection mends the last bit of rounding on intervals; on a ball it is the heuristic.
        target = domain.project(origin + slope.sign() * sizes.reshape(slope.shape))
        gain = inner(slope, target - point) - gamma * (self.value(target, origin) - self.value(point, origin))
        return Response(target, gain.clamp_min(0))

    def has_prox(self, domain: Domain) -> bool:
        return self.p in (1, math.inf) and isinstance(domain, Intervals)

    def prox(self, point: Tensor, origin: Tensor, weight: Tensor, domain: Domain) -> Tensor:
        if not (self.has_prox(domain) and isinstance(domain, Intervals)):
            return super().prox(point, origin, weight, domain)
        bounds = None
        if not isinstance(domain, Unbounded):
            lower, upper = domain.bounds(point)
            bounds = lower.expand_as(point).flatten(1), upper.expand_as(point).flatten(1)
        step = prox_l1 if self.p == 1 else prox_sup
        return step(point.flatten(1), origin.flatten(1), 2 * weight, bounds).reshape(point.shape)

    def estimated_gap(
        self, gain: Tensor, slope: Tensor, point: Tensor, origin: Tensor, gamma: Tensor, domain: Domain
    ) -> Tensor:
        return 2 * gain  # the modulus of these costs says too little, or nothing, for p near 1 and p = ∞

    def kernel(self, shape: tuple[int, ...], free: Tensor | None = None) -> kernel_costs.Cost:
        own = type(self) in (SquaredLp, SquaredSup)
        return kernel_costs.Lp(shape=shape, free=free, p=self.p) if own else super().kernel(shape, free)

    def attack_ball(self, domain: Domain) -> AttackBall:
        exact = self.p == 2 or self.has_prox(domain)
        return AttackBall(self.p, own=True) if exact else super().attack_ball(domain)

    @abstractmethod
    def _sizes(self, slope: Tensor, room: Tensor, gamma: Tensor) -> Tensor:
        """argmax_{0 ≤ δ ≤ room} ⟨slope, δ⟩ − γ‖δ‖², for slope ≥ 0. Shapes (batch, m), γ (batch, 1)."""


@dataclass(frozen=True)
class SquaredLp(_SquaredNorm):
    """c(z, z₀) = ‖z − z₀‖_p² for 1 ≤ p ≤ 2.

    The smaller p, the more the adversary concentrates on few coordinates. The modulus is 2(p − 1).

    There is none for 2 < p < ∞, where the modulus is 0: ‖e₁ + te₂‖_p² = 1 + (2/p)|t|^p + …, so that no inner
    problem is strongly concave, as for p = ∞. Since ‖v‖_∞ ≤ ‖v‖_p, every certificate for ``SquaredSup`` holds
    for these costs too.

    >>> SquaredLp(1.0)(torch.tensor([[3.0, -4.0]]), torch.zeros(1, 2))
    tensor([49.])
    """

    p: float

    def __post_init__(self) -> None:
        rule = "lie between 1 and 2 (for larger p take SquaredSup, whose certificates hold for all of them)"
        require(1 <= self.p <= 2, "p", rule, self.p)

    @property
    def strong_convexity(self) -> float:
        return 2 * (self.p - 1)

    def gradient(self, moved: Tensor, origin: Tensor) -> Tensor:
        if self.p == 1:
            raise UnsupportedError("SquaredLp(p=1) is not differentiable; use ProximalAscent.")
        move = moved - origin
        length = per_sample(self.norm(move), move)
        # ‖v‖^(2−p)·|v|^(p−1) written so that nothing overflows, and 0 at v = 0.
        share = move.abs() / length.clamp_min(torch.finfo(move.dtype).tiny)
        return 2 * length * share ** (self.p - 1) * move.sign()

    def _sizes(self, slope: Tensor, room: Tensor, gamma: Tensor) -> Tensor:
        if self.p == 1:
            return _fill_steepest_first(slope, room, gamma)
        # Stationarity: 2γ t^(2−p) δᵢ^(p−1) = gᵢ with t = ‖δ‖_p, where there is room. The sizes fall as t
        # grows, so that t = ‖δ(t)‖_p has one root. It is at most the unconstrained one, whose sizes,
        # cut to the room, are therefore too small.
        free = self._free_sizes(slope, gamma)
        high = self.norm(free).unsqueeze(1)
        low = self.norm(torch.minimum(free, room)).unsqueeze(1)
        log_slope = slope.log() - torch.log(2 * gamma)
        precision = torch.finfo(slope.dtype).eps

        def sizes_at(length: Tensor) -> Tensor:
            exponent = (log_slope + (self.p - 2) * length.log()) / (self.p - 1)
            return torch.minimum(exponent.exp(), room)

        while (high - low > 4 * precision * high).any():
            middle = (low + high) / 2
            too_short = self.norm(sizes_at(middle)).unsqueeze(1) > middle
            low, high = torch.where(too_short, middle, low), torch.where(too_short, high, middle)
        sizes = torch.where(slope > 0, sizes_at(high), 0)
        return torch.where((free <= room).all(1, keepdim=True), free, sizes)

    def _free_sizes(self, slope: Tensor, gamma: Tensor) -> Tensor:
        """(1/2γ) ‖g‖_q^(2−q) gᵢ^(q−1), with 1/p + 1/q = 1; scaled so that no power overflows."""
        q = self.p / (self.p - 1)
        top = slope.amax(1, keepdim=True)
        share = slope / top.clamp_min(torch.finfo(slope.dtype).tiny)
        total = (share**q).sum(1, keepdim=True).clamp_min(1)  # the largest share is 1
        return top / (2 * gamma) * share ** (q - 1) * total ** ((2 - q) / q)


@dataclass(frozen=True)
class SquaredSup(_SquaredNorm):
    """c(z, z₀) = ‖z − z₀‖_∞²: many coordinates may move a little at the price of one.

    >>> SquaredSup()(torch.tensor([[3.0, -4.0]]), torch.zeros(1, 2))
    tensor([16.])
    """

    p = math.inf
    strong_convexity = 0.0

    def gradient(self, moved: Tensor, origin: Tensor) -> Tensor:
        raise UnsupportedError("SquaredSup is not differentiable; use ProximalAscent.")

    def _sizes(self, slope: Tensor, room: Tensor, gamma: Tensor) -> Tensor:
        """min(room, t), where t balances 2γt against the slopes of those with room beyond t."""
        ordered, index = room.sort(1)
        beyond = slope.gather(1, index).flip(1).cumsum(1).flip(1)
        # `ordered` rises and `beyond` falls along the row: the largest minimum is where they cross.
        length = torch.minimum(ordered, beyond / (2 * gamma)).amax(1, keepdim=True)
        return torch.minimum(room, length)


def _fill_steepest_first(slope: Tensor, room: Tensor, gamma: Tensor) -> Tensor:
    """Sizes for p = 1: the steepest coordinate moves as far as it is worth or can, then the next."""
    ordered, index = slope.sort(1, descending=True)
    capacity = room.gather(1, index)
    used = torch.cat([torch.zeros_like(capacity[:, :1]), capacity.cumsum(1)[:, :-1]], 1)
    filled = torch.minimum((ordered / (2 * gamma) - used).clamp_min(0), capacity)
    return torch.zeros_like(slope).scatter(1, index, filled)
