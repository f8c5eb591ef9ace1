"""How far float64 may be from the true transport cost, and from its gradient.

A squared norm is a sum of positive terms: its rounding is relative to itself (``Problem.metric_slack``). A
divergence h(z) − h(z₀) − ⟨∇h(z₀), z − z₀⟩ cancels down from its terms, and its rounding is relative to them,
with h computed as well as a sum of as many terms as z has entries. Of a cost of the user's nothing is known:
it is taken to cancel down from growth·(‖z‖₂ + ‖z₀‖₂)².
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from certus.certificates.proven.problem import Problem
from certus.costs import Cost
from certus.costs.claims import is_own
from certus.outward import slack


def raised_cost(problem: Problem, points: Tensor) -> Tensor:
    """(batch,) c(point, sample), rounded up."""
    costs = problem.cost.value(points, problem.inputs)
    return costs * (1 + problem.metric_slack) + cost_error(problem, points)


def cost_error(problem: Problem, points: Tensor) -> Tensor:
    """(batch,) by how much c may be off, beside what is relative to itself."""
    cost = problem.cost.unmasked
    return _rounding(cost, cost.value_terms, points, problem.inputs)


def cost_gradient_error(problem: Problem, points: Tensor) -> Tensor:
    """(batch,) by how much, in L2, ∇c may be off, beside what is relative to its own size."""
    cost = problem.cost.unmasked
    return _rounding(cost, cost.gradient_terms, points, problem.inputs)


def _rounding(
    cost: Cost, terms: Callable[[Tensor, Tensor], Tensor], points: Tensor, origins: Tensor
) -> Tensor:
    if is_own(cost):
        return torch.zeros(len(points), dtype=points.dtype)
    return slack(8 * points[0].numel()) * terms(points, origins)
