"""Curvature of a loss in terms of the curvature of the outputs.

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

Label smoothing leaves the covariance unchanged, but the first sum becomes Σ (p_k − t_k)∇²F_k ≤ TV(p, t)·κ
with κ over *all* differences and TV(p, t) ≤ min(q + ε(1 − 1/K), 1 − ε/K): it does not vanish with q.

A squared error ‖F − y‖² has ∇²ℓ = 2JᵀJ + 2Σ_k (F_k − y_k)∇²F_k instead, and no such constants: without a
bound
on the residuals only affine networks have a finite bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.bounds.passes import times
from certus.errors import LossError, UnsupportedError, format_samples
from certus.losses import Criterion, CrossEntropy, Logistic, SmoothMargin, SquaredError
from certus.rounding import FEW, TINY, up


@dataclass(frozen=True)
class Softmax:
    """Constants g (``slope``), h (``spread``), s (``scale``) and the offset of a loss of the softmax
    family."""

    slope: float = 1.0
    spread: float = 1.0
    scale: float = 1.0
    offset: float = 0.0
    smoothing: float = 0.0
    logistic: bool = False

    def weight(self, error: Tensor, classes: int) -> Tensor:
        """g times the mass of the first-order sum, for q ≤ ``error``."""
        if self.smoothing == 0:
            return self.slope * error
        mass = error + self.smoothing * (1 - 1 / classes)
        return self.slope * mass.clamp_max(1 - self.smoothing / classes)

    def variance(self, error: Tensor) -> Tensor:
        """h·v(q) for q ≤ ``error``."""
        return self.spread * torch.where(error <= 0.5, error * (1 - error), 0.25)

    def combine(self, curvature: Tensor, spread: Tensor, error: Tensor, classes: int) -> Tensor:
        """Bound on λ_max(∇²ℓ) from κ and D, for q ≤ ``error``."""
        square = self.spread * spread**2
        total = times(self.weight(error, classes), curvature) + self.variance(error) * spread**2
        if classes != 2 or self.smoothing:
            return total
        # Two classes: the same q stands in both terms, max_q g·κ·q + h·D²·q(1 − q).
        weighted = self.slope * curvature
        best = ((weighted + square) / (2 * square).clamp_min(TINY)).nan_to_num(1.0).clamp(max=1.0)
        best = torch.minimum(best, error)
        return torch.minimum(total, times(weighted, best) + square * best * (1 - best))

    def corrected(self, curvature: Tensor, length: Tensor) -> Tensor:
        """max_{0 ≤ u ≤ ½} g√(2 − u)β + h·u·α², u = λ_max(diag p − ppᵀ): corrected corollary, with ‖p −
        t‖² ≤ 2 − u."""
        steep, flat = self.slope * curvature, self.spread * length**2
        best = 2 - (steep / (2 * flat).clamp_min(TINY)) ** 2
        best = best.clamp(0, 0.5)
        return (2 - best).sqrt() * steep + best * flat

    def paper_bound(self, curvature: float, length: float) -> float:
        """√2·β + α² as printed (corollary:softmax-smooth), for outputs scaled by g and h."""
        return math.sqrt(2) * self.slope * curvature + self.spread * length * length

    def error(self, margins: Tensor, own: Tensor) -> Tensor:
        """Bound on q for margins of at most ``margins``, (batch, classes), given the mask of y. Returns
        (batch,)."""
        lifted = torch.where(own, -math.inf, self.scale * (margins + self.offset))
        return up(torch.sigmoid(torch.logsumexp(lifted, 1))).clamp_max(1)


def read_criterion(criterion: Criterion) -> Softmax | None:
    """The constants of a loss; None for a squared error."""
    kind = type(criterion)  # a subclass may compute anything
    match criterion if kind in (CrossEntropy, SmoothMargin, Logistic, SquaredError) else None:
        case CrossEntropy(label_smoothing, temperature):
            inverse = 1 / temperature
            return Softmax(inverse, up(inverse**2, FEW), inverse, smoothing=label_smoothing)
        case SmoothMargin(margin, sharpness):
            return Softmax(1.0, sharpness, sharpness, offset=margin)
        case Logistic():
            return Softmax(logistic=True)
        case SquaredError():
            return None
    raise UnsupportedError(
        "`criterion` must be exactly CrossEntropy, SquaredError, Logistic or SmoothMargin for a smoothness "
        f"bound; got {kind.__name__}."
    )


def has_rule(criterion: Criterion) -> bool:
    """Whether the curvature of a loss can be bounded."""
    try:
        read_criterion(criterion)
    except UnsupportedError:
        return False
    return True


def check_targets(targets: Tensor, count: int, classes: int) -> Tensor:
    """Return labels as (batch,) int64."""
    rule = f"`targets` must be {count} labels from 0 to {classes - 1}"
    if targets.shape != (count,):
        raise LossError(f"{rule}; got shape {tuple(targets.shape)}.")
    labels = targets.long()
    others = (labels < 0) | (labels >= classes) | (labels != targets)
    if bool(others.any()):
        places = format_samples(others.nonzero().flatten().tolist())
        raise LossError(f"{rule}; got {targets[others][0].item():g} at {places}.")
    return labels


def check_values(targets: Tensor, outputs: Tensor) -> Tensor:
    """Return regression targets in float64, in the (batch, K) shape of the outputs."""
    if len(targets) != len(outputs) or targets.numel() != outputs.numel():
        raise LossError(
            f"`targets` must have as many entries as the outputs, {tuple(outputs.shape)}; "
            f"got shape {tuple(targets.shape)}."
        )
    return targets.double().reshape(outputs.shape)
