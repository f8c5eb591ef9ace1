"""The exact worst distribution over given points: a knapsack over concave hulls."""

from __future__ import annotations

import itertools

import numpy as np

from tests.oracles import Array


def worst_mean(costs: Array, values: Array, rho: float) -> float:
    """The largest mean value that any choice among the points, mixtures included, has at mean cost ≤ ρ.

    ``costs`` and ``values`` are (tries, samples), finite; the first row costs nothing. The linear program has
    one constraint beside the choices: each sample offers the steps of its concave hull, the steepest first.
    """
    samples = int(costs.shape[1])
    total, steps = 0.0, list[tuple[float, float]]()
    for index in range(samples):
        hull = _hull(costs[:, index], values[:, index])
        total += hull[0][1]
        steps += [(right[0] - left[0], right[1] - left[1]) for left, right in itertools.pairwise(hull)]
    left = rho * samples
    for price, gain in sorted(steps, key=lambda step: -step[1] / step[0]):
        if price > left:
            return (total + gain * left / price) / samples
        total, left = total + gain, left - price
    return total / samples


def _hull(costs: Array, values: Array) -> list[tuple[float, float]]:
    """The corners of the least concave function above the points, as far as it rises."""
    corners: list[tuple[float, float]] = []
    for index in np.lexsort((-values, costs)):
        point = float(costs[index]), float(values[index])
        if corners and point[1] <= corners[-1][1]:  # dearer, or as dear, and no better
            continue
        while len(corners) > 1 and _slope(corners[-1], point) >= _slope(corners[-2], corners[-1]):
            corners.pop()
        corners.append(point)
    return corners


def _slope(left: tuple[float, float], right: tuple[float, float]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])
