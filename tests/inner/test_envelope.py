"""How φ_γ and T_γ depend on θ: lemma:smoothness, lemma:envelope and eqn:transport-smoothness."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import certus
from certus.inner import BarzilaiBorwein

PRECISE = BarzilaiBorwein(tolerance=1e-13, max_gradients=500)
AMPLITUDE = 1.5
START = torch.tensor([[0.2, -0.4, 1.0]], dtype=torch.float64)


def shifted_waves(theta: Tensor, z: Tensor) -> Tensor:
    """ℓ(θ; z) = a Σ cos(zᵢ + θᵢ): L_zz = L_zθ = L_θz = L_θθ = a, everywhere."""
    return AMPLITUDE * torch.cos(z + theta).sum(1)


thetas = st.lists(st.floats(-4, 4), min_size=3, max_size=3).map(
    lambda values: torch.tensor(values, dtype=torch.float64)
)


@given(first=thetas, second=thetas, ratio=st.floats(1.1, 4.0))
def test_the_map_and_the_gradient_are_lipschitz(first: Tensor, second: Tensor, ratio: float) -> None:
    """T is L_zθ/μ-Lipschitz in θ, and ∇φ is (L_θθ + L_θz L_zθ/μ)-Lipschitz, with μ = 2γ − L_zz."""
    gamma = ratio * AMPLITUDE / 2
    modulus = 2 * gamma - AMPLITUDE
    moved, slopes = [], []
    for theta in (first, second):
        leaf = theta.clone().requires_grad_()

        def loss(z: Tensor, leaf: Tensor = leaf) -> Tensor:
            return shifted_waves(leaf, z)

        moved.append(certus.inner.transport_map(loss, START, gamma=gamma, maximizer=PRECISE))
        surrogate = certus.inner.robust_surrogate(loss, START, gamma=gamma, maximizer=PRECISE)
        slopes.append(torch.autograd.grad(surrogate.sum(), leaf)[0])
    distance = (first - second).norm()
    assert (moved[0] - moved[1]).norm() <= AMPLITUDE / modulus * distance + 1e-6
    smoothness = AMPLITUDE + AMPLITUDE**2 / modulus
    assert (slopes[0] - slopes[1]).norm() <= smoothness * distance + 1e-6


@pytest.mark.parametrize("supervised", [False, True])
def test_gradient_in_theta_equals_finite_differences(supervised: bool) -> None:
    """∇_θ φ_γ = ∇_θ ℓ(θ; T_γ): the dependence of T_γ on θ does not matter."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 2)).double()
    targets = torch.tensor([1]) if supervised else None
    loss = certus.ModelLoss(model, certus.CrossEntropy(0.1)) if supervised else lambda z: model(z)[:, 0]

    def surrogate() -> Tensor:
        return certus.inner.robust_surrogate(loss, START, targets, gamma=1.0, maximizer=PRECISE).sum()

    surrogate().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None or not supervised
        if parameter.grad is None:
            continue
        for index in range(parameter.numel()):
            step = 1e-5
            flat = parameter.data.view(-1)
            kept = flat[index].item()
            with torch.no_grad():
                flat[index] = kept + step
                above = surrogate()
                flat[index] = kept - step
                below = surrogate()
                flat[index] = kept
            expected = (above - below) / (2 * step)
            torch.testing.assert_close(parameter.grad.view(-1)[index], expected, atol=1e-7, rtol=1e-5)


def test_no_gradient_flows_through_the_map() -> None:
    weight = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    inputs = START.clone().requires_grad_()
    found = certus.WRM(1.0).solve(lambda z: z @ weight, inputs)
    assert not any(
        getattr(found, name).requires_grad for name in ("inputs", "value", "transport_cost", "gap")
    )
