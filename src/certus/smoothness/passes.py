"""What the passes over a network carry from stage to stage.

Forwards a ``Reach`` (how far each unit moves), backwards ``Rows`` (gradients, from the outputs to the inputs)
and a ``Tally`` (what was found on the way). Axis 0 counts samples; it is 1 for all of space.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Reach:
    """How a layer moves: with A its Jacobian at any point of the set, and δ any move of length 1 in the
    cost's norm,

        length ≥ ‖Aδ‖₂,    unit_n ≥ |(Aδ)_n|,    bend ≥ ‖second derivative of the layer along δ‖₂

    (α and β of proposition:deep-net-smooth). The set is all of space, or a ball around each sample.

    Attributes:
        center, error: the values at the samples and their rounding; None for all of space.
        identity: whether A is the identity in L2, as it is at the inputs.
        matrix: A itself, where it is one written-out matrix.
    """

    length: Tensor
    unit: Tensor
    bend: Tensor
    center: Tensor | None = None
    error: Tensor | None = None
    identity: bool = False
    matrix: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Rows:
    """Gradients of (batch, rows) functions with respect to a layer.

    Attributes:
        low, high: (batch, rows, *shape) their range.
        length: (batch, rows) bound on their Euclidean norm.
        curvature: (batch, rows) M, or None where it is not followed.
    """

    low: Tensor
    high: Tensor
    length: Tensor
    curvature: Tensor | None = None

    @property
    def largest(self) -> Tensor:
        return torch.maximum(self.low.abs(), self.high.abs())


@dataclass(eq=False)
class Tally:
    """What a pass backwards finds on its way.

    Attributes:
        lipschitz: (batch, rows) Lipschitz constants, the best over all cuts of the network.
        convex, concave: (batch, rows) curvature of m and of −m by the sum rule, for each path.
        gain: (batch,) Lipschitz constant of the stages passed, as a product of norms.
        ending: (batch, rows) M at the inputs, exactly for the first layer; ∞ if not computed.
    """

    lipschitz: Tensor
    gain: Tensor
    convex: dict[str, Tensor] = field(default_factory=dict)
    concave: dict[str, Tensor] = field(default_factory=dict)
    ending: Tensor | None = None

    def add(self, path: str, convex: Tensor, concave: Tensor) -> None:
        """Count the curvature of a stage, once more if its path was met before."""
        for found, more in ((self.convex, convex), (self.concave, concave)):
            found[path] = found[path] + more if path in found else more


@dataclass(frozen=True)
class Place:
    """Where a stage stands in a pass backwards.

    Attributes:
        path: in the model.
        inside: in a branch, which is no cut of the network.
        ends: at the inputs, where only M is still asked for.
    """

    path: str
    inside: bool = False
    ends: bool = False


def times(left: Tensor, right: Tensor) -> Tensor:
    """left·right with 0·∞ = 0: what does not move is not bent by a kink."""
    product = left * right
    # Only an infinite factor can make NaN of finite or infinite ones; checking the smaller is cheap.
    smaller = left if left.numel() < right.numel() else right
    larger = right if smaller is left else left
    if bool(torch.isfinite(smaller).all()) and bool(torch.isfinite(larger.sum())):
        return product
    return torch.where((left == 0) | (right == 0), 0.0, product)


def size(values: Tensor, axes: int = 1) -> Tensor:
    """Euclidean norm over all but the first axes."""
    norm: Tensor = torch.linalg.vector_norm(values.flatten(axes), dim=-1)
    return norm
