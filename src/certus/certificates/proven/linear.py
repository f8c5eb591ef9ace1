"""Exact worst case of a linear score: one-dimensional for each sample.

Let s(x) = ⟨a, x⟩ + b be the score, c = ‖x − x₀‖² the cost, and α = ‖a‖_* the dual norm of a over the moves
that the
cost allows. A move δ changes the score by ⟨a, δ⟩ ≤ α‖δ‖, with equality along one direction u: a change of t
costs at least t²/α², and exactly that along u. A loss of the score only, ℓ = h(v + t) with h convex and v its
*level* at the sample (for the logistic loss the negative margin), therefore has

    φ_γ = sup_t h(v + t) − κt²,       κ = γ/α²,                                        [eqn:inner-sup]

and by duality sup {E_P ℓ : W_c(P, P_n) ≤ ρ} = inf_γ γρ + E_n φ_γ. This leaves one scalar problem per sample.

| loss | h(v) | v | φ_γ |
|---|---|---|---|
| squared error | v² | absolute residual | v²κ/(κ − 1) for κ > 1; so the worst case is (√E v² + α√ρ)² |
| squared hinge | (v)₊² | 1 − margin | (v)₊²κ/(κ − 1), and the same with E (v)₊² |
| hinge | (v)₊ | 1 − margin | (v + 1/4κ)₊ |
| logistic | ln(1 + eᵛ) | −margin | a root: see ``Softplus`` |

The error rate is exact as well: the least cost of an error is (margin/α)².
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.rounding import FEW, SOME, down, up

_HALVINGS, _NEWTON = 10, 8


class ScoreLoss(ABC):
    """A convex, non-decreasing loss h of one number."""

    floor: float = 0.0
    """φ_γ is infinite for κ at or below it."""

    @abstractmethod
    def value(self, level: Tensor) -> Tensor:
        """(n,) h(v)."""

    @abstractmethod
    def shift(self, level: Tensor, stiffness: float) -> Tensor:
        """(n,) t ≥ 0 that approximately maximises h(v + t) − κt²; no bound depends on its accuracy."""

    @abstractmethod
    def supremum(self, level: Tensor, stiffness: float) -> Tensor:
        """(n,) upper bound on sup_t h(v + t) − κt², rounding included; non-decreasing in v."""

    def raised(self, level: Tensor) -> Tensor:
        """(n,) upper bound on h(v)."""
        return self.value(level) + SOME * (1 + self.value(level))

    def lowered(self, level: Tensor) -> Tensor:
        """(n,) lower bound on h(v)."""
        return self.value(level) - SOME * (1 + self.value(level))


@dataclass(frozen=True)
class PositiveSquare(ScoreLoss):
    """h(v) = (v)₊². For κ > 1 the maximum is at t = (v)₊/(κ − 1); otherwise it is infinite.

    >>> PositiveSquare().supremum(torch.tensor([3.0, -1.0], dtype=torch.float64), 2.0).round(decimals=6)
    tensor([18.,  0.], dtype=torch.float64)
    """

    floor = 1.0

    def value(self, level: Tensor) -> Tensor:
        return level.clamp_min(0) ** 2

    def shift(self, level: Tensor, stiffness: float) -> Tensor:
        return level.clamp_min(0) / (stiffness - 1)

    def supremum(self, level: Tensor, stiffness: float) -> Tensor:
        spare = down(stiffness, FEW) - 1
        if spare <= 0:
            return torch.full_like(level, torch.inf)
        # κ − 1 cancels: what κ was rounded by counts for κ/(κ − 1) times as much.
        return up(self.value(level), SOME) * up(1 + 1 / spare, SOME)


@dataclass(frozen=True)
class Positive(ScoreLoss):
    """h(v) = (v)₊. If the maximum is positive it is at t = 1/2κ.

    >>> Positive().supremum(torch.tensor([0.5, -1.0], dtype=torch.float64), 0.5).round(decimals=6)
    tensor([1., 0.], dtype=torch.float64)
    """

    def value(self, level: Tensor) -> Tensor:
        return level.clamp_min(0)

    def shift(self, level: Tensor, stiffness: float) -> Tensor:
        far = torch.full_like(level, 1 / (2 * stiffness))  # of its type: a number would be a float32
        return torch.where(level + 1 / (4 * stiffness) > 0, far, 0.0)

    def supremum(self, level: Tensor, stiffness: float) -> Tensor:
        most = 1 / (4 * stiffness)
        return (level + most + SOME * (level.abs() + most)).clamp_min(0)


@dataclass(frozen=True)
class Softplus(ScoreLoss):
    """h(v) = ln(1 + eᵛ). With u = v + t, g(u) = h(u) − κ(u − v)² has g' = σ(u) − 2κ(u − v), which is negative
    beyond u = v + 1/2κ, and g'' = σ'(u) − 2κ. If 2κ ≥ ¼ it is concave. Otherwise it is convex between ±u₀,
    where σ'(u₀) = 2κ, and a maximum there is at an end; on each side it is concave, and any û in [a, b] there
    shows

        sup over [a, b] of g ≤ g(û) + max(g'(û)(b − û), g'(û)(a − û)).

    u₀ is rounded: with η = |σ'(u₀) − 2κ| no part bends more than η the wrong way, which changes a supremum
    over a length of at most 1/2κ by at most η/8κ².
    """

    def value(self, level: Tensor) -> Tensor:
        return torch.logaddexp(level, torch.zeros_like(level))

    def shift(self, level: Tensor, stiffness: float) -> Tensor:
        points = torch.stack([level, *(point for _, point, _ in self._pieces(level, stiffness))])
        values = self.value(points) - stiffness * (points - level) ** 2
        best = values.argmax(0, keepdim=True)
        return (points.gather(0, best)[0] - level).clamp_min(0)

    def supremum(self, level: Tensor, stiffness: float) -> Tensor:
        excess = 0.0
        if 8 * stiffness < 1:
            turn = torch.tensor(self._turn(stiffness), dtype=torch.float64)
            excess = abs(float(turn.sigmoid() * (-turn).sigmoid()) - 2 * stiffness) + SOME
        bound = self.raised(level)
        for low, at, high in self._pieces(level, stiffness):
            size = self.value(at) + stiffness * (at - level) ** 2
            slope = at.sigmoid() - 2 * stiffness * (at - level)
            rest = torch.maximum(slope * (high - at), slope * (low - at)).clamp_min(0)
            rounding = SOME * (1 + size + (1 + stiffness * (high - low)) * (high - low))
            piece = self.value(at) - stiffness * (at - level) ** 2 + rest + rounding
            bound = torch.maximum(bound, piece)
        return bound + up(excess / (8 * stiffness**2), SOME)

    @staticmethod
    def _turn(stiffness: float) -> float:
        """u₀."""
        root = torch.tensor(1 - 8 * stiffness, dtype=torch.float64).clamp_min(0).sqrt()
        return float(2 * torch.atanh(root))

    def _pieces(self, level: Tensor, stiffness: float) -> list[tuple[Tensor, Tensor, Tensor]]:
        """(a, û, b) of the two concave sides; an empty piece is the point a."""
        turn = self._turn(stiffness) if 8 * stiffness < 1 else 0.0
        end = level + 1 / (2 * stiffness)
        left = (level, torch.maximum(level, end.clamp_max(-turn)))
        right = (level.clamp_min(turn), torch.maximum(level.clamp_min(turn), end))
        return [(low, self._root(level, stiffness, low, high), high) for low, high in (left, right)]

    @staticmethod
    def _root(level: Tensor, stiffness: float, low: Tensor, high: Tensor) -> Tensor:
        """The root of g', which decreases from a to b, or an end if it has none: by bisection, then by
        Newton's
        steps where they stay inside the bracket.
        """
        ends = [(end, end.sigmoid() - 2 * stiffness * (end - level)) for end in (low, high)]
        at = (low + high) / 2
        for step in range(_HALVINGS + _NEWTON):
            chance = at.sigmoid()
            slope = chance - 2 * stiffness * (at - level)
            low, high = torch.where(slope > 0, at, low), torch.where(slope > 0, high, at)
            middle = (low + high) / 2
            if step >= _HALVINGS:
                next_at = at - slope / (chance * (1 - chance) - 2 * stiffness)
                middle = torch.where((next_at >= low) & (next_at <= high), next_at, middle)
            at = middle
        (left, first), (right, last) = ends
        return torch.where(last >= 0, right, torch.where(first <= 0, left, at))
