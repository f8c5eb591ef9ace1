"""thm:convergence, measured on a problem whose constants are known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import certus
from certus import BarzilaiBorwein
from certus.training import ConvergenceConstants

# ℓ(θ; z) = Σ cos(zᵢ + θᵢ), z₀ uniform on a few points: all smoothness constants are 1, γ = 1.5 gives μ = 2.
GAMMA, SMOOTH = 1.5, 1.0
MODULUS = 2 * GAMMA - SMOOTH
POINTS = torch.tensor([[0.3, -1.0], [2.0, 0.5], [-1.2, 1.7], [0.0, -2.2]], dtype=torch.float64)


def slope_at(theta: Tensor, data: Tensor, maximizer: BarzilaiBorwein) -> Tensor:
    """∇_θ φ_γ(θ; z) for each sample: the gradient of the loss where the ascent arrives."""
    moved = certus.transport_map(
        lambda z: torch.cos(z + theta).sum(1), data, gamma=GAMMA, maximizer=maximizer
    )
    return -torch.sin(moved + theta)


PRECISE = BarzilaiBorwein(1e-12, 300)


def constants() -> ConvergenceConstants:
    # |sin| ≤ 1 in two coordinates bounds the noise by σ² ≤ 2; F lies in [−2, 2].
    return ConvergenceConstants(SMOOTH, SMOOTH, MODULUS, initial_gap=4.0, noise=math.sqrt(2))


@pytest.mark.parametrize("steps", [40, 160])
def test_the_mean_squared_gradient_is_below_the_bound(steps: int) -> None:
    """Averaged over runs, with the step size of the theorem and an exact inner maximiser."""
    step_size, means = constants().step_size(steps), []
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        theta = torch.zeros(2, dtype=torch.float64)
        squares = []
        for _ in range(steps):
            slopes = slope_at(theta, POINTS, PRECISE)
            squares.append(float((slopes.mean(0) ** 2).sum()))
            theta = theta - step_size * slopes[torch.randint(len(POINTS), (), generator=generator)]
        means.append(sum(squares) / steps)
    assert sum(means) / len(means) <= constants().bound(steps)


@pytest.mark.parametrize("accuracy", [0.3, 0.03])
def test_the_effect_of_an_approximate_maximiser(accuracy: float) -> None:
    """‖∇ℓ(θ; ẑ) − ∇φ(θ)‖² ≤ 2L_θz²ε/μ for an ε-approximate ẑ, whatever T: the source of the theorem's ε-term.

    Without noise (full batches), gradient descent with ẑ ends at ‖∇F‖² ≤ 4L_θz²ε/μ on average.
    """
    rough = BarzilaiBorwein(tolerance=accuracy, max_gradients=1)  # stays at z₀, if that is good enough
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        theta = 3 * torch.randn(2, dtype=torch.float64, generator=generator)

        def loss(z: Tensor, theta: Tensor = theta) -> Tensor:
            return torch.cos(z + theta).sum(1)

        exact = certus.WRM(GAMMA, maximizer=PRECISE).solve(loss, POINTS)
        stopped = certus.WRM(GAMMA, maximizer=rough).solve(loss, POINTS)
        missed = exact.value - stopped.value
        error = ((torch.sin(stopped.inputs + theta) - torch.sin(exact.inputs + theta)) ** 2).sum(1)
        assert (error <= 2 * SMOOTH**2 / MODULUS * missed + 1e-9).all()
    theta = torch.tensor([0.7, -0.4], dtype=torch.float64)
    wrm, squares = BarzilaiBorwein(tolerance=accuracy), []
    for _ in range(100):
        squares.append(float((slope_at(theta, POINTS, PRECISE).mean(0) ** 2).sum()))
        theta = theta - 0.3 * slope_at(theta, POINTS, wrm).mean(0)
    assert sum(squares[50:]) / 50 <= 4 * SMOOTH**2 / MODULUS * accuracy


def test_the_formulas() -> None:
    """Step √(Δ/(L_φ T σ²)) and bound 4σ√(L_φΔ/T) + 4L²ε/μ, by hand."""
    known = ConvergenceConstants(2.0, 3.0, 4.5, initial_gap=1.0, noise=0.5)
    assert known.smoothness == 2.0 + 9.0 / 4.5
    assert known.least_steps() == 16
    assert known.step_size(64) == pytest.approx(math.sqrt(1 / (4 * 64 * 0.25)))
    assert known.bound(64, accuracy=0.1) == pytest.approx(4 * 0.5 * math.sqrt(4 / 64) + 4 * 9 / 4.5 * 0.1)


def test_refused() -> None:
    good = {
        "parameter_smoothness": 1.0,
        "cross_smoothness": 1.0,
        "modulus": 1.0,
        "initial_gap": 1.0,
        "noise": 1.0,
    }
    for name, value in (("modulus", 0.0), ("noise", -1.0), ("parameter_smoothness", math.inf)):
        with pytest.raises(certus.ArgumentError, match=f"`{name}` must be"):
            ConvergenceConstants(**(good | {name: value}))
    with pytest.raises(certus.ArgumentError, match="must not be linear"):
        ConvergenceConstants(0.0, 0.0, 1.0, 1.0, 1.0)
    with pytest.raises(certus.ArgumentError, match="`steps` must be at least L_φΔ/σ² = 2; got 1"):
        ConvergenceConstants(**good).step_size(1)
    with pytest.raises(certus.ArgumentError, match="`accuracy` must not be negative"):
        ConvergenceConstants(**good).bound(10, accuracy=-1.0)
