"""Cart-pole as a finite model of its cells: worst-case values, and the robust optimum."""

from __future__ import annotations

import pytest

from certus.errors import ArgumentError
from certus.mdp import cartpole_learner, fit_cartpole
from studies.cartpole.cells import cartpole_optimum, cartpole_worst_case


def test_the_worst_case_of_cart_pole_falls_with_the_radius() -> None:
    policy = fit_cartpole(cartpole_learner(20.0, bins=(16, 7), episodes=2000), 1).policy
    values = [cartpole_worst_case(policy, rho) for rho in (0.0, 1e-4, 1e-3, 1e-2, 10.0)]
    assert values == sorted(values, reverse=True)
    assert 0 < values[0] < 100  # at most 1/(1 − λ)
    # A ball of radius 10 holds the fall from anywhere: only the first reward is left.
    assert values[-1] == pytest.approx(1.0, abs=0.15)
    with pytest.raises(ArgumentError, match="`rho` must be finite and not negative"):
        cartpole_worst_case(policy, -1.0)


def test_the_optimum_on_the_cells_of_cart_pole() -> None:
    """It is the value of its own policy, and falls with the radius."""
    values = []
    for rho in (0.0, 1e-4):
        policy, value = cartpole_optimum(rho)
        assert value == pytest.approx(cartpole_worst_case(policy, rho), abs=0.1)
        values.append(value)
    assert 0 < values[1] < values[0] < 100
