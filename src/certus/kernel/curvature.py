"""Curvature that an activation adds to a network: the sum rule, and the max rule.

A *row* is a function m of a layer's units; its gradient v lies in an interval for each unit. The network's
part of the second derivative is a sum over all activations (sum rule), in which only the sizes of single
entries of v count:

    ∇²m = Σ_l A_lᵀ diag(v_l ∘ σ''(z_l)) A_l
        ≤ Σ_l min(max_n c_n·lipschitz_l², Σ_n c_n·unit_n², λ_max(A_lᵀ diag(c) A_l)),

with c_n the largest value of (v_n σ''_n)⁺; the last form where A_l is a matrix. Where m itself has curvature,
∇²m ⪯ M·I in the units of a layer, an activation makes of it (max rule)

    M ← max_n sup_z M σ'(z)² + v_n σ''(z)          ( = max(M, max_n b_n e_n) for log cosh, e_n = sup v_n⁺)

and a linear layer multiplies by ‖W‖².
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from certus.kernel.norms import checked_quadratic
from certus.kernel.passes import GradientBound, Range, times
from certus.kernel.rounding import TINY

_EIGENVALUE_WORK = 2e9  # multiplications to spend on exact eigenvalues


class Joint(Enum):
    """A relation between σ'' and σ', for the max rule."""

    NOTHING = "nothing"
    ARC = "σ'' ≤ b(1 − σ'²)"
    LOGISTIC = "σ'' = bσ'(1 − σ')"


@dataclass(frozen=True, eq=False)
class Site:
    """The pre-activations of an activation.

    Attributes:
        lipschitz, unit, matrix: those of the ``ForwardBound``.
        slope, curvature: (batch, *shape) ranges of σ' and σ''.
        joint, sharpness: of the activation.
    """

    lipschitz: Tensor
    unit: Tensor
    matrix: Tensor | None
    slope: Range
    curvature: Range
    joint: Joint
    sharpness: float | Tensor

    @property
    def steepest(self) -> Tensor:
        """(batch, *shape) largest |σ'|."""
        return torch.maximum(self.slope[0].abs(), self.slope[1].abs())


def sum_rule(site: Site, weights: Tensor) -> Tensor:
    """sup λ_max(Aᵀ diag(c) A) for c = ``weights`` ≥ 0. Shapes (batch, rows, *shape) → (batch, rows)."""
    whole = times(weights.flatten(2).amax(2), (site.lipschitz**2).unsqueeze(1))
    single = times(weights, (site.unit**2).unsqueeze(1)).flatten(2).sum(2)
    return torch.minimum(torch.minimum(whole, single), exact_curvature(site, weights))


def exact_curvature(site: Site, weights: Tensor) -> Tensor:
    """The eigenvalue for each row, or one for all rows of a sample, or ∞, as far as it is affordable."""
    flat = weights.flatten(2)
    # Row by row: a kink near one sample says nothing of the others, whose bounds must not depend on it.
    finite = torch.isfinite(flat).all(2)
    if site.matrix is None or not bool(finite.any()):
        return flat.new_full(flat.shape[:2], math.inf)
    flat = torch.where(finite.unsqueeze(2), flat, 0.0)
    work = min(site.matrix.shape) ** 2 * max(site.matrix.shape) + 1e4
    if work * flat[..., 0].numel() > _EIGENVALUE_WORK:
        flat = flat.amax(1, keepdim=True)
    if work * flat[..., 0].numel() > _EIGENVALUE_WORK:
        return weights.new_full(weights.shape[:2], math.inf)
    return torch.where(finite, checked_quadratic(site.matrix, flat), math.inf)


def max_rule(site: Site, rows: GradientBound, most: Tensor) -> Tensor:
    """The max rule before its maximum over the units, (batch, rows, *shape). ``most`` is (vσ'')⁺."""
    assert rows.curvature is not None
    before = rows.curvature.reshape(*most.shape[:2], *([1] * (most.dim() - 2)))
    steep = (site.steepest**2).unsqueeze(1)
    bound = times(before, steep) + most
    push = rows.high.clamp_min(0) * site.sharpness
    if site.joint is Joint.ARC:  # linear in σ'², so largest at an end of its range
        crossing = (site.slope[0] < 0) & (site.slope[1] > 0)
        flat = torch.where(crossing, 0.0, torch.minimum(site.slope[0].abs(), site.slope[1].abs()) ** 2)
        squares = flat.unsqueeze(1), steep.clamp_max(1)
        ends = [times(before, square) + push * (1 - square) for square in squares]
        bound = torch.minimum(bound, torch.maximum(*ends))
    if site.joint is Joint.LOGISTIC:  # quadratic in σ', so largest at an end or at its peak
        ends = [p.clamp(0, 1).unsqueeze(1) for p in site.slope]
        values = [times(before, p**2) + push * p * (1 - p) for p in ends]
        inner = push / (2 * (push - before)).clamp_min(TINY)
        within = (push > before) & (inner >= ends[0]) & (inner <= ends[1])
        peak = torch.where(within, push**2 / (4 * (push - before)).clamp_min(TINY), 0.0)
        bound = torch.minimum(bound, torch.maximum(torch.maximum(*values), peak))
    return bound
