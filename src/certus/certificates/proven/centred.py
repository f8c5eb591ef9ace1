"""Margins bounded by quadratics around each sample, for one layer of log cosh or smooth |z| units.

Such a unit is a concave function of z², so that for every move a of its argument

    σ(z + a) ≤ σ(z) + σ'(z)a + (σ'(z)/z)·a²/2,        while −σ(z + a) ≤ −σ(z) − σ'(z)a by convexity.

With u the weights of a margin m_k = F_k − F_y on the units and A the matrix in front of them,

    m_k(x + δ) ≤ m_k(x) + ⟨g, δ⟩ + ½⟨δ, Qδ⟩,      g = ∇m_k(x),   Q = Aᵀ diag(u⁺σ'(z)/z) A

at every δ. Units far from their corner at the sample hardly count, whatever their sharpness. On a ball that
is a trust-region problem, and any multiplier λ > κ = λ_max(Q) bounds it from above:

    ⟨g, δ⟩ + ½⟨δ, Qδ⟩ ≤ ½⟨g, (λ − Q)⁻¹g⟩ + (λ/2)‖δ‖².

λ = κ + ‖g‖/r gives ‖g‖r + (κ/2)r² at the distance r, if g is an eigenvector of κ; it never is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from certus.certificates.proven.problem import Problem
from certus.certificates.proven.values import Margins
from certus.outward import TENS, TINY, inflate, slack, up
from certus.smoothness.activation import Activation
from certus.smoothness.activations import LOG_COSH, SMOOTH_ABS
from certus.smoothness.analysis import Analysis
from certus.smoothness.chain import Chain
from certus.smoothness.operators import Operator
from certus.smoothness.stage import Shape

_WORK = 3e7  # multiplications that a class of a sample may cost
_CLASSES = 3  # that are looked at, at least
_DISTANCES = torch.tensor([0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.6, 2.5, 4.0, 8.0], dtype=torch.float64)
"""For which multipliers are chosen, in units of how far the nearest error would be if margins were linear."""
# Choices, right whatever they are: the range of these units; how far λ stays above κ, in shares of it;
# singular values that are left out, and counted as lost; how near to its corner σ'(z)/z is computed.
_SCALES = (1e-100, 1e100)
_APART = 1e-6
_SLIGHT = 1e-6
_CORNER = 1e-8


@dataclass(frozen=True, eq=False)
class Parabolas:
    """m_k(x + δ) ≤ m_k(x) + rise + (bend/2)‖δ‖² at every δ, for each of several pairs.

    Both are (n, classes, pairs), and ∞ for classes that were not looked at, as is the upper bound on κ,
    ``curvature``, (n, classes).
    """

    rise: Tensor
    bend: Tensor
    curvature: Tensor


def centred_parabolas(problem: Problem, margins: Margins, lipschitz: Tensor) -> Parabolas | None:
    """For the classes that may be nearest to each sample; None for other networks, or where it takes long.

    ``lipschitz``, (n, classes), only says which classes are too far away to matter.
    """
    analysis = problem.analysis
    stages = [step.stage for step in analysis.steps]
    if len(stages) != 2 or margins.gradients is None or analysis.geometry.length != 1:
        return None
    first, units = stages
    if not isinstance(first, Operator) or not isinstance(units, Activation):
        return None
    narrow = _narrow(analysis) if units.value in (LOG_COSH.value, SMOOTH_ABS.value) else None
    if narrow is None or math.prod(narrow.matrix.shape) * narrow.matrix.shape[1] > _WORK:
        return None
    points = problem.inputs
    error = first.rounding * first.sizes(points.abs())
    nearest = (first.apply(points).abs() - error).clamp_min(0).flatten(1)
    weights = analysis.outputs.against(problem.targets).high.flatten(2).clamp_min(0)
    shape = (*margins.values.shape, len(_DISTANCES))
    rises, bends = (torch.full(shape, math.inf, dtype=torch.float64) for _ in range(2))
    curvature = torch.full(shape[:2], math.inf, dtype=torch.float64)
    scale, chosen = _near(problem, margins, lipschitz)
    gradients = torch.stack([problem.cost.whiten(rows).flatten(1) for rows in margins.gradients], 1)
    inexact = margins.error + (TENS + problem.metric_slack) * gradients.norm(dim=2).amax(1)
    for index, place in enumerate(nearest):
        near = chosen[index].nonzero().flatten()
        spread = weights[index, near] * _ratio(units, place, analysis.steps[1].in_shape)
        found = _parabolas(narrow, spread, gradients[index, near], scale[index] * _DISTANCES)
        # What the gradient's error adds is at most ‖δ‖ ≤ (r + ‖δ‖²/r)/2 times it.
        rises[index, near] = found.rise + inexact[index] * scale[index] / 2
        bends[index, near] = found.bend + inexact[index] / scale[index]
        curvature[index, near] = found.curvature
    return Parabolas(rises, bends, curvature)


def _near(problem: Problem, margins: Margins, lipschitz: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) the distance of the nearest error if margins were linear, and (n, classes) which may be nearer."""
    own = torch.zeros_like(margins.values, dtype=torch.bool).scatter_(1, problem.targets.unsqueeze(1), True)
    short = (-margins.values).clamp_min(0)
    linear = torch.where(own, math.inf, short / margins.steepness.clamp_min(TINY)).amin(1)
    far = torch.where(own, math.inf, short / lipschitz.clamp_min(TINY))
    first = torch.zeros_like(own)
    first.scatter_(1, far.topk(min(_CLASSES, far.shape[1] - 1), dim=1, largest=False).indices, True)
    # A sample that is an error already has no such distance, but its loss grows all the same.
    steepest = torch.where(own, 0.0, margins.steepness).amax(1).clamp_min(TINY)
    scale = torch.where((linear > 0) & torch.isfinite(linear), linear, 1 / steepest).clamp(*_SCALES)
    return scale, (first | (far < linear.unsqueeze(1))) & ~own


