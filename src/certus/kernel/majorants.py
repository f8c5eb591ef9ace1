"""Parabolas above margins, from proposed points and multipliers.

*Theorem.* Let a margin, as a function of a move u in coordinates where the cost's norm is Euclidean, satisfy

    m(u) ≤ m* + ⟨g, v⟩ + ½⟨v, Qv⟩        for every u, with v = u − u*.

Then for every λ > λ_max(Q), with e = g − λu*,

    m(u) ≤ m* − (λ/2)‖u*‖² + ½⟨e, (λ − Q)⁻¹e⟩ + (λ/2)‖u‖²,

since ½λ‖u‖² = ½λ‖u*‖² + λ⟨u*, v⟩ + ½λ‖v‖², and ⟨e, v⟩ − ½⟨v, (λ − Q)v⟩ is at most ½⟨e, (λ − Q)⁻¹e⟩. The right
side depends on the length of u only: a parabola.

*Q.* κ·I, κ a bound on the margin's curvature everywhere, holds for any smooth network (``isotropic``). Units
σ of log cosh or smooth |z| are concave in z²: σ(z + a) ≤ σ(z) + σ'(z)a + (σ'(z)/z)a²/2, while −σ is below its
tangents. So one hidden layer of them has Q = AᵀDA, D = diag(w⁺σ'(z)/z) at u*, with w the weights of a margin
on the units and A the matrix before them (``shaped``).

*The inverse.* For every y, with M = λ − Q and ρ = e − My,

    ⟨e, M⁻¹e⟩ = 2⟨e, y⟩ − ⟨y, My⟩ + ⟨ρ, M⁻¹ρ⟩ ≤ 2⟨e, y⟩ − ⟨y, My⟩ + ‖ρ‖²/(λ − λ_max(Q)),

so that only the bound on λ_max(Q) counts, which is checked (``checked_quadratic``). It is taken where it is
smallest: among the features; among fewer units, with B = √D·A, or in fewer coordinates, with A = NR and
orthonormal rows of R, as

    ⟨e, (λ − BᵀB)⁻¹e⟩ = (‖e‖² + ⟨Be, (λ − BBᵀ)⁻¹Be⟩)/λ = ⟨Re, (λ − NᵀDN)⁻¹Re⟩ + ‖e − RᵀRe‖²/λ.

An error Δ of A raises Q by at most 2√λ_max(Q)·Δ√max D + Δ²max D, which λ pays; an error d of e raises the
root of ⟨e, M⁻¹e⟩ by at most d/√(λ − λ_max(Q)).

Points and multipliers are proposals: bad ones make a bound loose, never wrong. At u* = 0 and λ = κ + ‖g‖/r a
parabola is at most ‖g‖r + (κ/2)r² at the distance r. Where a margin is largest on the sphere ‖u‖ = r, g is
λu*, e = 0, and the parabola is m* at r: no bound is better there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from certus.kernel.costs import Lp
from certus.kernel.norms import checked_quadratic
from certus.kernel.operators import Affine, Product
from certus.kernel.passes import Refused, per_sample
from certus.kernel.pointwise import Pointwise, scalar
from certus.kernel.problem import Problem, Values, rounding_at, with_gradient
from certus.kernel.rounding import SOME, TENS, TINY, slack, up

_CORNER = 1e-8  # least |bz| at which σ'(z)/z is computed; the bound is valid for any value
_NUMBERS = 1 << 20  # in the largest tensor of the quadratic forms that are bounded together


@dataclass(frozen=True, eq=False)
class Tangents:
    """Proposed points and multipliers λ = max(⟨g, u*⟩/‖u*‖², factor·κ) + ‖g‖/distance for p margins.

    Attributes:
        sample, rival: (p,) which margin F_rival − F_y; no two share both. point: (p, *shape) where u* leads.
        factors: (pairs,) above 1. distances: (p, pairs), positive; may be ∞.
        shaped: whether Q is that of a hidden layer, not κ·I.
        factor: (units, rank) N and (rank, features) R with A ≈ NR and RRᵀ ≈ I, for the matrix A before the
            units, if its rank is small; what they miss is counted.
    """

    sample: Tensor
    rival: Tensor
    point: Tensor
    factors: Tensor
    distances: Tensor
    shaped: bool = False
    factor: tuple[Tensor, Tensor] | None = None


@dataclass(frozen=True, eq=False)
class Parabolas:
    """m_k(x + δ) ≤ m_k(x) + rise + (coefficient/2)‖δ‖² at every δ, for each of several pairs.

    Both are (n, classes, pairs), and ∞ for classes that were not proposed, as is ``curvature``, (n, classes):
    m_k(x + δ) ≤ m_k(x) + ⟨∇m_k(x), δ⟩ + (curvature/2)‖δ‖².
    """

    rise: Tensor
    coefficient: Tensor
    curvature: Tensor


@dataclass(frozen=True, eq=False)
class Constants:
    """Bounds on the ball around each sample, or everywhere: (n, classes) for margins, (n,) for the loss.

    Attributes:
        edge: index of the ball's radius; None for all of space.
        margin_lipschitz, margin_curvature: Lip, and κ with m(x + δ) ≤ m(x) + ⟨∇m(x), δ⟩ + (κ/2)‖δ‖² at the
            sample x, where ``parabolas`` hold too; (n, 0) for a squared error.
        slope, curvature, root: G, L⁺ and α of ``Loss.constants``.
    """

    edge: int | None
    margin_lipschitz: Tensor
    margin_curvature: Tensor
    slope: Tensor
    curvature: Tensor
    root: Tensor
    parabolas: tuple[Parabolas, ...] = ()

    def beside(self, new: Parabolas) -> Constants:
        """Add parabolas of the margins, and the curvatures that they imply at the samples."""
        bent = torch.minimum(self.margin_curvature, new.curvature)
        return replace(self, margin_curvature=bent, parabolas=(*self.parabolas, new))

    def within(self, larger: Constants) -> Constants:
        """The smaller of each of these bounds and of those on a larger set."""
        names = ("margin_lipschitz", "margin_curvature", "slope", "curvature", "root")
        least: Any = {name: torch.minimum(getattr(self, name), getattr(larger, name)) for name in names}
        return replace(self, **least, parabolas=larger.parabolas)


def constants(
    problem: Problem, values: Values, radius: float | None = None, edge: int | None = None
) -> Constants:
    """Bounds on balls, or everywhere, as seen from the samples."""
    parts, ones = problem.bounds(radius), torch.ones_like(values.loss)
    curvature = ones * torch.cat([torch.stack(list(part.curvature.values())).amin(0) for part in parts])
    if bool(torch.isnan(curvature).any()):
        raise Refused("the bounds overflow float64")
    slope = ones * torch.cat([part.lipschitz for part in parts])
    lipschitz = bent = values.margins
    if problem.loss.labelled:
        lipschitz = _margins(problem, [part.margin_lipschitz for part in parts])
        bent = _margins(problem, [part.margin_curvature for part in parts])
        if problem.deviation is not None:
            lipschitz = torch.where(problem.own, 0.0, up(lipschitz + problem.deviation.slope, SOME))
            # The loss of the network in float32 has no gradient; it grows as its margins do.
            slope, curvature = (torch.full_like(ones, math.inf) for _ in range(2))
        if problem.affine:
            lipschitz = torch.minimum(lipschitz, values.steepness)
        most = lipschitz.amax(1)
    else:
        most = torch.minimum(ones * torch.cat([part.output_lipschitz for part in parts]), values.root)
    return Constants(edge, lipschitz, bent, *problem.loss.constants(slope, curvature, most))


def _margins(problem: Problem, parts: list[Tensor | None]) -> Tensor:
    """(n, K) entries for the labels y, from those of samples, or of all [k, y]; ∞ where a claim has none."""
    given = [part for part in parts if part is not None]
    whole = torch.cat(given) if given else torch.where(problem.own, 0.0, math.inf).double()
    return whole[0].T[problem.targets] if whole.dim() == 3 else whole


def _euclidean(problem: Problem) -> bool:
    return isinstance(problem.cost, Lp) and problem.cost.p == 2


def hidden_layer(problem: Problem) -> tuple[Tensor, float, Pointwise] | None:
    """The matrix before the units of a network with one hidden layer of units concave in z², in the units of
    the cost, its rounding in Frobenius norm, and the units; None for other networks and norms."""
    nodes = problem.smoothness.body.nodes
    if len(nodes) != 3 or not _euclidean(problem):
        return None
    first, units = nodes[1].action, nodes[2].primitive
    if not isinstance(first, Affine) or not isinstance(units, Pointwise):
        return None
    written = first.written or first.explicit is not None
    if not written or units.scalar not in (scalar("log_cosh"), scalar("smooth_abs")):
        return None
    matrix, lost = first.product if isinstance(first, Product) else (first.matrix(), 0.0)
    return matrix, lost + slack(first.folds) * float(torch.linalg.matrix_norm(matrix)), units


def _spread(problem: Problem, units: Pointwise, points: Tensor, rival: Tensor) -> Tensor:
    """(p, units) upper bounds on w⁺σ'(z)/z at (p, *shape) points."""
    outputs, first, labels = problem.smoothness.outputs, problem.graph.nodes[1].primitive, problem.targets
    assert first is not None
    value, error = first.rounded(points, torch.zeros_like(points))
    # σ'(z)/z falls with |z|, and is b at 0.
    sharpness = torch.as_tensor(units.sharpness, dtype=torch.float64)
    scaled = ((value.abs() - error).clamp_min(0) * sharpness).clamp_min(_CORNER)
    ratio = up(sharpness * (units.scalar.slope(scaled) / scaled).clamp_max(1))
    weight = outputs.rows[rival] - outputs.rows[labels]
    room = outputs.rounding[rival] + outputs.rounding[labels]
    return ((weight + room).clamp_min(0) * ratio).flatten(1)


