"""Where each cost sends an ascent, against convex programs."""

from __future__ import annotations

import math
from collections.abc import Callable

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor

from certus import Box, SquaredL2
from certus.costs import Cost, Mahalanobis, Masked, SquaredLp, SquaredSup, WeightedL2
from certus.costs.base import infinite_unless
from certus.domains import Ball, Domain, Unbounded
from tests.oracles import Array, solve_concave

SIZE = 5
RNG = np.random.default_rng(0)
FACTOR = RNG.normal(size=(SIZE, SIZE))
MATRIX = FACTOR @ FACTOR.T + np.eye(SIZE)
WEIGHTS = RNG.uniform(0.2, 4.0, SIZE)
FREE = np.array([True, False, True, True, False])

Program = Callable[[cp.Variable], cp.Expression]


def squared_norm(p: float) -> Program:
    return lambda move: cp.square(cp.norm(move, p))


# cost, its form in the convex program, may it be posed with Box / Ball as an exact linear response?
RESPONSES: list[tuple[Cost, Program, tuple[bool, bool]]] = [
    (SquaredL2(), cp.sum_squares, (True, True)),
    (WeightedL2(torch.from_numpy(WEIGHTS)), lambda v: WEIGHTS @ cp.square(v), (True, False)),
    (Mahalanobis(torch.from_numpy(MATRIX)), lambda v: cp.quad_form(v, MATRIX), (False, False)),
    (SquaredLp(1.0), squared_norm(1), (True, False)),
    (SquaredLp(1.25), squared_norm(1.25), (True, False)),
    (SquaredLp(1.5), squared_norm(1.5), (True, False)),
    (SquaredLp(2.0), cp.sum_squares, (True, False)),
    (SquaredSup(), squared_norm(np.inf), (True, False)),
]
LOWER, UPPER = RNG.uniform(-1, -0.1, SIZE), RNG.uniform(0.1, 1, SIZE)
BOX = Box(torch.from_numpy(LOWER), torch.from_numpy(UPPER))


def constraints(domain: Domain, masked: bool, origin: Array) -> Callable[[cp.Variable], list[object]]:
    def build(point: cp.Variable) -> list[object]:
        built: list[object] = []
        if isinstance(domain, Box):
            built += [point >= LOWER, point <= UPPER]
        if isinstance(domain, Ball):
            built += [cp.norm(point) <= 1]
        if masked:
            built += [point[~FREE] == origin[~FREE]]
        return built

    return build


def linearised(program: Program, slope: Array, origin: Array, gamma: float) -> Program:
    """⟨slope, z⟩ − γ c(z, z₀) as a concave program."""
    return lambda z: slope @ z - gamma * program(z - origin)


CASES = [
    pytest.param(cost, program, domain, masked, id=f"{cost}-{type(domain).__name__}-{masked}"[:60])
    for cost, program, (box, ball) in RESPONSES
    for domain, wanted in ((Unbounded(), True), (BOX, box), (Ball(0.0, 1.0), ball))
    for masked in (False, True)
    if wanted and not (masked and (isinstance(domain, Ball) or isinstance(cost, Mahalanobis)))
]


@pytest.mark.parametrize(("cost", "program", "domain", "masked"), CASES)
def test_target_maximises_the_linearised_objective(
    cost: Cost, program: Program, domain: Domain, masked: bool
) -> None:
    """target = argmax_{z ∈ Z} ⟨slope, z⟩ − γ c(z, z₀), and gain is its increase over the point."""
    rng = np.random.default_rng(1)
    used = Masked(cost, torch.from_numpy(FREE)) if masked else cost
    for _ in range(4):
        gamma = rng.uniform(0.3, 3.0)
        slope = 2 * rng.normal(size=SIZE)
        slope[0] = 0.0
        origin = domain.project(torch.from_numpy(0.3 * rng.normal(size=(1, SIZE))))
        point = domain.project(origin + 0.2 * torch.from_numpy(FREE * rng.normal(size=(1, SIZE))))
        got = used.respond(
            torch.from_numpy(slope)[None], point, origin, torch.tensor([gamma], dtype=torch.float64), domain
        )
        start = origin[0].numpy()
        _, best = solve_concave(
            linearised(program, slope, start, gamma), SIZE, constraints(domain, masked, start)
        )
        assert domain.contains(got.target).all()

        def objective(z: Tensor, g: Array = slope, o: Tensor = origin, w: float = gamma) -> float:
            return float(z[0] @ torch.from_numpy(g) - w * used(z, o)[0])

        assert objective(got.target) == pytest.approx(best, abs=1e-6)
        assert float(got.gain) == pytest.approx(best - objective(point), abs=1e-6)


@pytest.mark.parametrize("domain", [BOX, Ball(0.0, 1.0)], ids=["box", "ball"])
@pytest.mark.parametrize(
    "cost",
    [WeightedL2(torch.from_numpy(WEIGHTS)), Mahalanobis(torch.from_numpy(MATRIX))],
    ids=["weighted", "full"],
)
def test_only_the_maximiser_of_a_concave_problem_stands_still(cost: Cost, domain: Domain) -> None:
    """Where the target is no exact linear response, it is still the point itself exactly at the optimum."""
    rng = np.random.default_rng(2)
    quadratic = np.diag(WEIGHTS) if isinstance(cost, WeightedL2) else MATRIX
    for _ in range(4):
        slope, origin = 3 * rng.normal(size=SIZE), 0.1 * rng.normal(size=SIZE)
        program = linearised(lambda move: cp.quad_form(move, quadratic), slope, origin, 1.0)
        best, _ = solve_concave(program, SIZE, constraints(domain, False, origin))
        one = torch.ones(1, dtype=torch.float64)
        start = torch.from_numpy(origin)[None]
        at_best = cost.respond(
            torch.from_numpy(slope)[None], torch.from_numpy(best)[None], start, one, domain
        )
        np.testing.assert_allclose(at_best.target[0], best, atol=1e-3)
        assert float(at_best.gain) == pytest.approx(0, abs=1e-6)
        elsewhere = cost.respond(torch.from_numpy(slope)[None], start, start, one, domain)
        assert float(elsewhere.gain) > 1e-3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cost", [SquaredLp(1.0), SquaredLp(1.01), SquaredLp(1.5), SquaredSup()], ids=str)
def test_extreme_slopes_stay_finite(cost: Cost, dtype: torch.dtype) -> None:
    slope = torch.tensor([[0.0, 0.0, 0.0], [1e-12, 0.0, 1e-9], [1e4, -1e-4, 1.0]], dtype=dtype)
    origin = torch.zeros_like(slope)
    for domain in (Unbounded(), Box(-0.5, 0.5)):
        got = cost.respond(slope, origin, origin, torch.ones(3, dtype=dtype), domain)
        assert torch.isfinite(got.target).all()
        assert torch.isfinite(got.gain).all()
        assert (got.target[0] == 0).all()
        assert (got.gain[1:] > 0).all()


def test_overflow_proves_nothing() -> None:
    bounds = torch.tensor([1.0, math.nan, math.inf, 2.0], dtype=torch.float64)
    known = torch.tensor([True, True, True, False])
    assert infinite_unless(known, bounds).tolist() == [1.0, math.inf, math.inf, math.inf]
