"""Outward rounding: upper bounds go up, lower bounds down, by more than float64 can have rounded.

One operation is off by at most u = 2⁻⁵³ ≈ 1.1·10⁻¹⁶ of its result, so k of them in a row, none of which
cancels, by at most ku/(1 − ku). Every constant covers that twice over. What cancels is bounded where it
happens, relative to the sizes that it cancels down from.

| name | relative size | covers |
|---|---|---|
| ``slack(k)`` | (k + 8)·2⁻⁵² | a sum of k products, in any order of summation |
| ``FEW`` | 10⁻¹⁵ | up to 4 operations, such as a root and a product |
| ``TENS`` | 10⁻¹⁴ | up to 40, such as a difference of margins behind a whitening |
| ``HUNDREDS`` | 10⁻¹³ | up to 400, such as σ' and σ'' or the log-sum-exp of as many classes |
| ``SOME`` | 10⁻¹² | up to 4,000, such as a mean of as many numbers |
| ``THOUSANDS`` | 10⁻¹¹ | up to 40,000: second derivatives that automatic differentiation took |
| ``MANY`` | 10⁻⁹ | up to 4 million: scalars that went through all layers of a network |
| ``inflate(n) − 1`` | max(10⁻⁹, n^1.5·2⁻⁵⁰) | eigenvalues of n × n matrices, by a backward-stable method |
"""

from __future__ import annotations

import math
from typing import TypeVar

from torch import Tensor

FEW, TENS, HUNDREDS, SOME, THOUSANDS, MANY = 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-9

TINY = 1e-300
"""No rounding: a divisor in place of 0, so that what is not used stays finite."""

_Number = TypeVar("_Number", float, Tensor)


def slack(terms: int) -> float:
    """Relative rounding of a sum of products, in any order: twice the classical (terms + 2)·2⁻⁵³.

    >>> slack(0) == 8 * 2.0**-52
    True
    """
    return (terms + 8) * 2.0**-52


def inflate(size: int) -> float:
    """The factor ≥ 1 + 10⁻⁹ that covers rounding in norms of matrices with sides up to ``size``.

    A backward-stable eigenvalue of an n × n matrix is off by a small multiple of n·2⁻⁵³ of the norm.
    """
    return 1 + max(MANY, size * math.sqrt(size) * 2.0**-50)


def up(value: _Number, by: float = MANY) -> _Number:
    """A number ≥ 0, or each of a tensor, raised by a share of itself."""
    return value * (1 + by)


def down(value: _Number, by: float = MANY) -> _Number:
    """A number ≥ 0, or each of a tensor, lowered by a share of itself."""
    return value * (1 - by)


def mean_up(values: Tensor, weights: Tensor | None = None) -> float:
    """The mean of (n,) numbers, at least. An infinite one makes it infinite.

    Args:
        weights: (n,) with a mean of 1; all alike when None. A number of weight 0 does not count.

    >>> import torch
    >>> mean_up(torch.tensor([0.1, 0.2], dtype=torch.float64)) > 0.15
    True
    """
    values = _weighted(values, weights)
    mean = float(values.mean())
    return mean if math.isinf(mean) else mean + _of_mean(values)


def mean_down(values: Tensor, weights: Tensor | None = None) -> float:
    """The mean of (n,) numbers, at most."""
    values = _weighted(values, weights)
    mean = float(values.mean())
    return mean if math.isinf(mean) else mean - _of_mean(values)


def _weighted(values: Tensor, weights: Tensor | None) -> Tensor:
    return values if weights is None else (values * weights).where(weights > 0, 0.0)


def _of_mean(values: Tensor) -> float:
    """Relative to the sizes of the terms: a mean of both signs may cancel."""
    return float(values.abs().mean()) * max(SOME, slack(len(values)))
