"""Sorts and lengths of disjoint groups: values, rounding and slopes against brute force."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import Tensor

from certus.kernel.graph import Graph, Node, _computed_join
from certus.kernel.groups import Grouped, GroupLength, GroupSort
from certus.kernel.operators import Dense
from certus.kernel.passes import ForwardBound, GradientBound, Place, Refused, Rounded, Totals

GROUPS = torch.tensor([[4, 1, 2], [0, 5, 3]])
SORT, LENGTH = GroupSort(GROUPS, (2, 3)), GroupLength(GROUPS, (2, 3), (2,))


def points(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_a_sort_orders_each_group_in_its_places() -> None:
    values = torch.tensor([[[1.0, 7.0, 3.0], [9.0, 5.0, 2.0]]], dtype=torch.float64)
    # Places 4, 1, 2 hold 5, 7, 3; places 0, 5, 3 hold 1, 2, 9.
    assert SORT.apply(values).tolist() == [[[9.0, 5.0, 3.0], [1.0, 7.0, 2.0]]]


def test_pairs_are_sorted_like_longer_groups() -> None:
    pairs = GroupSort(torch.tensor([[0, 3], [4, 1], [2, 5]]), (6,))
    values = points(50).flatten(1)
    expected = values.clone()
    for first, second in pairs.groups.tolist():
        both = values[:, [first, second]].sort(1, descending=True).values
        expected[:, [first, second]] = both
    assert torch.equal(pairs.apply(values), expected)


def test_a_length_is_that_of_its_group() -> None:
    values = torch.tensor([[[2.0, 3.0, 6.0], [1.0, 2.0, 2.0]]], dtype=torch.float64)
    assert LENGTH.apply(values).tolist() == [[7.0, 3.0]]  # of 2, 3, 6 and of 2, 2, 1


@pytest.mark.parametrize("groups", [[[0, 1], [1, 2]], [[0, 1]], [[0, 1], [2, 4]], [[0, 1], [2, -1]]])
def test_every_entry_is_in_exactly_one_group(groups: list[list[int]]) -> None:
    with pytest.raises(Refused, match="exactly one group"):
        GroupSort(torch.tensor(groups), (4,))


@pytest.mark.parametrize("primitive", [SORT, LENGTH], ids=["sort", "length"])
def test_no_move_grows(primitive: Grouped) -> None:
    """In L2, and entry by entry within the largest move, or the length, of the group."""
    start, moves = points(2000), 0.3 * points(2000, seed=1)
    moved = (primitive.apply(start + moves) - primitive.apply(start)).flatten(1)
    assert bool((moved.norm(dim=1) <= moves.flatten(1).norm(dim=1) * (1 + 1e-12)).all())
    assert bool((moved.abs() <= primitive.largest(moves.abs()).flatten(1) * (1 + 1e-12)).all())
    unit = moves[:1].abs()
    before = ForwardBound(unit.flatten(1).norm(dim=1), unit, torch.zeros(1).double())
    bound, _ = primitive.forward(before, None)
    assert bound.lipschitz <= before.lipschitz
    assert bool(torch.isinf(bound.curvature).all())


@pytest.mark.parametrize("primitive", [SORT, LENGTH], ids=["sort", "length"])
def test_gradients_are_within_their_bounds(primitive: Grouped) -> None:
    size = len(primitive.apply(points(1)).flatten())
    row = points(1, seed=2).flatten()[:size].reshape(primitive.out_shape)
    low, high = (row - 0.1)[None, None], (row + 0.1)[None, None]
    length = torch.maximum(-low, high).flatten().norm().reshape(1, 1)
    totals = Totals(torch.full((1, 1), torch.inf).double(), torch.ones(1).double())
    rows = GradientBound(low, high, length, torch.zeros(1, 1).double())
    bound = primitive.backward(rows, None, totals, Place(1))
    assert bool((bound.norm <= rows.norm).all())
    assert bound.curvature is not None
    assert bool(torch.isinf(bound.curvature).all())
    for seed in range(40):
        leaf = points(1, seed).requires_grad_()
        (slope,) = torch.autograd.grad((primitive.apply(leaf)[0] * row).sum(), leaf)
        assert bool((bound.low[0] - 1e-12 <= slope).all() and (slope <= bound.high[0] + 1e-12).all())
        assert float(slope.norm()) <= float(bound.norm) * (1 + 1e-12)


def test_errors_of_a_length_are_those_of_its_root() -> None:
    values = points(20)
    at = LENGTH.rounded(values, torch.full_like(values, 1e-3))
    for value, computed, error in zip(values, at.value, at.error, strict=True):
        for place, group in enumerate(GROUPS.tolist()):
            square = sum(Fraction(float(value.flatten()[entry])) ** 2 for entry in group)
            low, high = (
                Fraction(float(computed[place])) + sign * Fraction(float(error[place])) for sign in (-1, 1)
            )
            assert low**2 <= square <= high**2
            assert float(error[place]) >= 1e-3 * 3**0.5  # all entries off in the direction of the group


def test_errors_behind_orthogonal_layers_do_not_grow_with_their_entries() -> None:
    """Entry by entry, |Q| multiplies errors by ten in every layer; their norm stays what it is."""
    generator = torch.Generator().manual_seed(0)
    nodes = [Node((), (128,))]
    for _ in range(20):
        matrix = torch.linalg.qr(torch.randn(128, 128, dtype=torch.float64, generator=generator)).Q
        dense = Dense(matrix, None)
        dense.accept((1 + 1e-9,))
        nodes.append(Node((len(nodes) - 1,), (128,), dense))
        nodes.append(Node((len(nodes) - 1,), (128,), GroupSort(torch.arange(128).reshape(64, 2), (128,))))
    start = torch.randn(4, 128, dtype=torch.float64, generator=generator)
    value, error, _ = Graph(tuple(nodes)).rounded(start)
    assert float(error.max()) < 1e-9
    ends = start.to(torch.float64)
    assert bool(((value.norm(dim=1) - ends.norm(dim=1)).abs() < 1e-10).all())


def test_a_join_carries_the_norm_of_errors() -> None:
    lengths, ones = torch.tensor([[0.3], [0.4]], dtype=torch.float64), torch.ones(1, 4, dtype=torch.float64)
    parts = [(Rounded(ones, ones), length) for length in lengths]
    for axis, expected, shape in ((None, 0.7, (4,)), (0, 0.5, (8,))):
        at, length = _computed_join(Node((0, 1), shape, axis=axis), parts)
        assert float(length) == pytest.approx(expected, rel=1e-9)
        assert float(length) >= expected
        assert float(at.error.max()) == float(length)
