"""Losses and margins at the samples, and quadratic majorants of margins.

*One hidden layer of log cosh or smooth |z| units.* Such a unit is a concave function of z², so that for every
move a of its argument

    σ(z + a) ≤ σ(z) + σ'(z)a + (σ'(z)/z)·a²/2,        while −σ(z + a) ≤ −σ(z) − σ'(z)a by convexity.

With w the weights of a margin on the units and A the matrix in front of them,

    m(x + δ) ≤ m(x) + ⟨g, δ⟩ + ½⟨δ, Qδ⟩,      g = ∇m(x),   Q = Aᵀ diag(w⁺σ'(z)/z) A

at every δ and around every x. Units far from their corner at x hardly contribute, whatever their sharpness.

*Parabolas.* Let a margin, as a function of a move u in coordinates where the cost's norm is Euclidean,
satisfy

    m(u) ≤ m* + ⟨g, v⟩ + ½⟨v, Qv⟩        for every u, with v = u − u*.

Then for every λ > λ_max(Q), with e = g − λu*,

    m(u) ≤ m* − (λ/2)‖u*‖² + ½⟨e, (λ − Q)⁻¹e⟩ + (λ/2)‖u‖²,

since ½λ‖u‖² = ½λ‖u*‖² + λ⟨u*, v⟩ + ½λ‖v‖², and ⟨e, v⟩ − ½⟨v, (λ − Q)v⟩ is at most ½⟨e, (λ − Q)⁻¹e⟩. The right
side depends on the length of u only: a parabola.

*Centred at the sample*, u* = 0: the dual of a trust-region problem,
⟨g, δ⟩ + ½⟨δ, Qδ⟩ ≤ ½⟨g, (λ − Q)⁻¹g⟩ + (λ/2)‖δ‖². λ = κ + ‖g‖/r, κ = λ_max(Q), gives at most ‖g‖r + (κ/2)r²
at the
distance r, with equality only if g is an eigenvector of κ.

*Tangent at another point.* A bound that starts at the sample adds up all that the units might do on the way.
At a
point u* of the sphere ‖u‖ = r where the margin is largest, g = λu* with λ = ⟨g, u*⟩/‖u*‖², e = 0, and the
parabola
is m* at the distance r: no bound can be better there. It requires λ > λ_max(Q). Then the certified radius
*is*
the distance to the nearest error. Q is κ·I, κ a bound on the margin's curvature everywhere, for any smooth
network; for one hidden layer it is the Q above at the point. The points are proposals: a bad one makes a
bound
loose, never wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from certus.bounds.activations import LOG_COSH, SMOOTH_ABS, Activation
from certus.bounds.analysis import Analysis
from certus.bounds.backward import MOST_CLASSES
from certus.bounds.operators import Chain, Operator
from certus.certificates.proven.float_error import rounding_at
from certus.certificates.proven.problem import Problem
from certus.costs.metric import Euclidean
from certus.errors import CertusError
from certus.losses import evaluate_loss
from certus.rounding import FEW, MANY, SOME, TENS, TINY, inflate, slack, up


@dataclass(frozen=True, eq=False)
class Margins:
    """Margins F_k − F_y at n samples and the dual norms of their gradients, (n, classes) each, rounded up.

    Attributes:
        gradients: (classes, n, …) without components that Z blocks; None for too many classes.
        error: (n,) bound on their error in the dual norm.
    """

    values: Tensor
    steepness: Tensor
    gradients: Tensor | None
    error: Tensor


@dataclass(frozen=True, eq=False)
class Values:
    """Losses at the samples, the dual norms of their gradients, rounded up, and margins."""

    loss: Tensor
    slope: Tensor
    margins: Margins | None

    @staticmethod
    def at(problem: Problem) -> Values:
        leaf = problem.inputs.clone().requires_grad_()
        with torch.enable_grad():
            losses = evaluate_loss(problem.loss, leaf, problem.targets)
            (slope,) = torch.autograd.grad(losses.sum(), leaf)
        losses, rounding = losses.detach(), problem.rounding
        steepness = problem.metric.dual(problem.feasible(slope))
        steepness = steepness + problem.metric.dual_size(problem.slope_error(losses, rounding))
        margins = _margins(problem, leaf) if problem.classes is not None else None
        losses = losses + problem.slack(losses, rounding)
        if not bool(torch.isfinite(losses).all()):
            raise CertusError(
                "The network overflows float64 at some samples, so nothing can be proven there."
            )
        return Values(losses, steepness, margins)


def _margins(problem: Problem, leaf: Tensor) -> Margins:
    """Margins and their gradients; the steepness is ∞ for too many classes."""
    with torch.enable_grad():
        outputs = problem.outputs(leaf)
        classes = outputs.shape[1]
        own = problem.targets.unsqueeze(1)
        values = (outputs - outputs.gather(1, own)).detach()
        values = values + 2 * problem.rounding.values.unsqueeze(1) + TENS * values.abs()
        values.scatter_(1, own, 0.0)
        # Two gradients of outputs, each with its error, and the rounding of their difference.
        error = 2 * problem.metric.dual_size(problem.rounding.slopes + FEW * problem.rounding.rows)
        steepness = torch.full_like(values, math.inf).scatter_(1, own, 0.0)
        if classes > MOST_CLASSES:
            return Margins(values, steepness, None, error)
        each = [
            torch.autograd.grad(outputs[:, k].sum(), leaf, retain_graph=True, allow_unused=True)[0]
            for k in range(classes)
        ]
    rows = torch.stack([torch.zeros_like(leaf) if row is None else row for row in each])
    mine = rows[problem.targets, torch.arange(len(leaf))]
    for k in range(classes):
        rows[k] = problem.feasible(rows[k] - mine)
        steepness[:, k] = problem.metric.dual(rows[k]) + error
    return Margins(values, steepness.scatter_(1, own, 0.0), rows, error)


_WORK = 3e7  # largest number of multiplications for a class of a sample
_CORNER = 1e-8  # least |z| at which σ'(z)/z is computed; the bound is valid for any value


@dataclass(frozen=True, eq=False)
class HiddenLayer:
    """The hidden layer of a network with one hidden layer."""

    analysis: Analysis
    factor: LowRankFactor
    first: Operator
    units: Activation

    @staticmethod
    def of(analysis: Analysis) -> HiddenLayer | None:
        """None for other networks, for costs without an inner product, and for large matrices."""
        stages = [step.stage for step in analysis.steps]
        if len(stages) != 2 or analysis.geometry.length != 1:
            return None
        first, units = stages
        if not isinstance(first, Operator) or not isinstance(units, Activation):
            return None
        factor = low_rank_factor(analysis) if units.value in (LOG_COSH.value, SMOOTH_ABS.value) else None
        if factor is None or math.prod(factor.matrix.shape) * factor.matrix.shape[1] > _WORK:
            return None
        return HiddenLayer(analysis, factor, first, units)

    @property
    def norm(self) -> float:
        """Upper bound on ‖A‖ in coordinates where the cost's norm is Euclidean."""
        action = self.analysis.steps[0].action
        assert isinstance(action, Operator)  # else there is no factor
        return action.norm

    def ratios(self, points: Tensor) -> Tensor:
        """(n, units) upper bounds on σ'(z)/z at (n, …) points."""
        error = self.first.rounding * self.first.sizes(points.abs())
        # It falls with |z|, and is b at 0.
        distance = (self.first.apply(points).abs() - error).clamp_min(0).flatten(1)
        shape = self.analysis.steps[1].in_shape
        sharpness = torch.as_tensor(self.units.sharpness, dtype=torch.float64).expand(shape).flatten()
        scaled = (distance * sharpness).clamp_min(_CORNER)
        return up(sharpness * (self.units.slope(scaled) / scaled).clamp_max(1))

    @cached_property
    def weights(self) -> Tensor:
        """(classes, classes, units) upper bounds on w⁺ of the margin F_k − F_y, indexed by y and k."""
        outputs = self.analysis.outputs
        return outputs.against(torch.arange(outputs.classes)).high.flatten(2).clamp_min(0)


