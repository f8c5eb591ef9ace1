"""Bounds on the transport cost between samples, against POT, linear programs and exact fractions."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import ot
import pytest
import torch
from torch import Tensor

from certus.kernel.costs import Claimed, Cost, Lp, Quadratic
from certus.kernel.evidence import Evidence
from certus.kernel.passes import Refused
from certus.kernel.transport import Coupling, TransportBounds, sorted_costs

WIDTH = 3


def rows(seed: int, count: int, move: float = 0.0) -> Tensor:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(move, rng.uniform(0.5, 2, WIDTH), (count, WIDTH)).round(2))


def labels(seed: int, count: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 3, count))


def cost_of(kind: str, label_price: float = math.inf) -> Cost:
    shape, price = (WIDTH,), label_price
    if kind == "quadratic":
        matrix = torch.tensor([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 3.0]], dtype=torch.float64)
        values, vectors = torch.linalg.eigh(matrix)
        return Quadratic(shape=shape, label_price=price, matrix=matrix, root=vectors * values**-0.5)
    p = {"l1": 1.0, "l1.5": 1.5, "l2": 2.0, "weighted": 2.0, "sup": math.inf}[kind]
    scales = torch.tensor([1.0, 0.25, 4.0], dtype=torch.float64) if kind == "weighted" else None
    return Lp(shape=shape, label_price=price, p=p, scales=scales)


def pair_costs(first: Tensor, second: Tensor, cost: Cost) -> np.ndarray:
    """(n, m) costs of moving each row to each other one."""
    return np.stack([cost.value(second, origin.expand_as(second)).numpy() for origin in first])


def best_coupling(first: Tensor, second: Tensor, costs: np.ndarray) -> Coupling:
    n, m = len(first), len(second)
    plan = np.rint(ot.emd(np.full(n, float(m)), np.full(m, float(n)), costs)).astype(np.int64)
    left, right = np.nonzero(plan)
    return torch.from_numpy(left), torch.from_numpy(right), torch.from_numpy(plan[left, right])


@pytest.mark.parametrize("kind", ["l1", "l1.5", "l2", "weighted", "sup", "quadratic"])
@pytest.mark.parametrize(("n", "m"), [(7, 7), (5, 8), (1, 6), (9, 2)])
def test_the_optimum_lies_between(kind: str, n: int, m: int) -> None:
    """Against POT: at an optimal plan the upper bound is the optimum, up to rounding, and never below it."""
    cost, first, second = cost_of(kind), rows(n, n), rows(m + 100, m, 0.7)
    costs = pair_costs(first, second, cost)
    exact = float(ot.emd2(np.full(n, 1 / n), np.full(m, 1 / m), costs))
    bounds = TransportBounds.of(first, second, cost, coupling=best_coupling(first, second, costs))
    assert 0 < bounds.low <= exact * (1 + 1e-12)
    assert exact * (1 - 1e-12) <= bounds.high <= exact * (1 + 1e-6)
    assert bounds.moved == bounds.high
    assert (bounds.relabelled, bounds.labels, bounds.evidence) == (None, None, Evidence.PROVEN)
    if kind in ("l2", "weighted"):  # sums over columns
        weights = [1.0] * WIDTH if kind == "l2" else [1.0, 0.25, 4.0]
        for at, weight in enumerate(weights):
            alone = weight * ot.emd2_1d(first[:, at].numpy(), second[:, at].numpy())
            assert float(bounds.columns[at]) == pytest.approx(alone, rel=1e-9, abs=1e-15)
            assert float(bounds.columns[at]) <= alone * (1 + 1e-14)


def test_one_column_is_met_from_both_sides() -> None:
    first, second, cost = rows(0, 6), rows(1, 10, 0.4), cost_of("weighted")
    counted = torch.tensor([False, True, False])
    costs = pair_costs(first * counted, second * counted, cost)
    bounds = TransportBounds.of(
        first, second, cost, counted=counted, coupling=best_coupling(first, second, costs)
    )
    exact = 0.25 * ot.emd2_1d(first[:, 1].numpy(), second[:, 1].numpy())
    assert bounds.low == pytest.approx(exact, rel=1e-9)
    assert bounds.high == pytest.approx(exact, rel=1e-6)  # of the coupling, which is POT's
    assert bounds.low <= exact * (1 + 1e-14)
    assert exact * (1 - 1e-14) <= bounds.high
    assert bounds.columns[[0, 2]].tolist() == [0, 0]
    assert bounds.evidence is Evidence.ASSUMED  # the other columns differ, and are taken to stay
    alike = second.clone()
    alike[:, [0, 2]] = first[0, [0, 2]]
    same = first.clone()
    same[:, [0, 2]] = first[0, [0, 2]]
    coupling = best_coupling(same, alike, pair_costs(same, alike, cost))
    proven = TransportBounds.of(same, alike, cost, counted=counted, coupling=coupling)
    assert proven.evidence is Evidence.PROVEN
    assert proven.high == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(("n", "m"), [(3, 4), (5, 5), (6, 4), (1, 3)])
def test_sorting_is_rounded_down_from_exact_fractions(n: int, m: int) -> None:
    """W of one column as a sum of exact fractions, over a common multiple of both sizes."""
    a, b = rows(n, n)[:, :1], rows(m, m, 2.0)[:, :1]
    left, right = (sorted(Fraction(value) for value in part.flatten().tolist()) for part in (a, b))
    terms = [(left[unit // m] - right[unit // n]) ** 2 for unit in range(n * m)]
    exact = sum(terms, Fraction(0)) / (n * m)
    bound = float(sorted_costs(a, b)[0])
    assert Fraction(bound) <= exact
    assert bound == pytest.approx(float(exact), rel=1e-12)


def test_equal_samples_are_not_apart() -> None:
    first = rows(0, 8)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    own = order.argsort(), torch.arange(8), torch.full((8,), 8)
    bounds = TransportBounds.of(first, first[own[0]], cost_of("l2"), coupling=(own[0], own[1], own[2]))
    assert (bounds.low, bounds.high) == (0, 0)


@pytest.mark.parametrize("price", [0.3, math.inf])
def test_labels_have_their_price(price: float) -> None:
    first, second, cost = rows(0, 9), rows(1, 12), cost_of("l2", price)
    own = labels(2, 9), labels(3, 12)
    finite = min(price, 100.0)
    costs = pair_costs(first, second, cost) + finite * (own[0][:, None] != own[1][None, :]).numpy()
    coupling = best_coupling(first, second, costs)
    bounds = TransportBounds.of(first, second, cost, targets=own, coupling=coupling)
    shares = [np.bincount(part.numpy(), minlength=3) / len(part) for part in own]
    variation = float(abs(shares[0] - shares[1]).sum() / 2)
    changed = float((coupling[2] * (own[0][coupling[0]] != own[1][coupling[1]])).sum()) / (9 * 12)
    assert bounds.relabelled == pytest.approx(changed)
    assert bounds.relabelled is not None
    assert bounds.relabelled >= changed >= variation - 1e-12
    if price < math.inf:
        exact = float(ot.emd2(np.full(9, 1 / 9), np.full(12, 1 / 12), costs))
        assert bounds.labels == pytest.approx(variation)
        assert bounds.labels is not None
        assert bounds.labels <= variation
        assert bounds.low == pytest.approx(float(bounds.columns.sum()) + price * variation)
        assert bounds.low <= exact
        assert exact <= bounds.high <= exact * (1 + 1e-9)
        assert bounds.high == pytest.approx(bounds.moved + price * changed)
    else:
        assert bounds.labels is None
        assert bounds.high == bounds.moved


def test_errors_of_relabelled_rows_are_added() -> None:
    """Against an adversary: rows of another label may all be wrong."""
    first, second, own = rows(0, 4), rows(1, 4), (torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 1]))
    straight = torch.arange(4), torch.arange(4), torch.full((4,), 4)
    bounds = TransportBounds.of(first, second, cost_of("l2"), targets=own, coupling=straight)
    assert bounds.relabelled == pytest.approx(0.25)
    assert bounds.error(0.5) == pytest.approx(0.75)
    assert bounds.error(0.5) >= 0.75
    assert bounds.error(0.9) == 1.0
    unlabelled = TransportBounds.of(first, second, cost_of("l2"), coupling=straight)
    assert unlabelled.error(0.1) == 1.0  # nothing is known of its labels


def test_columns_that_cannot_move_do_not_count() -> None:
    free = torch.tensor([True, False, True])
    cost = Lp(shape=(WIDTH,), free=free)
    first, second = rows(0, 5), rows(1, 5, 1.0)
    straight = torch.arange(5), torch.arange(5), torch.full((5,), 5)
    bounds = TransportBounds.of(first, second, cost, coupling=straight)
    assert float(bounds.columns[1]) == 0
    alone = ((first - second)[:, free] ** 2).sum(1).mean()
    assert bounds.high == pytest.approx(float(alone))


def test_a_claimed_cost_is_assumed() -> None:
    cost = Claimed(
        shape=(WIDTH,),
        assumptions=("growth of a test",),
        growth=2.0,
        strong_convexity=2.0,
        floor=1.0,
        values=lambda x, y: ((x - y) ** 2).sum(1),
        slopes=lambda x, y: 2 * (x - y),
        length_of=lambda v: v.norm(dim=1),
        dual_of=lambda g: g.norm(dim=1),
        value_terms=lambda x, y: ((x - y) ** 2).sum(1),
        gradient_terms=lambda x, y: 2 * (x - y).norm(dim=1),
    )
    bounds = TransportBounds.of(rows(0, 4), rows(1, 5), cost)
    assert bounds.evidence is Evidence.ASSUMED
    assert bounds.assumptions == cost.assumptions
    assert bounds.high == math.inf
    assert replace(bounds, low=2.0).evidence is Evidence.STATED


STRAIGHT = (torch.arange(4), torch.arange(4), torch.full((4,), 4))


@pytest.mark.parametrize(
    "coupling",
    [
        (STRAIGHT[0], STRAIGHT[1], torch.full((4,), 3)),  # not all of the mass
        (STRAIGHT[0], torch.tensor([0, 0, 2, 3]), STRAIGHT[2]),  # a row twice
        (torch.tensor([0, 0, 2, 3]), STRAIGHT[1], STRAIGHT[2]),
        (torch.tensor([-4, 1, 2, 3]), STRAIGHT[1], STRAIGHT[2]),  # a row from the end
        (STRAIGHT[0], torch.tensor([0, 1, 2, 4]), STRAIGHT[2]),
        (STRAIGHT[0][:3], STRAIGHT[1], STRAIGHT[2]),
        (STRAIGHT[0], STRAIGHT[1], STRAIGHT[2].double()),
        # Negative mass that cancels: nothing would be paid for the rest.
        tuple(
            torch.cat([part, more])
            for part, more in zip(
                STRAIGHT,
                (torch.tensor([0, 0]), torch.tensor([0, 0]), torch.tensor([5, -5])),
                strict=True,
            )
        ),
        # Mass that overflows to the right sum.
        tuple(
            torch.cat([part, more])
            for part, more in zip(
                STRAIGHT,
                (torch.tensor([0, 0]), torch.tensor([0, 0]), torch.tensor([2**63 - 1, 2**63 - 1])),
                strict=True,
            )
        ),
    ],
)
def test_what_is_no_coupling_is_refused(coupling: Coupling) -> None:
    first = rows(0, 4)
    with pytest.raises(Refused, match="coupling"):
        TransportBounds.of(first, first + 1, cost_of("l2"), coupling=coupling)


def test_rows_that_do_not_fit_are_refused() -> None:
    first, cost = rows(0, 4), cost_of("l2")
    for second in (rows(1, 4)[:, :2], rows(1, 4)[:0], torch.full((4, WIDTH), math.nan), first + math.inf):
        with pytest.raises(Refused, match="finite rows of the shape"):
            TransportBounds.of(first, second, cost)
    with pytest.raises(Refused, match="a label for each row"):
        TransportBounds.of(first, first, cost, targets=(labels(0, 4), labels(0, 3)))
    with pytest.raises(Refused, match="too far apart"):
        TransportBounds.of(first, first + 1e200, cost)


def test_a_value_that_is_unknown_costs_a_whole_change() -> None:
    """Over rows, to or from an unknown category costs 2w, by enumeration; with inputs alone it is w."""
    weights = torch.tensor([1.0, 0.5, 0.5], dtype=torch.float64)
    cost = Lp(shape=(WIDTH,), scales=weights)
    first = torch.tensor([[0.0, 1, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]], dtype=torch.float64)
    second = torch.tensor([[0.0, 0, 1], [2, 0, 0], [0, 1, 0], [0, 0, 0]], dtype=torch.float64)
    over_rows = TransportBounds.of(first, second, cost, groups=[[1, 2]], coupling=STRAIGHT)
    assert over_rows.high == pytest.approx((1 + (4 + 1) + 1 + 0) / 4)
    assert over_rows.high >= 7 / 4
    inputs = TransportBounds.of(first, second, cost, coupling=STRAIGHT)
    assert inputs.high == pytest.approx((1 + 4.5 + 0.5) / 4)
    assert over_rows.low == inputs.low
    for wrong in ([0.0, 0.5, 0.0], [0.0, 1.0, 1.0]):
        other = torch.cat([torch.tensor([wrong], dtype=torch.float64), second[1:]])
        with pytest.raises(Refused, match="must be rows of the table"):
            TransportBounds.of(first, other, cost, groups=[[1, 2]], coupling=STRAIGHT)
