"""Statements and changes of rows: by hand, with the rounding that is promised; and their limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor

from certus.kernel.concentration import betting, dkw, hoeffding_margin, random_order
from certus.kernel.costs import Domain, Lp
from certus.kernel.error_rates import error_gains
from certus.kernel.graph import Graph, Node
from certus.kernel.losses import Softmax, SquaredError
from certus.kernel.operators import Dense
from certus.kernel.passes import Refused
from certus.kernel.problem import Problem
from certus.kernel.rounding import FARTHEST, FEW, SOME, slack
from certus.kernel.statement import ChangeBounds, PopulationBounds, Statement, failure_shares

WEIGHT = torch.tensor([[2.0, 0.0], [0.0, 4.0], [-1.0, -1.0]], dtype=torch.float64)
INPUTS = torch.tensor([[1.5, 0.25], [0.25, 1.0], [1.0, 0.75], [0.5, -2.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 1, 0, 0])
VARIANTS = [INPUTS + torch.tensor([0.0, 0.5]), INPUTS * torch.tensor([0.5, 1.0]).double()]


def problem_of(weight: Tensor = WEIGHT, inputs: Tensor = INPUTS, targets: Tensor = LABELS) -> Problem:
    graph = Graph((Node((), (2,)), Node((0,), (len(weight),), Dense(weight, None))))
    loss = Softmax() if targets.dtype == torch.int64 else SquaredError()
    return Problem.of(graph, loss, Lp(shape=(2,)), Domain(), (inputs, targets))


def by_hand(rows: Tensor) -> tuple[list[float], list[bool]]:
    """Cross-entropies, and whether another output is at least as large."""
    losses, wrong = [], []
    for row, label in zip(rows.tolist(), LABELS.tolist(), strict=True):
        outputs = [sum(w * x for w, x in zip(weights, row, strict=True)) for weights in WEIGHT.tolist()]
        margins = [output - outputs[label] for output in outputs]
        losses.append(math.log(sum(map(math.exp, margins))))
        wrong.append(max(margin for k, margin in enumerate(margins) if k != label) >= 0)
    return losses, wrong


@pytest.mark.parametrize("changed", [0.0, 0.75, 1.0, 1.5, 2.25, 4.0, 9.0])
def test_the_largest_gains_of_some_rows(changed: float) -> None:
    every = [by_hand(rows) for rows in (INPUTS, *VARIANTS)]
    now, highest = every[0][0], [max(losses) for losses in zip(*(each[0] for each in every), strict=True)]
    gains = sorted((high - low for high, low in zip(highest, now, strict=True)), reverse=True)
    paid = [gain * min(1.0, max(0.0, changed - place)) for place, gain in enumerate(gains)]
    total = (sum(now) + sum(paid)) / 4
    bounds = ChangeBounds.of(problem_of(), VARIANTS, changed)
    assert bounds.evidence == "proven"
    # A loss is raised by its own rounding, each mean by that of means, and their sum once more.
    room = SOME * ((1 + total) + total + (1 + total))
    assert 0.97 * room < bounds.loss - total < 1.05 * room
    wrong, some = sum(every[0][1]), sum(map(any, zip(*(each[1] for each in every), strict=True)))
    assert 0 < wrong < some
    exact = (wrong + min(changed, some - wrong)) / 4
    assert bounds.error is not None
    assert exact < bounds.error <= exact * (1 + 2 * FEW)


def test_all_rows_may_be_errors_and_ties_are() -> None:
    flat = ChangeBounds.of(problem_of(torch.zeros(3, 2, dtype=torch.float64)), [], 0.0)
    assert flat.error == 1.0
    assert flat.loss == pytest.approx(math.log(3), abs=1e-10)


def test_numbers_have_no_errors() -> None:
    targets = torch.tensor([1.0, 2.0, 0.0, -1.0], dtype=torch.float64)
    bounds = ChangeBounds.of(problem_of(WEIGHT[:1], targets=targets), VARIANTS[1:], 1.0)
    now = [4.0, 2.25, 4.0, 4.0]
    then = [(1.5 - 1) ** 2, (0.25 - 2) ** 2, 1.0, (0.5 + 1) ** 2]
    most = max(max(0.0, b - a) for a, b in zip(now, then, strict=True))
    assert bounds.error is None
    assert bounds.loss == pytest.approx((sum(now) + most) / 4, abs=1e-10)
    assert bounds.loss > (sum(now) + most) / 4


@pytest.mark.parametrize("changed", [-0.1, math.inf, math.nan])
def test_masses_that_are_none(changed: float) -> None:
    with pytest.raises(Refused, match="a mass of changed rows"):
        ChangeBounds.of(problem_of(), VARIANTS, changed)


def test_rows_without_a_proof() -> None:
    problem, far = problem_of(), INPUTS.clone()
    with pytest.raises(Refused, match="samples are needed"):
        ChangeBounds.of(problem.about(INPUTS[:0], LABELS[:0]), [], 0.0)
    far[2] = 1e308
    with pytest.raises(Refused, match="overflows float64"):
        ChangeBounds.of(problem, [far], 1.0)
    with pytest.raises(Refused, match="samples must be finite"):
        ChangeBounds.of(problem, [VARIANTS[0].float()], 1.0)
    with pytest.raises(Refused, match="amplify"):
        ChangeBounds.of(problem_of(WEIGHT * 1e70), VARIANTS, 1.0)


PEOPLE = PopulationBounds(0.9, 0, 1.0, "hoeffding", {1.0: 0.5}, {2.0: 0.25}, 0.1)
COSTS = torch.tensor([0.0, 0.5, 0.5, 2.0, math.inf], dtype=torch.float64)
STATED = Statement(5, 2.0, 0.3, {1.0: 0.5, 4.0: 0.4}, COSTS, population=PEOPLE)


def test_certified_samples_are_strictly_beyond() -> None:
    assert [STATED.certified_samples(epsilon) for epsilon in (0.0, 0.5, 1.0, 1e15)] == [4, 2, 1, 1]
    assert [STATED.certified_samples(epsilon) for epsilon in (-0.1, 1.01e15, math.nan)] == [0, 0, 0]
    assert STATED.certified_samples(math.sqrt(FARTHEST)) == 1
    edge = 0.3**2 * 2.0 * (1 + SOME)
    for cost, count in ((edge, 0), (math.nextafter(edge, 1), 1), (0.3**2 * 2.0, 0)):
        costs = torch.tensor([cost], dtype=torch.float64)
        assert replace(STATED, samples=1, error_costs=costs).certified_samples(0.3) == count
    assert replace(STATED, error_costs=None).certified_samples(0.0) == 0


def test_the_share_of_a_population() -> None:
    exact = Fraction(4, 5) - Fraction(0.1) * (1 + Fraction(SOME)) - Fraction(slack(5))
    share = STATED.population_certified(0.0)
    assert float(exact - Fraction(share)) == pytest.approx(0, abs=4e-16)
    assert STATED.population_certified(2e15) == 0
    for change in ({"population": None}, {"weights": torch.ones(5)}, {"error_costs": None}):
        assert replace(STATED, **change).population_certified(0.0) == 0
    assert replace(STATED, population=replace(PEOPLE, error_margin=None)).population_certified(0.0) == 0


def test_a_share_at_one_distance() -> None:
    """All of ten: the tenth power of the claim is at most half of δ."""
    whole = replace(STATED, samples=10, error_costs=torch.full((10,), math.inf).double())
    claim = 0.05**0.1
    assert whole.fixed_certified(1.0, claim * (1 - 1e-6)) == claim * (1 - 1e-6)
    with pytest.raises(Refused):
        whole.fixed_certified(1.0, claim * (1 + 1e-6))
    with pytest.raises(Refused):
        replace(whole, population=None).fixed_certified(1.0, 0.1)


def test_shares_of_the_failure() -> None:
    assert failure_shares(0.75, labelled=False) == pytest.approx((0.2, 0.05), rel=1e-15)
    assert failure_shares(0.75, labelled=True) == pytest.approx((0.1, 0.025), rel=1e-15)


def test_losses_at_any_rho() -> None:
    assert STATED.loss(0.0) == (0.3, 4.0)
    for rho, gamma, mean in ((1e-30, 4.0, 0.4), (0.25, 1.0, 0.5)):
        bound, chosen = STATED.loss(rho)
        exact = gamma * rho + mean
        assert chosen == gamma
        assert exact * (1 + SOME / 2) < bound < exact * (1 + 2 * SOME)
    assert replace(STATED, clip=0.45).loss(1.0)[0] == 0.45
    assert replace(STATED, means={}).loss(1.0)[0] == math.inf
    for rho in (-1e-9, math.nan):
        with pytest.raises(Refused, match="rho"):
            STATED.loss(rho)


def test_errors_and_populations_at_any_rho() -> None:
    nothing = replace(STATED, error_costs=None, population=None)
    assert nothing.error(0.1, 1.0) == 1
    assert nothing.population_loss(0.1) == math.inf
    assert nothing.population_error(0.1, 1.0) == 1
    assert nothing.population_rate("recall", 0, 0.1, 1.0, [0.1]) == 1
    assert STATED.population_loss(0.25) == pytest.approx(0.75, abs=1e-11)
    assert PEOPLE.loss(9.0) == 1
    exact = 0.2 + 0.1
    assert exact * (1 + SOME / 2) < PEOPLE.error(0.5, 0.2) < exact * (1 + 2 * SOME)
    assert PEOPLE.error(0.01, 0.9) == pytest.approx(0.27, abs=1e-11)
    assert replace(PEOPLE, error_means={}, error_margin=None).error(0.1, 0.2) == 1


def part(count: int, **change: Any) -> Statement:
    """Of some rows, at γ = 1 and 2, with errors that cost 0 or are impossible."""
    costs = torch.full((count,), math.inf, dtype=torch.float64)
    costs[0] = 0
    people = replace(PEOPLE, means={1.0: 0.5, 2.0: 0.4})
    means = {1.0: 1 / count, 2.0: 0.125}
    return replace(Statement(count, 2.0, 0.1, means, costs, population=people, clip=1.0), **change)


def test_populations_of_parts() -> None:
    """Hoeffding with 0.8 δ over two, and over the values of gamma; betting and DKW with a half each."""
    parts, count = [part(40), part(60)], 100
    grid, above = 3, 0.8 * (1 - 0.9) / 2
    costs = torch.cat([each.error_costs for each in parts if each.error_costs is not None])
    gains, share = error_gains(costs[random_order(count, 0)], 1.0), above / (2 * 2)
    claim = least(lambda mean: betting(gains, 1.0, share, mean))
    near = {1.0: claim * (1 + 1e-9), 3.0: 1.0}
    merged = PopulationBounds.merged(parts, near, grid)
    assert merged.error_means == near
    assert merged.error_margin == pytest.approx(dkw(count, above / 2), rel=1e-12)
    for gamma, mean in ((1.0, 0.02), (2.0, 0.125)):
        exact = mean + hoeffding_margin(count, 1.0, above / grid)
        room = merged.means[gamma] / exact - 1
        assert SOME * 0.9 < room < SOME * 1.1
    with pytest.raises(Refused, match="a mean of at most"):
        PopulationBounds.merged(parts, near | {1.0: claim * (1 - 1e-9)}, grid)
    alone = PopulationBounds.merged([replace(each, error_costs=None) for each in parts], {}, grid)
    exact = 0.02 + hoeffding_margin(count, 1.0, 2 * above / grid)
    assert alone.means[1.0] == pytest.approx(exact, rel=1e-11)
    assert alone.error_margin is None
    assert alone.error_means == {}


def least(proven: Callable[[float], float]) -> float:
    below, above = 0.0, 1.0
    for _ in range(50):
        middle = (below + above) / 2
        try:
            above = proven(middle)
        except Refused:
            below = middle
    assert 0 < above < 1
    return above


@pytest.mark.parametrize(
    ("parts", "grid"),
    [
        ([part(40), part(60, population=None)], 3),
        ([part(40), part(60, weights=torch.ones(60))], 3),
        ([part(40), part(60, clip=0.9)], 3),
        ([part(40, clip=0.9), part(60)], 3),
        ([part(40), part(60)], 1),
        ([part(40), part(60)], 0),
        ([part(40), part(60, error_costs=None)], 3),
        *(
            ([each, each], 3)
            for each in (
                part(40, population=replace(PEOPLE, confidence=0.0)),
                part(40, population=replace(PEOPLE, confidence=1.0)),
            )
        ),
        *(
            ([part(40), part(60, population=replace(PEOPLE, **change))], 3)
            for change in ({"confidence": 0.8}, {"seed": 1}, {"clip": 0.5})
        ),
        ([], 3),
    ],
)
def test_populations_that_are_not_merged(parts: list[Statement], grid: int) -> None:
    with pytest.raises(Refused):
        PopulationBounds.merged(parts, {}, grid)


def test_parts_that_are_clipped_later_or_never_are_merged() -> None:
    for clip in (None, 1.5):
        merged = PopulationBounds.merged([part(40), part(60, clip=clip)], {}, 2)
        assert [*merged.means] == [1.0, 2.0]
    one = Statement.merged([part(1), part(1)])
    assert one.samples == 2
    assert one.evidence == "stated"
    with pytest.raises(Refused, match="samples that count alike"):
        Statement.merged([part(2), replace(part(1), samples=0)])
    with pytest.raises(Refused, match="samples that count alike"):
        Statement.merged([])
