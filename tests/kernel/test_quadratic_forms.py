"""Parabolas from quadratic forms of a hidden layer: against exact maxima, also where much of it is lost.

With fewer units than features the forms are those of the units, otherwise of the features.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from certus import SquaredL2
from certus.certificates.problem import Problem
from certus.costs import Cost, WeightedL2
from certus.domains import Unbounded
from certus.kernel.majorants import (
    Tangents,
    _Factored,
    _factored,
    _Start,
    constants,
    hidden_layer,
    parabolas,
)
from certus.kernel.problem import Values
from certus.layers import LogCosh
from certus.losses import CrossEntropy

CLOSELY = torch.tensor([1.003, 1.05, 1.25], dtype=torch.float64)  # multipliers, in units of λ_max(Q)
SHAPES = pytest.mark.parametrize(
    "shape", [(4, 6), (6, 4)], ids=["4 units, 6 features", "6 units, 4 features"]
)


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def uniform(*shape: int, seed: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def truncated(matrix: Tensor, kept: int) -> _Factored:
    """The largest singular values alone, and the next one, which is the norm of all that is lost."""
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    lost = float(sizes[kept]) if kept < len(sizes) else 0.0
    return _Factored((left[:, :kept] * sizes[:kept]) @ right[:kept], None, lost)


def rotated(matrix: Tensor, kept: int) -> _Factored:
    """The same as a product of two factors, which the kernel compares with the matrix."""
    left, sizes, right = torch.linalg.svd(matrix, full_matrices=False)
    return _factored(matrix, 0.0, (left[:, :kept] * sizes[:kept], right[:kept]))


def guessed(matrix: Tensor, kept: int) -> _Factored:
    """A foolish factor: orthonormal rows that have nothing to do with the matrix."""
    rows = torch.linalg.qr(random(matrix.shape[1], kept, seed=9)).Q.T
    return _factored(matrix, 0.0, (matrix @ rows.T / 2, rows))


def start(features: int, forms: int, seed: int, error: float = 0.0, size: float = 2.0) -> _Start:
    """Random gradients and moves, for multipliers that no distance raises."""
    gradient, move = random(forms, features, seed=seed), size * random(forms, features, seed=seed + 1)
    height, off = (torch.full((forms,), value, dtype=torch.float64) for value in (0.0, error))
    distances = torch.full((forms, len(CLOSELY)), math.inf, dtype=torch.float64)
    return _Start(height, gradient, off, move, (move**2).sum(1), distances)


def largest(form: Tensor, gradient: Tensor, move: Tensor, coefficient: float) -> float:
    """sup over u of ⟨g, u − u*⟩ + ½⟨u − u*, Q(u − u*)⟩ − (λ/2)‖u‖², by its stationary point."""
    definite = coefficient * torch.eye(len(form), dtype=torch.float64) - form
    if float(torch.linalg.eigvalsh(definite)[0]) <= 0:
        return math.inf
    point = torch.linalg.solve(definite, gradient - form @ move)
    away = point - move
    return float(gradient @ away + away @ form @ away / 2 - coefficient * point @ point / 2)


@SHAPES
@pytest.mark.parametrize("size", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("kept", [1, 3, 4], ids=["1 of 4", "3 of 4", "all"])
@pytest.mark.parametrize("factored", [truncated, rotated, guessed])
def test_parabolas_lie_above_the_true_form(
    factored: Callable[[Tensor, int], _Factored], kept: int, size: float, shape: tuple[int, int]
) -> None:
    """Most of the matrix is lost: the true form is behind the whole one."""
    matrix, (units, features) = random(*shape, seed=0), shape
    spread = size * uniform(5, units, seed=3)
    begun = start(features, 5, seed=4)
    rise, coefficient, curvature = begun.shaped(CLOSELY, factored(matrix, kept), spread)
    for row in range(5):
        form = matrix.T @ torch.diag(spread[row]) @ matrix
        assert float(torch.linalg.eigvalsh(form)[-1]) <= float(curvature[row])
        for pair in range(rise.shape[1]):
            truth = largest(form, begun.gradient[row], begun.move[row], float(coefficient[row, pair]))
            assert truth <= float(rise[row, pair])
            if kept == 4 and factored is not guessed:
                assert float(rise[row, pair]) == pytest.approx(max(truth, 0.0), rel=1e-5, abs=1e-5)
        if kept == 4 and factored is not guessed:
            assert float(curvature[row]) == pytest.approx(float(torch.linalg.eigvalsh(form)[-1]), rel=1e-6)


@SHAPES
def test_an_error_of_the_gradient_counts(shape: tuple[int, int]) -> None:
    """Whichever way the true gradient is off by as much."""
    matrix, (units, features) = random(*shape, seed=0), shape
    spread = torch.ones(1, units, dtype=torch.float64)
    exact, off = start(features, 1, seed=4), start(features, 1, seed=4, error=0.5)
    form = matrix.T @ matrix
    curvature = torch.linalg.eigvalsh(form)[-1:]
    directions = random(40, features, seed=8)
    for rise, coefficient in (
        off.shaped(CLOSELY, _Factored(matrix, None, 0.0), spread)[:2],
        off.isotropic(CLOSELY, curvature),
    ):
        for pair in range(rise.shape[1]):
            truths = [
                largest(
                    form,
                    exact.gradient[0] + 0.5 * direction / direction.norm(),
                    exact.move[0],
                    float(coefficient[0, pair]),
                )
                for direction in directions
            ]
            assert max(truths) <= float(rise[0, pair])


@pytest.mark.parametrize("shape", [(2, 5), (5, 2)], ids=["fewer units", "fewer features"])
def test_the_inverse_reaches_outside_of_the_rows(shape: tuple[int, int]) -> None:
    """½⟨e, (λ − Q)⁻¹e⟩ against a solver: two units in five features leave three directions without any."""
    matrix, (units, features) = random(*shape, seed=1), shape
    spread, factors = uniform(3, units, seed=5), torch.tensor([1.1, 2.0, 4.0], dtype=torch.float64)
    begun = start(features, 3, seed=2, size=0.0)  # at the sample, where e is the gradient
    rise, coefficient, _ = begun.shaped(factors, _Factored(matrix, None, 0.0), spread)
    for row in range(3):
        form = matrix.T @ torch.diag(spread[row]) @ matrix
        top, pull = float(torch.linalg.eigvalsh(form)[-1]), begun.gradient[row]
        for pair in range(3):
            multiplier = float(coefficient[row, pair])
            assert multiplier == pytest.approx(float(factors[pair]) * top, rel=1e-8)
            definite = multiplier * torch.eye(features, dtype=torch.float64) - form
            exact = float(pull @ torch.linalg.solve(definite, pull)) / 2
            assert exact <= float(rise[row, pair]) <= exact * (1 + 1e-6)


@SHAPES
def test_distances_raise_multipliers(shape: tuple[int, int]) -> None:
    """λ = factor·κ + ‖g‖/r: at the distance r at most ‖g‖r + (κ/2)r², and at least the truth there."""
    matrix, (units, features) = random(*shape, seed=0), shape
    spread, factors = uniform(5, units, seed=3), torch.full((4,), 1 + 1e-6, dtype=torch.float64)
    plain = start(features, 5, seed=4, size=0.0)
    distances = torch.tensor([0.1, 0.5, 2.0, 10.0], dtype=torch.float64).expand(5, 4)
    begun = _Start(plain.height, plain.gradient, plain.error, plain.move, plain.square, distances)
    for shaped in (True, False):
        rise, coefficient = begun.shaped(factors, _Factored(matrix, None, 0.0), spread)[:2]
        if not shaped:
            forms = matrix.T @ (spread.unsqueeze(2) * matrix)
            rise, coefficient = begun.isotropic(factors, torch.linalg.eigvalsh(forms)[:, -1])
        for row in range(5):
            form = matrix.T @ torch.diag(spread[row]) @ matrix
            top, length = float(torch.linalg.eigvalsh(form)[-1]), float(begun.gradient[row].norm())
            directions = random(200, features, seed=row)
            for pair, r in enumerate(distances[row].tolist()):
                assert float(coefficient[row, pair]) == pytest.approx(top + length / r, rel=1e-5)
                most = float(rise[row, pair] + coefficient[row, pair] * r**2 / 2)
                assert most <= (length * r + top * r**2 / 2) * (1 + 1e-5)
                moves = directions / directions.norm(dim=1, keepdim=True) * r
                assert most >= float(
                    (moves @ begun.gradient[row] + ((moves @ form) * moves).sum(1) / 2).max()
                )


def problem(model: nn.Module, points: Tensor, cost: Cost | None = None) -> Problem:
    labels = model(points).argmax(1).detach()
    return Problem.of(model, (points, labels), CrossEntropy(), cost or SquaredL2(), Unbounded())


@pytest.mark.parametrize("kind", ["product", "weighted", "both"])
def test_the_rounding_of_the_first_layer_is_counted(kind: str) -> None:
    """Products of layers, and of a layer with weights of the cost, are off by what 80-bit numbers show."""
    torch.manual_seed(0)
    first, second, last = nn.Linear(300, 50), nn.Linear(50, 200), nn.Linear(200, 2)
    direct = nn.Linear(300, 200)
    before = [direct] if kind == "weighted" else [first, second]
    model = nn.Sequential(*before, LogCosh(1.0), last).double()
    cost = SquaredL2() if kind == "product" else WeightedL2(random(300, seed=1).exp())
    kernel = problem(model, random(2, 300, seed=2), cost).kernel
    layer = hidden_layer(kernel)
    assert layer is not None
    matrix, lost, _ = layer
    truth = np.eye(300, dtype=np.longdouble)
    if kernel.cost.whitening is not None:
        truth = np.diag(kernel.cost.whitening.numpy().astype(np.longdouble))
    for each in before:
        truth = each.weight.detach().numpy().astype(np.longdouble) @ truth
    off = float(np.linalg.norm(np.asarray(truth - matrix.numpy(), dtype=np.float64)))
    assert 0 < off <= lost < 1e-11 * float(matrix.norm())


def test_points_too_far_for_squares_prove_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    kernel = problem(model, random(2, 2, seed=1)).kernel
    values, rivals = Values.at(kernel), (kernel.targets + 1) % 3
    points = torch.tensor([[1e200, 0.0], [0.5, 0.5]], dtype=torch.float64)
    endless = torch.full((2, 2), math.inf, dtype=torch.float64)
    far = Tangents(torch.arange(2), rivals, points, torch.tensor([1.05, 1.5], dtype=torch.float64), endless)
    bounds = parabolas(kernel, values, constants(kernel, values), far)
    assert bool((bounds.rise[0] == math.inf).all())
    assert bool((bounds.coefficient[0] == math.inf).all())
    assert bool(torch.isfinite(bounds.rise[1, rivals[1]]).all())
