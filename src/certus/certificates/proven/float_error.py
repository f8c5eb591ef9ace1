"""How far float64 may be from the real-valued network at given points: in its outputs and their gradients.

A running error analysis. u_k = (k + 8)·2⁻⁵² covers a sum of k products in any order of summation, twice over
(``slack``). Forwards, entry by entry, with ẑ computed, z true and |ẑ − z| ≤ e:

    affine        e ← |A|e + u_k(|A||ẑ| + |b|)
    activation    e ← s·e + u₈(|σ(ẑ)| + |ẑ| + 1/b) + j/b   s ≥ |σ'| everywhere

j/b is how far the layer itself may be from σ_b at any point (``Activation.jump``), 0 for most.

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

from dataclasses import dataclass

import torch
from torch import Tensor

from certus.bounds import Analysis
from certus.bounds.passes import Step, backward_rounding, forward_rounding
from certus.rounding import up


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
        return up((row + error) * self.slopes + error * self.rows)


def outputs_at(analysis: Analysis, points: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs, (n, …), and (n,) ``Rounding.values``, at (n, *shape) float64 points, taken to be exact."""
    outputs, error, _ = forward_rounding(_steps(analysis), points, torch.zeros_like(points))
    return outputs, _largest(error)


def rounding_at(analysis: Analysis, points: Tensor) -> Rounding:
    """All errors at (n, *shape) points, at about the price of two evaluations."""
    steps = _steps(analysis)
    outputs, error, trace = forward_rounding(steps, points, torch.zeros_like(points))
    start = torch.ones(len(points), dtype=torch.float64)
    rows, slopes = backward_rounding(steps, trace, start, torch.zeros_like(start))
    return Rounding(outputs.abs().flatten(1).amax(1), _largest(error), rows, 2 * slopes)


def _steps(analysis: Analysis) -> list[Step]:
    return analysis.steps if analysis.head is None else [*analysis.steps, analysis.head]


def _largest(error: Tensor) -> Tensor:
    """Doubled, for the rounding of these lines themselves; a NaN must not look like a small error."""
    return 2 * error.flatten(1).amax(1).nan_to_num(torch.inf, torch.inf)
