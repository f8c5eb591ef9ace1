"""The table of a network, layer by layer."""

from __future__ import annotations

from torch import Tensor

from certus.outward import up
from certus.smoothness.passes import Reach
from certus.smoothness.results import LayerBound
from certus.smoothness.steps import Step, forward


def table_of(steps: list[Step], reach: Reach, added: dict[str, Tensor]) -> tuple[list[LayerBound], Reach]:
    """The lines of some steps, from the reach of their inputs over all of space; and the reach behind them.

    Args:
        added: what each path adds to the curvature by the sum rule, (1,).
    """
    lines: list[LayerBound] = []
    for step in steps:
        before = reach
        reach, _ = forward([step], reach, None)
        behind = up(float(reach.length[0]))
        lines += step.action.table(step.path, step.kind, before, behind, added)
    return lines, reach
