"""The robust transition against grid searches, SciPy's Lambert W and its own closed form."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import lambertw
from torch import Tensor

from certus._compiled import Real
from certus.costs import SquaredSup, WeightedL2
from certus.domains import Box
from certus.errors import ArgumentError, LossError
from certus.mdp import AngleReward, RobustTransition
from certus.mdp.policies import NetworkShape, QNetwork
from certus.mdp.transition import (
    WeakPenaltyWarning,
    finest_penalty,
    lambert_w,
    lambert_w_fast,
    pushed,
    pushed_fast,
)
from tests.oracles import Array, maximum_on_grid

ANGLES = st.floats(-2.0, 2.0)
PENALTIES = st.floats(0.05, 1e4)


@given(st.floats(0, 1e300))
def test_lambert_w_is_scipys(x: float) -> None:
    assert float(lambert_w(x)) == pytest.approx(lambertw(x).real, rel=1e-14, abs=1e-300)
    assert lambert_w_fast(x) == pytest.approx(float(lambert_w(x)), rel=1e-14)


@given(ANGLES, PENALTIES)
def test_the_closed_form_is_the_lowest_point_of_a_grid(angle: float, gamma: float) -> None:
    def value(at: Real) -> Real:
        return np.exp(-np.abs(at)) + gamma * (at - angle) ** 2

    found = float(pushed(np.float64(angle), gamma))
    reach = 1.1 / gamma if gamma > 1 else 5.0
    grid = np.linspace(angle - reach, angle + reach, 20_001)
    assert value(np.float64(found)) <= value(grid).min() + 1e-12
    assert abs(found) >= abs(angle)
    assert pushed_fast(angle, gamma) == pytest.approx(found, rel=1e-12)


def test_at_the_top_both_sides_are_equally_low_and_the_right_one_is_taken() -> None:
    moved = RobustTransition(AngleReward(1), 3.0)(torch.zeros(2, 2, dtype=torch.float64))
    assert moved[:, 0].tolist() == [0.0, 0.0]
    assert moved[:, 1].tolist() == pytest.approx([lambertw(1 / 6).real] * 2)
    negative_zero = torch.tensor([[-0.0]], dtype=torch.float64)
    assert RobustTransition(AngleReward(), 3.0)(negative_zero).item() > 0


@given(st.lists(ANGLES, min_size=1, max_size=5), st.floats(0.5, 100))
def test_the_maximiser_finds_the_closed_form(angles: list[float], gamma: float) -> None:
    states = torch.tensor([[angle, 1.0] for angle in [*angles, 0.0]], dtype=torch.float64)
    transition = RobustTransition(AngleReward(), gamma)
    torch.testing.assert_close(transition.solve(states).inputs, transition(states), atol=2e-4, rtol=0)


def smooth_problem() -> tuple[QNetwork, Tensor]:
    torch.manual_seed(0)
    network = QNetwork(NetworkShape(3, (1.0, 2.0), hidden=8, discount=0.9)).double()
    return network, torch.randn(6, 2, dtype=torch.float64)


@pytest.mark.parametrize("bounded", [False, True])
def test_with_the_q_term_it_is_the_argmin_on_a_grid(bounded: bool) -> None:
    network, states = smooth_problem()
    gamma, discount = 6.0, 0.9

    def reward(at: Tensor) -> Tensor:
        return torch.cos(at[:, 0]) - 0.1 * at[:, 1] ** 2

    def value(at: Tensor) -> Tensor:
        highest: Tensor = network(at).amax(1)
        return highest

    domain = Box(-1.0, 1.0)
    states = states.clamp(-1, 1) if bounded else states
    options = {"domain": domain} if bounded else {}
    transition = RobustTransition(reward, gamma, discount=discount, **options)  # type: ignore[arg-type]
    found = transition.solve(states, value)
    assert bool(found.converged.all())
    for state, moved, attained in zip(states.numpy(), found.inputs.numpy(), found.value, strict=True):

        def objective(points: Array, state: Array = state) -> Array:
            with torch.no_grad():
                at = torch.from_numpy(points)
                total = reward(at) + discount * value(at)
            negative: Array = -total.numpy() - gamma * ((points - state) ** 2).sum(1)
            return negative

        lower, upper = state - 2, state + 2
        if bounded:
            lower, upper = np.full(2, -1.0), np.full(2, 1.0)
        best, highest = maximum_on_grid(objective, lower, upper)
        assert float(attained) == pytest.approx(highest, abs=1e-6)
        np.testing.assert_allclose(moved, best, atol=2e-3)


def test_other_costs_and_domains_leave_the_closed_form_to_the_maximiser() -> None:
    states = torch.tensor([[0.2, 0.0]], dtype=torch.float64)
    moved = RobustTransition(AngleReward(), 2.0, cost=WeightedL2(torch.tensor([3.0, 1.0])))(states)
    assert moved[0, 0].item() == pytest.approx(float(pushed(np.float64(0.2), 6.0)), abs=1e-4)
    boxed = RobustTransition(AngleReward(), 2.0, domain=Box(-0.25, 0.25))(states)
    assert boxed[0, 0].item() == pytest.approx(0.25)


def test_a_weak_penalty_is_named_with_its_threshold() -> None:
    def reward(at: Tensor) -> Tensor:
        return torch.cos(at[:, 0])  # −r has curvature at most 1, so 2γ > 1 is needed

    with pytest.warns(WeakPenaltyWarning, match=r"gamma = 0.4 is not above the threshold 0.5"):
        RobustTransition(reward, 0.4, curvature_bound=1.0)
    with pytest.warns(WeakPenaltyWarning, match="every threshold"):
        RobustTransition(reward, 0.4, curvature_bound=1.0, cost=SquaredSup())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        transition = RobustTransition(reward, 0.6, curvature_bound=1.0)
    found = transition.solve(torch.tensor([[0.3]], dtype=torch.float64))
    assert found.gap.item() <= 1e-8
    assert found.gap_evidence.value == "assumed"


def test_the_finest_penalty_pushes_by_one_cell() -> None:
    assert float(pushed(np.float64(0.0), finest_penalty(0.03))) == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (lambda at: at[:, 0].detach(), "no gradient in the state"),
        (lambda at: torch.tensor(at.detach().numpy()[:, 0]), "no gradient in the state"),
        (lambda at: at.sum(), r"one number per state, shape \(2,\)"),
        (lambda at: 1.0, "one number per state"),
        (5, "`reward` must be callable"),
    ],
)
def test_rewards_that_cannot_be_used(reward: object, message: str) -> None:
    with pytest.raises(LossError, match=message):
        RobustTransition(reward, 1.0)(torch.zeros(2, 2))  # type: ignore[arg-type]


def test_values_out_of_range() -> None:
    for gamma in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ArgumentError, match="`gamma` must be positive and finite"):
            RobustTransition(AngleReward(), gamma)
    with pytest.raises(ArgumentError, match=r"`discount` must lie in \[0, 1\); got 1.0"):
        RobustTransition(AngleReward(), 1.0, discount=1.0)
    with pytest.raises(ArgumentError, match="`coordinate` must be a whole number"):
        AngleReward(-1)
    with pytest.raises(ArgumentError, match="`coordinate` must be below 2, the number of coordinates"):
        AngleReward(2)(torch.zeros(1, 2))
    for tiny in (1e-309, 5e-324):
        with pytest.raises(ArgumentError, match=r"`gamma` must be at least 2.2e-308"):
            RobustTransition(AngleReward(), tiny)
    least = RobustTransition(AngleReward(), 2.3e-308)(torch.zeros(1, 1, dtype=torch.float64))
    assert least.item() == pytest.approx(lambertw(1 / 4.6e-308).real)


def test_a_penalty_is_one_number_of_any_kind() -> None:
    states = torch.tensor([[0.1, 0.5]])
    expected = RobustTransition(AngleReward(), 50.0)(states)
    for gamma in (50, torch.tensor(50.0), torch.tensor([50.0]), np.float32(50)):
        made = RobustTransition(AngleReward(), gamma)  # type: ignore[arg-type]  # more than is declared
        assert torch.equal(made(states), expected)
    with pytest.raises(ArgumentError, match=r"`gamma` must be one number for all states; got shape \(2,\)"):
        RobustTransition(AngleReward(), torch.tensor([1.0, 2.0]))  # type: ignore[arg-type]  # refused


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (torch.zeros(2, 2, dtype=torch.int64), "`states` must be of a floating-point dtype; got torch.int64"),
        (torch.zeros(2), r"`states` must have shape \(batch, coordinates\); got shape \(2,\)"),
        ([[0.0]], "`states` must be a tensor"),
    ],
)
def test_states_that_cannot_be_moved(states: Tensor, message: str) -> None:
    transition = RobustTransition(AngleReward(), 1.0)
    for move in (transition, transition.solve):
        with pytest.raises(ArgumentError, match=message):
            move(states)
    with pytest.raises(ArgumentError, match="`states` must be finite; got NaN or infinity"):
        transition(torch.tensor([[math.nan]]))
