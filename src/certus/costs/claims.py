"""Validation of the claims that a user's own cost, norm or domain makes.

Bounds rest on the growth and the strong convexity of a cost, on its norm with its dual, and on the projection
of a domain. For the classes of certus these are theorems. For others, subclasses included, and for the
modulus of a ``Bregman`` cost, they are claims: whatever rests on them is *assumed*, by name, and they are
tested on points before they are used.

Norms, on random vectors, signs, single coordinates, and vectors from an ascent on the ratio of both sides:

    ‖tv‖ = |t|‖v‖,    ‖u + v‖ ≤ ‖u‖ + ‖v‖,    ⟨g, v⟩ ≤ ‖g‖_*‖v‖,    ‖v‖ ≥ m‖v‖₂

Domains, on points; the three together say that Z is convex and that Π is its projection, and the bounds of a
product of intervals must agree with its projection:

    Πx ∈ Z,        Πz = z for z ∈ Z,        ⟨x − Πx, z − Πx⟩ ≤ 0 for every z ∈ Z

Costs, on moves of all sizes from the data: random, along single coordinates, and along the direction of least
curvature, from a power iteration:

    c(z, z) = 0,     c(z, z₀) ≥ (s/2)‖z − z₀‖²                                           growth s
    c(a, z₀) + c(b, z₀) − 2c(½(a + b), z₀) ≥ (s/4)‖a − b‖²                               strong convexity s
    gap(g, x, μ) ≥ ⟨g, z − x⟩ − (μ/2)‖z − x‖²                                            for z ∈ Z
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from certus._tensor import as_float64, format_point, inner, per_sample
from certus.costs.base import Cost
from certus.costs.bregman import Bregman
from certus.costs.lp import SquaredLp, SquaredSup
from certus.costs.masked import Masked
from certus.costs.quadratic import Mahalanobis, SquaredL2, WeightedL2
from certus.domains import Ball, Box, Domain, Intervals, Unbounded
from certus.errors import ClaimError, UnsupportedError
from certus.norms import L2, DiagonalNorm, Lp, MatrixNorm, Norm

_NORM_TRIALS, _STEPS, _DOMAIN_TRIALS = 8, 40, 32


def check_norm(norm: Norm, inputs: Tensor) -> None:
    """Raise ``ClaimError`` if a vector of the shape of the (batch, …) inputs refutes the norm."""
    for claim, left, right in _norm_inequalities(norm, inputs):
        off = left - right * (1 + _tolerance(inputs))
        if not bool((off <= 0).all()):
            worst = int(off.nan_to_num(torch.inf).argmax())
            raise ClaimError(
                f"{type(norm).__name__} is refuted: it claims {claim}; at a tested vector the two sides are "
                f"{float(left[worst])!r} and {float(right[worst])!r}."
            )


def _tolerance(inputs: Tensor) -> float:
    return 1e-6 if inputs.dtype == torch.float64 else 1e-3


def _norm_inequalities(norm: Norm, inputs: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Claims with their two sides, the first of which is at most the second."""
    generator, shape = torch.Generator().manual_seed(0), (_NORM_TRIALS, *inputs.shape[1:])
    u, g = (torch.randn(shape, dtype=torch.float64, generator=generator).to(inputs) for _ in range(2))
    yield "‖−3v‖ = 3‖v‖", norm(-3 * u), 3 * norm(u)
    yield "3‖v‖ = ‖−3v‖", 3 * norm(u), norm(-3 * u)
    yield "‖u + v‖ ≤ ‖u‖ + ‖v‖", norm(u + g), norm(u) + norm(g)
    floor, dual = norm.euclidean_floor, norm.dual
    for v in _candidates(u, lambda v: L2(v) / norm(v)):
        yield f"‖v‖ ≥ {floor:g}‖v‖₂", floor * L2(v), norm(v)
    for v in _candidates(u, lambda v: inner(g, v) / norm(v), g):
        yield "⟨g, v⟩ ≤ ‖g‖_*‖v‖", inner(g, v), dual(g) * norm(v)


