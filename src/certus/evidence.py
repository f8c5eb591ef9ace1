"""The evidence of a number: proven, attained, assumed or estimated."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum


class Evidence(StrEnum):
    """How far a number can be trusted; its value is the word in JSON and tables."""

    PROVEN = "proven"
    """A bound that follows from derived constants, rounding included."""

    ATTAINED = "attained"
    """Reached by points or distributions that were evaluated."""

    ASSUMED = "assumed"
    """Rests on a claim of the caller, such as the modulus of a Bregman cost."""

    ESTIMATED = "estimated"
    """Measured, not bounded."""

    @staticmethod
    def resting_on(assumptions: Collection[str]) -> Evidence:
        """The evidence of a bound with these assumptions: proven if there are none."""
        return Evidence.ASSUMED if assumptions else Evidence.PROVEN
