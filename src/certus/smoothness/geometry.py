"""Smoothness in the norm of a cost: moves are measured as it measures them.

The cost says how (``certus.costs.metric``). Where it has a linear map S with ‖Su‖ = ‖u‖₂, it is Euclidean
behind S, which joins the first layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from certus.costs import Cost
from certus.costs.claims import check_claims_everywhere
from certus.costs.metric import Metric
from certus.smoothness.operators import Dense, Diagonal, Operator
from certus.smoothness.passes import Reach
from certus.smoothness.stage import Shape


@dataclass(frozen=True, eq=False)
class Geometry:
    """How the inputs move when the cost's norm of the move is 1.

    Attributes:
        metric: what the cost says of them.
        whitening: S, or None for the identity.
    """

    metric: Metric
    whitening: Operator | None

    @property
    def length(self) -> float:
        """‖u‖₂ ≤ length."""
        return self.metric.length

    @property
    def unit(self) -> float:
        """|u_i| ≤ unit for every coordinate."""
        return self.metric.unit

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
    check_claims_everywhere(cost, shape)
    metric = cost.metric(shape)
    return Geometry(metric, _operator(metric.whitening, shape))


def _operator(whitening: Tensor | None, shape: Shape) -> Operator | None:
    if whitening is None:
        return None
    diagonal = whitening.shape == shape
    return Diagonal(whitening, None, shape) if diagonal else Dense(whitening, None, shape, shape)
