"""Transport bounds by hand: each side is rounded outwards by what is promised, and no further."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor

from certus.kernel.costs import Claimed, Lp
from certus.kernel.passes import Refused
from certus.kernel.rounding import MANY, SOME, slack
from certus.kernel.transport import TransportBounds, sorted_costs
from tests.kernel.margins import near

FIRST = torch.tensor([[0.0, 1.0], [1.0, 0.0], [3.0, 0.5]], dtype=torch.float64)
SECOND = torch.tensor([[0.5, 2.0], [2.0, 0.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1]), torch.tensor([0, 1])
WEIGHTS = torch.tensor([0.3, 0.7], dtype=torch.float64)
# 0 → ½ and 3 → 2 with a third of the mass, 1 → ½ and 1 → 2 with a sixth; and likewise.
EXACT = [
    Fraction(1, 3) * Fraction(1, 4) + Fraction(1, 6) * (Fraction(1, 4) + 1) + Fraction(1, 3),
    Fraction(1, 6) * Fraction(1, 4) + Fraction(1, 6) * Fraction(9, 4) + Fraction(1, 3),
]
COUPLING = torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 1, 1]), torch.tensor([2, 1, 1, 2])


def room(bound: float, exact: Fraction | float) -> float:
    return float(1 - Fraction(bound) / Fraction(exact))


def test_sorted_numbers() -> None:
    for bound, exact in zip(sorted_costs(FIRST, SECOND).tolist(), EXACT, strict=True):
        assert room(bound, exact) == near(slack(4 + 4), rel=0.2)


def bounds_of(**change: Any) -> TransportBounds:
    options: dict[str, Any] = {"targets": LABELS, "coupling": COUPLING} | change
    cost = options.pop("cost", Lp(shape=(2,), scales=WEIGHTS, label_price=0.9))
    return TransportBounds.of(FIRST, SECOND, cost, **options)


def test_columns_and_their_sum() -> None:
    cost = Lp(shape=(2,), scales=WEIGHTS, label_price=0.9)
    bounds = bounds_of()
    for bound, weight, exact in zip(bounds.columns.tolist(), WEIGHTS.tolist(), EXACT, strict=True):
        assert room(bound, Fraction(weight) * exact) == near(cost.rounding, rel=0.02)
    alone = bounds_of(targets=None)
    total = sum(map(Fraction, alone.columns.tolist()), Fraction(0))
    assert room(alone.low, total) == near(slack(2), rel=0.2)
    assert bounds.labels is not None
    assert room(bounds.labels, Fraction(1, 6)) == near(SOME, rel=0.1)
    with_labels = Fraction(alone.low) + Fraction(0.9) * Fraction(bounds.labels)
    assert room(bounds.low, with_labels) == near(SOME, rel=0.1)


def test_a_growth_of_its_own() -> None:
    def length(moves: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(moves.flatten(1), dim=1)
        return lengths

    cost = Claimed(
        shape=(2,),
        assumptions=("mine",),
        growth=6.0,
        strong_convexity=2.0,
        floor=0.5,
        values=lambda x, y: 3 * length(x - y) ** 2,
        slopes=lambda x, y: 6 * (x - y),
        length_of=length,
        dual_of=length,
        value_terms=lambda x, y: torch.zeros(len(x)).double(),
        gradient_terms=lambda x, y: torch.zeros(len(x)).double(),
    )
    bounds = bounds_of(cost=cost, targets=None, coupling=None)
    for bound, exact in zip(bounds.columns.tolist(), EXACT, strict=True):
        assert bound == near(float(3 * Fraction(1, 4) * exact))
    assert bounds.assumptions == ("mine",)
    assert bounds.high == math.inf


def test_a_coupling_pays_for_moves_and_labels() -> None:
    """A third and two sixths at the labels that they had, a sixth at another one; and all of it at once."""
    bounds = bounds_of()
    whole = [(0, 0, 2), (1, 0, 1), (1, 1, 1), (2, 1, 2)]
    cost = [
        sum(
            Fraction(weight) * Fraction(float(a) - float(b)) ** 2
            for weight, a, b in zip(WEIGHTS.tolist(), FIRST[i], SECOND[j], strict=True)
        )
        * Fraction(mass, 6)
        for i, j, mass in whole
    ]
    exact = float(sum(cost, Fraction(0)))
    assert bounds.moved == near(exact * (1 + MANY + SOME), rel=SOME)
    assert bounds.relabelled is not None
    assert room(bounds.relabelled, Fraction(1, 6)) == near(-SOME, rel=0.1)
    both = Fraction(bounds.moved) + Fraction(0.9) * Fraction(bounds.relabelled)
    assert room(bounds.high, both) == near(-SOME, rel=0.1)
    total = Fraction(0.25) + Fraction(bounds.relabelled)
    assert room(bounds.error(0.25), total) == near(-SOME, rel=0.1)
    assert bounds_of(targets=None).error(0.1) == 1


def test_a_sum_over_a_coupling_is_rounded_up() -> None:
    one = torch.zeros(1, 1, dtype=torch.float64), torch.full((1, 1), 0.75, dtype=torch.float64)
    cost, single = Lp(shape=(1,)), torch.zeros(1, dtype=torch.int64)
    bounds = TransportBounds.of(*one, cost, coupling=(single, single, single + 1))
    exact = 0.5625 * (1 + cost.rounding) * (1 + MANY)
    assert bounds.moved == near(exact * (1 + slack(9)), rel=1.2e-15)


@pytest.mark.parametrize(
    "coupling",
    [
        (*COUPLING[:2], torch.tensor([2, 1, 0, 3])),
        (*COUPLING[:2], torch.tensor([2, 2, 0, 2])),
        (*COUPLING[:2], torch.tensor([3, 0, 1, 2])),
        (torch.tensor([0, 1, 1, 2, 0]), torch.tensor([0, 0, 1, 1, 1]), torch.tensor([2, 1, 1, 2, 0])),
        (*COUPLING[:2], COUPLING[2].double()),
        (COUPLING[0], COUPLING[1][:3], COUPLING[2]),
        (COUPLING[1], COUPLING[0], COUPLING[2]),
        (COUPLING[0] - 1, *COUPLING[1:]),
    ],
)
def test_couplings_that_are_none(coupling: tuple[Tensor, Tensor, Tensor]) -> None:
    with pytest.raises(Refused, match="coupling"):
        bounds_of(coupling=coupling)


def test_unknown_values_pay_their_weight() -> None:
    """A column of two inputs, known and unknown; w to become unknown, and 2w to change."""
    weights = torch.tensor([0.5, 0.5, 2.0], dtype=torch.float64)
    cost, one = Lp(shape=(3,), scales=weights), torch.zeros(1, dtype=torch.int64)
    known, other, unknown = (
        torch.tensor([row], dtype=torch.float64) for row in ([1.0, 0, 0], [0.0, 1, 0], [0.0, 0, 0])
    )
    for first, second, price in ((known, unknown, 1.0), (unknown, known, 1.0), (known, other, 1.0)):
        bounds = TransportBounds.of(first, second, cost, groups=[(0, 1)], coupling=(one, one, one + 1))
        assert bounds.moved == near(price)
    for same in (known, unknown):
        bounds = TransportBounds.of(same, same, cost, groups=[(0, 1)], coupling=(one, one, one + 1))
        assert bounds.moved == 0