def _candidates(start: Tensor, ratio: Callable[[Tensor], Tensor], *more: Tensor) -> list[Tensor]:
    """Vectors at which the ratio may be large."""
    flat = start.flatten(1)
    single = torch.zeros_like(flat).scatter(1, flat.abs().argmax(1, keepdim=True), 1.0).reshape(start.shape)
    vectors = [start, start.sign(), single, *more, *(vector.sign() for vector in more)]
    return [*vectors, *(_ascended(each, ratio) for each in (start, *more))]


def _ascended(vectors: Tensor, ratio: Callable[[Tensor], Tensor]) -> Tensor:
    """A few normalised gradient steps of decreasing length; the start if there is no gradient."""
    best = vectors
    for step in range(_STEPS):
        slope = _autograd(ratio, vectors)
        if slope is None:
            return best
        length = 0.5 / (1 + step) ** 0.5 * L2(vectors) / L2(slope).clamp_min(1e-30)
        vectors = vectors + per_sample(length, slope) * slope
        best = torch.where(per_sample(ratio(vectors) > ratio(best), best), vectors, best)
    return best


def _autograd(function: Callable[[Tensor], Tensor], points: Tensor) -> Tensor | None:
    with torch.enable_grad():
        leaf = points.clone().requires_grad_()
        values = function(leaf)
        return torch.autograd.grad(values.sum(), leaf)[0] if values.requires_grad else None


