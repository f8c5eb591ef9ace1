"""Curvature of a network: the sum rule over all activations, and the max rule at one activation.

A *row* is a function m of a layer's units; its gradient v lies in an interval for each unit. The network's
part of the second derivative is a sum over all activations (sum rule), which depends on the absolute values
of the entries of v only:

    ∇²m = Σ_l A_lᵀ diag(v_l ∘ σ''(z_l)) A_l
        ≤ Σ_l min(max_n c_n·length_l², Σ_n c_n·unit_n², λ_max(A_lᵀ diag(c) A_l)),

with c_n the largest value of (v_n σ''_n)⁺; the last form if A_l is an explicit matrix. If m itself has
curvature, ∇²m ⪯ M·I in the units of a layer, an activation maps it to (max rule)

    M ← max_n sup_z M σ'(z)² + v_n σ''(z)          ( = max(M, max_n b_n e_n) for log cosh, e_n = sup v_n⁺)

and a linear layer multiplies it by ‖W‖².
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from certus.bounds.passes import Rows, times
from certus.bounds.spectral import quadratic_norm
from certus.rounding import TINY

Range = tuple[Tensor, Tensor]

_EIGENVALUE_WORK = 2e9  # multiplications to spend on exact eigenvalues


class Joint(Enum):
    """Relation of σ'' to σ', for the max rule."""

    NOTHING = "nothing"
    ARC = "σ'' ≤ b(1 − σ'²)"
    LOGISTIC = "σ'' = bσ'(1 − σ')"


@dataclass(frozen=True, eq=False)
class Site:
    """Pre-activations of an activation: their reach, and the ranges of σ' and σ''.

    Attributes:
        joint, sharpness: of the activation.
        matrix: Jacobian of the pre-activations, if it is an explicit matrix.
    """

    length: Tensor
    unit: Tensor
    slope: Range
    curvature: Range
    joint: Joint
    sharpness: float | Tensor
    matrix: Tensor | None

    @property
    def steepest(self) -> Tensor:
        """(batch, *shape) largest |σ'|."""
        return torch.maximum(self.slope[0].abs(), self.slope[1].abs())


def sum_rule_curvature(site: Site, weights: Tensor) -> Tensor:
    """sup λ_max(Aᵀ diag(c) A) for c = ``weights`` ≥ 0. Shapes (batch, rows, *shape) → (batch, rows)."""
    whole = times(weights.flatten(2).amax(2), (site.length**2).unsqueeze(1))
    single = times(weights, (site.unit**2).unsqueeze(1)).flatten(2).sum(2)
    return torch.minimum(torch.minimum(whole, single), exact_curvature(site, weights))


def exact_curvature(site: Site, weights: Tensor) -> Tensor:
    """λ_max(Aᵀ diag(c) A) for each row, a common bound for all rows of a sample, or ∞, as the cost
    permits."""
    flat = weights.flatten(2)
    # Row by row: a kink near one sample must not affect the bounds of others.
    finite = torch.isfinite(flat).all(2)
    if site.matrix is None or not bool(finite.any()):
        return flat.new_full(flat.shape[:2], math.inf)
    flat = torch.where(finite.unsqueeze(2), flat, 0.0)
    work = min(site.matrix.shape) ** 2 * max(site.matrix.shape) + 1e4
    if work * flat[..., 0].numel() > _EIGENVALUE_WORK:
        flat = flat.amax(1, keepdim=True)
    if work * flat[..., 0].numel() > _EIGENVALUE_WORK:
        return weights.new_full(weights.shape[:2], math.inf)
    return torch.where(finite, quadratic_norm(site.matrix, flat), math.inf)


def max_rule_curvature(site: Site, rows: Rows, most: Tensor) -> Tensor:
    """The max rule before its maximum over the units, (batch, rows, *shape); ``most`` is (vσ'')⁺."""
    assert rows.curvature is not None
    before = rows.curvature.reshape(*most.shape[:2], *([1] * (most.dim() - 2)))
    steep = (site.steepest**2).unsqueeze(1)
    bound = times(before, steep) + most
    push = rows.high.clamp_min(0) * site.sharpness
    if site.joint is Joint.ARC:
        crossing = (site.slope[0] < 0) & (site.slope[1] > 0)
        flat = torch.where(crossing, 0.0, torch.minimum(site.slope[0].abs(), site.slope[1].abs()) ** 2)
        ends = [
            times(before, square) + push * (1 - square) for square in (flat.unsqueeze(1), steep.clamp_max(1))
        ]
        bound = torch.minimum(bound, torch.maximum(*ends))
    if site.joint is Joint.LOGISTIC:
        ends = [p.clamp(0, 1).unsqueeze(1) for p in site.slope]
        values = [times(before, p**2) + push * p * (1 - p) for p in ends]
        inner = push / (2 * (push - before)).clamp_min(TINY)
        within = (push > before) & (inner >= ends[0]) & (inner <= ends[1])
        peak = torch.where(within, push**2 / (4 * (push - before)).clamp_min(TINY), 0.0)
        bound = torch.minimum(bound, torch.maximum(torch.maximum(*values), peak))
    return bound
