"""Smoothing: bounds are above exact values by the rounding that is promised, and no further; and refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

from certus.kernel import smoothing
from certus.kernel.concentration import betting, random_order
from certus.kernel.passes import Refused
from certus.kernel.rounding import FEW, MANY, SOME, slack
from certus.kernel.smoothing import (
    ConcavityThreshold,
    GammaDesign,
    NeymanPearsonBound,
    SmoothedStatement,
    SmoothedTable,
    VotingRule,
    dominate,
    dominated,
    smoothed_values,
    stake,
    upper_means,
)

IDEAL = VotingRule(None)
GRID = np.linspace(-5.0, 5.0, 41)
COUNTS = torch.tensor([0, 0, 1, 0, 3, 0, 0, 2, 0, 0] * 4)


def normal(point: float) -> float:
    return math.erfc(-point / math.sqrt(2)) / 2


def chances(count: int, hit: float) -> list[float]:
    return [math.comb(count, k) * hit**k * (1 - hit) ** (count - k) for k in range(count + 1)]


def test_the_threshold_of_concavity() -> None:
    """2φ(1)/σ²s."""
    for sigma, modulus in ((0.25, 2.0), (3.0, 0.5)):
        exact = 2 * math.exp(-0.5) / math.sqrt(2 * math.pi) / sigma**2 / modulus
        threshold = ConcavityThreshold.of(sigma, modulus)
        assert threshold.evidence == "proven"
        assert exact * (1 + MANY / 2) < threshold.value < exact * (1 + 2 * MANY)
    for sigma in (2.0**-100, 2.0**100):
        assert ConcavityThreshold.of(sigma, 1e-9).value > 0
    for sigma, modulus in ((2.0**-101, 1.0), (2.0**101, 1.0), (1.0, 0.0), (1.0, math.inf), (1.0, math.nan)):
        with pytest.raises(Refused, match="sigma and s"):
            ConcavityThreshold.of(sigma, modulus)


def test_the_ideal_vote_fails_from_0_on() -> None:
    assert IDEAL.failure_probability(np.array([-2.0, -0.5, 0.0, 0.5])).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(("votes", "threshold"), [(3, 2), (9, 4), (20, 10)])
def test_failures_and_their_bend_are_rounded_up(votes: int, threshold: int) -> None:
    rule, scores = VotingRule(votes, threshold), np.array([-2.0, -1.0, -0.3])
    for score, bound in zip(scores, rule.failure_probability(scores), strict=True):
        tail, raised = (
            sum(chances(votes, normal(score) * factor)[threshold:]) for factor in (1.0, 1 + 0.9 * SOME)
        )
        assert raised * (1 + MANY) + MANY - 1e-15 < bound < tail * (1 + 2 * MANY) + 2 * MANY
    before = threshold - 1
    modes = [chances(count, before / count)[before] for count in (votes - 2, votes - 1)]
    exact = votes * (votes - 1) * modes[0] / (2 * math.pi)
    exact += math.exp(-0.5) / math.sqrt(2 * math.pi) * votes * modes[1]
    assert exact * (1 + MANY / 2) < rule.bend < exact * (1 + 2 * MANY)


@pytest.mark.parametrize(
    ("proposed", "height", "first", "last"),
    [
        ([0.0, 0.25, 0.5, 1.0], 0.6, 0.6, 0.6),  # left of all cells
        ([0.2, 0.3, 0.4, 0.5], 0.0, 0.0, 0.0),  # right of them
        ([0.1, 0.2, 0.9, 1.3], 0.5, 0.05, 0.5),  # between two scores
    ],
)
def test_the_largest_shortfall_is_added(
    proposed: list[float], height: float, first: float, last: float
) -> None:
    edges = np.array([-4.0, -1.0, 0.5, 6.0])
    values = np.array([first, first, height, last])
    lifted = dominate(np.array(proposed), NeymanPearsonBound(edges, values), edges)
    below, lowered = (
        [float(np.dot(proposed, chances(3, normal(edge) * factor))) for edge in edges]
        for factor in (1.0, 1 - 0.9 * SOME)
    )
    places = {
        0: values[0] - proposed[0],
        1: 1 - below[-1],
        **{2 + j: values[j + 1] - below[j] for j in range(3)},
    }
    most = max(places, key=lambda place: places[place])
    mean = {0: -1.0, 1: below[-1], **{2 + j: below[j] for j in range(3)}}[most]
    shift = 0.0 if most == 0 else below[(-1, 0, 1, 2)[most - 1]] - lowered[(-1, 0, 1, 2)[most - 1]]
    room = MANY * (2 + mean) + shift + 0.9 * SOME * places[most]
    added = lifted - np.array(proposed)
    assert bool((added > places[most] + room - 1e-15).all())
    assert bool((added < places[most] + room * 1.01).all())


def test_coefficients_up_to_the_largest() -> None:
    bound = NeymanPearsonBound(GRID, np.zeros(41))
    largest = np.array([0.0, smoothing.LARGEST_COEFFICIENT])
    assert dominate(largest, bound, GRID)[1] >= smoothing.LARGEST_COEFFICIENT
    assert dominate(np.array([-1.0, 5.0]), bound, GRID)[0] == 0
    with pytest.raises(Refused, match="coefficients"):
        dominate(largest * (1 + 1e-15), bound, GRID)


@pytest.mark.parametrize(("gamma", "sigma", "price"), [(3.7, 0.3, None), (0.7, 1.3, 0.9), (5.1, 0.7, 0.9)])
def test_prices_are_rounded_down(
    gamma: float, sigma: float, price: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F falls with κ = γσ², and with the price of a label."""
    seen: list[tuple[Any, ...]] = []
    whole = NeymanPearsonBound.of

    def bound_of(*parts: Any) -> NeymanPearsonBound:
        seen.append(parts)
        return whole(*parts)

    monkeypatch.setattr(NeymanPearsonBound, "of", staticmethod(bound_of))
    design = GammaDesign(gamma, np.array([0.0, 0.5, 1.0]), grids=(GRID, GRID, GRID))
    lifted = dominated(design, IDEAL, sigma, price)
    assert bool((lifted.coefficients >= design.coefficients).all())
    ((_, penalty, _, _, floor),) = seen
    exact = Fraction(gamma) * Fraction(sigma) ** 2
    assert FEW / 2 < 1 - float(Fraction(penalty) / exact) < 2 * FEW
    gain = 0.0 if price is None else max(0.0, float(1 - Fraction(gamma) * Fraction(price)))
    if gain == 0:
        assert floor == 0
    else:
        assert Fraction(floor) > 1 - Fraction(gamma) * Fraction(price or 0)
        assert floor == pytest.approx(gain, abs=2 * FEW)


