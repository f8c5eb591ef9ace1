"""Rounding errors of a network in float64: of its outputs and their gradients at given points.

A running error analysis. u_k = (k + 8)·2⁻⁵² covers a sum of k products in any order of summation, twice over
(``slack``). Forwards, elementwise, with ẑ computed, z true and |ẑ − z| ≤ e:

    affine        e ← |A|e + u_k(|A||ẑ| + |b|)
    activation    e ← s·e + u₈(|σ(ẑ)| + |ẑ| + 1/b) + j/b   s ≥ |σ'| everywhere

j/b bounds the difference of the layer itself from σ_b (``Activation.jump``), 0 for most.

Backwards, in L2: a row r with ‖r‖ ≤ m, computed with ‖r̂ − r‖ ≤ t, meets σ'(z) ∈ [l, h], the range of σ' on
[ẑ − e, ẑ + e], and torch's own σ'(ẑ), which is off by at most u₈(1 + b|ẑ|); with d ≥ |l|, |h| and the largest
of both over all units,

    activation    t ← d·t + (m + t)·(h − l + u₈(1 + b|ẑ|)),        m ← d·m
    affine        t ← ‖A‖t + u_k‖|A|‖(m + t),                      m ← ‖A‖m

Where a kink is within e of ẑ the range [l, h] holds both of its slopes; behind max pooling the error is as
large as the gradient. The pass starts from a row of length 1 and t = 0; all other rows follow from this one,
as everything is linear in (m, t).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from certus.bounds import Analysis
from certus.bounds.passes import Step, backward_rounding, forward_rounding
from certus.rounding import up


@dataclass(frozen=True, eq=False)
class Rounding:
    """Error bounds at each of n points; every entry is (n,).

    Attributes:
        outputs: largest absolute computed output.
        values: bound on |computed − true| of every output.
        rows: bound on the L2 norm of the gradient of Σ rₖFₖ, for every ‖r‖ ≤ 1.
        slopes: bound on the L2 error of such a gradient, if r itself is exact.
    """

    outputs: Tensor
    values: Tensor
    rows: Tensor
    slopes: Tensor

    def gradient(self, row: Tensor, error: Tensor) -> Tensor:
        """(n,) error of gradients for rows with ‖r‖ ≤ ``row`` and ‖r̂ − r‖ ≤ ``error``, both (n,)."""
        return up((row + error) * self.slopes + error * self.rows)


def outputs_at(analysis: Analysis, points: Tensor) -> tuple[Tensor, Tensor]:
    """(n, …) outputs and (n,) ``Rounding.values`` at (n, *shape) float64 points, which are taken as exact."""
    outputs, error, _ = forward_rounding(_steps(analysis), points, torch.zeros_like(points))
    return outputs, _largest(error)


def rounding_at(analysis: Analysis, points: Tensor) -> Rounding:
    """All errors at (n, *shape) points, for about the cost of two evaluations."""
    steps = _steps(analysis)
    outputs, error, trace = forward_rounding(steps, points, torch.zeros_like(points))
    start = torch.ones(len(points), dtype=torch.float64)
    rows, slopes = backward_rounding(steps, trace, start, torch.zeros_like(start))
    return Rounding(outputs.abs().flatten(1).amax(1), _largest(error), rows, 2 * slopes)


def _steps(analysis: Analysis) -> list[Step]:
    return analysis.steps if analysis.head is None else [*analysis.steps, analysis.head]


def _largest(error: Tensor) -> Tensor:
    """Largest error, doubled to cover the rounding of this computation; NaN becomes ∞."""
    return 2 * error.flatten(1).amax(1).nan_to_num(torch.inf, torch.inf)