_SLIGHT = 1e-6  # singular values that are dropped, and counted as lost; valid for any value


@dataclass(frozen=True, eq=False)
class Parabolas:
    """m_k(x + δ) ≤ m_k(x) + rise + (coefficient/2)‖δ‖² at every δ, for each of several pairs.

    Both are (n, classes, pairs), and ∞ for classes that were not computed, as is ``curvature``, (n, classes):
    m_k(x + δ) ≤ m_k(x) + ⟨∇m_k(x), δ⟩ + (curvature/2)‖δ‖².
    """

    rise: Tensor
    coefficient: Tensor
    curvature: Tensor

    def beside(self, other: Parabolas | None) -> Parabolas:
        """The pairs of both."""
        if other is None:
            return self
        return Parabolas(
            torch.cat([self.rise, other.rise], 2),
            torch.cat([self.coefficient, other.coefficient], 2),
            torch.minimum(self.curvature, other.curvature),
        )


@dataclass(frozen=True, eq=False)
class LowRankFactor:
    """The matrix of the first step as ``matrix @ rotation``, up to ``lost`` in norm."""

    matrix: Tensor
    rotation: Tensor
    lost: float


@lru_cache(maxsize=2)
def low_rank_factor(analysis: Analysis) -> LowRankFactor | None:
    """The factor with as few columns as the numerical rank of the first step; None for large matrices."""
    first = analysis.steps[0].action
    if not isinstance(first, Operator) or not first.small:
        return None
    product = first._product if isinstance(first, Chain) else None
    matrix, error = (first.matrix(), 0.0) if product is None else product
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    rank = max(1, int((sizes > _SLIGHT * sizes[0]).sum()))
    lost = 0.0 if rank == len(sizes) else float(sizes[rank])
    rounding = inflate(max(matrix.shape)) - 1  # of a stable decomposition, relative to the norm
    return LowRankFactor(
        left[:, :rank] * sizes[:rank], right[:rank], lost + error + rounding * float(sizes[0])
    )