def test_stakes_have_room_for_rounding() -> None:
    designs = [
        GammaDesign(2.0, np.array([700.3, 710.1, 715.7]), 0.6),
        GammaDesign(1.0, np.array([300.7, 650.9, 930.1]), 0.3, 0.7),
    ]
    values = smoothed_values(designs, torch.tensor([0, 1, 2]))
    for index, design in enumerate(designs):
        numbers, ceiling, level, low, error = stake(designs, values, 0.1, index)
        first = designs[0].coefficients
        left = [
            Fraction(a) - Fraction(design.slope) * Fraction(b)
            for a, b in zip(design.coefficients, first, strict=True)
        ]
        sizes = max(map(abs, design.coefficients)) + design.slope * max(map(abs, first))
        assert error == pytest.approx((4 * 3 + 8) * 2.0**-52 * sizes, rel=1e-6)
        assert float(min(left) - Fraction(low)) == pytest.approx(error, rel=0.2)
        assert float(Fraction(ceiling) - (max(left) - min(left))) == pytest.approx(2 * error, rel=0.2)
        assert np.allclose(numbers, [float(part - Fraction(low)) for part in left], rtol=0, atol=error / 2)
        exact = Fraction(design.share) * Fraction(0.1)
        assert SOME / 2 < 1 - float(Fraction(level) / exact) < 2 * SOME


