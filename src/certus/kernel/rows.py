"""Rows of a table: discrete columns change as a whole, at a price.

A *column* is a group G of 0/1 inputs of which a row sets one, or none for an unknown value; input v has the
weight w_v in a weighted L2 cost c, and an unknown value counts as the largest of them. Over rows the cost is
c̃ = Σ_f w_f(x_f − x₀_f)² + Σ_G (w_u + w_v)·1{u ≠ v}, u and v the values of G before and after, f the other
inputs. A change moves two of the inputs by 1, or one to or from an unknown value: c ≤ c̃.

*Theorem.* List combinations a of changes of a row, with prices p_a, the empty one included; let every
combination that is not listed cost at least P. Where the columns have the values of a, a row is a point of
the problem with all columns frozen there, and c̃ = p_a + c from there; any other row has c̃ ≥ P and c̃ ≥ c.
With τ and φ_γ of these problems, an error of a row costs at least min(min_a p_a + τ_a, max(P, τ)), and for
every 0 ≤ s < 1

    sup over rows of ℓ − γc̃  ≤  max(max_a φ_{γ,a} − γp_a, φ_{(1−s)γ} − sγP),

since ℓ − γc̃ ≤ ℓ − (1−s)γc − sγP for what is not listed. Samples that are no rows keep the bounds of c.

*The list.* The cheapest combinations, in the order of their prices; P is the price of the next one, and ∞ if
there is none. A few of the cheapest options of each column suffice to find them, one column after another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from certus.kernel.costs import Lp
from certus.kernel.graph import Graph
from certus.kernel.problem import Columns, Problem
from certus.kernel.rounding import SOME, down

LISTED = 128
"""The most combinations of changes that are listed for a row."""


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
        if apart and bool(free[group].all()):
            kept.append(tuple(group))
            taken[group] = True
    if not kept:
        return problem
    unmoved = Graph((graph.nodes[0], replace(graph.nodes[1], moves=None), *graph.nodes[2:]))
    frozen = Problem.of(
        *(unmoved, problem.loss, replace(cost, free=free & ~taken), problem.domain),
        (problem.inputs, problem.targets),
    )
    return replace(problem, columns=Columns(tuple(kept), weights, frozen))


def rows_of(problem: Problem) -> Tensor:
    """(n,) bool: the samples that are rows."""
    valid = torch.ones(len(problem), dtype=torch.bool)
    for group in () if problem.columns is None else problem.columns.groups:
        part = problem.inputs[:, list(group)]
        valid &= ((part == 0) | (part == 1)).all(1) & (part.sum(1) <= 1)
    return valid


class Combinations(NamedTuple):
    """The cheapest combinations of changes of n rows, at least one change in each.

    Attributes:
        inputs: (n, k, features) rows after the changes. prices: (n, k), rounded down; ∞ outside of Z.
        beyond: (n,) no combination that is not listed costs less; ∞ if there is none.
    """

    inputs: Tensor
    prices: Tensor
    beyond: Tensor


def cheapest_combinations(problem: Problem, most: int = LISTED) -> Combinations:
    """List the cheapest combinations of changes that stay in the box of Z, and the unchanged row in place of
    others; samples that are no rows get what is to be ignored."""
    columns = problem.columns
    assert columns is not None
    inputs, least = problem.inputs, most + 2  # with the unchanged row, and one that bounds the rest
    prices, chosen = inputs.new_zeros(len(inputs), 1), inputs.new_zeros(len(inputs), 1, 0).long()
    for group in columns.groups:
        weights = columns.weights[list(group)]
        options = torch.cat([weights, weights.max().unsqueeze(0)])  # the last one: an unknown value
        now = torch.cat([inputs[:, list(group)], inputs.new_full((len(inputs), 1), 0.5)], 1).argmax(1)
        own = torch.arange(len(options)) == now.unsqueeze(1)
        changes, values = _cheapest(torch.where(own, 0.0, options + options[now].unsqueeze(1)), least)
        # Of two increasing lists, i·j sums are at most the sum of the i-th and the j-th.
        rank = torch.arange(1, prices.shape[1] + 1).unsqueeze(1) * torch.arange(1, changes.shape[1] + 1)
        first, second = (rank <= least).nonzero().unbind(1)
        prices, which = _cheapest(prices[:, first] + changes[:, second], least)
        kept = chosen.gather(1, first[which].unsqueeze(2).expand(-1, -1, chosen.shape[2]))
        chosen = torch.cat([kept, values.gather(1, second[which]).unsqueeze(2)], 2)
    beyond = inputs.new_full((len(inputs),), math.inf)
    if prices.shape[1] > most + 1:
        beyond = down(prices[:, most + 1], SOME)
    prices, chosen = down(prices[:, 1 : most + 1], SOME), chosen[:, 1 : most + 1]
    moved = inputs.unsqueeze(1).repeat(1, prices.shape[1], 1)
    for place, group in enumerate(columns.groups):
        one_hot = torch.eye(len(group) + 1, len(group), dtype=inputs.dtype)
        moved[:, :, list(group)] = one_hot[chosen[:, :, place]]
    outside = ((moved < problem.domain.lower) | (moved > problem.domain.upper)).any(2)
    moved = torch.where(outside.unsqueeze(2), inputs.unsqueeze(1), moved)
    return Combinations(moved, torch.where(outside, math.inf, prices), beyond)


def _cheapest(prices: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """(n, k) the least prices in each row, in their order, and their places; ties by their places."""
    order = prices.sort(dim=1, stable=True)
    return order.values[:, :most], order.indices[:, :most]
