"""Transport costs that cancel are rounded up, against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import Tensor

from certus import SquaredL2, certify
from certus.certificates.problem import Problem
from certus.costs import Bregman, Cost, Masked
from tests.certificates.problems import CROSS_ENTROPY, EVERYWHERE, network, samples


class Plain(SquaredL2):
    """As if it were the user's."""


def squares(z: Tensor) -> Tensor:
    return (z**2).sum(1)


def tenths(z: Tensor) -> Tensor:
    """Squares whose gradient is rounded before it cancels."""
    return (0.7 * z**2).sum(1)


COSTS: dict[str, tuple[Cost, float]] = {
    "ours": (SquaredL2(), 1.0),
    "theirs": (Plain(), 1.0),
    "bregman": (Bregman(squares, 2.0), 1.0),
    "masked": (Masked(Bregman(squares, 2.0), torch.tensor([True, True])), 1.0),
    "tenths": (Bregman(tenths, 1.4), 0.7),
}
"""Each is this factor times ‖z − z₀‖²."""


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("offset", [0.0, 1.0, 1e3, 1e6])
def test_no_cost_is_below_the_truth(name: str, offset: float) -> None:
    cost, factor = COSTS[name]
    inputs, targets = samples(0, 40)
    inputs = inputs + offset
    problem = Problem.of(network("elu", 0), (inputs, targets), CROSS_ENTROPY, cost, EVERYWHERE)
    for size in (1e-12, 1e-6, 1e-2, 1.0):
        moved = inputs + size * samples(1, 40)[0]
        raised = problem.raised_cost(moved).tolist()
        for index, (point, origin) in enumerate(zip(moved.tolist(), inputs.tolist(), strict=True)):
            squared = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(point, origin, strict=True))
            truth = Fraction(factor) * squared
            assert Fraction(raised[index]) >= truth
            assert raised[index] <= float(truth) * (1 + 1e-9) + 1e-12 * (1 + offset) ** 2
        exact = 2 * factor * (moved - inputs)  # a difference of neighbouring numbers has no rounding
        allowed = problem.kernel.cost.gradient_error(moved, inputs) + 1e-12 * exact.norm(dim=1)
        for each in (problem.cost, problem.kernel.cost):
            off = (each.gradient(moved, inputs) - exact).norm(dim=1)
            assert bool((off <= allowed).all())


def test_cancellation_is_no_alarm() -> None:
    """c came out as −1.5·10⁻¹⁰ far from the origin, below every floor."""
    inputs, targets = samples(101, 3, classes=5)
    found = certify(
        *(network("relu", 101, classes=5), (inputs + 1e3, targets)),
        rho=[1e-4, 10.0],
        cost=Bregman(squares, 2.0),
        local_radii=0,
        gamma_rounds=0,
        attack_steps=0,
    )
    assert found.attained_error_cost is not None
    assert bool((found.attained_error_cost >= 0).all())
