"""The norm of a cost as proofs use it: above the truth to the last bit, and hardly more."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from certus.costs import Bregman, Cost, Mahalanobis, Masked, SquaredL2, SquaredLp, SquaredSup, WeightedL2
from certus.errors import UnsupportedError
from certus.rounding import SOME, slack

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
    cost = Masked(NORMS[name], MASK) if masked else NORMS[name]
    metric = cost.metric(SHAPE)
    moves = torch.cat([draw(3000, *SHAPE, seed=2), draw(500, *SHAPE, seed=3).sign()])
    moves = torch.cat([moves, torch.eye(6, dtype=torch.float64).reshape(6, *SHAPE)])
    if masked:
        moves = moves * MASK
    moves = moves[moves.flatten(1).abs().sum(1) > 0]
    moves = moves / cost(moves, torch.zeros_like(moves)).sqrt().reshape(-1, 1, 1)
    free = MASK.flatten() if masked else torch.ones(6, dtype=torch.bool)
    within = moves.flatten(1)[:, free]
    if metric.whitening is not None and metric.whitening.shape == SHAPE:
        assert (metric.whitening.flatten()[~free] == 0).all()
        within = within / metric.whitening.flatten()[free]
    elif metric.whitening is not None:
        part = metric.whitening[free][:, free]
        assert (metric.whitening[~free] == 0).all()
        within = torch.linalg.solve(part, within.T).T
    lengths, entries = within.norm(dim=1), within.abs().amax(1)
    assert float(lengths.max()) <= metric.length * (1 + 1e-12)
    assert float(entries.max()) <= metric.unit * (1 + 1e-12)
    assert float(lengths.max()) >= metric.length * (1 - 1e-9)
    if name in ("sup", "L2", "weighted", "L1", "L1.5"):
        assert float(entries.max()) >= metric.unit * (1 - 1e-9)


def test_factors_and_roots_are_rounded_up() -> None:
    whitening = WeightedL2(WEIGHTS).metric(SHAPE).whitening
    assert whitening is not None
    for factor, weight in zip(whitening.flatten().tolist(), WEIGHTS.flatten().tolist(), strict=True):
        assert Fraction(factor) ** 2 * Fraction(weight) >= 1
        assert factor * math.sqrt(weight) <= 1 + 1e-14
    for count in range(1, 40):
        assert Fraction(SquaredSup().metric((count,)).length) ** 2 >= count
    for seed in range(20):
        weights = draw(3, seed=seed).exp()
        metric = Bregman(lambda z: (z**2).flatten(1).sum(1), 2.0, WeightedL2(weights).norm).metric((3,))
        assert Fraction(metric.length) ** 2 * Fraction(float(weights.min())) >= 1
        assert metric.unit == metric.length


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
    cost, metric = NORMS[name], NORMS[name].metric(SHAPE)
    gradients = torch.cat(
        [
            draw(40, *SHAPE, seed=4),
            draw(2000, *SHAPE, seed=5).sign(),
            torch.eye(6).double().reshape(6, *SHAPE),
        ]
    )
    found = metric.dual(gradients)
    best = steepest(name, gradients)
    sizes = cost(best, torch.zeros_like(best)).sqrt()
    truth = (gradients * best).flatten(1).sum(1) / sizes
    assert (found >= truth * (1 - 1e-15)).all()
    assert (found <= truth * (1 + 1e-9)).all()
    at_most = metric.dual_size(gradients.flatten(1).norm(dim=1))
    assert (found <= at_most).all()
    worst = {
        "weighted": 1 / float(WEIGHTS.min().sqrt()),
        "matrix": float(torch.linalg.eigvalsh(MATRIX)[0]) ** -0.5,
    }
    largest = worst.get(name, math.sqrt(6) if name == "sup" else 1.0)
    one = float(metric.dual_size(torch.ones(1, dtype=torch.float64)))
    assert largest <= one <= largest * (1 + 1e-8)


def test_rounding_grows_with_the_condition_of_a_matrix() -> None:
    """Twice the square of the condition, and at least that of a sum; too ill a matrix is refused."""
    assert SquaredL2().metric(SHAPE).rounding == slack(6) + SOME
    for condition in (1.0, 1e2):
        matrix = torch.diag(torch.tensor([1.0, condition], dtype=torch.float64))
        size = math.sqrt(1 + condition**2)
        assert Mahalanobis(matrix).metric((2,)).rounding == pytest.approx(
            slack(16) * size**2 + SOME, rel=1e-9
        )
    ill = Mahalanobis(torch.diag(torch.tensor([1.0, 1e8], dtype=torch.float64)))
    with pytest.raises(UnsupportedError, match="too ill-conditioned for a proof in float64"):
        assert ill.metric((2,)).rounding
