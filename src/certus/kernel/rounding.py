"""Outward rounding: upper bounds are rounded up and lower bounds down, by more than float64 rounding.

One operation has a relative error of at most u = 2⁻⁵³ ≈ 1.1·10⁻¹⁶, so k of them in a row, without
cancellation, have at most ku/(1 − ku). Every constant covers that twice over. Cancellation is bounded where
it occurs, relative to the terms that cancel.

| name | relative size | covers |
|---|---|---|
| ``slack(k)`` | (k + 8)·2⁻⁵² | a sum of k products, in any order of summation |
| ``FEW`` | 10⁻¹⁵ | up to 4 operations, such as a root and a product |
| ``TENS`` | 10⁻¹⁴ | up to 40, such as a difference of margins behind a whitening |
| ``HUNDREDS`` | 10⁻¹³ | up to 400, such as σ' and σ'' or the log-sum-exp of as many classes |
| ``SOME`` | 10⁻¹² | up to 4,000, such as a mean of as many numbers |
| ``THOUSANDS`` | 10⁻¹¹ | up to 40,000: second derivatives by automatic differentiation |
| ``MANY`` | 10⁻⁹ | up to 4 million: scalars that passed all layers of a network |
"""

from __future__ import annotations

import math
from typing import TypeVar

from torch import Tensor

FEW, TENS, HUNDREDS, SOME, THOUSANDS, MANY = 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-9

FARTHEST = 1e30
"""Largest ρ: beyond the distance 10¹⁵ numbers may count that vanish in float64 (``Smoothness.check_scales``),
or overflow float32 (``deployment``)."""

TINY = 1e-300
"""No rounding: a divisor in place of 0, so that what is not used stays finite."""

_Number = TypeVar("_Number", float, Tensor)


def slack(terms: int) -> float:
    """Relative rounding of a sum of products, in any order: twice the classical (terms + 2)·2⁻⁵³.

    >>> slack(0) == 8 * 2.0**-52
    True
    """
    return (terms + 8) * 2.0**-52


def up(value: _Number, by: float = MANY) -> _Number:
    """Raise a number ≥ 0, or each entry of a tensor, by a fraction of itself."""
    return value * (1 + by)


def down(value: _Number, by: float = MANY) -> _Number:
    """Lower a number ≥ 0, or each entry of a tensor, by a fraction of itself."""
    return value * (1 - by)


def mean_up(values: Tensor, weights: Tensor | None = None) -> float:
    """Upper bound on the mean of (n,) numbers; infinite if one of them is.

    Args:
        weights: (n,) with mean 1; all equal when None. A number of weight 0 does not count.

    >>> import torch
    >>> mean_up(torch.tensor([0.1, 0.2], dtype=torch.float64)) > 0.15
    True
    """
    mean, error = _mean_and_rounding(values, weights)
    return mean + error


def mean_down(values: Tensor, weights: Tensor | None = None) -> float:
    """Lower bound on the mean of (n,) numbers."""
    mean, error = _mean_and_rounding(values, weights)
    return mean - error


def _mean_and_rounding(values: Tensor, weights: Tensor | None) -> tuple[float, float]:
    """The rounding is relative to the absolute terms, which may cancel."""
    values = values.double()
    if weights is not None:
        values = (values * weights.double()).where(weights > 0, 0.0)
    mean = float(values.mean())
    error = 0.0 if math.isinf(mean) else float(values.abs().mean()) * max(SOME, slack(len(values)))
    return mean, error
