"""A network as a list of steps, and the passes over it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from certus.smoothness.affine import Affine
from certus.smoothness.passes import Place, Reach, Rows, Tally
from certus.smoothness.stage import Met, Rounded, Shape, Stage

Trace = list[Met]
"""What each step met on the way forwards."""


@dataclass(frozen=True, eq=False)
class Step:
    """One layer, or several affine ones merged: where it is in the model, what it is, and how it acts."""

    path: str
    kind: str
    stage: Stage
    in_shape: Shape
    out_shape: Shape
    whitened: Affine | None = None  # the same behind the whitening of a cost, for the first step
    assumptions: tuple[str, ...] = ()  # rules of the user's, by name
    line: str = ""  # of the user, where a function was called

    @property
    def action(self) -> Stage:
        """How moves of the input, in the units of the cost, act."""
        return self.stage if self.whitened is None else self.whitened


def run_steps(steps: list[Step], points: Tensor) -> Tensor:
    """The network at (batch, *shape) points, in their precision."""
    for step in steps:
        points = step.stage.apply(points)
    return points


def forward(steps: list[Step], reach: Reach, radius: Tensor | None) -> tuple[Reach, Trace]:
    """From the inputs to the outputs: the reach of the last step, and what each step met."""
    trace: Trace = []
    for step in steps:
        reach, met = step.action.reach(reach, radius, step.stage)
        trace.append(met)
    return reach, trace


def backward(
    steps: list[Step], trace: Trace, rows: Rows, tally: Tally, *, whole: bool = True, inside: bool = False
) -> Rows:
    """From the outputs to the inputs: pull rows back through the steps, adding to the tally.

    Args:
        whole: go through the very first operator as well; without it only M does.
        inside: the steps are a branch, which is no cut of the network.
    """
    for index in range(len(steps) - 1, -1, -1):
        place = Place(steps[index].path, inside, ends=not (whole or index > 0 or inside))
        rows = steps[index].action.pull(rows, trace[index], tally, place)
    return rows


def rounded(steps: list[Step], value: Tensor, error: Tensor) -> Rounded:
    """Values in float64 behind the steps, their errors, and what each step met."""
    trace: Trace = []
    for step in steps:
        value, error, met = step.stage.rounded(value, error)
        trace.append(met)
    return Rounded(value, error, trace)


def pull_rounding(steps: list[Step], trace: Trace, size: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """(batch,) lengths and errors of gradients before the steps."""
    for step, met in zip(reversed(steps), reversed(trace), strict=True):
        size, error = step.stage.pull_rounding(size, error, met)
    return size, error


def printed(steps: list[Step], length: float, bend: float = 0.0) -> tuple[float, float]:
    """α and β of eq:lipschitzconsts: α ← L⁰‖θ‖α and β ← L⁰‖θ‖β + L¹(‖θ‖α)², β starting at 0."""
    for step in steps:
        length, bend = step.action.printed(length, bend)
    return length, bend


def swelling(steps: list[Step], size: float = 1.0) -> float:
    """∏ max(1, gain): by how much numbers may grow between any two places of the network."""
    for step in steps:
        size = step.action.swell(size)
    return size


def depth_of(steps: list[Step]) -> int:
    """How many activations, and maxima over windows, one meets at most."""
    return sum(step.stage.depth for step in steps)


def widths(steps: list[Step]) -> list[int]:
    """How many units each layer has, those of branches included."""
    own = [math.prod(step.out_shape) for step in steps]
    return own + [width for step in steps for width in step.stage.inner_widths]


def assumptions_of(steps: list[Step]) -> tuple[str, ...]:
    """All rules of the user's in some steps, by name."""
    found: list[str] = []
    for step in steps:
        found += step.assumptions
        found += assumptions_of(step.stage.inner_steps)
    return tuple(dict.fromkeys(found))
