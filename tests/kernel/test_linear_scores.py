"""Affine graphs: the Lipschitz rule and radii are exact, by closed forms and moves that attain them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import Tensor

from certus.bounds.norm_proposals import claim_norms
from certus.certificates.proposals import softplus_roots
from certus.costs import Cost, Mahalanobis, Masked, SquaredL2, SquaredLp, SquaredSup, WeightedL2
from certus.kernel.costs import Domain
from certus.kernel.graph import Graph, Node
from certus.kernel.losses import Form, Hinge, Loss, Score, Softmax
from certus.kernel.majorants import constants
from certus.kernel.operators import Dense
from certus.kernel.problem import Problem, Values
from certus.kernel.radial import neighborhoods, rival_radii
from certus.kernel.rules import error_costs
from tests.oracles import Array

WEIGHTS, FREE = torch.linspace(0.5, 3, 5, dtype=torch.float64), torch.tensor([True, True, False, True, False])
MATRIX = torch.eye(5, dtype=torch.float64) + 0.3
COSTS: dict[str, Cost] = {
    "L2": SquaredL2(),
    "weighted": WeightedL2(WEIGHTS),
    "full": Mahalanobis(MATRIX),
    "L1": SquaredLp(1.0),
    "L1.3": SquaredLp(1.3),
    "sup": SquaredSup(),
    "masked": Masked(SquaredL2(), FREE),
}
LOSSES: dict[str, tuple[Loss | None, int]] = {
    "logistic": (Softmax(logistic=True), 1),
    "cross-entropy": (Softmax(), 2),
    "hinge": (Hinge(1), 1),
    "squared hinge": (Hinge(2), 1),
    "squared error": (None, 1),
}


def best_move(cost: str, slope: Array) -> tuple[float, Array]:
    """The dual norm of a slope, and the move of cost 1 that gains it."""
    match cost:
        case "weighted":
            move = slope / WEIGHTS.numpy()
            return math.sqrt(slope @ move), move / math.sqrt(slope @ move)
        case "full":
            move = np.linalg.solve(MATRIX.numpy(), slope)
            return math.sqrt(slope @ move), move / math.sqrt(slope @ move)
        case "L1":
            first = np.abs(slope).argmax()
            return float(np.abs(slope).max()), np.sign(slope) * (np.arange(5) == first)
        case "L1.3":
            q = 1.3 / 0.3
            dual = float((np.abs(slope) ** q).sum() ** (1 / q))
            return dual, np.sign(slope) * (np.abs(slope) / dual) ** (q - 1)
        case "sup":
            return float(np.abs(slope).sum()), np.sign(slope)
        case "masked":
            slope = np.where(FREE.numpy(), slope, 0.0)
    return float(np.linalg.norm(slope)), slope / np.linalg.norm(slope)


def exact_supremum(loss: Loss | None, level: float, stiffness: float) -> tuple[float, float]:
    """sup_t h(v + t) − κt² over t ≥ 0, and the t that attains it."""
    if isinstance(loss, Softmax):

        def derivative(t: Array | float) -> Array:
            return np.asarray(1 / (1 + np.exp(-(level + t))) - 2 * stiffness * t)

        ends = np.linspace(0.0, 1 / (2 * stiffness) + 1e-9, 2_001)
        rising = derivative(ends) > 0
        turns = (rising[:-1] & ~rising[1:]).nonzero()[0]
        places = [brentq(derivative, ends[at], ends[at + 1], xtol=1e-15) for at in turns]
        return max((float(np.logaddexp(0, level + t)) - stiffness * t**2, t) for t in places)
    if loss == Hinge(1):
        rise = level + 1 / (4 * stiffness)
        return (rise, 1 / (2 * stiffness)) if rise > 0 else (0.0, 0.0)
    top = max(level, 0.0)
    return top**2 * stiffness / (stiffness - 1), top / (stiffness - 1)


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("loss", LOSSES)
def test_suprema_and_radii_are_exact(loss: str, cost: str) -> None:
    """Above the closed form by rounding alone; and the moves of cost t²/α² along one direction attain it."""
    kernel_loss, outputs = LOSSES[loss]
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(outputs, 5, generator=generator, dtype=torch.float64) / 2
    bias = torch.randn(outputs, generator=generator, dtype=torch.float64) / 2
    inputs = 3 * torch.randn(12, 5, generator=generator, dtype=torch.float64)
    targets = torch.randint(2, (12,), generator=generator)
    if kernel_loss is None:
        targets = torch.randn(12, generator=generator, dtype=torch.float64)
    graph = Graph((Node((), (5,)), Node((0,), (outputs,), Dense(weight, bias))))
    problem = Problem.of(graph, kernel_loss, COSTS[cost].kernel((5,)), Domain(), (inputs, targets))
    claim_norms(problem.graph)
    values = Values.at(problem)
    bounds = constants(problem, values)
    edges = torch.tensor([0.0, 0.1, 1.0], dtype=torch.float64)
    profile = neighborhoods(problem, values, bounds, edges, []).profile
    scores = (inputs @ weight.T + bias).numpy()
    score = scores[:, -1] - (scores[:, 0] if outputs == 2 else 0)
    slope = (weight[-1] - (weight[0] if outputs == 2 else 0)).numpy()
    dual, direction = best_move(cost, slope)
    if kernel_loss is None:
        sign, levels = np.where(score < targets.numpy(), -1.0, 1.0), np.abs(score - targets.numpy())
    else:
        sign = np.where(targets.numpy() == 1, -1.0, 1.0)
        levels = sign * score + (0 if isinstance(kernel_loss, Softmax) else 1)
    floor = 1.0 if kernel_loss in (None, Hinge(2)) else 0.0
    for stiffness in (1e-3, 0.02, 0.1, 0.3, 1.0, 7.0, 100.0):
        gamma = (floor + stiffness) * dual**2
        bound = profile.lipschitz(gamma, softplus_roots(profile.score, gamma)).numpy()
        suprema, shifts = np.array(
            [exact_supremum(kernel_loss, level, floor + stiffness) for level in levels]
        ).T
        assert (bound >= suprema * (1 - 1e-12)).all()
        room = 1e-9 + 5e-12 / stiffness  # what is above the floor magnifies rounding
        assert (bound <= suprema * (1 + room) + 1e-9 * (1 + 1 / stiffness)).all()
        assert float(bound.mean()) <= float(suprema.mean()) * (1 + room)
        moved = inputs + torch.from_numpy((sign * shifts / dual)[:, None] * direction)
        attained = problem.losses(moved) - gamma * problem.cost.value(moved, inputs)
        assert np.allclose(attained.numpy(), suprema, rtol=1e-9, atol=1e-9 * (1 + 1 / stiffness))
    if problem.classes is not None:
        margins = sign * score
        distances = np.where(margins < 0, -margins / dual, 0.0)
        radii = rival_radii(problem, values, [bounds]).amin(1)
        assert (radii.numpy() <= distances * (1 + 1e-15)).all()
        assert (radii.numpy() >= distances * (1 - 1e-9)).all()
        costs = error_costs(problem, radii).numpy()
        assert (costs <= distances**2 * (1 + 1e-15)).all()
        assert (costs >= distances**2 * (1 - 1e-8)).all()


def _brute(score: Score, price: float) -> Tensor:
    """sup over a fine grid of r, up to where the slope of w·h is below that of the price."""
    far = score.weight * score.steepness / (2 * price)
    if score.form is Form.SQUARE:
        spare = (price - score.weight * score.steepness**2).clamp_min(1e-3)
        far = score.weight * score.steepness * score.level.clamp_min(0) / spare
    r = torch.linspace(0, 1.01, 50_001, dtype=torch.float64) * far.unsqueeze(1)
    u = score.level.unsqueeze(1) + score.steepness.unsqueeze(1) * r
    h = {
        Form.POSITIVE: u.clamp_min(0),
        Form.SQUARE: u.clamp_min(0) ** 2,
        Form.SOFTPLUS: torch.logaddexp(u, torch.zeros_like(u)),
    }[score.form]
    heights: Tensor = (score.weight * h - price * r**2).amax(1)
    return heights


@pytest.mark.parametrize("form", Form)
def test_suprema_against_brute_force(form: Form) -> None:
    """Never below a fine grid for any root, and close to it for the best one."""
    generator = torch.Generator().manual_seed(0)
    level = torch.tensor([-30.0, -8, -3, -1, -0.3, 0, 1e-9, 0.4, 2, 9, 50], dtype=torch.float64)
    for price in (0.02, 0.2, 1.3, 8.0):
        steepness = torch.rand(len(level), generator=generator).double() + 0.3
        score = Score(form, level, steepness, 0.7)
        brute, bound = _brute(score, price), score.bound(price, softplus_roots(score, price))
        assert bool((bound >= brute - 1e-12).all())
        finite = torch.isfinite(bound)
        assert bool((bound[finite] <= brute[finite] * (1 + 1e-6) + 1e-9).all())
        if form is Form.SOFTPLUS:
            assert bool(finite.all())
            for _ in range(20):
                odd = score.bound(price, torch.rand(len(level), generator=generator).double() * 60)
                assert bool((odd >= brute - 1e-12).all())


def test_a_score_that_does_not_move() -> None:
    level = torch.tensor([0.5], dtype=torch.float64)
    for form, value in (
        (Form.POSITIVE, 0.5),
        (Form.SQUARE, 0.25),
        (Form.SOFTPLUS, math.log1p(math.exp(0.5))),
    ):
        bound = Score(form, level, torch.zeros(1).double()).bound(0.1, level.abs())
        assert value <= float(bound) <= value * (1 + 1e-11)
