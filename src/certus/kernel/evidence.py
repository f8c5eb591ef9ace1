"""The evidence of a number, and the mark of results that the kernel made itself."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, TypeVar


class Evidence(StrEnum):
    """Evidence of a number; the value of a member is its word in JSON and tables."""

    PROVEN = "proven"
    """A bound that follows from derived constants, rounding included."""

    ATTAINED = "attained"
    """Reached by points or distributions that were evaluated."""

    ASSUMED = "assumed"
    """Rests on a claim of the caller, such as the modulus of a Bregman cost."""

    ESTIMATED = "estimated"
    """Measured, not bounded."""

    STATED = "stated"
    """Stated in a file; not re-checked."""


class Result:
    """Base of what the kernel returns: proven, or assumed if it rests on ``assumptions``, by name.

    Only a function of the kernel marks a result. One that is constructed elsewhere, altered by
    ``dataclasses.replace`` or read from a file has no mark, and is *stated*.
    """

    assumptions: tuple[str, ...]
    marked: ClassVar[bool] = False

    @property
    def evidence(self) -> Evidence:
        if not self.marked:
            return Evidence.STATED
        return Evidence.ASSUMED if self.assumptions else Evidence.PROVEN


_Result = TypeVar("_Result", bound=Result)


def mark(result: _Result) -> _Result:
    """Mark a result as made by the kernel, which alone may call this."""
    object.__setattr__(result, "marked", True)
    return result