@dataclass(frozen=True, eq=False)
class QuadraticForms:
    """Several Q = Aᵀ diag(spread) A, computed up to ``inexact`` in norm.

    Attributes:
        form, values, vectors: (forms, directions, directions) as computed, with eigenvalues and vectors.
        top: (forms, 1) upper bound on λ_max of the computed Q; curvature: (forms, 1) of the true Q.
        inexact, trace: (forms, 1); the trace bounds ‖|Q|‖, too.
    """

    factor: LowRankFactor
    form: Tensor
    values: Tensor
    vectors: Tensor
    top: Tensor
    curvature: Tensor
    inexact: Tensor
    trace: Tensor

    @staticmethod
    def of(factor: LowRankFactor, spread: Tensor) -> QuadraticForms:
        """``spread`` is (forms, units), not negative."""
        matrix = factor.matrix
        scaled = matrix * spread.sqrt().unsqueeze(-1)
        form = scaled.mT @ scaled
        values, vectors = torch.linalg.eigh(form)
        top = values[:, -1:].clamp_min(0) * inflate(max(matrix.shape))
        # The true Q is behind a rotation, and differs by the rounding of the product and by what was lost.
        trace = form.diagonal(dim1=1, dim2=2).sum(1, keepdim=True)
        coarse = factor.lost * spread.amax(1, keepdim=True).sqrt()
        inexact = 4 * slack(len(matrix)) * trace + 2 * top.sqrt() * coarse + coarse**2
        curvature = up((top.sqrt() + coarse) ** 2)
        return QuadraticForms(factor, form, values, vectors, top, curvature, inexact, trace)

    def supremum(self, pull: Tensor, multiplier: Tensor) -> Tensor:
        """(forms, pairs) upper bounds on ½⟨e, (λ − Q)⁻¹e⟩ for the computed Q; pass λ − ``inexact`` for the
        true Q.

        Args:
            pull: (forms, features, pairs) e; multiplier: (forms, pairs) λ, above ``top``.
        """
        rotation = self.factor.rotation
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
        return half * inflate(max(self.factor.matrix.shape)) + rest


_CLASSES = 3  # least number of classes to bound
_DISTANCES = torch.tensor([0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.6, 2.5, 4.0, 8.0], dtype=torch.float64)
"""Distances for which multipliers are chosen, relative to the nearest error of linear margins."""
# The range of these units, and the relative distance of λ above κ; the bound is valid for any values.
_SCALES = (1e-100, 1e100)
_APART = 1e-6


