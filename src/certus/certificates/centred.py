"""Margins bounded by a quadratic around each sample, for one layer of log cosh or smooth |z| units.

Such a unit is a concave function of z², so that for every move a of its argument

    σ(z + a) ≤ σ(z) + σ'(z)a + (σ'(z)/z)·a²/2,        while −σ(z + a) ≤ −σ(z) − σ'(z)a by convexity.

With u the weights of a margin m_k = F_k − F_y on the units and A the matrix in front of them,

    m_k(x + δ) ≤ m_k(x) + ⟨∇m_k(x), δ⟩ + (κ/2)‖δ‖²,      κ = λ_max(Aᵀ diag(u⁺σ'(z)/z) A)

at every δ. Units far from their corner at the sample hardly count, whatever their sharpness.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from certus.certificates.problem import Problem
from certus.smoothness.activations import LOG_COSH, SMOOTH_ABS, Activation
from certus.smoothness.analysis import UP, Analysis
from certus.smoothness.operators import Chain, Operator, Shape
from certus.smoothness.outputs import MOST_CLASSES
from certus.smoothness.spectral import inflate, quadratic_norm

_WORK = 3e7  # multiplications that a class of a sample may cost
_CLASSES = 3  # that are looked at: a radius is the smallest over all classes


def centred_bends(problem: Problem, margins: Tensor, slopes: Tensor) -> Tensor | None:
    """(n, classes) κ at every sample for its nearest classes, ∞ for others; None for other networks, or where
    it would take long.

    Args:
        margins, slopes: (n, classes) F_k − F_y at the samples, and Lipschitz constants: they only say which
            classes are near.
    """
    analysis = problem.analysis
    stages = [step.stage for step in analysis.steps]
    if len(stages) != 2 or analysis.outputs.classes > MOST_CLASSES or analysis.geometry.length != 1:
        return None
    first, units = stages
    if not isinstance(first, Operator) or not isinstance(units, Activation):
        return None
    narrow = _narrow(analysis) if units.value in (LOG_COSH.value, SMOOTH_ABS.value) else None
    if narrow is None or math.prod(narrow[0].shape) * narrow[0].shape[1] > _WORK:
        return None
    matrix, lost = narrow
    points = problem.inputs
    error = first.rounding * first.sizes(points.abs())
    nearest = (first.apply(points).abs() - error).clamp_min(0).flatten(1)
    weights = analysis.outputs.against(problem.targets).high.flatten(2).clamp_min(0)
    found = torch.full(weights.shape[:2], math.inf, dtype=torch.float64)
    near = (margins / slopes.clamp_min(1e-300)).topk(min(_CLASSES + 1, weights.shape[1]), dim=1).indices
    for index, place in enumerate(nearest):
        spread = weights[index, near[index]] * _ratio(units, place, analysis.steps[1].in_shape)
        size = quadratic_norm(matrix, spread).sqrt() + lost * spread.amax(1).sqrt()
        found[index, near[index]] = size**2 * UP
    return found


@lru_cache(maxsize=2)
def _narrow(analysis: Analysis) -> tuple[Tensor, float] | None:
    """The matrix of the first step behind a rotation, in as few columns as it has directions, and a bound on
    the norm of what is lost; None where it is large."""
    first = analysis.steps[0].action
    if not isinstance(first, Operator) or not first.small:
        return None
    product = first._product if isinstance(first, Chain) else None
    matrix, error = (first.matrix(), 0.0) if product is None else product
    left, sizes, _ = torch.linalg.svd(matrix, full_matrices=False)
    kept = max(1, int((sizes > 1e-6 * sizes[0]).sum()))
    lost = 0.0 if kept == len(sizes) else float(sizes[kept])
    rounding = inflate(max(matrix.shape)) - 1  # of a stable decomposition, relative to the norm
    return left[:, :kept] * sizes[:kept], lost + error + rounding * float(sizes[0])


def _ratio(units: Activation, distance: Tensor, shape: Shape) -> Tensor:
    """σ'(z)/z at |z| ≥ distance, which is largest at the distance itself; b at 0. Units are of ``shape``."""
    sharpness = torch.as_tensor(units.sharpness, dtype=torch.float64).expand(shape).flatten()
    scaled = (distance * sharpness).clamp_min(1e-8)
    return sharpness * (units.slope(scaled) / scaled).clamp_max(1) * UP
