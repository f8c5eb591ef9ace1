"""Validation of the claims that a user's own cost, norm or domain makes.

Bounds rest on the growth and the strong convexity of a cost, on its norm with its dual, and on the projection
of a domain. For the classes of certus these are theorems. For others, subclasses included, and for the
modulus
of a ``Bregman`` cost, they are claims: whatever rests on them is *assumed*, by name, and they are tested on
points before they are used.

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
from collections.abc import Callable
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

_NORM_TRIALS, _STEPS = 8, 40


def check_norm(norm: Norm, inputs: Tensor) -> None:
    """Raise ``ClaimError`` if a vector of the shape of the (batch, …) inputs refutes the norm."""
    name, close = type(norm).__name__, 1e-6 if inputs.dtype == torch.float64 else 1e-3
    generator = torch.Generator().manual_seed(0)
    shape = (_NORM_TRIALS, *inputs.shape[1:])

    def random() -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator).to(inputs)

    first, second = random(), random()
    pairs = (
        ("‖−3v‖ = 3‖v‖", norm(-3 * first), 3 * norm(first)),
        ("3‖v‖ = ‖−3v‖", 3 * norm(first), norm(-3 * first)),
        ("‖u + v‖ ≤ ‖u‖ + ‖v‖", norm(first + second), norm(first) + norm(second)),
    )
    for claim, left, right in pairs:
        _require_norm(name, claim, left, right, close)
    floor, dual = norm.euclidean_floor, norm.dual
    for vectors in _candidates(first, lambda v: L2(v) / norm(v)):
        _require_norm(name, f"‖v‖ ≥ {floor:g}‖v‖₂", floor * L2(vectors), norm(vectors), close)
    for vectors in _candidates(first, lambda v: inner(second, v) / norm(v), second):
        _require_norm(name, "⟨g, v⟩ ≤ ‖g‖_*‖v‖", inner(second, vectors), dual(second) * norm(vectors), close)


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
        with torch.enable_grad():
            leaf = vectors.clone().requires_grad_()
            values = ratio(leaf)
            if not values.requires_grad:
                return best
            (slope,) = torch.autograd.grad(values.sum(), leaf)
        length = 0.5 / (1 + step) ** 0.5 * L2(vectors) / L2(slope).clamp_min(1e-30)
        vectors = (vectors + per_sample(length, slope) * slope).detach()
        higher = ratio(vectors) > ratio(best)
        best = torch.where(per_sample(higher, best), vectors, best)
    return best


def _require_norm(name: str, claim: str, left: Tensor, right: Tensor, close: float) -> None:
    off = left - right * (1 + close)
    if not bool((off <= 0).all()):
        worst = int(off.nan_to_num(torch.inf).argmax())
        raise ClaimError(
            f"{name} is refuted: it claims {claim}; at a tested vector the two sides are "
            f"{float(left[worst])!r} and {float(right[worst])!r}."
        )


_DOMAIN_TRIALS = 32


def check_projection(domain: Domain, inputs: Tensor) -> None:
    """Raise ``ClaimError`` if a point around the (batch, …) inputs refutes the domain."""
    name, close = type(domain).__name__, 1e-6 if inputs.dtype == torch.float64 else 1e-3
    generator = torch.Generator().manual_seed(0)
    scale = max(1.0, float(inputs.abs().max()))
    centers = inputs.detach()[torch.arange(_DOMAIN_TRIALS) % len(inputs)]
    sizes = torch.logspace(-2, 2, _DOMAIN_TRIALS, dtype=torch.float64).reshape(
        -1, *([1] * (inputs.dim() - 1))
    )
    moves = torch.randn(centers.shape, dtype=torch.float64, generator=generator)
    points = centers + (scale * sizes * moves).to(inputs)
    members = domain.project(points)
    if not bool(domain.contains(members).all()):
        bad = int((~domain.contains(members)).nonzero()[0])
        raise ClaimError(f"{name} is refuted: the projection of {format_point(points[bad])} is not in it.")
    halves = (members + members.roll(1, 0)) / 2
    for claim, fixed in (("Πz = z for z in Z", members), ("that it is convex", halves)):
        apart = L2(domain.project(fixed) - fixed)
        _require_domain(name, claim, apart, close * (scale + L2(fixed)), fixed)
    away = points - members
    for others in (members.roll(1, 0), members.flip(0), halves, centers):
        turned = inner(away, others - members)
        _require_domain(name, "⟨x − Πx, z − Πx⟩ ≤ 0", turned, close * L2(away) * L2(others - members), points)
    if isinstance(domain, Intervals):
        low, high = domain.bounds(points)
        apart = L2(points.maximum(low).minimum(high) - members)
        _require_domain(
            name, "that its bounds are those of its projection", apart, close * (scale + L2(members)), points
        )


def _require_domain(name: str, claim: str, error: Tensor, most: Tensor, points: Tensor) -> None:
    off = error - most - 1e-30
    if not bool((off <= 0).all()):
        worst = int(off.nan_to_num(torch.inf).argmax())
        raise ClaimError(
            f"{name} is refuted: it claims {claim}; at {format_point(points[worst])} it is off by "
            f"{float(error[worst]):.6g}."
        )


_ORIGINS = 16
_SIZES = (0.02, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0)  # of moves, in units of the largest input
_FAR = 1e3
_NUMBERS = 4_000_000  # largest size of a set of points
_MODULUS = 0.7  # at which a gap is tested


def check_cost(cost: Cost, domain: Domain, inputs: Tensor, *, derived: bool) -> None:
    """Raise ``ClaimError`` if a point refutes the cost.

    Args:
        inputs: (batch, …) points of Z around which to test.
        derived: whether gradient and gap are certus' own, and only the moduli are claimed.
    """
    free = cost.unmasked
    for name, value in (("growth", free.growth), ("strong_convexity", free.strong_convexity)):
        if not (isinstance(value, int | float) and 0 <= value < math.inf):
            kind = type(free).__name__
            raise ClaimError(f"`{name}` of {kind} must be a finite number, not negative; it is {value}.")
    with torch.no_grad():
        trial = _CostTrial(cost, domain, inputs.detach())
        trial.check_moduli()
        if not derived:
            trial.check_gradient()
            trial.check_gap()


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
        self.close, self.close_slope = (1e-6, 1e-4) if self.precision < 1e-12 else (1e-2, 1e-2)
        self.generator = torch.Generator().manual_seed(0)

    def check_moduli(self) -> None:
        values = self.cost.value(self.origins, self.origins)
        off = values.abs() - self._rounding(self.origins, self.origins)
        self._refute(off, "c(z, z) = 0", values, self.origins, self.origins)
        directions = [self._random(), self._random(), self._single()]
        if (flattest := self._flattest()) is not None:
            directions.append(flattest)
        moves = torch.cat([size * direction for direction in directions for size in self.sizes])
        origins = self.origins.repeat(len(moves) // len(self.origins), *([1] * (moves.dim() - 1)))
        self._check_growth(origins, moves)
        # Around the origins, and around points as far away as the moves are long.
        for starts in (origins, origins + moves.roll(len(self.origins), 0)):
            self._check_convexity(origins, self.domain.project(starts), moves)

    def _check_growth(self, origins: Tensor, moves: Tensor) -> None:
        moved, growth = self.domain.project(origins + moves), self.free.growth
        values = self.cost.value(moved, origins)
        least = growth / 2 * self.cost.norm(moved - origins) ** 2
        off = least * (1 - self.close) - values - self._rounding(moved, origins)
        claim = f"growth {growth:g}, so that c(z, z₀) is at least (s/2)‖z − z₀‖² ="
        self._refute(off, claim, values, moved, origins, least)

    def _check_convexity(self, origins: Tensor, starts: Tensor, moves: Tensor) -> None:
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
        self._refute(off, claim, second_difference, first, origins, least)

    def check_gradient(self) -> None:
        """Compare with autograd of the value, or with a difference quotient if there is none."""
        for size in (0.1, 3.0):
            origins, along = self.origins, self._random()
            moved = self.domain.project(origins + size * self.scale * self._random())
            try:
                claimed = self.cost.free_part(self.cost.gradient(moved, origins))
            except UnsupportedError:
                return
            step = self.scale * self.precision ** (1 / 3)
            below, above = (self.cost.value(moved + side * step * along, origins) for side in (-1, 1))
            observed, expected = (above - below) / (2 * step), inner(claimed, along)
            room = self.close_slope * (claimed.flatten(1).norm(dim=1) + 1e-3 * self.scale)
            slopes = _autograd(lambda points: self.cost.value(points, self.origins), moved)
            if slopes is None:
                room = room + self._rounding(moved, origins) / step
            else:
                observed = inner(self.cost.free_part(slopes), along)
            off = (observed - expected).abs() - room
            self._refute(off, "a slope along a move of", observed, moved, origins, expected)

    def check_gap(self) -> None:
        origins = self.origins
        modulus = torch.full_like(origins.flatten(1)[:, 0], _MODULUS)
        for size in (0.1, 3.0):
            slope = self._random() * (size * self.scale)
            bound = self.cost.gap(slope, origins, modulus, self.domain)
            for share in (0.1, 0.5, 1.0, 1.5):
                moved = self.domain.project(origins + share / _MODULUS * slope)
                gain = inner(slope, moved - origins) - _MODULUS / 2 * self.cost.norm(moved - origins) ** 2
                off = gain * (1 - self.close) - bound - self._rounding(moved, origins)
                self._refute(off, "by its gap a gain of at most", gain, moved, origins, bound)

    def _flattest(self) -> Tensor | None:
        """Unit vectors of least curvature, by power iteration on λ_max − H; None without a gradient."""
        step = self.scale * self.precision ** (1 / 3)

        def hessian_product(vectors: Tensor) -> Tensor:
            low, high = (
                self.cost.gradient(self.origins + side * step * vectors, self.origins) for side in (-1, 1)
            )
            bent: Tensor = self.cost.free_part(high - low) / (2 * step)
            return bent

        try:
            vectors = self._random()
            for _ in range(8):
                vectors = _unit(hessian_product(vectors))
            top = 1.05 * hessian_product(vectors).flatten(1).norm(dim=1)
            vectors = self._random()
            for _ in range(24):
                vectors = _unit(per_sample(top, vectors) * vectors - hessian_product(vectors))
        except UnsupportedError:
            return None
        return vectors if bool(torch.isfinite(vectors).all()) else None

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

    def _refute(
        self,
        off: Tensor,
        claim: str,
        observed: Tensor,
        points: Tensor,
        origins: Tensor,
        expected: Tensor | None = None,
    ) -> None:
        """Raise where ``off`` is positive; non-finite costs are skipped."""
        wrong = (off > 0) & torch.isfinite(observed)
        if bool(wrong.any()):
            worst = int(torch.where(wrong, off, -math.inf).argmax())
            value = "" if expected is None else f" {float(expected[worst])!r}"
            name = type(self.free).__name__
            raise ClaimError(
                f"{name} is refuted: it claims {claim}{value}; at {format_point(points[worst])}, moved from "
                f"{format_point(origins[worst])}, it is {float(observed[worst])!r}."
            )


def _autograd(function: Callable[[Tensor], Tensor], points: Tensor) -> Tensor | None:
    with torch.enable_grad():
        leaf = points.clone().requires_grad_()
        values = function(leaf)
        return torch.autograd.grad(values.sum(), leaf)[0] if values.requires_grad else None


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
    return type(cost.inner if type(cost) is Masked else cost) in _COSTS


def cost_assumptions(cost: Cost) -> tuple[str, ...]:
    """Names of the assumptions of a bound that rests on this cost."""
    if is_builtin(cost):
        return ()
    inner = cost.inner if type(cost) is Masked else cost
    kind = type(inner).__name__
    name = f"growth and strong convexity of {kind}"
    if isinstance(inner, Bregman) and type(inner) is Bregman:
        name = f"the modulus {inner.modulus!r} of Bregman"
    return (name, *_norm_assumptions(inner.norm, kind))


def _norm_assumptions(norm: Norm, kind: str) -> tuple[str, ...]:
    return () if type(norm) in _NORMS else (f"the norm {type(norm).__name__} of {kind}",)


def domain_assumptions(domain: Domain) -> tuple[str, ...]:
    """Names of the assumptions of a bound that rests on this domain."""
    return () if type(domain) in _DOMAINS else (f"the domain {type(domain).__name__}",)


def check_claims(cost: Cost, domain: Domain, inputs: Tensor) -> None:
    """Raise ``ClaimError`` if points of Z around the (batch, …) inputs refute a user's cost or domain.

    Each is tested once for inputs of one shape and precision; a cost in float64, if it accepts that: the
    rounding
    of float32 would hide an error of a percent.
    """
    setting = (tuple(inputs.shape[1:]), inputs.dtype)
    if domain_assumptions(domain) and _PASSED.get((id(domain), *setting)) is not domain:
        check_projection(domain, inputs)
        _PASSED[(id(domain), *setting)] = domain
    if not cost_assumptions(cost) or _PASSED.get((id(cost), id(domain), *setting)) is cost:
        return
    inner, points = cost.unmasked, _precise_points(cost, domain, inputs.detach())
    if _norm_assumptions(inner.norm, ""):
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
    """Test a user's cost at random points of one shape, if it is defined everywhere.

    A potential may be defined on a domain only, and is tested where that and the data are known.
    """
    if is_builtin(cost) or isinstance(cost.unmasked, Bregman):
        return
    try:
        cost.support(_EVERYWHERE)
    except UnsupportedError:
        return
    points = torch.randn(8, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    check_claims(cost, _EVERYWHERE, points)
