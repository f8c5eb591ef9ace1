"""Losses as functions of the outputs of a network.

The softmax family: with margins m_k = F_k − F_y, p the softmax of s(m + offset) and q = 1 − p_y,

    ∇ℓ = g·Σ_{k≠y} p_k ∇m_k,      ∇²ℓ = g·Σ_{k≠y} p_k ∇²m_k + h·Cov_p(∇m)     [eqn:softmax]

so that λ_max(∇²ℓ) ≤ g·q·κ + h·v(q)·D²: κ bounds the curvature of the margins, D the slope of every difference
F_i − F_j, and v(q) is the largest variance on an interval of length 1 with mass 1 − q at one point: q(1 − q)
for q ≤ ½, else ¼.

| loss | g | h | s |
|---|---|---|---|
| cross-entropy at temperature τ | 1/τ | 1/τ² | 1/τ |
| smooth margin, sharpness b | 1 | b | b |
| logistic: two classes, with outputs 0 and F | 1 | 1 | 1 |

Label smoothing leaves the covariance alone, but the first sum becomes Σ (p_k − t_k)∇²F_k ≤ TV(p, t)·κ with κ
over *all* differences and TV(p, t) ≤ min(q + ε(1 − 1/K), 1 − ε/K): it does not vanish with q.

A squared error ‖F − y‖² has ∇²ℓ = 2JᵀJ + 2Σ_k (F_k − y_k)∇²F_k instead, and no constants: without a bound on
the residuals only affine networks have one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.kernel.passes import Refused, times
from certus.kernel.rounding import TINY, up


@dataclass(frozen=True)
class Softmax:
    """The constants of one loss of the softmax family.

    Attributes:
        slope, spread, scale: g, h and s; offset: added to the margins.
        smoothing: ε of label smoothing.
        logistic: whether there is one output, beside which an output 0 stands.
    """

    slope: float = 1.0
    spread: float = 1.0
    scale: float = 1.0
    offset: float = 0.0
    smoothing: float = 0.0
    logistic: bool = False

    def __post_init__(self) -> None:
        constants = (self.slope, self.spread, self.scale)
        valid = all(0 < each < math.inf for each in constants) and math.isfinite(self.offset)
        if not (valid and 0 <= self.smoothing < 1 and self.spread >= self.slope * self.scale):
            raise Refused(f"the constants of the loss do not fit together: {self}")

    def weight(self, error: Tensor, classes: int) -> Tensor:
        """g times the mass of the first-order sum, where q ≤ ``error``."""
        if self.smoothing == 0:
            return self.slope * error
        mass = error + self.smoothing * (1 - 1 / classes)
        return self.slope * mass.clamp_max(1 - self.smoothing / classes)

    def variance(self, error: Tensor) -> Tensor:
        """h·v(q), where q ≤ ``error``."""
        return self.spread * torch.where(error <= 0.5, error * (1 - error), 0.25)

    def combine(self, curvature: Tensor, spread: Tensor, error: Tensor, classes: int) -> Tensor:
        """The bound on λ_max(∇²ℓ) from κ and D, where q ≤ ``error``."""
        square = self.spread * spread**2
        total = times(self.weight(error, classes), curvature) + self.variance(error) * spread**2
        if classes != 2 or self.smoothing:
            return total
        # Two classes: the same q stands in both terms, max_q g·κ·q + h·D²·q(1 − q).
        sharp = self.slope * curvature
        best = ((sharp + square) / (2 * square).clamp_min(TINY)).nan_to_num(1.0).clamp(max=1.0)
        best = torch.minimum(best, error)
        return torch.minimum(total, times(sharp, best) + square * best * (1 - best))

    def corrected(self, curvature: Tensor, lipschitz: Tensor) -> Tensor:
        """max_{0 ≤ u ≤ ½} g√(2 − u)β + h·u·α², u = λ_max(diag p − ppᵀ): the corollary, as
        ‖p − t‖² ≤ 2 − u."""
        steep, flat = self.slope * curvature, self.spread * lipschitz**2
        best = 2 - (steep / (2 * flat).clamp_min(TINY)) ** 2
        best = best.clamp(0, 0.5)
        return (2 - best).sqrt() * steep + best * flat

    def error(self, margins: Tensor, own: Tensor) -> Tensor:
        """q where the margins are at most these. (batch, classes) and the bool mask of y → (batch,)."""
        lifted = torch.where(own, -math.inf, self.scale * (margins + self.offset))
        return up(torch.sigmoid(torch.logsumexp(lifted, 1))).clamp_max(1)