def centered_parabolas(problem: Problem, margins: Margins, lipschitz: Tensor) -> Parabolas | None:
    """Parabolas for the classes that may be nearest to each sample; None for other or large networks.

    ``lipschitz``, (n, classes), only decides which classes are too far away to matter.
    """
    layer = None if margins.gradients is None else HiddenLayer.of(problem.analysis)
    if layer is None or margins.gradients is None:
        return None
    ratios, weights = layer.ratios(problem.inputs), layer.weights
    shape = (*margins.values.shape, len(_DISTANCES))
    rises, coefficients = (torch.full(shape, math.inf, dtype=torch.float64) for _ in range(2))
    curvature = torch.full(shape[:2], math.inf, dtype=torch.float64)
    scale, chosen = _near(problem, margins, lipschitz)
    gradients = torch.stack([problem.cost.whiten(rows).flatten(1) for rows in margins.gradients], 1)
    inexact = margins.error + (TENS + problem.metric_slack) * gradients.norm(dim=2).amax(1)
    for index, ratio in enumerate(ratios):
        near = chosen[index].nonzero().flatten()
        spread = weights[problem.targets[index], near] * ratio
        parabolas = _parabolas(layer.factor, spread, gradients[index, near], scale[index] * _DISTANCES)
        # What the gradient's error adds is at most ‖δ‖ ≤ (r + ‖δ‖²/r)/2 times it.
        rises[index, near] = parabolas.rise + inexact[index] * scale[index] / 2
        coefficients[index, near] = parabolas.coefficient + inexact[index] / scale[index]
        curvature[index, near] = parabolas.curvature
    return Parabolas(rises, coefficients, curvature)


def _near(problem: Problem, margins: Margins, lipschitz: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) distance of the nearest error if margins were linear, and (n, classes) mask of possibly nearer
    ones."""
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


def _parabolas(factor: LowRankFactor, spread: Tensor, gradient: Tensor, distances: Tensor) -> Parabolas:
    """Parabolas of one sample. Shapes (classes, units), (classes, features) and (pairs,)."""
    forms = QuadraticForms.of(factor, spread)
    length = gradient.norm(dim=1, keepdim=True).clamp_min(TINY)
    multiplier = (forms.top * (1 + _APART) + length / distances).clamp_min(TINY)
    rise = forms.supremum(gradient.unsqueeze(2).expand(-1, -1, len(distances)), multiplier)
    coefficient = (multiplier + forms.inexact) * inflate(max(factor.matrix.shape))
    return Parabolas(rise, coefficient, forms.curvature.squeeze(1))


_ABOVE = (1.05, 1.5)  # least multipliers, in units of κ
_CLOSELY = (1.003, 1.05, 1.25)  # the same if Q is decomposed
_REACHED = 0.9999  # fraction of the point's distance at which a root is good enough
_AT_ONCE = 32  # forms decomposed together


@dataclass(frozen=True, eq=False)
class TangentPoints:
    """Proposed points: (p,) index of the sample, (p,) other class of the margin, and (p, …) the point.

    No two of them share both sample and class.
    """

    sample: Tensor
    rival: Tensor
    point: Tensor


@dataclass(frozen=True, eq=False)
class _Start:
    """Data at p points, in coordinates where the cost's norm is Euclidean; all but two entries are (p,).

    Attributes:
        height: m at the point less the margin at the sample, rounded up.
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
        """⟨g, u*⟩/‖u*‖²; 0 if the point is the sample."""
        return (self.gradient * self.move).sum(1) / self.square.clamp_min(TINY)

    def select(self, index: Tensor) -> _Start:
        parts = (self.height, self.gradient, self.error, self.move, self.square)
        return _Start(*(part[index] for part in parts))

    def pull(self, multiplier: Tensor) -> tuple[Tensor, Tensor]:
        """(p, features, pairs) e = g − λu*, and a (p, pairs) bound on its error; λ is (p, pairs)."""
        pull = self.gradient.unsqueeze(2) - multiplier.unsqueeze(1) * self.move.unsqueeze(2)
        sizes = self.gradient.norm(dim=1).unsqueeze(1) + multiplier * self.square.sqrt().unsqueeze(1)
        return pull, self.error.unsqueeze(1) + TENS * sizes

    def rise(self, multiplier: Tensor, half: Tensor) -> Tensor:
        """(p, pairs) m* − m(x) − (λ/2)‖u*‖² + half, rounded up and clipped below at its lower bound 0."""
        below = multiplier * self.square.unsqueeze(1) / 2
        height = self.height.unsqueeze(1)
        return (height - below + up(half) + SOME * (below + height.abs())).clamp_min(0)


