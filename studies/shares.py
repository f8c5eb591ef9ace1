"""Differences of two error rates, with Newcombe's interval, and the decisions that they allow."""

from __future__ import annotations

import math

from certus.attacks.evaluate import Interval
from studies.reproduction import Quantity


def difference_of_shares(one: Interval, other: Interval) -> Interval:
    """``one`` less ``other`` by Newcombe's interval from those of both: as if each had images of its own.

    Both saw the same images, so that what is hard for both would cancel: the interval errs on the wide side.
    It knows nothing of other seeds, nor of a choice of the best among several.
    """
    value = one.value - other.value
    down = math.hypot(one.value - one.low, other.high - other.value)
    up = math.hypot(one.high - one.value, other.value - other.low)
    return Interval(value, value - down, value + up)


def clear_sign(gap: Interval) -> int:
    """0 where the interval contains it."""
    return (gap.low > 0) - (gap.high < 0)


def is_within(gaps: list[Interval], limit: float) -> bool | None:
    """No if an interval lies beyond ±limit, yes if all lie inside; None if that cannot be told."""
    if any(gap.low > limit or gap.high < -limit for gap in gaps):
        return False
    return True if all(-limit <= gap.low and gap.high <= limit for gap in gaps) else None


def points(gap: Interval, places: int = 1) -> Quantity:
    """A difference of error rates in percentage points, with its interval."""
    return Quantity(100 * gap.value, 100 * gap.low, 100 * gap.high, places)