def check_projection(domain: Domain, inputs: Tensor) -> None:
    """Raise ``ClaimError`` if a point around the (batch, …) inputs refutes the domain."""
    name = type(domain).__name__
    scale = max(1.0, float(inputs.abs().max()))
    centers = inputs.detach()[torch.arange(_DOMAIN_TRIALS) % len(inputs)]
    sizes = per_sample(torch.logspace(-2, 2, _DOMAIN_TRIALS, dtype=torch.float64), inputs)
    moves = torch.randn(centers.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    points = centers + (scale * sizes * moves).to(inputs)
    members = domain.project(points)
    if not bool(domain.contains(members).all()):
        bad = int((~domain.contains(members)).nonzero()[0])
        raise ClaimError(f"{name} is refuted: the projection of {format_point(points[bad])} is not in it.")
    for claim, error, size, at in _domain_errors(domain, points, members, centers, scale):
        off = error - _tolerance(inputs) * size - 1e-30
        if not bool((off <= 0).all()):
            worst = int(off.nan_to_num(torch.inf).argmax())
            raise ClaimError(
                f"{name} is refuted: it claims {claim}; at {format_point(at[worst])} it is off by "
                f"{float(error[worst]):.6g}."
            )


def _domain_errors(
    domain: Domain, points: Tensor, members: Tensor, centers: Tensor, scale: float
) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """Claims with their errors, the size to which rounding is relative, and the points."""
    halves = (members + members.roll(1, 0)) / 2
    for claim, fixed in (("Πz = z for z in Z", members), ("that it is convex", halves)):
        yield claim, L2(domain.project(fixed) - fixed), scale + L2(fixed), fixed
    away = points - members
    for others in (members.roll(1, 0), members.flip(0), halves, centers):
        turned = inner(away, others - members)
        yield "⟨x − Πx, z − Πx⟩ ≤ 0", turned, L2(away) * L2(others - members), points
    if isinstance(domain, Intervals):
        low, high = domain.bounds(points)
        apart = L2(points.maximum(low).minimum(high) - members)
        yield "that its bounds are those of its projection", apart, scale + L2(members), points


_ORIGINS = 16
_SIZES = (0.02, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0)  # of moves, in units of the largest input
_FAR = 1e3
_NUMBERS = 4_000_000  # largest size of a set of points
_MODULUS = 0.7  # at which a gap is tested

_Inequality = tuple[Tensor, str, Tensor, Tensor, Tensor, Tensor | None]
"""The amount by which a claim fails, its text, observed values, points, their origins, and claimed values."""


def check_cost(cost: Cost, domain: Domain, inputs: Tensor, *, derived: bool) -> None:
    """Raise ``ClaimError`` if a point of Z around the (batch, …) inputs refutes the cost; if certus
    derives gradient and gap (``derived``), only the moduli are tested."""
    free, name = cost.unmasked, type(cost.unmasked).__name__
    for trait, value in (("growth", free.growth), ("strong_convexity", free.strong_convexity)):
        if not (isinstance(value, int | float) and 0 <= value < math.inf):
            raise ClaimError(f"`{trait}` of {name} must be a finite number, not negative; it is {value}.")
    with torch.no_grad():
        trial = _CostTrial(cost, domain, inputs.detach())
        claims = [trial.moduli()] if derived else [trial.moduli(), trial.gradient(), trial.gap()]
        for off, claim, observed, points, origins, expected in chain(*claims):
            wrong = (off > 0) & torch.isfinite(observed)
            if bool(wrong.any()):
                worst = int(torch.where(wrong, off, -math.inf).argmax())
                side = "" if expected is None else f" {float(expected[worst])!r}"
                raise ClaimError(
                    f"{name} is refuted: it claims {claim}{side}; at {format_point(points[worst])}, moved "
                    f"from {format_point(origins[worst])}, it is {float(observed[worst])!r}."
                )


class _CostTrial:
    """A cost, some of the data, and their possible moves."""

    def __init__(self, cost: Cost, domain: Domain, inputs: Tensor) -> None:
        self.cost, self.domain = cost, domain
        self.free = cost.unmasked
        self.scale = float(inputs.abs().max()) or 1.0
        self.size = float(inputs.flatten(1).norm(dim=1).max()) or 1.0
        self.sizes = (*(self.scale * size for size in _SIZES), 1.0, _FAR)
        most = _NUMBERS // (4 * len(self.sizes) * inputs[0].numel())
        count = max(1, min(_ORIGINS, len(inputs), most))
        self.origins = inputs[torch.linspace(0, len(inputs) - 1, count).long()]
        self.precision = torch.finfo(inputs.dtype).eps
        self.step = self.scale * self.precision ** (1 / 3)
        self.close, self.close_slope = (1e-6, 1e-4) if self.precision < 1e-12 else (1e-2, 1e-2)
        self.generator = torch.Generator().manual_seed(0)

    def moduli(self) -> Iterator[_Inequality]:
        values = self.cost.value(self.origins, self.origins)
        off = values.abs() - self._rounding(self.origins, self.origins)
        yield off, "c(z, z) = 0", values, self.origins, self.origins, None
        directions = [self._random(), self._random(), self._single(), *self._flattest()]
        moves = torch.cat([size * direction for direction in directions for size in self.sizes])
        origins = self.origins.repeat(len(moves) // len(self.origins), *([1] * (moves.dim() - 1)))
        yield self._growth(origins, moves)
        # Around the origins, and around points as far away as the moves are long.
        for starts in (origins, origins + moves.roll(len(self.origins), 0)):
            yield self._convexity(origins, self.domain.project(starts), moves)

    def _growth(self, origins: Tensor, moves: Tensor) -> _Inequality:
        moved, growth = self.domain.project(origins + moves), self.free.growth
        values = self.cost.value(moved, origins)
        least = growth / 2 * self.cost.norm(moved - origins) ** 2
        off = least * (1 - self.close) - values - self._rounding(moved, origins)
        claim = f"growth {growth:g}, so that c(z, z₀) is at least (s/2)‖z − z₀‖² ="
        return off, claim, values, moved, origins, least

    def _convexity(self, origins: Tensor, starts: Tensor, moves: Tensor) -> _Inequality:
        first, last = (self.domain.project(starts + side * moves) for side in (-0.5, 0.5))
        middle, convexity = (first + last) / 2, self.free.strong_convexity
        left, right, between = (self.cost.value(point, origins) for point in (first, last, middle))
        second_difference = left + right - 2 * between
        least = convexity / 4 * self.cost.norm(last - first) ** 2
        rounding = self._rounding(first, origins) + self._rounding(last, origins)
        off = least * (1 - self.close) - second_difference - 2 * rounding
        claim = (
            f"strong convexity {convexity:g}, so that c(a, z₀) + c(b, z₀) − 2c(½(a + b), z₀) is at least "
            "(s/4)‖a − b‖² ="
        )
        return off, claim, second_difference, first, origins, least

    def gradient(self) -> Iterator[_Inequality]:
        """Compare with autograd of the value, or with a difference quotient if there is none."""
        origins, step = self.origins, self.step
        for size in (0.1, 3.0):
            along = self._random()
            moved = self.domain.project(origins + size * self.scale * self._random())
            try:
                claimed = self.cost.free_part(self.cost.gradient(moved, origins))
            except UnsupportedError:
                return
            below, above = (self.cost.value(moved + side * step * along, origins) for side in (-1, 1))
            observed, expected = (above - below) / (2 * step), inner(claimed, along)
            room = self.close_slope * (claimed.flatten(1).norm(dim=1) + 1e-3 * self.scale)
            slopes = _autograd(lambda points: self.cost.value(points, origins), moved)
            if slopes is None:
                room = room + self._rounding(moved, origins) / step
            else:
                observed = inner(self.cost.free_part(slopes), along)
            off = (observed - expected).abs() - room
            yield off, "a slope along a move of", observed, moved, origins, expected

    def gap(self) -> Iterator[_Inequality]:
        origins = self.origins
        modulus = torch.full_like(origins.flatten(1)[:, 0], _MODULUS)
        for size in (0.1, 3.0):
            slope = self._random() * (size * self.scale)
            bound = self.cost.gap(slope, origins, modulus, self.domain)
            for share in (0.1, 0.5, 1.0, 1.5):
                moved = self.domain.project(origins + share / _MODULUS * slope)
                gain = inner(slope, moved - origins) - _MODULUS / 2 * self.cost.norm(moved - origins) ** 2
                off = gain * (1 - self.close) - bound - self._rounding(moved, origins)
                yield off, "by its gap a gain of at most", gain, moved, origins, bound

    def _flattest(self) -> list[Tensor]:
        """Unit vectors of least curvature, by power iteration on λ_max − H; none without a gradient."""
        cost, origins, step = self.cost, self.origins, self.step

        def hessian_product(vectors: Tensor) -> Tensor:
            low, high = (cost.gradient(origins + side * step * vectors, origins) for side in (-1, 1))
            product: Tensor = cost.free_part(high - low) / (2 * step)
            return product

        try:
            vectors = self._random()
            for _ in range(8):
                vectors = _unit(hessian_product(vectors))
            top = 1.05 * hessian_product(vectors).flatten(1).norm(dim=1)
            vectors = self._random()
            for _ in range(24):
                vectors = _unit(per_sample(top, vectors) * vectors - hessian_product(vectors))
        except UnsupportedError:
            return []
        return [vectors] if bool(torch.isfinite(vectors).all()) else []

    def _random(self) -> Tensor:
        vectors = torch.randn(self.origins.shape, dtype=torch.float64, generator=self.generator)
        return _unit(self.cost.free_part(vectors.to(self.origins)))

    def _single(self) -> Tensor:
        """Unit vectors of single coordinates that may move."""
        allowed = self.cost.free_part(torch.ones_like(self.origins)).flatten(1)[0].nonzero().flatten()
        chosen = allowed[torch.linspace(0, len(allowed) - 1, len(self.origins)).long()]
        blank = torch.zeros_like(self.origins).flatten(1)
        return blank.scatter(1, chosen.unsqueeze(1), 1.0).reshape(self.origins.shape)

    def _rounding(self, points: Tensor, origins: Tensor) -> Tensor:
        """(batch,) rounding of c; a potential cancels from its values."""
        total = self.cost.value(points, origins).abs() + self.free.growth * self.size**2
        if isinstance(self.free, Bregman):
            total = total + self.free.potential(points).abs() + self.free.potential(origins).abs()
        return 64 * self.precision * total


def _unit(vectors: Tensor) -> Tensor:
    lengths = vectors.flatten(1).norm(dim=1).clamp_min(torch.finfo(vectors.dtype).tiny)
    return vectors / per_sample(lengths, vectors)


_COSTS = (SquaredL2, WeightedL2, Mahalanobis, SquaredLp, SquaredSup)
_NORMS = (Lp, DiagonalNorm, MatrixNorm)
_DOMAINS = (Unbounded, Box, Ball)
_EVERYWHERE = Unbounded()
_PASSED: WeakValueDictionary[tuple[object, ...], Cost | Domain] = WeakValueDictionary()


def is_builtin(cost: Cost) -> bool:
    """Whether all traits of the cost were derived by certus; for a mask, those of its inner cost."""
    return not cost_assumptions(cost)


def cost_assumptions(cost: Cost) -> tuple[str, ...]:
    """Names of the assumptions of a bound that rests on this cost."""
    inner = cost.inner if type(cost) is Masked else cost
    if type(inner) in _COSTS:
        return ()
    kind, norm = type(inner).__name__, type(inner.norm)
    name = f"growth and strong convexity of {kind}"
    if type(inner) is Bregman:
        name = f"the modulus {inner.modulus!r} of Bregman"
    return (name,) if norm in _NORMS else (name, f"the norm {norm.__name__} of {kind}")


def domain_assumptions(domain: Domain) -> tuple[str, ...]:
    """Names of the assumptions of a bound that rests on this domain."""
    return () if type(domain) in _DOMAINS else (f"the domain {type(domain).__name__}",)


def check_claims(cost: Cost, domain: Domain, inputs: Tensor) -> None:
    """Raise ``ClaimError`` if points of Z around the (batch, …) inputs refute a user's cost or domain. Each
    is tested once for inputs of one shape and precision; a cost in float64, if it accepts that."""
    setting = (tuple(inputs.shape[1:]), inputs.dtype)
    if domain_assumptions(domain) and _PASSED.get((id(domain), *setting)) is not domain:
        check_projection(domain, inputs)
        _PASSED[(id(domain), *setting)] = domain
    if not cost_assumptions(cost) or _PASSED.get((id(cost), id(domain), *setting)) is cost:
        return
    inner, points = cost.unmasked, _precise_points(cost, domain, inputs.detach())
    if type(inner.norm) not in _NORMS:
        check_norm(inner.norm, points)
    check_cost(cost, domain, points, derived=type(inner) is Bregman)
    _PASSED[(id(cost), id(domain), *setting)] = cost


def _precise_points(cost: Cost, domain: Domain, inputs: Tensor) -> Tensor:
    """The inputs in float64 on the CPU, or as they are if the cost accepts nothing else."""
    points = as_float64(inputs)
    try:
        values = cost.value(domain.project(points), points), cost.norm(points)
    except (RuntimeError, TypeError):  # it holds tensors of another precision, or on another device
        return inputs
    return points if all(each.dtype == torch.float64 for each in values) else inputs


def check_claims_everywhere(cost: Cost, shape: tuple[int, ...]) -> None:
    """Test a user's cost at random points of one shape, if it is defined everywhere. A potential may be
    defined on a domain only, and is tested where that and the data are known."""
    if is_builtin(cost) or isinstance(cost.unmasked, Bregman):
        return
    try:
        cost.support(_EVERYWHERE)
    except UnsupportedError:
        return
    points = torch.randn(8, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    check_claims(cost, _EVERYWHERE, points)
