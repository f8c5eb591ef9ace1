"""Independent answers: brute force, convex programs, formulas in NumPy. Nothing here imports certus."""

from __future__ import annotations

from collections.abc import Callable

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

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
