"""Margins bounded by quadratics around each sample, for one layer of log cosh or smooth |z| units.

``certus.certificates.proven.units`` has the quadratic, m_k(x + δ) ≤ m_k(x) + ⟨g, δ⟩ + ½⟨δ, Qδ⟩ at every δ. On
a ball that is a trust-region problem, and any multiplier λ > κ = λ_max(Q) bounds it from above:

    ⟨g, δ⟩ + ½⟨δ, Qδ⟩ ≤ ½⟨g, (λ − Q)⁻¹g⟩ + (λ/2)‖δ‖².

λ = κ + ‖g‖/r gives ‖g‖r + (κ/2)r² at the distance r, if g is an eigenvector of κ; it never is.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from certus.certificates.proven.parabolas import Forms, Narrow, Parabolas
from certus.certificates.proven.problem import Problem
from certus.certificates.proven.units import HiddenLayer
from certus.certificates.proven.values import Margins
from certus.outward import TENS, TINY, inflate

_CLASSES = 3  # that are looked at, at least
_DISTANCES = torch.tensor([0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.6, 2.5, 4.0, 8.0], dtype=torch.float64)
"""For which multipliers are chosen, in units of how far the nearest error would be if margins were linear."""
# Choices, right whatever they are: the range of these units; how far λ stays above κ, in shares of it.
_SCALES = (1e-100, 1e100)
_APART = 1e-6


def centred_parabolas(problem: Problem, margins: Margins, lipschitz: Tensor) -> Parabolas | None:
    """For the classes that may be nearest to each sample; None for other networks, or where it takes long.

    ``lipschitz``, (n, classes), only says which classes are too far away to matter.
    """
    layer = None if margins.gradients is None else HiddenLayer.of(problem.analysis)
    if layer is None or margins.gradients is None:
        return None
    ratios, weights = layer.ratios(problem.inputs), layer.weights
    shape = (*margins.values.shape, len(_DISTANCES))
    rises, bends = (torch.full(shape, math.inf, dtype=torch.float64) for _ in range(2))
    curvature = torch.full(shape[:2], math.inf, dtype=torch.float64)
    scale, chosen = _near(problem, margins, lipschitz)
    gradients = torch.stack([problem.cost.whiten(rows).flatten(1) for rows in margins.gradients], 1)
    inexact = margins.error + (TENS + problem.metric_slack) * gradients.norm(dim=2).amax(1)
    for index, ratio in enumerate(ratios):
        near = chosen[index].nonzero().flatten()
        spread = weights[problem.targets[index], near] * ratio
        found = _parabolas(layer.front, spread, gradients[index, near], scale[index] * _DISTANCES)
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


def _parabolas(front: Narrow, spread: Tensor, gradient: Tensor, distances: Tensor) -> Parabolas:
    """Of one sample. Shapes (classes, units), (classes, features) and (pairs,)."""
    forms = Forms.of(front, spread)
    length = gradient.norm(dim=1, keepdim=True).clamp_min(TINY)
    multiplier = (forms.top * (1 + _APART) + length / distances).clamp_min(TINY)
    rise = forms.supremum(gradient.unsqueeze(2).expand(-1, -1, len(distances)), multiplier)
    bend = (multiplier + forms.inexact) * inflate(max(front.matrix.shape))
    return Parabolas(rise, bend, forms.curvature.squeeze(1))
