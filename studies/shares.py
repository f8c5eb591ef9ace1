"""Differences of two error rates, and what so many images can tell of them."""

from __future__ import annotations

import math

from certus.attacks.evaluate import Interval

UNTOLD = "the images cannot tell: {} lies in the interval."


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


def gap_words(gap: Interval, digits: int = 1) -> str:
    """In points, with its interval."""
    value, low, high = (f"{100 * one:+.{digits}f}" for one in (gap.value, gap.low, gap.high))
    return f"{value} ({low} to {high})"