def test_means_have_room_for_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smoothing, "betting", lambda numbers, ceiling, level, claim: claim)
    designs = [
        GammaDesign(2.0, np.array([0.3, 0.7, 1.1]), 0.6),
        GammaDesign(1.0, np.array([0.2, 0.5, 1.3]), 0.4, 0.7),
    ]
    values = smoothed_values(designs, torch.tensor([0, 1, 2]))
    means = upper_means(designs, values, 0.1, [0.25, 0.4])
    led = 0.0
    for index, (claim, mean) in enumerate(zip((0.25, 0.4), means.values(), strict=True)):
        low, error = stake(designs, values, 0.1, index)[3:]
        exact = low + claim + designs[index].slope * led
        assert exact * SOME * 0.9 + 1.9 * error < mean - exact < exact * SOME * 1.1 + 2.1 * error
        led = mean


def test_shares_and_slopes() -> None:
    first = GammaDesign(2.0, np.array([0.3, 0.7]), 1.0)
    values = smoothed_values([first], COUNTS.clamp_max(1))

    def means(*designs: GammaDesign) -> dict[float, float]:
        rows = torch.cat([values] * len(designs))
        return upper_means(designs, rows, 0.1, [9.0] * len(designs))

    assert means(replace(first, share=1 + SOME))
    assert means(replace(first, share=0.9), replace(first, gamma=1.0, share=0.1, slope=3.0))
    wrong = [
        (replace(first, share=1 + 3 * SOME),),
        (replace(first, share=0.0),),
        (replace(first, slope=0.1),),
        (replace(first, share=0.5), replace(first, share=0.5, slope=math.inf)),
        (replace(first, share=0.5), replace(first, share=0.5, slope=-0.1)),
    ]
    for designs in wrong:
        with pytest.raises(Refused, match="shares"):
            means(*designs)


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"errors": COUNTS.short()}, True),
        ({"errors": torch.full((40, 3), 0.5)}, True),
        ({"errors": torch.full((40, 3), 0.5).double()}, True),
        ({"errors": torch.full((40, 3), 0.5).half()}, False),
        ({"errors": COUNTS.int()}, False),
        ({"errors": COUNTS[:-1]}, False),
        ({"errors": torch.full((40, 4), 0.5)}, False),
        ({"claims": [0.5]}, False),
        ({"designs": [GammaDesign(1.0, np.zeros(4)), GammaDesign(1.0, np.zeros(5))]}, False),
        ({"designs": [GammaDesign(1.0, np.zeros(3))] * 2}, False),
    ],
)
def test_tables_that_fit(change: dict[str, Any], fits: bool) -> None:
    table = SmoothedTable(COUNTS, [GammaDesign(1.0, np.zeros(4))] * 2, [0.5, 0.5])
    assert replace(table, **change).fits(40, 3) is fits


def test_tables_without_rows_or_draws_do_not_fit() -> None:
    designs = [GammaDesign(1.0, np.zeros(4))]
    assert not SmoothedTable(COUNTS[:0], designs, [0.5]).fits(0, 3)
    assert not SmoothedTable(torch.zeros(40, 0), [GammaDesign(1.0, np.zeros(1))], [0.5]).fits(40, 0)
    assert SmoothedTable(COUNTS[:1], designs, [0.5]).fits(1, 3)


STATEMENT = SmoothedStatement(
    *(0.5, 0.9, 40, 3, 7, None),
    rules={"error": (VotingRule(None), 1.0), "loss": (VotingRule(None), 2.5)},
    means={},
)
DESIGN = GammaDesign(1.5, np.array([0.1, 0.4, 0.8, 1.0]), grids=(GRID, GRID, GRID))


