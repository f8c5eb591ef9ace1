"""How far a network evaluated in float64 may be from the real-valued one: one bound for all points of a box.

Through every layer two numbers per unit are followed, its largest size and its error. A sum of k products is
off by at most
(k + 2)·2⁻⁵³ of the sum of their sizes, in any order of summation; ``slack`` doubles that. An activation adds
some units in
the last place, and passes the error on times its largest slope. The result is doubled once more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from certus.smoothness import Analysis
from certus.smoothness.activations import Activation
from certus.smoothness.network import Step, Sum
from certus.smoothness.operators import Operator
from certus.smoothness.rules import Windows
from certus.smoothness.spectral import slack


def output_rounding(analysis: Analysis, sizes: Tensor) -> float:
    """Bound on |computed − true| for every output, at every x with |xᵢ| ≤ sizesᵢ, (*shape)."""
    steps = analysis.steps if analysis.head is None else [*analysis.steps, analysis.head]
    _, error = _walk(steps, sizes.unsqueeze(0).double(), torch.zeros_like(sizes.unsqueeze(0)).double())
    return 2 * float(error.max())


def _walk(steps: list[Step], size: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    for step in steps:
        match step.stage:
            case Operator() as operator:
                reached = operator.sizes(size)
                size, error = reached, operator.absolute(error) + operator.rounding * reached
            case Activation() as activation:
                least, most, *_ = activation.extremes()
                steep = max(-least, most)
                after = activation.apply(torch.zeros_like(size)).abs() + steep * size
                units = after + size + 1 / torch.as_tensor(activation.sharpness)
                size, error = after, steep * error + slack(8) * units
            case Windows() as windows:
                size, error = windows.maximum(size), windows.maximum(error)
            case Sum(branches):
                ends = [_walk(branch, size, error) for branch in branches]
                size = torch.stack([end[0] for end in ends]).sum(0)
                error = torch.stack([end[1] for end in ends]).sum(0) + slack(len(ends)) * size
    return size, error
