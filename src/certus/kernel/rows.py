"""Rows of a table: discrete columns change as a whole, at a price.

A *column* is a group G of 0/1 inputs of which a row sets one, or none for an unknown value; all have one
weight w in a weighted L2 cost c. Over rows the cost is c̃ = Σ_f w_f(x_f − x₀_f)² + Σ_G 2w·1{x_G ≠ x₀_G},
f the other inputs. A change moves two of the inputs by 1, or one to or from an unknown value: c ≤ c̃.

*Theorem.* Let π be the least price 2w of a column that may change. A row in which none changes is a point of
the problem with all columns frozen, and c̃ = c there; any other has c̃ ≥ π and c̃ ≥ c. With τ and φ_γ of both
problems, an error of a row costs at least min(τ_frozen, max(π, τ)), and for every 0 ≤ s < 1

    sup over rows of ℓ − γc̃  ≤  max(φ_γ of the frozen problem, φ_{(1−s)γ} − sγπ),

since ℓ − γc̃ ≤ ℓ − (1−s)γc − sγπ where a column changes. Samples that are no rows keep the bounds of c.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from certus.kernel.costs import Lp
from certus.kernel.graph import Graph
from certus.kernel.problem import Columns, Problem
from certus.kernel.radial import Neighborhoods
from certus.kernel.rounding import SOME, down

SHARES = (0.5, 0.75, 0.875, 0.96875)
"""s, each a proposal."""


def with_columns(problem: Problem, groups: Sequence[Sequence[int]]) -> Problem:
    """The problem over rows with these groups of inputs as columns, as far as the theorem covers them."""
    cost, graph = problem.cost, problem.graph
    plain = problem.claimed is None and problem.precision is None
    if not (plain and isinstance(cost, Lp) and cost.p == 2 and len(graph.shape) == 1):
        return problem
    size = graph.shape[0]
    weights = torch.ones(size, dtype=torch.float64) if cost.scales is None else cost.scales.expand(size)
    free = torch.ones(size, dtype=torch.bool) if cost.free is None else cost.free.expand(size)
    kept, taken = [], torch.zeros(size, dtype=torch.bool)
    for group in map(list, groups):
        apart = len({*group}) == len(group) > 0 and not bool(taken[group].any())
        if apart and bool(free[group].all()) and len(weights[group].unique()) == 1:
            kept.append(tuple(group))
            taken[group] = True
    if not kept:
        return problem
    unmoved = Graph((graph.nodes[0], replace(graph.nodes[1], moves=None), *graph.nodes[2:]))
    frozen = Problem.of(
        *(unmoved, problem.loss, replace(cost, free=free & ~taken), problem.domain),
        (problem.inputs, problem.targets),
    )
    price = 2 * min(float(weights[group[0]]) for group in kept)
    return replace(problem, columns=Columns(tuple(kept), price, frozen))


def rows_of(problem: Problem) -> Tensor:
    """(n,) bool: the samples that are rows."""
    valid = torch.ones(len(problem), dtype=torch.bool)
    for group in () if problem.columns is None else problem.columns.groups:
        part = problem.inputs[:, list(group)]
        valid &= ((part == 0) | (part == 1)).all(1) & (part.sum(1) <= 1)
    return valid


def row_error_costs(around: Neighborhoods, costs: Tensor, frozen: Tensor) -> Tensor:
    """(n, classes) lower bounds on the cost of a row predicted as each class, from those of both problems."""
    columns = around.problem.columns
    assert columns is not None
    over_rows = torch.minimum(frozen, costs.clamp_min(columns.price))
    return torch.where(rows_of(around.problem).unsqueeze(1), torch.maximum(costs, over_rows), costs)


def row_dual_bounds(around: Neighborhoods, gamma: float, frozen: Tensor) -> Tensor:
    """(n,) upper bounds on sup ℓ − γc̃ over rows, from those of the frozen problem; ∞ for other samples."""
    columns, profile = around.problem.columns, around.profile
    assert columns is not None
    changed = torch.full_like(frozen, math.inf)
    for share in SHARES:
        within = down(gamma * (1 - share), SOME)
        bound = torch.minimum(profile.bound(profile.rings(within)), profile.lipschitz(within))
        changed = torch.minimum(
            changed, bound - down(gamma * share * columns.price, SOME) + SOME * bound.abs()
        )
    return torch.where(rows_of(around.problem), torch.maximum(frozen, changed), math.inf)
