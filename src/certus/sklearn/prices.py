"""What it costs to move each feature: from an estimator's ``feature_prices`` to a transport cost.

    c(x, x₀) = Σ_j p_j (x_j − x₀_j)²

A price of ∞ freezes a feature. Without prices p_j = 1/s_j², s_j the standard deviation of the feature in the
training data: distances then count standard deviations, whatever the units of the features are.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import torch

from certus.costs import Cost, Masked, SquaredL2, WeightedL2
from certus.errors import ArgumentError, require


def feature_spreads(inputs: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(features,) means and standard deviations of weighted rows; 1 for a feature that never changes."""
    mean = np.average(inputs, axis=0, weights=weights)
    spread = np.sqrt(np.average((inputs - mean) ** 2, axis=0, weights=weights))
    # Less than what rounding alone can make of a constant is no spread.
    constant = spread <= 1e-10 * np.maximum(np.abs(mean), np.abs(inputs).max(0))
    return mean, np.where(constant, 1.0, spread)


def read_prices(prices: Any, spreads: np.ndarray, names: np.ndarray | None) -> np.ndarray:
    """(features,) positive prices, ∞ for frozen features.

    Args:
        prices: None, one number, one for each feature, or a mapping from names or positions of features;
            those that it does not name keep 1/s².
    """
    count, found = len(spreads), 1 / spreads**2
    if isinstance(prices, Mapping):
        for key, price in prices.items():
            rule = f"be a number for {key!r}"
            require(isinstance(price, Real), "feature_prices", rule, repr(price))
            found[_position(key, count, names)] = price
    elif prices is not None:
        rule = f"be a number, one for each of the {count} features, or a mapping of names to prices"
        try:
            values = np.asarray(prices, dtype=np.float64)
        except (TypeError, ValueError):
            raise ArgumentError(f"`feature_prices` must {rule}; got {prices!r}.") from None
        require(values.shape in ((), (count,)), "feature_prices", rule, f"shape {values.shape}")
        found = np.broadcast_to(values, (count,)).astype(np.float64)
    rule = "be positive (∞ freezes a feature)"
    require(bool((found > 0).all()), "feature_prices", rule, prices)
    free = bool(np.isfinite(found).any())
    require(free, "feature_prices", "leave at least one feature free to move", prices)
    return found


def _position(key: Any, count: int, names: np.ndarray | None) -> int:
    if isinstance(key, str) and names is not None and key in names:
        return int(np.flatnonzero(names == key)[0])
    if isinstance(key, int | np.integer) and 0 <= key < count:
        return int(key)
    known = f"one of {', '.join(map(str, names))}" if names is not None else f"a number from 0 to {count - 1}"
    raise ArgumentError(f"`feature_prices` must name features, {known}; got {key!r}.")


def cost_of(prices: np.ndarray) -> Cost:
    """The transport cost of (features,) prices.

    >>> cost_of(np.array([1.0, np.inf]))(torch.tensor([[3.0, 0.0]]), torch.zeros(1, 2))
    tensor([9.])
    """
    free = np.isfinite(prices)
    weights = torch.from_numpy(np.where(free, prices, 1.0))
    cost: Cost = SquaredL2() if bool((weights == 1).all()) else WeightedL2(weights)
    return cost if bool(free.all()) else Masked(cost, torch.from_numpy(free))
