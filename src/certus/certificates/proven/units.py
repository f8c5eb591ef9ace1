"""One layer of log cosh or smooth |z| units: by how much each bends a margin, seen from a point.

Such a unit is a concave function of z², so that for every move a of its argument

    σ(z + a) ≤ σ(z) + σ'(z)a + (σ'(z)/z)·a²/2,        while −σ(z + a) ≤ −σ(z) − σ'(z)a by convexity.

With w the weights of a margin on the units and A the matrix in front of them,

    m(x + δ) ≤ m(x) + ⟨g, δ⟩ + ½⟨δ, Qδ⟩,      g = ∇m(x),   Q = Aᵀ diag(w⁺σ'(z)/z) A

at every δ and around every x. Units far from their corner at x hardly count, whatever their sharpness.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from certus.bounds.activations import LOG_COSH, SMOOTH_ABS, Activation
from certus.bounds.analysis import Analysis
from certus.bounds.operators import Operator
from certus.certificates.proven.parabolas import Narrow, narrow
from certus.outward import up

_WORK = 3e7  # multiplications that a class of a sample may cost
_CORNER = 1e-8  # how near to its corner σ'(z)/z is computed: a choice, right whatever it is


@dataclass(frozen=True, eq=False)
class HiddenLayer:
    """The layer of a network that has no other."""

    analysis: Analysis
    front: Narrow
    first: Operator
    units: Activation

    @staticmethod
    def of(analysis: Analysis) -> HiddenLayer | None:
        """None for other networks, for costs without an inner product, or where the matrix is large."""
        stages = [step.stage for step in analysis.steps]
        if len(stages) != 2 or analysis.geometry.length != 1:
            return None
        first, units = stages
        if not isinstance(first, Operator) or not isinstance(units, Activation):
            return None
        front = narrow(analysis) if units.value in (LOG_COSH.value, SMOOTH_ABS.value) else None
        if front is None or math.prod(front.matrix.shape) * front.matrix.shape[1] > _WORK:
            return None
        return HiddenLayer(analysis, front, first, units)

    @property
    def norm(self) -> float:
        """‖A‖, rounded up, in coordinates where the cost's norm is Euclidean."""
        action = self.analysis.steps[0].action
        assert isinstance(action, Operator)  # else there is no narrow one
        return action.norm

    def ratios(self, points: Tensor) -> Tensor:
        """(n, units) at least σ'(z)/z, at (n, …) points."""
        error = self.first.rounding * self.first.sizes(points.abs())
        # It falls with |z|, and is b at 0.
        distance = (self.first.apply(points).abs() - error).clamp_min(0).flatten(1)
        shape = self.analysis.steps[1].in_shape
        sharpness = torch.as_tensor(self.units.sharpness, dtype=torch.float64).expand(shape).flatten()
        scaled = (distance * sharpness).clamp_min(_CORNER)
        return up(sharpness * (self.units.slope(scaled) / scaled).clamp_max(1))

    @cached_property
    def weights(self) -> Tensor:
        """(classes, classes, units) at least w⁺ of the margin F_k − F_y, by y and k."""
        outputs = self.analysis.outputs
        return outputs.against(torch.arange(outputs.classes)).high.flatten(2).clamp_min(0)
