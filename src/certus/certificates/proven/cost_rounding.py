"""How far float64 may be from the true transport cost, and from its gradient.

A squared norm is a sum of positive terms: its rounding is relative to itself (``Problem.metric_slack``). A
divergence h(z) − h(z₀) − ⟨∇h(z₀), z − z₀⟩ cancels down from its terms, and its rounding is relative to them,
with h computed as well as a sum of as many terms as z has entries. Of a cost of the user's nothing is known:
it is taken to cancel down from growth·(‖z‖₂ + ‖z₀‖₂)².
"""

from __future__ import annotations

import torch
from torch import Tensor

from certus.certificates.proven.problem import Problem
from certus.costs import Bregman
from certus.costs.claims import free_cost, is_own
from certus.norms import L2
from certus.outward import slack


def raised_cost(problem: Problem, points: Tensor) -> Tensor:
    """(batch,) c(point, sample), rounded up."""
    costs = problem.cost.value(points, problem.inputs)
    return costs * (1 + problem.metric_slack) + cost_error(problem, points)


def cost_error(problem: Problem, points: Tensor) -> Tensor:
    """(batch,) by how much c may be off, beside what is relative to itself."""
    cost, origins = free_cost(problem.cost), problem.inputs
    if is_own(cost):
        return torch.zeros(len(points), dtype=points.dtype)
    if isinstance(cost, Bregman):
        (height, slope), (other, _) = cost.potential_and_slope(origins), cost.potential_and_slope(points)
        sizes = height.abs() + other.abs() + (slope * (points - origins)).abs().flatten(1).sum(1)
    else:
        sizes = cost.growth * (L2(points) + L2(origins)) ** 2
    return _rounding(points) * sizes


def cost_gradient_error(problem: Problem, points: Tensor) -> Tensor:
    """(batch,) by how much, in L2, ∇c may be off, beside what is relative to its own size."""
    cost, origins = free_cost(problem.cost), problem.inputs
    if is_own(cost):
        return torch.zeros(len(points), dtype=points.dtype)
    if isinstance(cost, Bregman):
        sizes = L2(cost.potential_and_slope(origins)[1]) + L2(cost.potential_and_slope(points)[1])
    else:
        sizes = cost.growth * (L2(points) + L2(origins))
    return _rounding(points) * sizes


def _rounding(points: Tensor) -> float:
    return slack(8 * points[0].numel())
