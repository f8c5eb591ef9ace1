"""What a number is worth: every number that leaves this library says it."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum


class Evidence(StrEnum):
    """How far a number can be trusted; its value is the word that JSON and tables show."""

    PROVEN = "proven"
    """A bound that follows from derived constants, rounding included."""

    ATTAINED = "attained"
    """Reached by points or distributions that were found."""

    ASSUMED = "assumed"
    """As good as a claim of the caller: a bound on the curvature, the modulus of a Bregman cost."""

    ESTIMATED = "estimated"
    """Measured, not bounded."""

    @staticmethod
    def resting_on(assumptions: Collection[str]) -> Evidence:
        """What a bound is that rests on these claims: proven if there are none."""
        return Evidence.ASSUMED if assumptions else Evidence.PROVEN
