"""Printed bounds hold: never below an upper one, never above a lower one, and next to it."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from certus._format import at_least, at_most
from studies.page import at_most_digits


@given(value=st.floats(-1e6, 1e6), places=st.integers(0, 8))
def test_rounding_goes_outwards(value: float, places: int) -> None:
    exact, unit = Fraction(value), Fraction(1, 10**places)
    above, below = Fraction(at_most(value, places)), Fraction(at_least(value, places))
    assert 0 <= above - exact < unit
    assert 0 <= exact - below < unit


@given(value=st.floats(1e-9, 1e9), digits=st.integers(1, 6))
def test_significant_digits(value: float, digits: int) -> None:
    """What is added is less than one unit of the last digit that is shown."""
    exact, above = Fraction(value), Fraction(at_most_digits(value, digits))
    assert 0 <= above - exact < exact / 10 ** (digits - 1)
    assert len(f"{float(above):.15g}".partition("e")[0].replace(".", "").strip("0")) <= digits


def test_bounds_without_digits() -> None:
    assert [at_most_digits(value) for value in (0.0, math.inf, -0.55)] == ["0", "inf", "-0.55"]


def test_infinite_bounds() -> None:
    assert (at_most(math.inf), at_least(-math.inf)) == ("inf", "-inf")
