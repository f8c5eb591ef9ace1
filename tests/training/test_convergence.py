"""thm:convergence, measured on a problem for which every constant, φ and ∇F are known by hand.

ℓ(θ; z) = ½θ² − 4θ + θz + ¼z², z₀ = ±⅔. With γ = ¾ the inner problem is concave with μ = 2γ − ½ = 1, and
T_γ(z₀) = (2γz₀ + θ)/μ. So ∇_θ φ_γ(θ; z₀) = 2θ − 4 + 1.5z₀, ∇F(θ) = 2θ − 4, σ = 1, L_φ = 1 + 1/μ = 2, and from
θ = 0, Δ = 4. The bound is within a factor of three of what happens, and far below what happens to a training
that leaves the maximisation out: that one ends at θ = 4, where ‖∇F‖² = 16.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import certus
from certus.data import Samples
from certus.inner import BarzilaiBorwein
from certus.inner.methods import MethodLike
from certus.losses import AnyLoss
from certus.training import Callback, ConvergenceConstants, TrainingState

GAMMA, MODULUS = 0.75, 1.0
CONSTANTS = ConvergenceConstants(1.0, 1.0, MODULUS, initial_gap=4.0, noise=1.0)
POINTS = torch.tensor([2.0, -2.0, 2.0, -2.0], dtype=torch.float64).unsqueeze(1) / 3
WRM = certus.WRM(GAMMA, maximizer=BarzilaiBorwein(1e-12, 300))


class Theta(nn.Module):
    """Its output is the loss itself."""

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, z: Tensor) -> Tensor:
        return (self.theta**2 / 2 - 4 * self.theta + self.theta * z + z**2 / 4).flatten()


class Gradients(Callback):
    """‖∇F(θ)‖² before each step."""

    def __init__(self) -> None:
        self.squares = [16.0]  # at θ = 0

    def on_step_end(self, state: TrainingState) -> None:
        assert isinstance(state.model, Theta)
        self.squares.append((2 * state.model.theta.item() - 4) ** 2)


def mean_square(method: MethodLike, steps: int) -> float:
    """The left side of the theorem, (1/T) Σ E‖∇F(θ^t)‖², over two runs of Algorithm 1 with its step."""
    means = []
    for seed in range(2):
        seen, step_size = Gradients(), CONSTANTS.step_size(steps)
        certus.fit(
            Theta(),
            Samples(POINTS, torch.zeros(4, dtype=torch.float64)),
            method=method,
            criterion=lambda outputs, targets: outputs,
            epochs=steps // 4,
            batch_size=1,
            optimizer=lambda groups, rate=step_size: torch.optim.SGD(groups, lr=rate),  # type: ignore[misc]
            seed=seed,
            callbacks=[seen],
        )
        assert len(seen.squares) == steps + 1
        means.append(sum(seen.squares[:-1]) / steps)
    return sum(means) / len(means)


@pytest.mark.parametrize("steps", [40, 80])
def test_the_mean_squared_gradient_is_below_the_bound(steps: int) -> None:
    bound = CONSTANTS.bound(steps)
    assert bound / 3 <= mean_square(WRM, steps) <= bound


@pytest.mark.parametrize("steps", [40, 80])
def test_the_bound_is_broken_without_the_maximisation(steps: int) -> None:
    assert mean_square(certus.inner.methods.ERM(), steps) > 3 * CONSTANTS.bound(steps)


def test_the_bound_is_broken_at_another_gamma() -> None:
    assert mean_square(certus.WRM(2 * GAMMA, maximizer=WRM.maximizer), 80) > CONSTANTS.bound(80)


@pytest.mark.parametrize("accuracy", [3.0, 1.0])
def test_the_effect_of_an_approximate_maximiser(accuracy: float) -> None:
    """A maximiser that misses φ by exactly ε, always to the same side: the worst that the theorem allows."""

    def missing(loss: AnyLoss, inputs: Tensor, targets: Tensor | None) -> Tensor:
        found = WRM.solve(loss, inputs, targets)
        moved = found.inputs + math.sqrt(2 * accuracy / MODULUS)
        values = loss(moved, targets).detach() - GAMMA * ((moved - inputs) ** 2).flatten()  # type: ignore[arg-type,call-arg]
        torch.testing.assert_close(found.value - values, torch.full_like(values, accuracy))
        return moved

    steps = 80
    found = mean_square(missing, steps)
    assert CONSTANTS.bound(steps, accuracy) / 3 <= found <= CONSTANTS.bound(steps, accuracy)
    assert found > CONSTANTS.bound(steps), "the term in ε is needed"


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
        with pytest.raises(certus.errors.ArgumentError, match=f"`{name}` must be"):
            ConvergenceConstants(**(good | {name: value}))
    with pytest.raises(certus.errors.ArgumentError, match="must not be linear"):
        ConvergenceConstants(0.0, 0.0, 1.0, 1.0, 1.0)
    with pytest.raises(certus.errors.ArgumentError, match="`steps` must be at least L_φΔ/σ² = 2; got 1"):
        ConvergenceConstants(**good).step_size(1)
    with pytest.raises(certus.errors.ArgumentError, match="`accuracy` must not be negative"):
        ConvergenceConstants(**good).bound(10, accuracy=-1.0)