def tables(claim: float, names: tuple[str, ...] = ("error", "loss"), **change: Any) -> dict[str, Any]:
    table = SmoothedTable(COUNTS, [DESIGN], [claim])
    return {name: replace(table, **change) for name in names}


def least_claim(statement: SmoothedStatement) -> tuple[float, float]:
    """The smallest mean that betting proves with this share of δ, and the low end of its stakes."""
    failure = 0.8 * (1 - statement.confidence) / len(statement.rules)
    design = dominated(DESIGN, IDEAL, statement.sigma, statement.label_price)
    order = random_order(statement.samples, statement.seed)
    numbers, ceiling, level, low, _ = stake([design], smoothed_values([design], COUNTS[order]), failure, 0)
    below, above = 0.0, ceiling
    for _ in range(60):
        middle = (below + above) / 2
        try:
            above = betting(numbers, ceiling, level, middle)
        except Refused:
            below = middle
    assert 0 < above < ceiling
    return above, low


def test_each_quantity_has_its_share_of_the_failure() -> None:
    claim, low = least_claim(STATEMENT)
    proven = STATEMENT.prove(tables(claim * (1 + 1e-9)))
    assert proven.evidence == "proven"
    assert proven.premises == smoothing.PREMISES
    mean = low + claim * (1 + 1e-9)
    for name, ceiling in (("error", 1.0), ("loss", 2.5)):
        ((gamma, bound),) = proven.means[name].items()
        assert gamma == ceiling * 1.5
        room = bound / (ceiling * mean) - 1
        assert SOME / 2 < room < 1e-11
    with pytest.raises(Refused, match="a mean of at most"):
        STATEMENT.prove(tables(claim * (1 - 1e-9)))


def test_a_ceiling_is_paid_for_in_units_of_the_last_place() -> None:
    """Of 1 and of 2.5: the products are rounded up once more."""
    one, more = STATEMENT.prove(tables(5.0)).means.values()
    (plain,), (scaled,) = one.values(), more.values()
    assert float(Fraction(scaled) / (Fraction(plain) * Fraction(2.5) / (1 + Fraction(FEW)))) - 1 > FEW / 2
    assert scaled == pytest.approx(2.5 * plain, rel=2 * FEW)


@pytest.mark.parametrize(
    "change",
    [
        *({"sigma": 2.0**-100}, {"sigma": 2.0**100}, {"seed": 0}, {"seed": 2**64 - 1}),
        *({"label_price": 0.0}, {"label_price": 1.0}, {"confidence": 0.01}, {"confidence": 0.999}),
    ],
)
def test_statements_at_the_edge(change: dict[str, Any]) -> None:
    assert replace(STATEMENT, **change).prove(tables(5.0)).evidence == "proven"


@pytest.mark.parametrize(
    "change",
    [
        *({"sigma": 2.0**-101}, {"sigma": 2.0**101}, {"confidence": 0.0}, {"confidence": 1.0}),
        *({"confidence": -0.5}, {"confidence": 1.5}, {"seed": -1}, {"seed": 2**64}, {"label_price": -0.1}),
        *({"samples": 39}, {"draws": 2}, {"rules": {"error": (IDEAL, 1.0)}}),
        *({"rules": {"error": (IDEAL, ceiling), "loss": (IDEAL, 1.0)}} for ceiling in (0.0, -1.0, math.inf)),
    ],
)
def test_statements_without_a_theorem_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        replace(STATEMENT, **change).prove(tables(5.0))


def test_a_ceiling_times_the_largest_gamma_is_finite() -> None:
    designs = [replace(DESIGN, share=0.5), replace(DESIGN, gamma=1e10, share=0.5)]
    statement = replace(STATEMENT, rules={"loss": (IDEAL, 1e300)})
    with pytest.raises(Refused, match="a ceiling"):
        statement.prove(tables(5.0, ("loss",), designs=designs, claims=[5.0, 5.0]))
    assert slack(0) > 0
