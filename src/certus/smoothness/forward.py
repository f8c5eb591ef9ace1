"""From the inputs to the outputs: how far each unit moves, and on which interval each activation works.

With A the Jacobian of a layer at any point of the set, and δ any move of length 1 in the cost's norm:

    length ≥ ‖Aδ‖₂,    unit_n ≥ |(Aδ)_n|,    bend ≥ ‖second derivative of the layer along δ‖₂

(α and β of proposition:deep-net-smooth). The set is all of space, or a ball around each sample; then units
stay within unit·radius of their value at the sample, and the ranges of σ' and σ'' are those of that interval.
Axis 0 counts samples; it is 1 for all of space.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.batches import per_sample
from certus.smoothness.activations import Activation, Range
from certus.smoothness.network import Step, Sum
from certus.smoothness.operators import Dense, Operator
from certus.smoothness.rules import Windows
from certus.smoothness.spectral import slack


@dataclass(frozen=True, eq=False)
class Reach:
    """How a layer moves: see the module. ``center`` and its rounding ``error`` are None for all of space."""

    length: Tensor
    unit: Tensor
    bend: Tensor
    center: Tensor | None = None
    error: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Site:
    """An activation with its pre-activations' reach and the ranges of σ' and σ'' there.

    Attributes:
        matrix: the Jacobian of the pre-activations itself, where it is one written-out matrix.
    """

    activation: Activation
    length: Tensor
    unit: Tensor
    slope: Range
    curvature: Range
    matrix: Tensor | None = None

    @property
    def steepest(self) -> Tensor:
        """(batch, *shape) largest |σ'|."""
        return torch.maximum(self.slope[0].abs(), self.slope[1].abs())


Trace = list[Site | list["Trace"] | None]


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


def forward(
    steps: list[Step], reach: Reach, radius: Tensor | None, euclidean: bool = False
) -> tuple[Reach, Trace]:
    """The reach of the last step, and what each step met.

    Args:
        euclidean: ``reach`` is that of the inputs themselves, in L2, so that a first matrix is the Jacobian.
    """
    trace: Trace = []
    matrix: Tensor | None = None
    for step in steps:
        action = step.action
        match action:
            case Operator():
                assert isinstance(step.stage, Operator)
                starts = euclidean and not trace
                matrix = action.weights[0] if starts and isinstance(action, Dense) else None
                reach = _through_operator(action, step.stage, reach)
                trace.append(None)
            case Activation():
                site = _meet(action, reach, radius, matrix)
                reach, matrix = _through_activation(site, reach), None
                trace.append(site)
            case Windows():
                reach, matrix = _through_windows(action, reach), None
                trace.append(None)
            case Sum(branches):
                ends = [forward(branch, reach, radius, euclidean and not trace) for branch in branches]
                reach, matrix = _add([end for end, _ in ends]), None
                trace.append([part for _, part in ends])
    return reach, trace


def _through_operator(action: Operator, values: Operator, reach: Reach) -> Reach:
    unit = torch.minimum(
        action.row_norms * per_sample(reach.length, reach.unit.new_empty(1, *action.out_shape)),
        action.absolute(reach.unit),
    )
    center = error = None
    if reach.center is not None and reach.error is not None:
        center = values.apply(reach.center)
        error = values.absolute(reach.error) + values.rounding * values.sizes(reach.center.abs())
    length = torch.minimum(action.norm * reach.length, size(unit))
    return Reach(length, unit, action.norm * reach.bend, center, error)


def _meet(activation: Activation, reach: Reach, radius: Tensor | None, matrix: Tensor | None) -> Site:
    if reach.center is None or reach.error is None or radius is None:
        ends = (torch.full_like(reach.unit, -math.inf), torch.full_like(reach.unit, math.inf))
    else:
        room = reach.unit * per_sample(radius, reach.unit) * (1 + 1e-12) + reach.error
        ends = (reach.center - room, reach.center + room)
    slope, curvature = activation.slope_range(*ends), activation.curvature_range(*ends)
    fits = matrix is not None and len(matrix) == reach.unit[0].numel()
    return Site(activation, reach.length, reach.unit, slope, curvature, matrix if fits else None)


def _through_activation(site: Site, reach: Reach) -> Reach:
    steep = site.steepest
    unit = reach.unit * steep
    length = torch.minimum(reach.length * steep.flatten(1).amax(1), size(unit))
    bent = torch.maximum(site.curvature[0].abs(), site.curvature[1].abs()).flatten(1).amax(1)
    bend = times(bent, reach.length**2) + times(steep.flatten(1).amax(1), reach.bend)
    center = error = None
    if reach.center is not None and reach.error is not None:
        center = site.activation.apply(reach.center)
        # Relative to z and to 1/b as well: σ(bz)/b may cancel down from either.
        scale = (
            center.abs()
            + reach.center.abs()
            + 1 / torch.as_tensor(site.activation.sharpness, dtype=torch.float64)
        )
        error = reach.error * steep + slack(8) * scale
    return Reach(length, unit, bend, center, error)


def _through_windows(windows: Windows, reach: Reach) -> Reach:
    unit = windows.maximum(reach.unit)
    length = torch.minimum(reach.length * math.sqrt(windows.overlap) * (1 + 1e-15), size(unit))
    center = None if reach.center is None else windows.maximum(reach.center)
    error = None if reach.error is None else windows.maximum(reach.error)
    return Reach(length, unit, torch.full_like(reach.bend, math.inf), center, error)


def _add(ends: list[Reach]) -> Reach:
    def total(parts: list[Tensor]) -> Tensor:
        return torch.stack(parts).sum(0)

    unit = total([end.unit for end in ends])
    length = torch.minimum(total([end.length for end in ends]), size(unit))
    bend = total([end.bend for end in ends])
    centers = [end.center for end in ends if end.center is not None]
    errors = [end.error for end in ends if end.error is not None]
    if not centers or not errors:
        return Reach(length, unit, bend)
    rounding = slack(len(ends)) * total([center.abs() for center in centers])
    return Reach(length, unit, bend, total(centers), total(errors) + rounding)
