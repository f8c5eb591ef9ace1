"""Smoothness in the norm of a cost: moves are measured as it measures them.

A quadratic cost has a linear map S with ‖Su‖ = ‖u‖₂; behind it the cost is Euclidean, so S joins the first
layer. For the sup-norm, a move of size 1 has |δᵢ| ≤ 1 and ‖δ‖₂ ≤ √d, d the number of coordinates that may
move. A norm with ‖v‖ ≥ m‖v‖₂ (all Lp for p ≤ 2 have m = 1) has ‖δ‖₂ ≤ 1/m. A mask drops the frozen
coordinates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.costs import Bregman, Cost, Mahalanobis, Masked, SquaredL2, SquaredSup, WeightedL2
from certus.costs.claims import check_claims, free_cost, is_own
from certus.domains import Unbounded
from certus.errors import UnsupportedError
from certus.outward import slack
from certus.smoothness.operators import Dense, Diagonal, Operator
from certus.smoothness.passes import Reach
from certus.smoothness.stage import Shape

_EVERYWHERE = Unbounded()


@dataclass(frozen=True, eq=False)
class Geometry:
    """How the inputs move when the cost's norm of the move is 1.

    Attributes:
        whitening: S, or None for the identity.
        length: ‖u‖₂ ≤ length.
        unit: |u_i| ≤ unit for every coordinate.
    """

    whitening: Operator | None
    length: float
    unit: float

    def start(self, shape: Shape, points: Tensor | None = None) -> Reach:
        """The reach of the inputs, at each of (batch, *shape) points, or everywhere."""
        count = 1 if points is None else len(points)
        ones = torch.ones(count, dtype=torch.float64)
        unit = torch.full((count, *shape), self.unit, dtype=torch.float64)
        error = None if points is None else torch.zeros_like(points)
        bend = torch.zeros_like(ones)
        return Reach(self.length * ones, unit, bend, points, error, identity=self.length == 1)


def geometry_of(cost: Cost, shape: Shape) -> Geometry:
    """The geometry of a cost for inputs of one shape."""
    cost.check_shape(torch.zeros(1, *shape))
    inner = free_cost(cost)
    _check_claims(cost, shape)
    ones = torch.ones(1, *shape, dtype=torch.float64)
    mask = cost.mask.expand(shape).cpu().double() if isinstance(cost, Masked) else None
    frozen = None if mask is None else Diagonal(mask, None, shape)
    kind = type(inner)  # a subclass may have a norm of its own
    if kind is SquaredL2:
        return Geometry(frozen, 1.0, 1.0)
    if kind is WeightedL2:
        return Geometry(Diagonal(cost.whiten(ones)[0] * (1 + slack(1)), None, shape), 1.0, 1.0)
    if kind is Mahalanobis:
        assert isinstance(inner, Mahalanobis)
        return _full_matrix(cost, inner, mask, shape)
    free = ones if mask is None else mask
    if kind is SquaredSup:
        return Geometry(frozen, math.sqrt(float(free.sum())) * (1 + 1e-15), 1.0)
    floor = inner.norm.euclidean_floor
    if not 0 < floor < math.inf:
        raise UnsupportedError(f"Nothing is known that bounds the L2 norm by that of {inner}.")
    return Geometry(frozen, (1 + 1e-15) / floor, (1 + 1e-15) / floor)


def _check_claims(cost: Cost, shape: Shape) -> None:
    """Try a cost of the user's at random points, if it is one for all of space. A potential may be one for a
    domain, and is tried where that and the data are known."""
    if is_own(cost) or isinstance(free_cost(cost), Bregman):
        return
    try:
        cost.support(_EVERYWHERE)
    except UnsupportedError:
        return
    points = torch.randn(8, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    check_claims(cost, _EVERYWHERE, points)


def _full_matrix(cost: Cost, inner: Mahalanobis, mask: Tensor | None, shape: Shape) -> Geometry:
    """S has rounding. With Δ = ‖S M S − I‖_F on the free coordinates, ‖u‖₂² ≤ ‖Su‖²_M/(1 − Δ)."""
    count = math.prod(shape)
    basis = torch.eye(count, dtype=torch.float64)
    root = cost.whiten(basis.reshape(-1, *shape)).flatten(1)
    free = torch.ones(count, dtype=torch.bool) if mask is None else mask.flatten() > 0
    root = (root + root.T) / 2
    part, metric = root[free][:, free], inner.matrix.detach().double().cpu()[free][:, free]
    metric = (metric + metric.T) / 2
    off = part @ metric @ part - torch.eye(len(part), dtype=torch.float64)
    sizes = part.abs() @ metric.abs() @ part.abs()
    error = float(torch.linalg.matrix_norm(off)) + slack(3 * count) * float(torch.linalg.matrix_norm(sizes))
    if not error < 0.5:
        raise UnsupportedError("The matrix of the cost is too ill-conditioned for a proof in float64.")
    length = (1 + 1e-15) / math.sqrt(1 - error)
    return Geometry(Dense(root.contiguous(), None, shape, shape), length, length)
