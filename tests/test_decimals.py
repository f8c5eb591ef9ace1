"""Printed bounds hold: never below an upper one, never above a lower one, and next to it."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from certus.decimals import at_least, at_most, at_most_in


@given(value=st.floats(-1e6, 1e6), places=st.integers(0, 8))
def test_rounding_goes_outwards(value: float, places: int) -> None:
    exact, unit = Fraction(value), Fraction(1, 10**places)
    above, below = Fraction(at_most(value, places)), Fraction(at_least(value, places))
    assert 0 <= above - exact < unit
    assert 0 <= exact - below < unit


@given(value=st.floats(1e-9, 1e9), digits=st.integers(1, 8))
def test_digits_that_count_are_rounded_up(value: float, digits: int) -> None:
    exact, above = Fraction(value), Fraction(at_most_in(value, digits))
    assert 0 <= above - exact < above / 10 ** (digits - 1)


def test_infinite_bounds() -> None:
    assert (at_most(math.inf), at_most_in(math.inf), at_least(-math.inf)) == ("inf", "inf", "-inf")
