"""Costs of the user's, tried on pairs of points: growth, strong convexity, gradient and gap.

    c(z, z) = 0,     c(z, z₀) ≥ (s/2)‖z − z₀‖²                                           growth s
    c(a, z₀) + c(b, z₀) − 2c(½(a + b), z₀) ≥ (s/4)‖a − b‖²                               strong convexity s
    gap(g, x, μ) ≥ ⟨g, z − x⟩ − (μ/2)‖z − x‖²                                            for z ∈ Z

The pairs are moves of all sizes from the data: at random, along single coordinates, and along the direction
in which the cost bends least, which a power iteration looks for.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from certus.batches import inner as product
from certus.batches import per_sample, shown
from certus.costs.base import Cost
from certus.costs.bregman import Bregman
from certus.domains import Domain
from certus.errors import ClaimError, UnsupportedError

_ORIGINS = 16
_SIZES = (0.02, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0)  # of moves, in units of the largest input
_FAR = 1e3
_NUMBERS = 4_000_000  # that one set of points may hold
_MODULUS = 0.7  # at which a gap is tried


def try_cost(cost: Cost, domain: Domain, inputs: Tensor, *, derived: bool) -> None:
    """Raise ``ClaimError`` if a point refutes what the cost claims of itself.

    Args:
        inputs: (batch, …) points of Z around which to look.
        derived: gradient and gap are certus' own, and only the moduli are claimed.
    """
    free = cost.unmasked
    for name, value in (("growth", free.growth), ("strong_convexity", free.strong_convexity)):
        if not (isinstance(value, int | float) and 0 <= value < math.inf):
            kind = type(free).__name__
            raise ClaimError(f"`{name}` of {kind} must be a number, finite and not negative; it is {value}.")
    with torch.no_grad():
        trial = _Trial(cost, domain, inputs.detach())
        trial.try_moduli()
        if not derived:
            trial.try_gradient()
            trial.try_gap()


class _Trial:
    """Some of the data, and where they may be moved."""

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

    def try_moduli(self) -> None:
        values = self.cost.value(self.origins, self.origins)
        off = values.abs() - self._rounding(self.origins, self.origins)
        self._refute(off, "c(z, z) = 0", values, self.origins, self.origins)
        directions = [self._random(), self._random(), self._single()]
        if (flattest := self._flattest()) is not None:
            directions.append(flattest)
        moves = torch.cat([size * direction for direction in directions for size in self.sizes])
        origins = self.origins.repeat(len(moves) // len(self.origins), *([1] * (moves.dim() - 1)))
        self._try_growth(origins, moves)
        # Around the origins, and around points that are as far off them as the moves are long.
        for starts in (origins, origins + moves.roll(len(self.origins), 0)):
            self._try_convexity(origins, self.domain.project(starts), moves)

    def _try_growth(self, origins: Tensor, moves: Tensor) -> None:
        moved, growth = self.domain.project(origins + moves), self.free.growth
        values = self.cost.value(moved, origins)
        least = growth / 2 * self.cost.norm(moved - origins) ** 2
        off = least * (1 - self.close) - values - self._rounding(moved, origins)
        claim = f"growth {growth:g}, so that c(z, z₀) is at least (s/2)‖z − z₀‖² ="
        self._refute(off, claim, values, moved, origins, least)

    def _try_convexity(self, origins: Tensor, starts: Tensor, moves: Tensor) -> None:
        first, last = (self.domain.project(starts + side * moves) for side in (-0.5, 0.5))
        middle, convexity = (first + last) / 2, self.free.strong_convexity
        left, right, between = (self.cost.value(point, origins) for point in (first, last, middle))
        bend = left + right - 2 * between
        least = convexity / 4 * self.cost.norm(last - first) ** 2
        rounding = self._rounding(first, origins) + self._rounding(last, origins)
        off = least * (1 - self.close) - bend - 2 * rounding
        claim = (
            f"strong convexity {convexity:g}, so that c(a, z₀) + c(b, z₀) − 2c(½(a + b), z₀) is at least "
            "(s/4)‖a − b‖² ="
        )
        self._refute(off, claim, bend, first, origins, least)

    def try_gradient(self) -> None:
        """Against autograd of the value, or a quotient of differences where there is none."""
        for size in (0.1, 3.0):
            origins, along = self.origins, self._random()
            moved = self.domain.project(origins + size * self.scale * self._random())
            try:
                claimed = self.cost.freed(self.cost.gradient(moved, origins))
            except UnsupportedError:
                return
            step = self.scale * self.precision ** (1 / 3)
            below, above = (self.cost.value(moved + side * step * along, origins) for side in (-1, 1))
            found, told = (above - below) / (2 * step), product(claimed, along)
            room = self.close_slope * (claimed.flatten(1).norm(dim=1) + 1e-3 * self.scale)
            slopes = _autograd(lambda points: self.cost.value(points, self.origins), moved)
            if slopes is None:
                room = room + self._rounding(moved, origins) / step
            else:
                found = product(self.cost.freed(slopes), along)
            claim = "a gradient whose slope along a move is"
            self._refute((found - told).abs() - room, claim, found, moved, origins, told)

    def try_gap(self) -> None:
        origins = self.origins
        modulus = torch.full_like(origins.flatten(1)[:, 0], _MODULUS)
        for size in (0.1, 3.0):
            slope = self._random() * (size * self.scale)
            told = self.cost.gap(slope, origins, modulus, self.domain)
            for share in (0.1, 0.5, 1.0, 1.5):
                moved = self.domain.project(origins + share / _MODULUS * slope)
                found = product(slope, moved - origins) - _MODULUS / 2 * self.cost.norm(moved - origins) ** 2
                off = found * (1 - self.close) - told - self._rounding(moved, origins)
                claim = "by its gap that there is no more to gain than"
                self._refute(off, claim, found, moved, origins, told)

    def _flattest(self) -> Tensor | None:
        """Unit vectors along which the cost bends little: of λ_max − H, after that of H; None without one."""
        step = self.scale * self.precision ** (1 / 3)

        def bend(vectors: Tensor) -> Tensor:
            low, high = (
                self.cost.gradient(self.origins + side * step * vectors, self.origins) for side in (-1, 1)
            )
            bent: Tensor = self.cost.freed(high - low) / (2 * step)
            return bent

        try:
            vectors = self._random()
            for _ in range(8):
                vectors = _unit(bend(vectors))
            top = 1.05 * bend(vectors).flatten(1).norm(dim=1)
            vectors = self._random()
            for _ in range(24):
                vectors = _unit(per_sample(top, vectors) * vectors - bend(vectors))
        except UnsupportedError:
            return None
        return vectors if bool(torch.isfinite(vectors).all()) else None

    def _random(self) -> Tensor:
        vectors = torch.randn(self.origins.shape, dtype=torch.float64, generator=self.generator)
        return _unit(self.cost.freed(vectors.to(self.origins)))

    def _single(self) -> Tensor:
        """One coordinate each, among those that may move."""
        allowed = self.cost.freed(torch.ones_like(self.origins)).flatten(1)[0].nonzero().flatten()
        chosen = allowed[torch.linspace(0, len(allowed) - 1, len(self.origins)).long()]
        blank = torch.zeros_like(self.origins).flatten(1)
        return blank.scatter(1, chosen.unsqueeze(1), 1.0).reshape(self.origins.shape)

    def _rounding(self, points: Tensor, origins: Tensor) -> Tensor:
        """(batch,) by how much c may be off; a potential cancels down from its values."""
        total = self.cost.value(points, origins).abs() + self.free.growth * self.size**2
        if isinstance(self.free, Bregman):
            total = total + self.free.potential(points).abs() + self.free.potential(origins).abs()
        return 64 * self.precision * total

    def _refute(
        self,
        off: Tensor,
        claim: str,
        found: Tensor,
        points: Tensor,
        origins: Tensor,
        told: Tensor | None = None,
    ) -> None:
        """Raise where ``off`` is positive. Where the cost is not finite nothing is known."""
        wrong = (off > 0) & torch.isfinite(found)
        if bool(wrong.any()):
            worst = int(torch.where(wrong, off, -math.inf).argmax())
            wanted = "" if told is None else f" {float(told[worst])!r}"
            name = type(self.free).__name__
            raise ClaimError(
                f"{name} is refuted: it claims {claim}{wanted}; at {shown(points[worst])}, moved from "
                f"{shown(origins[worst])}, it is {float(found[worst])!r}."
            )


def _autograd(function: Callable[[Tensor], Tensor], points: Tensor) -> Tensor | None:
    with torch.enable_grad():
        leaf = points.clone().requires_grad_()
        values = function(leaf)
        return torch.autograd.grad(values.sum(), leaf)[0] if values.requires_grad else None


def _unit(vectors: Tensor) -> Tensor:
    lengths = vectors.flatten(1).norm(dim=1).clamp_min(torch.finfo(vectors.dtype).tiny)
    return vectors / per_sample(lengths, vectors)