def parabolas(problem: Problem, values: Values, everywhere: Constants, tangents: Tangents) -> Parabolas:
    """Parabolas from the proposed points, for a norm that is Euclidean behind a scaling."""
    sample, rival, layer = tangents.sample, tangents.rival, hidden_layer(problem)
    if problem.precision is not None:
        raise Refused("parabolas are about real arithmetic")
    if not _euclidean(problem) or (tangents.shaped and layer is None):
        raise Refused("no parabolas for this norm, or no quadratic form for this network")
    if everywhere.edge is not None or everywhere.parabolas:
        raise Refused("parabolas need curvatures that hold everywhere")
    if not bool((tangents.factors > 1).all()) or not bool((tangents.distances > 0).all()):
        raise Refused("the factors of multipliers must exceed 1, and distances be positive")
    named = torch.stack([sample, rival])
    if named.unique(dim=1).shape[1] < len(sample) or bool((named < 0).any()):
        raise Refused("no two parabolas may be proposed for one margin, which has indices from 0 on")
    there, proposed = problem.select(sample), torch.isfinite(tangents.point).flatten(1).all(1)
    point = torch.where(per_sample(proposed, tangents.point), tangents.point, there.inputs)
    point = there.inputs + problem.cost.freed(point - there.inputs)
    centered = (point == there.inputs).flatten(1).all(1)
    start = _Start.at(there, rival, values.margins[sample, rival], point, centered, tangents.distances)
    curvature = everywhere.margin_curvature[sample, rival].clamp_min(0)
    if layer is not None:
        spread, first = _spread(there, layer[2], point, rival), problem.graph.nodes[1].action
        assert isinstance(first, Affine)
        curvature = torch.minimum(curvature, up(spread.amax(1) * first.norm**2))
    if layer is None or not tangents.shaped:
        rise, coefficient = start.isotropic(tangents.factors, curvature)
    else:
        form = _factored(*layer[:2], tangents.factor)
        side = min(form.matrix.shape) if form.rotation is None else form.matrix.shape[1]
        few = max(1, _NUMBERS // (layer[0].shape[1] * len(tangents.factors) + side**2))
        parts = [
            start.select(some).shaped(tangents.factors, form, spread[some])
            for some in torch.arange(len(sample)).split(few)
        ]
        rise, coefficient, curvature = (torch.cat(part) for part in zip(*parts, strict=True))
    finite = torch.isfinite(rise) & torch.isfinite(coefficient) & proposed.unsqueeze(1)

    def placed(numbers: Tensor, valid: Tensor) -> Tensor:
        shape = (*values.margins.shape, *numbers.shape[1:])
        return torch.full(shape, math.inf).double().index_put((sample, rival), numbers.where(valid, math.inf))

    seen = placed(curvature, centered & proposed)
    return Parabolas(placed(rise, finite), placed(coefficient, finite), seen)


@dataclass(frozen=True, eq=False)
class _Factored:
    """A = matrix·rotation up to ``lost`` in norm; the rows of ``rotation`` are within ``skew`` of orthonormal
    ones, and it is None for the identity."""

    matrix: Tensor
    rotation: Tensor | None
    lost: float
    skew: float = 0.0


def _factored(matrix: Tensor, lost: float, factor: tuple[Tensor, Tensor] | None) -> _Factored:
    """Count what a proposed factor misses.

    With Δ = ‖RRᵀ − I‖ < 1 the polar factor of R has orthonormal rows and is within Δ of R: A is N times it,
    up to ‖A − NR‖ + ‖N‖Δ.
    """
    if factor is None:
        return _Factored(matrix, None, lost)
    left, right = factor
    off = right @ right.T - torch.eye(len(right), dtype=torch.float64)
    rest, size, skew = (float(torch.linalg.matrix_norm(each)) for each in (matrix - left @ right, left, off))
    skew = up(skew) + slack(right.shape[1]) * len(right)
    if not skew < 0.5:
        raise Refused("the rows of a rotation must be orthonormal")
    missed = up(rest + slack(len(right)) * size * math.sqrt(2 * len(right)) + size * skew)
    return _Factored(left, right, lost + missed, skew)


@dataclass(frozen=True, eq=False)
class _Start:
    """Data at p points, in coordinates where the cost's norm is Euclidean; all but three entries are (p,).

    Attributes:
        height: m at the point less the margin at the sample, rounded up.
        gradient, move: (p, features) ∇m and u*; error: of both together for λ = 0, in L2.
        square: ‖u*‖²; distances: (p, pairs) as proposed.
    """

    height: Tensor
    gradient: Tensor
    error: Tensor
    move: Tensor
    square: Tensor
    distances: Tensor

    @staticmethod
    def at(
        problem: Problem, rival: Tensor, origin: Tensor, point: Tensor, centered: Tensor, distances: Tensor
    ) -> _Start:
        """Of F_rival − F_y at (p, *shape) points, one for each sample; ``origin`` is the margin there."""
        cost, rounding = problem.cost, rounding_at(problem.graph, point)
        assert isinstance(cost, Lp)

        def margins(points: Tensor) -> Tensor:
            both = problem.outputs(points).gather(1, torch.stack([rival, problem.targets], 1))
            return both[:, 0] - both[:, 1]

        margin, slope = with_gradient(margins, point)
        height = margin - origin + 2 * rounding.values + TENS * (margin.abs() + origin.abs())
        slope = torch.where(per_sample(centered, slope), problem.feasible(slope), cost.freed(slope))
        gradient, move = (slope / cost.stretch).flatten(1), (point - problem.inputs) * cost.stretch
        error = cost.dual_size(rounding.difference()) + (TENS + cost.rounding) * gradient.norm(dim=1)
        square, move = (move**2).flatten(1).sum(1), move.flatten(1)
        return _Start(torch.where(centered, 0.0, height), gradient, error, move, square, distances)

    def select(self, index: Tensor) -> _Start:
        return _Start(*(part[index] for part in vars(self).values()))

    def pull(self, factors: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(p, pairs) λ, (p, features, pairs) e = g − λu*, and a (p, pairs) bound on its error."""
        length = self.gradient.norm(dim=1).unsqueeze(1)
        outwards = (self.gradient * self.move).sum(1) / self.square.clamp_min(TINY)
        multiplier = torch.maximum(outwards.unsqueeze(1), curvature.unsqueeze(1) * factors)
        multiplier = (multiplier + length / self.distances).clamp_min(TINY)
        pull = self.gradient.unsqueeze(2) - multiplier.unsqueeze(1) * self.move.unsqueeze(2)
        sizes = length + multiplier * self.square.sqrt().unsqueeze(1)
        return multiplier, pull, self.error.unsqueeze(1) + TENS * sizes

    def parabola(self, multiplier: Tensor, root: Tensor, spare: Tensor) -> tuple[Tensor, Tensor]:
        """(p, pairs) rises m* − m(x) − (λ/2)‖u*‖² + root²/2, at least 0 as m(x) is below, and coefficients λ,
        where ``root`` ≥ ⟨e, (λ − Q)⁻¹e⟩^½; ∞ unless ``spare`` ≤ λ − λ_max(Q) is positive."""
        half = torch.where(spare > 0, root**2 / 2, math.inf)
        below, height = multiplier * self.square.unsqueeze(1) / 2, self.height.unsqueeze(1)
        rise = height - below + up(half, SOME) + SOME * (below + height.abs())
        return rise.clamp_min(0), up(multiplier, SOME)

    def isotropic(self, factors: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
        """(p, pairs) rises and coefficients with Q = κ·I."""
        multiplier, pull, error = self.pull(factors, curvature)
        spare = multiplier - up(curvature, SOME).unsqueeze(1)
        return self.parabola(multiplier, (pull.norm(dim=1) + error) / spare.sqrt(), spare)

    def shaped(self, factors: Tensor, form: _Factored, spread: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rises and coefficients with Q = AᵀDA, D = diag(spread), and (p,) bounds on λ_max(Q)."""
        matrix, rotation = form.matrix, form.rotation
        units = rotation is None and matrix.shape[0] < matrix.shape[1]  # the inverse is taken among them
        roots = spread.sqrt().unsqueeze(2)
        scaled = matrix if units else matrix * roots
        gram = scaled @ scaled.T * roots * roots.mT if units else scaled.mT @ scaled
        values, vectors = torch.linalg.eigh(gram)
        top = checked_quadratic(matrix, spread, values[:, -1]).unsqueeze(1)
        coarse = form.lost * spread.amax(1, keepdim=True).sqrt()
        inexact = up(2 * top.sqrt() * coarse + coarse**2)  # Q is above that of ``matrix`` by this at most
        relative = slack(sum(matrix.shape) + 8)
        trace = (spread * (matrix**2).sum(1)).sum(1, keepdim=True)  # at least ‖|Q|‖
        off = 2 * relative * trace  # of the computed form
        multiplier, pull, error = self.pull(factors, (top + inexact + 2 * off)[:, 0])
        inner = multiplier - inexact
        shift, spare, size = (inner - off).unsqueeze(1), inner - top - 2 * off, pull.norm(dim=1)
        vector, blur = pull, torch.zeros_like(inner)  # blur: of the vector's own rounding
        if units:
            vector, blur = (matrix @ pull) * roots, relative * trace.sqrt() * size
        elif rotation is not None:
            vector, blur = rotation @ pull, (form.skew + slack(rotation.shape[1])) * size
        solution = vectors @ ((vectors.mT @ vector) / (shift - values.unsqueeze(2)))  # any y will do
        product = shift * solution - gram @ solution
        length: Tensor = solution.norm(dim=1)
        rounding = relative * (vector.norm(dim=1) + (inner + trace) * length)
        residual = (vector - product).norm(dim=1) + rounding
        square = ((2 * vector - product) * solution).sum(1) + 2 * rounding * length + residual**2 / spare
        square = (square.clamp_min(0).sqrt() + blur / spare.sqrt()) ** 2
        if units:
            square = up((pull**2).sum(1) + square, relative) / inner
        elif rotation is not None:
            outside = (pull - rotation.mT @ vector).norm(dim=1) + 4 * blur
            square = up(square + outside**2 / inner, SOME)
        parabola = self.parabola(multiplier, square.sqrt() + error / spare.sqrt(), spare)
        return *parabola, up(top + inexact)[:, 0]
