"""How far float64 may be from the real-valued network at given points: in its outputs and their gradients.

A running error analysis. u_k = (k + 8)·2⁻⁵² covers a sum of k products in any order of summation, twice over
(``slack``). Forwards, entry by entry, with ẑ computed, z true and |ẑ − z| ≤ e:

    affine        e ← |A|e + u_k(|A||ẑ| + |b|)
    activation    e ← s·e + u₈(|σ(ẑ)| + |ẑ| + 1/b)         s ≥ |σ'| everywhere

Backwards, in L2: a row r with ‖r‖ ≤ m, computed with ‖r̂ − r‖ ≤ t, meets σ'(z) ∈ [l, h], the range of σ' on
[ẑ − e, ẑ + e], and torch's own σ'(ẑ), which is off by at most u₈(1 + b|ẑ|); with d ≥ |l|, |h| and the largest
of both over all units,

    activation    t ← d·t + (m + t)·(h − l + u₈(1 + b|ẑ|)),        m ← d·m
    affine        t ← ‖A‖t + u_k‖|A|‖(m + t),                      m ← ‖A‖m

Where a kink is within e of ẑ the range [l, h] holds both of its slopes, and behind a maximum over windows
nothing is known of a gradient. It starts from a row of length 1 and t = 0; all other rows follow from this
one, as all of it is linear in (m, t).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from certus.smoothness import Analysis
from certus.smoothness.activations import Activation
from certus.smoothness.network import Step, Sum
from certus.smoothness.operators import Operator
from certus.smoothness.rules import Windows
from certus.smoothness.spectral import slack


@dataclass(frozen=True, eq=False)
class Rounding:
    """What holds at each of n points; every entry is (n,).

    Attributes:
        outputs: the largest size of a computed output.
        values: bound on |computed − true| of every output.
        rows: bound on the length, in L2, of the gradient of Σ rₖFₖ, for every ‖r‖ ≤ 1.
        slopes: bound on the error of such a gradient, in L2, if r itself is exact.
    """

    outputs: Tensor
    values: Tensor
    rows: Tensor
    slopes: Tensor

    def gradient(self, row: Tensor, error: Tensor) -> Tensor:
        """(n,) the same for rows with ‖r‖ ≤ ``row`` and ‖r̂ − r‖ ≤ ``error``, both (n,)."""
        return ((row + error) * self.slopes + error * self.rows) * (1 + 1e-9)


def outputs_at(analysis: Analysis, points: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs, (n, …), and (n,) ``Rounding.values``, at (n, *shape) float64 points, taken to be exact."""
    outputs, error, _ = _forward(_steps(analysis), points, torch.zeros_like(points))
    return outputs, _largest(error)


def rounding_at(analysis: Analysis, points: Tensor) -> Rounding:
    """All errors at (n, *shape) points, at about the price of two evaluations."""
    steps = _steps(analysis)
    outputs, error, trace = _forward(steps, points, torch.zeros_like(points))
    start = torch.ones(len(points), dtype=torch.float64)
    rows, slopes = _backward(steps, trace, start, torch.zeros_like(start))
    return Rounding(outputs.abs().flatten(1).amax(1), _largest(error), rows, 2 * slopes)


def _steps(analysis: Analysis) -> list[Step]:
    return analysis.steps if analysis.head is None else [*analysis.steps, analysis.head]


def _largest(error: Tensor) -> Tensor:
    """Doubled, for the rounding of these lines themselves; a NaN must not look like a small error."""
    return 2 * error.flatten(1).amax(1).nan_to_num(torch.inf, torch.inf)


_Trace = list["tuple[Tensor, Tensor] | list[_Trace] | None"]
"""For each step: the inputs of an activation with their errors, the traces of branches, or nothing."""


def _forward(steps: list[Step], value: Tensor, error: Tensor) -> tuple[Tensor, Tensor, _Trace]:
    trace: _Trace = []
    for step in steps:
        match step.stage:
            case Operator() as operator:
                error = operator.absolute(error + operator.rounding * value.abs())
                if operator.shift_size is not None:
                    error = error + operator.rounding * operator.shift_size
                value = operator.apply(value)
                trace.append(None)
            case Activation() as activation:
                trace.append((value, error))
                least, most, *_ = activation.extremes()
                after = activation.apply(value)
                # Relative to z and to 1/b as well: σ(bz)/b may cancel down from either.
                sizes = after.abs() + value.abs() + 1 / torch.as_tensor(activation.sharpness)
                value, error = after, max(-least, most) * error + slack(8) * sizes
            case Windows() as windows:
                value, error = windows.maximum(value), windows.maximum(error)
                trace.append(None)
            case Sum(branches):
                ends = [_forward(branch, value, error) for branch in branches]
                size = torch.stack([end[0].abs() for end in ends]).sum(0)
                value = torch.stack([end[0] for end in ends]).sum(0)
                error = torch.stack([end[1] for end in ends]).sum(0) + slack(len(ends)) * size
                trace.append([end[2] for end in ends])
    return value, error, trace


def _backward(steps: list[Step], trace: _Trace, size: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    for step, met in zip(reversed(steps), reversed(trace), strict=True):
        match step.stage:
            case Operator() as operator:
                error = operator.norm * error + operator.rounding * operator.absolute_norm * (size + error)
                size = operator.norm * size
            case Activation() as activation:
                assert isinstance(met, tuple)
                value, off = met
                low, high = activation.slope_range(value - off, value + off)
                unsure = high - low + slack(8) * (1 + (value * activation.sharpness).abs())
                steep = torch.maximum(low.abs(), high.abs()).flatten(1).amax(1)
                error = steep * error + (size + error) * unsure.flatten(1).amax(1)
                size = steep * size
            case Windows() as windows:
                spread = math.sqrt(windows.overlap) * (1 + 1e-15)
                error, size = spread * (error + 2 * size), spread * size
            case Sum(branches):
                assert isinstance(met, list)
                ends = [
                    _backward(branch, part, size, error) for branch, part in zip(branches, met, strict=True)
                ]
                size = torch.stack([end[0] for end in ends]).sum(0)
                error = torch.stack([end[1] for end in ends]).sum(0) + slack(len(ends)) * size
    return size, error
