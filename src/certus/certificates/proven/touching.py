"""Margins bounded from points away from the sample, where they nearly meet the bound.

A bound that starts at the sample adds up what every unit might do on the way. One that starts where the
margin is largest on a sphere has nothing to add: with g = ∇m at the point u* and λ = ⟨g, u*⟩/‖u*‖², the
parabola of ``certus.certificates.proven.parabolas`` exceeds the margin found there by ½⟨e, (λ − Q)⁻¹e⟩, and
e = g − λu* is 0 at a maximum. It takes λ > λ_max(Q): the pull outwards is stronger than what the curvature
can gain sideways. Then the certified radius *is* the distance of the nearest error.

Q is κ·I, κ a bound on the margin's curvature everywhere, for any smooth network; for one layer of log cosh or
smooth |z| units it is that of ``certus.certificates.proven.units`` at the point. The points are proposals:
nothing is asked of them. A bad one makes a bound loose, never wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.certificates.proven.parabolas import Forms, Parabolas
from certus.certificates.proven.problem import Problem
from certus.certificates.proven.rounding import rounding_at
from certus.certificates.proven.units import HiddenLayer
from certus.certificates.proven.values import Margins
from certus.costs.metric import Euclidean
from certus.outward import FEW, MANY, SOME, TENS, TINY, inflate, up

_ABOVE = (1.05, 1.5)  # multipliers, at least, in units of κ
_CLOSELY = (1.003, 1.05, 1.25)  # the same where Q is decomposed
_REACHED = 0.9999  # a root as near to the point as this is left as it is
_AT_ONCE = 32  # forms that are decomposed together


@dataclass(frozen=True, eq=False)
class Touches:
    """Proposed points: (p,) of which sample, (p,) the other class of the margin, and (p, …) where.

    No two of them are of one sample and class.
    """

    sample: Tensor
    rival: Tensor
    point: Tensor


@dataclass(frozen=True, eq=False)
class _Start:
    """At p points, in coordinates where the cost's norm is Euclidean; every entry but two is (p,).

    Attributes:
        height: m at the point less the margin at the sample, as the bounds have it; rounded up.
        gradient, move: (p, features) ∇m and u*; error: of both together for λ = 0, in L2.
        square: ‖u*‖².
    """

    height: Tensor
    gradient: Tensor
    error: Tensor
    move: Tensor
    square: Tensor

    @property
    def outwards(self) -> Tensor:
        """⟨g, u*⟩/‖u*‖²; 0 where the point is the sample."""
        return (self.gradient * self.move).sum(1) / self.square.clamp_min(TINY)

    def select(self, index: Tensor) -> _Start:
        parts = (self.height, self.gradient, self.error, self.move, self.square)
        return _Start(*(part[index] for part in parts))

    def pull(self, multiplier: Tensor) -> tuple[Tensor, Tensor]:
        """(p, features, pairs) e = g − λu*, and (p, pairs) how far it may be off; λ is (p, pairs)."""
        pull = self.gradient.unsqueeze(2) - multiplier.unsqueeze(1) * self.move.unsqueeze(2)
        sizes = self.gradient.norm(dim=1).unsqueeze(1) + multiplier * self.square.sqrt().unsqueeze(1)
        return pull, self.error.unsqueeze(1) + TENS * sizes

    def rise(self, multiplier: Tensor, half: Tensor) -> Tensor:
        """(p, pairs) m* − m(x) − (λ/2)‖u*‖² + half, rounded up; never below 0, which it is at least."""
        below = multiplier * self.square.unsqueeze(1) / 2
        height = self.height.unsqueeze(1)
        return (height - below + up(half) + SOME * (below + height.abs())).clamp_min(0)


def touching_parabolas(
    problem: Problem, margins: Margins, bends: Tensor, touches: Touches
) -> Parabolas | None:
    """From each of the proposed points; None for costs whose norm is not Euclidean behind a scaling.

    Args:
        bends: (n, classes) bounds on the curvature of the margins everywhere; ∞ if nothing is known.
    """
    if not isinstance(problem.metric, Euclidean):
        return None
    sample, rival = touches.sample, touches.rival
    there = problem.select(sample)
    point = problem.cost.pinned(touches.point, there.inputs)
    start = _start(there, point, margins.values[sample, rival], rival)
    layer, curvature = HiddenLayer.of(problem.analysis), bends[sample, rival]
    spread = None
    if layer is not None:
        spread = layer.ratios(point) * layer.weights[there.targets, rival]
        curvature = torch.minimum(curvature, up(spread.amax(1) * layer.norm**2))
    rise, bend = _isotropic(start, curvature)
    if layer is not None and spread is not None:
        root = (2 * (-margins.values[sample, rival].unsqueeze(1) - rise).clamp_min(0) / bend).sqrt().amax(1)
        rest = (~(root >= _REACHED * start.square.sqrt())).nonzero().flatten()
        more = [torch.full((len(rival), len(_CLOSELY)), math.inf, dtype=torch.float64) for _ in range(2)]
        for some in rest.split(_AT_ONCE):
            forms = Forms.of(layer.front, spread[some])
            more[0][some], more[1][some] = _decomposed(start.select(some), forms)
        rise, bend = torch.cat([rise, more[0]], 1), torch.cat([bend, more[1]], 1)
    shape = (*margins.values.shape, rise.shape[1])
    rises, bended = (torch.full(shape, math.inf, dtype=torch.float64) for _ in range(2))
    known = torch.isfinite(rise) & torch.isfinite(bend)
    rises[sample, rival] = torch.where(known, rise, math.inf)
    bended[sample, rival] = torch.where(known, bend, math.inf)
    return Parabolas(rises, bended, torch.full(shape[:2], math.inf, dtype=torch.float64))


def _start(problem: Problem, point: Tensor, known: Tensor, rival: Tensor) -> _Start:
    leaf = point.detach().clone().requires_grad_()
    with torch.enable_grad():
        outputs = problem.outputs(leaf)
        both = outputs.gather(1, torch.stack([rival, problem.targets], 1))
        margin = both[:, 0] - both[:, 1]
        (slope,) = torch.autograd.grad(margin.sum(), leaf)
    margin, rounding = margin.detach(), rounding_at(problem.analysis, leaf.detach())
    height = margin - known + 2 * rounding.values + TENS * (margin.abs() + known.abs())
    # Two gradients of outputs, each with its error, and the rounding of their difference.
    error = 2 * problem.metric.dual_size(rounding.slopes + FEW * rounding.rows)
    gradient = problem.cost.whiten(problem.cost.freed(slope)).flatten(1)
    scale = problem.metric.whitening
    move = leaf.detach() - problem.inputs
    if scale is not None:
        move = torch.where(scale > 0, move / scale.clamp_min(TINY), 0.0)
    move = move.flatten(1)
    error = error + (TENS + problem.metric_slack) * gradient.norm(dim=1)
    return _Start(height, gradient, error, move, (move**2).sum(1))


def _isotropic(start: _Start, curvature: Tensor) -> tuple[Tensor, Tensor]:
    """(p, pairs) with Q = κ·I."""
    most = curvature.clamp_min(0).unsqueeze(1)
    multiplier = torch.maximum(start.outwards.unsqueeze(1), most * most.new_tensor(_ABOVE)).clamp_min(TINY)
    pull, error = start.pull(multiplier)
    half = (pull.norm(dim=1) + error) ** 2 / (2 * (multiplier - most * (1 + MANY)))
    return start.rise(multiplier, half), up(multiplier)


def _decomposed(start: _Start, forms: Forms) -> tuple[Tensor, Tensor]:
    """(p, pairs) with the true Q."""
    least = (forms.top + 2 * forms.inexact) * forms.top.new_tensor(_CLOSELY)
    multiplier = torch.maximum(start.outwards.unsqueeze(1), least).clamp_min(TINY)
    inner = multiplier - forms.inexact  # the computed Q and this much of the identity lie above the true one
    pull, error = start.pull(multiplier)
    half = forms.supremum(pull, inner)
    # In the norm of (λ − Q)⁻¹ the error is at most its length by the root of the least eigenvalue of λ − Q.
    half = ((2 * half).clamp_min(0).sqrt() + error / (inner - forms.top).sqrt()) ** 2 / 2
    return start.rise(multiplier, half), multiplier * inflate(max(forms.narrow.matrix.shape))