def tangent_parabolas(
    problem: Problem, margins: Margins, curvatures: Tensor, tangents: TangentPoints
) -> Parabolas | None:
    """Parabolas from each of the proposed points; None unless the cost's norm is a scaled Euclidean one.

    Args:
        curvatures: (n, classes) bounds on the curvature of the margins everywhere; may be ∞.
    """
    if not isinstance(problem.metric, Euclidean):
        return None
    sample, rival = tangents.sample, tangents.rival
    there = problem.select(sample)
    point = problem.cost.restore_frozen(tangents.point, there.inputs)
    start = _start(there, point, margins.values[sample, rival], rival)
    layer, curvature = HiddenLayer.of(problem.analysis), curvatures[sample, rival]
    spread = None
    if layer is not None:
        spread = layer.ratios(point) * layer.weights[there.targets, rival]
        curvature = torch.minimum(curvature, up(spread.amax(1) * layer.norm**2))
    rise, coefficient = _isotropic(start, curvature)
    if layer is not None and spread is not None:
        root = (
            (2 * (-margins.values[sample, rival].unsqueeze(1) - rise).clamp_min(0) / coefficient)
            .sqrt()
            .amax(1)
        )
        rest = (~(root >= _REACHED * start.square.sqrt())).nonzero().flatten()
        more = [torch.full((len(rival), len(_CLOSELY)), math.inf, dtype=torch.float64) for _ in range(2)]
        for some in rest.split(_AT_ONCE):
            forms = QuadraticForms.of(layer.factor, spread[some])
            more[0][some], more[1][some] = _decomposed(start.select(some), forms)
        rise, coefficient = torch.cat([rise, more[0]], 1), torch.cat([coefficient, more[1]], 1)
    shape = (*margins.values.shape, rise.shape[1])
    rises, coefficients = (torch.full(shape, math.inf, dtype=torch.float64) for _ in range(2))
    finite = torch.isfinite(rise) & torch.isfinite(coefficient)
    rises[sample, rival] = torch.where(finite, rise, math.inf)
    coefficients[sample, rival] = torch.where(finite, coefficient, math.inf)
    return Parabolas(rises, coefficients, torch.full(shape[:2], math.inf, dtype=torch.float64))


def _start(problem: Problem, point: Tensor, origin_margin: Tensor, rival: Tensor) -> _Start:
    leaf = point.detach().clone().requires_grad_()
    with torch.enable_grad():
        outputs = problem.outputs(leaf)
        both = outputs.gather(1, torch.stack([rival, problem.targets], 1))
        margin = both[:, 0] - both[:, 1]
        (slope,) = torch.autograd.grad(margin.sum(), leaf)
    margin, rounding = margin.detach(), rounding_at(problem.analysis, leaf.detach())
    height = margin - origin_margin + 2 * rounding.values + TENS * (margin.abs() + origin_margin.abs())
    # Two gradients of outputs, each with its error, and the rounding of their difference.
    error = 2 * problem.metric.dual_size(rounding.slopes + FEW * rounding.rows)
    gradient = problem.cost.whiten(problem.cost.free_part(slope)).flatten(1)
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


def _decomposed(start: _Start, forms: QuadraticForms) -> tuple[Tensor, Tensor]:
    """(p, pairs) with the true Q."""
    least = (forms.top + 2 * forms.inexact) * forms.top.new_tensor(_CLOSELY)
    multiplier = torch.maximum(start.outwards.unsqueeze(1), least).clamp_min(TINY)
    inner = multiplier - forms.inexact  # the computed Q and this much of the identity lie above the true one
    pull, error = start.pull(multiplier)
    half = forms.supremum(pull, inner)
    # In the norm of (λ − Q)⁻¹ the error is at most its length by the root of the least eigenvalue of λ − Q.
    half = ((2 * half).clamp_min(0).sqrt() + error / (inner - forms.top).sqrt()) ** 2 / 2
    return start.rise(multiplier, half), multiplier * inflate(max(forms.factor.matrix.shape))
