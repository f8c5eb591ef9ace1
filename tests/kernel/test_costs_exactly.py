"""Costs of the kernel to the last bit: above the truth by exact fractions and closed forms, hardly more."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from certus.bounds.analysis import kernel_cost
from certus.costs import Bregman, Cost, Mahalanobis, Masked, SquaredL2, SquaredLp, SquaredSup, WeightedL2
from certus.errors import UnsupportedError
from certus.kernel.rounding import SOME, slack
from certus.norms import MatrixNorm

SHAPE = (2, 3)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


WEIGHTS = draw(*SHAPE).exp()
FACTOR = draw(6, 6, seed=1)
MATRIX = FACTOR @ FACTOR.T + 0.5 * torch.eye(6, dtype=torch.float64)
MASK = torch.tensor([[True, False, True], [True, True, False]])
NORMS: dict[str, Cost] = {
    "L2": SquaredL2(),
    "weighted": WeightedL2(WEIGHTS),
    "matrix": Mahalanobis(MATRIX),
    "L1": SquaredLp(1.0),
    "L1.5": SquaredLp(1.5),
    "sup": SquaredSup(),
}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", NORMS)
def test_moves_of_cost_one(name: str, masked: bool) -> None:
    """Every allowed move δ is S·u for some u within ``length`` and ``unit``; some reach them."""
    given = Masked(NORMS[name], MASK) if masked else NORMS[name]
    cost = given.kernel(SHAPE)
    moves = torch.cat([draw(3000, *SHAPE, seed=2), draw(500, *SHAPE, seed=3).sign()])
    moves = torch.cat([moves, torch.eye(6, dtype=torch.float64).reshape(6, *SHAPE)])
    if masked:
        moves = moves * MASK
    moves = moves[moves.flatten(1).abs().sum(1) > 0]
    moves = moves / given(moves, torch.zeros_like(moves)).sqrt().reshape(-1, 1, 1)
    free = MASK.flatten() if masked else torch.ones(6, dtype=torch.bool)
    within = moves.flatten(1)[:, free]
    if cost.whitening is not None and cost.whitening.shape == SHAPE:
        assert (cost.whitening.flatten()[~free] == 0).all()
        within = within / cost.whitening.flatten()[free]
    elif cost.whitening is not None:
        part = cost.whitening[free][:, free]
        assert (cost.whitening[~free] == 0).all()
        within = torch.linalg.solve(part, within.T).T
    lengths, entries = within.norm(dim=1), within.abs().amax(1)
    assert float(lengths.max()) <= cost.length * (1 + 1e-12)
    assert float(entries.max()) <= cost.unit * (1 + 1e-12)
    assert float(lengths.max()) >= cost.length * (1 - 1e-9)
    if name in ("sup", "L2", "weighted", "L1", "L1.5"):
        assert float(entries.max()) >= cost.unit * (1 - 1e-9)


def test_factors_and_roots_are_rounded_up() -> None:
    whitening = WeightedL2(WEIGHTS).kernel(SHAPE).whitening
    assert whitening is not None
    for factor, weight in zip(whitening.flatten().tolist(), WEIGHTS.flatten().tolist(), strict=True):
        assert Fraction(factor) ** 2 * Fraction(weight) >= 1
        assert factor * math.sqrt(weight) <= 1 + 1e-14
    for count in range(1, 40):
        assert Fraction(SquaredSup().kernel((count,)).length) ** 2 >= count
    for seed in range(20):
        weights = draw(3, seed=seed).exp()
        cost = Bregman(lambda z: (z**2).flatten(1).sum(1), 2.0, WeightedL2(weights).norm).kernel((3,))
        assert Fraction(cost.length) ** 2 * Fraction(float(weights.min())) >= 1
        assert cost.unit == cost.length


def steepest(name: str, g: Tensor) -> Tensor:
    """The direction in which a gradient gains most, in closed form."""
    match name:
        case "weighted":
            return g / WEIGHTS
        case "matrix":
            solved: Tensor = torch.linalg.solve(MATRIX, g.flatten(1).T)
            return solved.T.reshape(g.shape)
        case "L1":
            return torch.where(g.abs() == g.abs().flatten(1).amax(1).reshape(-1, 1, 1), g, 0.0)
        case "L1.5":
            return g.sign() * g**2
        case "sup":
            return g.sign()
    return g


@pytest.mark.parametrize("name", NORMS)
def test_the_dual_norm_is_above_every_slope(name: str) -> None:
    """⟨g, δ⟩ ≤ dual(g)·‖δ‖, with equality at the best δ; dual(g) ≤ dual_size(‖g‖₂), equal at the worst g."""
    given, cost = NORMS[name], NORMS[name].kernel(SHAPE)
    signs, basis = draw(2000, *SHAPE, seed=5).sign(), torch.eye(6, dtype=torch.float64)
    gradients = torch.cat([draw(40, *SHAPE, seed=4), signs, basis.reshape(6, *SHAPE)])
    duals = cost.dual(gradients)
    best = steepest(name, gradients)
    sizes = given(best, torch.zeros_like(best)).sqrt()
    truth = (gradients * best).flatten(1).sum(1) / sizes
    assert (duals >= truth * (1 - 1e-15)).all()
    assert (duals <= truth * (1 + 1e-9)).all()
    assert (duals <= cost.dual_size(gradients.flatten(1).norm(dim=1))).all()
    worst = {
        "weighted": 1 / float(WEIGHTS.min().sqrt()),
        "matrix": float(torch.linalg.eigvalsh(MATRIX)[0]) ** -0.5,
    }
    largest = worst.get(name, math.sqrt(6) if name == "sup" else 1.0)
    one = float(cost.dual_size(torch.ones(1, dtype=torch.float64)))
    assert largest <= one <= largest * (1 + 1e-8)


def exact_square(matrix: Tensor, vector: Tensor) -> Fraction:
    rows = [[Fraction(entry) for entry in row] for row in matrix.tolist()]
    entries = [Fraction(entry) for entry in vector.tolist()]
    products = itertools.product(range(len(entries)), repeat=2)
    return sum((rows[i][j] * entries[i] * entries[j] for i, j in products), Fraction(0))


def inverse(matrix: Tensor) -> list[list[Fraction]]:
    (a, b), (c, d) = ([Fraction(entry) for entry in row] for row in matrix.tolist())
    determinant = a * d - b * c
    return [[d / determinant, -b / determinant], [-c / determinant, a / determinant]]


def bowl(z: Tensor) -> Tensor:
    return (z**2 + z.cosh()).sum(1)


@pytest.mark.parametrize("claimed", [False, True], ids=["quadratic", "divergence"])
@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4])
def test_rounding_of_a_matrix_against_fractions(condition: float, claimed: bool) -> None:
    """Costs, norms and dual norms in float64 are off by no more than ``rounding``, and it is small."""
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)
    matrix = turn @ torch.diag(torch.tensor([1.0, 1 / condition], dtype=torch.float64)) @ turn.T
    given = Mahalanobis((matrix + matrix.T) / 2)
    divergence = Bregman(bowl, 1.0, MatrixNorm(given.matrix))
    cost = (divergence if claimed else given).kernel((2,))
    dual = inverse(given.matrix)
    for vector in draw(50, 2):
        squares = exact_square(given.matrix, vector)
        x, y = (Fraction(entry) for entry in vector.tolist())
        dual_squares = dual[0][0] * x * x + 2 * dual[0][1] * x * y + dual[1][1] * y * y
        length, steep = cost.norm(vector[None]), cost._dual(vector[None])
        pairs = [(length**2, squares), (steep**2, dual_squares)]
        if not claimed:
            pairs.append((cost.value(vector[None], torch.zeros(1, 2).double()), squares))
            pairs.append((given.norm.dual(vector[None]) ** 2, dual_squares))
        for computed, truth in pairs:
            assert abs(Fraction(float(computed)) - truth) <= Fraction(2 * cost.rounding) * truth
        assert Fraction(float(cost.dual(vector[None]))) ** 2 >= dual_squares
    assert cost.rounding < 1e-3


def test_the_norm_determines_the_rounding_whatever_the_cost() -> None:
    """A divergence in a matrix norm loses as much as Mahalanobis does, and is refused where that is."""
    matrix = torch.diag(torch.tensor([1.0, 1e-4], dtype=torch.float64))
    costs = (Bregman(bowl, 1.0, MatrixNorm(matrix)), Mahalanobis(matrix))
    roundings = [cost.kernel((2,)).rounding for cost in costs]
    assert roundings[0] == pytest.approx(roundings[1], rel=1e-6)
    assert roundings[0] > 1e-9
    ill = torch.diag(torch.tensor([1.0, 1e-9], dtype=torch.float64))
    with pytest.raises(UnsupportedError, match="too ill-conditioned for a proof in float64"):
        kernel_cost(Bregman(bowl, 1.0, MatrixNorm(ill)), (2,))


def test_rounding_grows_with_the_condition_of_a_matrix() -> None:
    """Twice the square of the condition, and at least that of a sum; too ill a matrix is refused."""
    assert SquaredL2().kernel(SHAPE).rounding == slack(6) + SOME
    for condition in (1.0, 1e2):
        matrix = torch.diag(torch.tensor([1.0, condition], dtype=torch.float64))
        size = math.sqrt(1 + condition**2)
        assert Mahalanobis(matrix).kernel((2,)).rounding == pytest.approx(
            slack(16) * size**2 + SOME, rel=1e-9
        )
    ill = Mahalanobis(torch.diag(torch.tensor([1.0, 1e8], dtype=torch.float64)))
    with pytest.raises(UnsupportedError, match="too ill-conditioned for a proof in float64"):
        kernel_cost(ill, (2,))
