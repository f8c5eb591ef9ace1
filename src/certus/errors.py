"""The exceptions of certus: each message names the parameter, the rule, the value and the remedy.

``except certus.CertusError`` catches every error that this library raises on purpose, and nothing else. A
failure of one *sample* is never an exception: it is a ``Status`` in the solution.
"""

from __future__ import annotations

import math
import re
from importlib import import_module
from numbers import Integral, Real
from typing import Any, Protocol

from certus.kernel.evidence import Evidence

LARGEST = 1e30
LEAST = 1e-30
"""Limits of parameters other than 0: float32 ends at 3.4e38, and squares overflow before."""


def truncate(text: str, most: int = 200) -> str:
    """Shorten a long text in the middle, for messages that repeat input.

    >>> truncate("abcdefghij", most=5)
    'abc…ij'
    """
    return text if len(text) <= most else f"{text[: most - most // 2]}…{text[len(text) - most // 2 :]}"


def truncate_message(message: str) -> str:
    """Shorten very long words, a very long value at the end, and very long messages."""
    rule, got, value = re.sub(r"\S{400,}", lambda word: truncate(word[0]), message).rpartition("; got ")
    return truncate(rule + got + truncate(value, 600 if got else 4000), 4000)


class CertusError(Exception):
    """Root of all exceptions that this library raises on purpose."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(truncate_message(each) if isinstance(each, str) else each for each in arguments))


class ArgumentError(CertusError, ValueError):
    """An argument violates its rule."""


class LossError(CertusError, ValueError):
    """A loss does not return one number per sample, or does not fit its inputs and targets."""


class UnsupportedError(CertusError, NotImplementedError):
    """A combination that this library does not support."""


class UnreadableModelError(UnsupportedError):
    """A model of which nothing can be proven: the message names the part that has no rule."""


class ClaimError(CertusError, ValueError):
    """A claim of the user, such as the growth of a cost, is refuted at a point that the message names."""


class ContradictionError(CertusError):
    """An attained value exceeds a proven bound: one of the two is wrong, and neither may be used.

    A bound is wrong, or a rule, a cost or a claim that it rests on; or a file was changed. A statement about
    a population may also have failed by chance, or the samples are not independent draws. Please report it
    if no code of yours is involved.
    """


class FailedCheckError(CertusError):
    """A requested check does not hold; the command ends with exit code 1, for use in CI."""


class VerificationError(FailedCheckError):
    """A certificate differs from its recomputation."""


class WorkerError(CertusError):
    """A worker process ended before its work was done, or cannot do it."""


def optional_import(module: str, remedy: str, error: type[CertusError] = UnsupportedError) -> Any:
    """Return a module that is not always installed; raise an error with the remedy without it."""
    try:
        import_module(module.partition(".")[0])
        return import_module(module)
    except ImportError:
        raise error(remedy) from None


def require(condition: bool, name: str, rule: str, value: object) -> None:
    """Raise ``ArgumentError`` unless ``condition`` holds.

    >>> require(False, "gamma", "be positive", -1.0)
    Traceback (most recent call last):
    certus.errors.ArgumentError: `gamma` must be positive; got -1.0.
    """
    if not condition:
        raise ArgumentError(f"`{name}` must {truncate(rule, 1000)}; got {truncate(str(value))}.")


class Judged(Protocol):
    """A bound with its evidence, such as a result of the kernel."""

    @property
    def evidence(self) -> Evidence: ...

    @property
    def assumptions(self) -> tuple[str, ...]: ...


def contradiction(
    what: str, grounds: tuple[str, ...] = (), bound: Judged | None = None
) -> ContradictionError:
    """The error for an attained value that exceeds its bound: both numbers and their place, the rules by
    which the bound was derived, and the bound with its evidence and assumptions, if any."""
    evidence, assumptions = ("proven", ()) if bound is None else (bound.evidence, bound.assumptions)
    rests = f" The bound rests on {', '.join(grounds)}." if grounds else ""
    assumed = f" It assumes {'; '.join(assumptions)}." if assumptions else " Nothing was assumed."
    return ContradictionError(
        f"An attained value exceeds its {evidence} bound: {what}.{rests}{assumed} One of them is wrong: "
        "neither is shown, written or read."
    )


def require_count(name: str, value: object, least: int = 1) -> None:
    """Raise ``ArgumentError`` unless ``value`` is an integer of at least ``least``."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
    require(whole, name, f"be a whole number, at least {least}", value)


def as_count(name: str, value: object, least: int = 1) -> int:
    """Return an integer, NumPy's included, as an int; raise ``ArgumentError`` for other values.

    >>> as_count("epochs", 1.5)
    Traceback (most recent call last):
    certus.errors.ArgumentError: `epochs` must be a whole number, at least 1; got 1.5.
    """
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value
    require_count(name, number, least)
    assert isinstance(number, int)
    return number


def require_number(name: str, value: object, *, zero: bool = False) -> float:
    """Return a number from ``LEAST`` to ``LARGEST``, or 0 if allowed; raise ``ArgumentError`` for others.

    >>> require_number("rho", 1e300)
    Traceback (most recent call last):
    certus.errors.ArgumentError: `rho` must be at most 1e+30; got 1e+300.
    """
    require(isinstance(value, Real) and not isinstance(value, bool), name, "be a number", repr(value))
    assert isinstance(value, Real)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf  # a whole number that no float holds
    valid = 0 <= number < math.inf and (zero or number > 0)
    require(valid, name, "be finite and not negative" if zero else "be positive and finite", value)
    require(number <= LARGEST, name, f"be at most {LARGEST:g}", value)
    require(number == 0 or number >= LEAST, name, f"be at least {LEAST:g}", value)
    return number


def require_numbers(name: str, values: Any, *, zero: bool = False) -> tuple[float, ...]:
    """Return one or several such numbers as a tuple."""
    try:
        several = [values] if isinstance(values, Real) else list(values)
    except TypeError:
        several = [values]
    require(len(several) > 0, name, "hold at least one number", "none")
    return tuple(require_number(name, value, zero=zero) for value in several)


def require_confidence(value: object) -> None:
    """Raise ``ArgumentError`` unless ``value`` is a confidence level 1 − δ in [0.5, 1)."""
    number = float(value) if isinstance(value, Real) else math.nan
    require(0.5 <= number < 1, "confidence", "lie in [0.5, 1)", value)


def require_seed(seed: object) -> None:
    """Raise ``ArgumentError`` unless ``seed`` is an integer that every generator accepts."""
    whole = isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**63
    require(whole, "seed", "be a whole number, at least 0 and less than 2^63", seed)


_LISTED = 5  # indices


def format_samples(indices: list[int]) -> str:
    """Format the first few sample indices for a message.

    >>> format_samples([3]), format_samples(list(range(9)))
    ('sample 3', 'samples 0, 1, 2, 3, 4 and 4 more')
    """
    head = ", ".join(str(index) for index in indices[:_LISTED])
    more = f" and {len(indices) - _LISTED} more" if len(indices) > _LISTED else ""
    return f"sample{'s' if len(indices) > 1 else ''} {head}{more}"
