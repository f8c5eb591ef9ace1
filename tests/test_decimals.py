"""Printed bounds hold: never below an upper one, never above a lower one, and next to it."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from certus.decimals import at_least, at_most


@given(value=st.floats(-1e6, 1e6), places=st.integers(0, 8))
def test_rounding_goes_outwards(value: float, places: int) -> None:
    exact, unit = Fraction(value), Fraction(1, 10**places)
    above, below = Fraction(at_most(value, places)), Fraction(at_least(value, places))
    assert 0 <= above - exact < unit
    assert 0 <= exact - below < unit


def test_infinite_bounds() -> None:
    assert (at_most(math.inf), at_least(-math.inf)) == ("inf", "-inf")
