"""The exceptions of certus: each message names the parameter, the rule and the value.

``CertusError`` is the root, so that ``except certus.CertusError`` catches whatever this library refuses
and nothing else. A fault of one *sample* is never an exception: it is a ``Status`` in the solution.
"""

from __future__ import annotations

import math
import re
from numbers import Integral, Real
from typing import Any

from certus.evidence import Evidence

LARGEST = 1e30
LEAST = 1e-30
"""Of what may be asked, 0 aside: single precision holds no more than 3.4e38, and squares overflow before."""


def truncate(text: str, most: int = 200) -> str:
    """The text without its middle where it is longer, for messages that repeat input.

    >>> truncate("abcdefghij", most=5)
    'abc…ij'
    """
    return text if len(text) <= most else f"{text[: most - most // 2]}…{text[len(text) - most // 2 :]}"


def truncate_message(message: str) -> str:
    """The message with very long words, a very long value at its end, and what is very long, shortened."""
    rule, got, value = re.sub(r"\S{400,}", lambda word: truncate(word[0]), message).rpartition("; got ")
    return truncate(rule + got + truncate(value, 600 if got else 4000), 4000)


class CertusError(Exception):
    """Root of every exception raised on purpose by this library."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*(truncate_message(one) if isinstance(one, str) else one for one in arguments))


class ArgumentError(CertusError, ValueError):
    """An argument breaks its rule."""


class LossError(CertusError, ValueError):
    """A loss does not return one number per sample, or does not fit its inputs and targets."""


class UnsupportedError(CertusError, NotImplementedError):
    """A combination that this library refuses rather than answers wrongly."""


class UnreadableModelError(UnsupportedError):
    """A model of which nothing can be proven: the message names the part that has no rule."""


class ClaimError(CertusError, ValueError):
    """A claim of the caller's is wrong at some point, which the message names. Claims are, for example, the
    derivatives of an activation or the growth of a cost."""


class ContradictionError(CertusError):
    """What was attained exceeds what was proven: one of the two is wrong, and neither may be used.

    A bound is wrong, or a rule, a cost or a claim that it rests on; or a file was changed. A statement about
    a population may also have failed by chance, or the samples are not independent draws. Please report it if
    no code of yours is involved.
    """


class FailedCheckError(CertusError):
    """What a command was asked to check does not hold; it ends with exit code 1, for other people's CI."""


class VerificationError(FailedCheckError):
    """A certificate is not what computing it again gives."""


def require(condition: bool, name: str, rule: str, value: object) -> None:
    """Raise ``ArgumentError`` unless ``condition`` holds.

    >>> require(False, "gamma", "be positive", -1.0)
    Traceback (most recent call last):
    certus.errors.ArgumentError: `gamma` must be positive; got -1.0.
    """
    if not condition:
        raise ArgumentError(f"`{name}` must {truncate(rule, 1000)}; got {truncate(str(value))}.")


def contradiction(
    what: str, grounds: tuple[str, ...] = (), assumptions: tuple[str, ...] = ()
) -> ContradictionError:
    """The error to raise where something attained exceeds its bound.

    Args:
        what: both numbers, and where they meet.
        grounds: what the bound was derived by; assumptions: what it rests on beside that.
    """
    evidence = Evidence.resting_on(assumptions)
    rests = f" The bound rests on {', '.join(grounds)}." if grounds else ""
    assumed = f" It assumes {'; '.join(assumptions)}." if assumptions else " Nothing was assumed."
    return ContradictionError(
        f"What was attained exceeds what was {evidence}: {what}.{rests}{assumed} One of them is wrong: "
        "neither is shown, written or read."
    )


def require_count(name: str, value: object, least: int = 1) -> None:
    """Raise ``ArgumentError`` unless ``value`` is a whole number, and at least ``least``."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= least
    require(whole, name, f"be a whole number, at least {least}", value)


def as_count(name: str, value: object, least: int = 1) -> int:
    """A whole number, NumPy's included, as an int; raises ``ArgumentError`` for others.

    >>> as_count("epochs", 1.5)
    Traceback (most recent call last):
    certus.errors.ArgumentError: `epochs` must be a whole number, at least 1; got 1.5.
    """
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value
    require_count(name, number, least)
    assert isinstance(number, int)
    return number


def require_number(name: str, value: object, *, zero: bool = False) -> float:
    """A number from ``LEAST`` to ``LARGEST``, or 0 if it is allowed; raises ``ArgumentError`` for others.

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
    """One or several of them."""
    try:
        several = [values] if isinstance(values, Real) else list(values)
    except TypeError:
        several = [values]
    require(len(several) > 0, name, "hold at least one number", "none")
    return tuple(require_number(name, value, zero=zero) for value in several)


def require_confidence(value: object) -> None:
    """Raise ``ArgumentError`` unless it is 1 − δ of a statement about a population."""
    number = float(value) if isinstance(value, Real) else math.nan
    require(0.5 <= number < 1, "confidence", "lie in [0.5, 1)", value)


def require_seed(seed: object) -> None:
    """Raise ``ArgumentError`` unless it is a whole number that every generator takes."""
    whole = isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**63
    require(whole, "seed", "be a whole number, at least 0 and less than 2^63", seed)


def format_samples(indices: list[int], shown: int = 5) -> str:
    """The first few of the offending samples, for a message.

    >>> format_samples([3]), format_samples(list(range(9)))
    ('sample 3', 'samples 0, 1, 2, 3, 4 and 4 more')
    """
    head = ", ".join(str(index) for index in indices[:shown])
    more = f" and {len(indices) - shown} more" if len(indices) > shown else ""
    return f"sample{'s' if len(indices) > 1 else ''} {head}{more}"
