"""Parabolas above a margin, from any quadratic that lies above it.

Let a margin, as a function of a move u in coordinates where the cost's norm is Euclidean, satisfy

    m(u) ≤ m* + ⟨g, v⟩ + ½⟨v, Qv⟩        for every u, with v = u − u*.

Then for every λ > λ_max(Q), with e = g − λu*,

    m(u) ≤ m* − (λ/2)‖u*‖² + ½⟨e, (λ − Q)⁻¹e⟩ + (λ/2)‖u‖²,

since ½λ‖u‖² = ½λ‖u*‖² + λ⟨u*, v⟩ + ½λ‖v‖², and ⟨e, v⟩ − ½⟨v, (λ − Q)v⟩ is at most ½⟨e, (λ − Q)⁻¹e⟩. The right
side depends on the length of u alone: a parabola. At u* = 0 it is the dual of a trust-region problem. At a
point u* of the sphere ‖u‖ = r where g points away from the centre, g = λu*, it is m* at the distance r: no
bound can be better there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from certus.bounds.analysis import Analysis
from certus.bounds.operators import Chain, Operator
from certus.outward import TINY, inflate, slack, up

_SLIGHT = 1e-6  # singular values that are left out, and counted as lost: a choice, right whatever it is


@dataclass(frozen=True, eq=False)
class Parabolas:
    """m_k(x + δ) ≤ m_k(x) + rise + (bend/2)‖δ‖² at every δ, for each of several pairs.

    Both are (n, classes, pairs), and ∞ for classes that were not looked at, as is ``curvature``, (n,
    classes): m_k(x + δ) ≤ m_k(x) + ⟨∇m_k(x), δ⟩ + (curvature/2)‖δ‖².
    """

    rise: Tensor
    bend: Tensor
    curvature: Tensor

    def beside(self, other: Parabolas | None) -> Parabolas:
        """The pairs of both."""
        if other is None:
            return self
        return Parabolas(
            torch.cat([self.rise, other.rise], 2),
            torch.cat([self.bend, other.bend], 2),
            torch.minimum(self.curvature, other.curvature),
        )


@dataclass(frozen=True, eq=False)
class Narrow:
    """The matrix of the first step as ``matrix @ rotation``, up to ``lost`` in norm."""

    matrix: Tensor
    rotation: Tensor
    lost: float


@lru_cache(maxsize=2)
def narrow(analysis: Analysis) -> Narrow | None:
    """In as few columns as the first step has directions; None where it is large."""
    first = analysis.steps[0].action
    if not isinstance(first, Operator) or not first.small:
        return None
    product = first._product if isinstance(first, Chain) else None
    matrix, error = (first.matrix(), 0.0) if product is None else product
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    kept = max(1, int((sizes > _SLIGHT * sizes[0]).sum()))
    lost = 0.0 if kept == len(sizes) else float(sizes[kept])
    rounding = inflate(max(matrix.shape)) - 1  # of a stable decomposition, relative to the norm
    return Narrow(left[:, :kept] * sizes[:kept], right[:kept], lost + error + rounding * float(sizes[0]))


@dataclass(frozen=True, eq=False)
class Forms:
    """Several Q = Aᵀ diag(spread) A, of which the computed ones are within ``inexact`` in norm.

    Attributes:
        form, values, vectors: (forms, directions, directions) as computed, with eigenvalues and vectors.
        top: (forms, 1) at least λ_max of the computed one; curvature: (forms, 1) of the true one.
        inexact, trace: (forms, 1); the trace bounds ‖|Q|‖, too.
    """

    narrow: Narrow
    form: Tensor
    values: Tensor
    vectors: Tensor
    top: Tensor
    curvature: Tensor
    inexact: Tensor
    trace: Tensor

    @staticmethod
    def of(front: Narrow, spread: Tensor) -> Forms:
        """``spread`` is (forms, units), not negative."""
        matrix = front.matrix
        scaled = matrix * spread.sqrt().unsqueeze(-1)
        form = scaled.mT @ scaled
        values, vectors = torch.linalg.eigh(form)
        top = values[:, -1:].clamp_min(0) * inflate(max(matrix.shape))
        # The true Q is behind a rotation, and differs by the rounding of the product and by what was lost.
        trace = form.diagonal(dim1=1, dim2=2).sum(1, keepdim=True)
        coarse = front.lost * spread.amax(1, keepdim=True).sqrt()
        inexact = 4 * slack(len(matrix)) * trace + 2 * top.sqrt() * coarse + coarse**2
        curvature = up((top.sqrt() + coarse) ** 2)
        return Forms(front, form, values, vectors, top, curvature, inexact, trace)

    def supremum(self, pull: Tensor, multiplier: Tensor) -> Tensor:
        """(forms, pairs) at least ½⟨e, (λ − Q)⁻¹e⟩ for Q as computed; give λ less ``inexact`` for the true Q.

        Args:
            pull: (forms, features, pairs) e; multiplier: (forms, pairs) λ, above ``top``.
        """
        rotation = self.narrow.rotation
        inside = rotation @ pull
        outside = (pull - rotation.mT @ inside).norm(dim=1)
        length = pull.norm(dim=1).clamp_min(TINY)
        along = (self.vectors.mT @ inside) / (multiplier.unsqueeze(1) - self.values.unsqueeze(2))
        solution = self.vectors @ along  # (forms, directions, pairs), roughly (λ − Q)⁻¹e: any vector will do
        bent = self.form @ solution
        residual = (inside - multiplier.unsqueeze(1) * solution + bent).norm(dim=1)
        # Sums of as many products as there are directions; ‖|Q|‖ ≤ ‖Q‖_F ≤ tr Q.
        rounding = slack(len(rotation) + 2)
        sizes: Tensor = solution.norm(dim=1)
        residual = residual + rounding * (length + (multiplier + self.trace) * sizes)
        # ⟨e, M⁻¹e⟩ = 2⟨e, y⟩ − ⟨y, My⟩ + ⟨ρ, M⁻¹ρ⟩ with M = λ − Q and ρ = e − My.
        sideways = (bent - multiplier.unsqueeze(1) * solution) * solution
        half: Tensor = (inside * solution).sum(1) + sideways.sum(1) / 2
        half = half + residual**2 / (multiplier - self.top) / 2 + outside**2 / multiplier / 2
        rest: Tensor = 2 * rounding * (length * sizes + (multiplier + self.trace) * sizes**2)
        return half * inflate(max(self.narrow.matrix.shape)) + rest
