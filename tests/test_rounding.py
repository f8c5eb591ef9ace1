"""Outward rounding against exact fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from certus.kernel.rounding import FEW, MANY, SOME, down, mean_down, mean_up, slack, up

UNIT = Fraction(1, 2**53)


@pytest.mark.parametrize(("constant", "operations"), [(FEW, 4), (SOME, 4_000), (MANY, 4_000_000)])
def test_the_constants_cover_what_they_say_twice_over(constant: float, operations: int) -> None:
    assert Fraction(constant) >= 2 * operations * UNIT
    assert Fraction(constant) <= 3 * operations * UNIT  # and no more than that


@pytest.mark.parametrize("terms", [0, 1, 10, 10_000])
def test_the_slack_of_a_sum(terms: int) -> None:
    assert Fraction(slack(terms)) >= 2 * (terms + 2) * UNIT
    assert slack(terms) == (terms + 8) * 2.0**-52


@pytest.mark.parametrize("count", [1, 3, 5_000, 100_000])
def test_means_are_on_the_right_side(count: int) -> None:
    """Also where terms of both signs cancel, and where a plain sum loses digits."""
    generator = torch.Generator().manual_seed(count)
    sizes = torch.logspace(-8, 8, count, dtype=torch.float64)
    for values in (
        torch.rand(count, generator=generator, dtype=torch.float64),
        torch.randn(count, generator=generator, dtype=torch.float64) * sizes,
    ):
        truth = sum(map(Fraction, values.tolist()), Fraction(0)) / count
        assert Fraction(mean_down(values)) <= truth <= Fraction(mean_up(values))
        width = mean_up(values) - mean_down(values)
        assert width <= 4 * max(SOME, slack(count)) * float(values.abs().mean())


def test_infinite_values() -> None:
    values = torch.tensor([1.0, torch.inf], dtype=torch.float64)
    assert mean_up(values) == torch.inf


def test_up_and_down() -> None:
    assert down(1.0) < 1.0 < up(1.0)
    assert (up(1.0), down(1.0)) == (1 + MANY, 1 - MANY)
    assert up(1.0, FEW) > 1.0
    assert down(1.0, FEW) < 1.0
    assert bool((up(torch.ones(2)) > 1 - 1e-6).all())
