"""Independent answers: brute force, convex programs, formulas in NumPy. Nothing here imports certus."""

from __future__ import annotations

from collections.abc import Callable

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

Array = NDArray[np.float64]


def maximum_on_grid(
    function: Callable[[Array], Array], lower: Array, upper: Array, zooms: int = 8, size: int = 61
) -> tuple[Array, float]:
    """Global maximum of a function of the plane on a rectangle: a grid, then finer ones around its best.

    ``function`` maps (points, 2) to (points,) and may return −∞.
    """
    low, high = lower, upper
    for _ in range(zooms):
        axes = [np.linspace(low[i], high[i], size) for i in range(2)]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
        values = function(points)
        best = points[values.argmax()]
        reach = 4 * (high - low) / (size - 1)
        low, high = np.maximum(best - reach, lower), np.minimum(best + reach, upper)
    return best, float(values.max())


def solve_concave(
    objective: Callable[[cp.Variable], cp.Expression],
    size: int,
    constraints: Callable[[cp.Variable], list[object]],
) -> tuple[Array, float]:
    """Maximiser and maximum of a concave program, by an interior-point solver."""
    variable = cp.Variable(size)
    problem = cp.Problem(cp.Maximize(objective(variable)), constraints(variable))
    problem.solve(solver=cp.CLARABEL)
    return np.asarray(variable.value), float(problem.value)


def worst_case_by_linear_program(losses: Array, costs: Array, radius: float) -> float:
    """sup {E_P ℓ : W_c(P, Q) ≤ radius}, Q uniform on n points, P on m points (eqn:constrained, left side).

    ``losses`` is (m,), ``costs`` (n, m); the variable is the coupling.
    """
    count = len(costs)
    coupling = cp.Variable(costs.shape, nonneg=True)
    constraints = [cp.sum(coupling, axis=1) == 1 / count, cp.sum(cp.multiply(costs, coupling)) <= radius]
    problem = cp.Problem(cp.Maximize(cp.sum(coupling @ losses)), constraints)
    problem.solve(solver=cp.HIGHS)
    return float(problem.value)


def penalised_by_linear_program(losses: Array, costs: Array, gamma: float) -> float:
    """sup_P {E_P ℓ − γ W_c(P, Q)} for the same P and Q (eqn:lagrangian, left side)."""
    count = len(costs)
    coupling = cp.Variable(costs.shape, nonneg=True)
    gain = cp.sum(coupling @ losses) - gamma * cp.sum(cp.multiply(costs, coupling))
    problem = cp.Problem(cp.Maximize(gain), [cp.sum(coupling, axis=1) == 1 / count])
    problem.solve(solver=cp.HIGHS)
    return float(problem.value)


Ways = list[tuple[Callable[[Array], Array], float]]
"""What a sample may become: functions of (points, 2), each at a price of its own."""


def worst_case_by_brute_force(ways: list[Ways], origins: Array, radius: float) -> float:
    """sup {E_P ℓ : W_c(P, Q) ≤ radius} on the square [−1, 1]², for c = ‖·‖₂² plus a price, from the dual.

    inf_γ γρ + E max {ℓ(z) − γ(‖z − z₀‖² + price)} is convex in γ. Every γ gives an upper bound, so that the
    answer is never too small, and too large by what the search in log γ leaves: some 10⁻⁶.
    """

    def height(gamma: float, way: tuple[Callable[[Array], Array], float], origin: Array) -> float:
        return maximum_on_square(lambda z: way[0](z) - gamma * (((z - origin) ** 2).sum(1) + way[1]))

    def dual(gamma: float) -> float:
        every = [
            max(height(gamma, way, origin) for way in own) for own, origin in zip(ways, origins, strict=True)
        ]
        return gamma * radius + float(np.mean(every))

    found = minimize_scalar(lambda t: dual(np.exp(t)), bounds=(-4, 5), method="bounded")
    return min(float(found.fun), dual(0.0))


def worst_share_by_brute_force(ways: list[Ways], origins: Array, radius: float) -> float:
    """The same for a share, where ``ways`` are 1 inside some set and 0 outside: buy the cheapest first."""
    budget, bought = radius * len(origins), 0.0
    for price in sorted(
        min(_price(way, origin) for way in own) for own, origin in zip(ways, origins, strict=True)
    ):
        part = 1.0 if price <= budget else budget / price
        bought, budget = bought + part, budget - min(price, budget)
    return bought / len(origins)


def _price(way: tuple[Callable[[Array], Array], float], origin: Array) -> float:
    def nearness(z: Array) -> Array:
        return np.where(way[0](z) > 0, -((z - origin) ** 2).sum(1), -np.inf)

    return way[1] - maximum_on_square(nearness)


def maximum_on_square(function: Callable[[Array], Array]) -> float:
    """Global maximum on [−1, 1]²."""
    return maximum_on_grid(function, np.full(2, -1.0), np.full(2, 1.0), zooms=9, size=41)[1]