def _parabolas(narrow: _Narrow, spread: Tensor, gradient: Tensor, distances: Tensor) -> Parabolas:
    """Of one sample. Shapes (classes, units), (classes, features) and (pairs,)."""
    matrix, lost = narrow.matrix, narrow.lost
    scaled = matrix * spread.sqrt().unsqueeze(-1)
    form = scaled.mT @ scaled
    values, vectors = torch.linalg.eigh(form)
    wide = inflate(max(matrix.shape))
    top = values[:, -1:].clamp_min(0) * wide
    # The true Q is behind a rotation, and differs by the rounding of the product and by what was lost.
    trace = form.diagonal(dim1=1, dim2=2).sum(1, keepdim=True)
    coarse = lost * spread.amax(1, keepdim=True).sqrt()
    inexact = 4 * slack(len(matrix)) * trace + 2 * top.sqrt() * coarse + coarse**2
    inside = gradient @ narrow.rotation.mT
    length = gradient.norm(dim=1, keepdim=True).clamp_min(TINY)
    outside = (gradient - inside @ narrow.rotation).norm(dim=1, keepdim=True)
    multiplier = (top * (1 + _APART) + length / distances).clamp_min(TINY)
    along = (vectors.mT @ inside.unsqueeze(2)) / (multiplier.unsqueeze(1) - values.unsqueeze(2))
    solution = vectors @ along  # (classes, directions, pairs), roughly (λ − Q)⁻¹g: any vector will do
    bent = form @ solution
    residual = (inside.unsqueeze(2) - multiplier.unsqueeze(1) * solution + bent).norm(dim=1)
    # Sums of as many products as there are directions; ‖|Q|‖ ≤ ‖Q‖_F ≤ tr Q.
    rounding, sizes = slack(len(narrow.rotation) + 2), solution.norm(dim=1)
    residual = residual + rounding * (length + (multiplier + trace) * sizes)
    # ⟨g, M⁻¹g⟩ = 2⟨g, y⟩ − ⟨y, My⟩ + ⟨ρ, M⁻¹ρ⟩ with M = λ − Q and ρ = g − My.
    half = (inside.unsqueeze(2) * solution).sum(1) + (
        (bent - multiplier.unsqueeze(1) * solution) * solution
    ).sum(1) / 2
    rise = half + residual**2 / (multiplier - top) / 2 + outside**2 / multiplier / 2
    size = 2 * rounding * (length * sizes + (multiplier + trace) * sizes**2)
    curvature = up((top.sqrt() + coarse) ** 2)
    return Parabolas(rise * wide + size, (multiplier + inexact) * wide, curvature.squeeze(1))


@dataclass(frozen=True, eq=False)
class _Narrow:
    """The matrix of the first step as ``matrix @ rotation``, up to ``lost`` in norm."""

    matrix: Tensor
    rotation: Tensor
    lost: float


@lru_cache(maxsize=2)
def _narrow(analysis: Analysis) -> _Narrow | None:
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
    return _Narrow(left[:, :kept] * sizes[:kept], right[:kept], lost + error + rounding * float(sizes[0]))


def _ratio(units: Activation, distance: Tensor, shape: Shape) -> Tensor:
    """σ'(z)/z at |z| ≥ distance, which is largest at the distance itself; b at 0. Units are of ``shape``."""
    sharpness = torch.as_tensor(units.sharpness, dtype=torch.float64).expand(shape).flatten()
    scaled = (distance * sharpness).clamp_min(_CORNER)
    return up(sharpness * (units.slope(scaled) / scaled).clamp_max(1))
