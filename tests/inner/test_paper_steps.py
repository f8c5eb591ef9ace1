"""Steps and remarks of the paper that have no function of their own, on losses whose constants are known.

ℓ(θ; z) = a Σ cos(zᵢ + θᵢ) has |ℓ| ≤ 3a in three dimensions, and L_zz = L_zθ = L_θz = L_θθ = a everywhere.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import certus
from certus.costs.prox import prox_sup
from certus.domains import Box, Domain, Unbounded
from certus.inner import BarzilaiBorwein

A, MOST = 1.5, 4.5
PRECISE = BarzilaiBorwein(tolerance=1e-13, max_gradients=500)
points = st.lists(st.floats(-4, 4), min_size=3, max_size=3).map(
    lambda values: torch.tensor([values], dtype=torch.float64)
)
gammas = st.floats(0.8, 4.0)  # 2γ > a: strongly concave


def waves(theta: Tensor, z: Tensor) -> Tensor:
    return A * torch.cos(z + theta).sum(1)


def moved(theta: Tensor, z: Tensor, gamma: float, domain: Domain = Unbounded()) -> Tensor:  # noqa: B008 (frozen)
    return certus.inner.transport_map(
        lambda at: waves(theta, at), z, gamma=gamma, domain=domain, maximizer=PRECISE
    )


def surrogate(theta: Tensor, z: Tensor, gamma: float) -> Tensor:
    return certus.inner.robust_surrogate(lambda at: waves(theta, at), z, gamma=gamma, maximizer=PRECISE)


@given(z=points, theta=points, gamma=gammas)
def test_the_surrogate_has_the_range_of_the_loss(z: Tensor, theta: Tensor, gamma: float) -> None:
    """ℓ ≤ φ_γ ≤ M: with |ℓ| ≤ M also |φ_γ| ≤ M (the proof of theorem:robustness)."""
    value = float(surrogate(theta, z, gamma))
    assert float(waves(theta, z)) - 1e-9 <= value <= MOST + 1e-9


@given(z=points, theta=points, gamma=gammas)
def test_the_loss_gains_at_least_the_cost_of_a_move(z: Tensor, theta: Tensor, gamma: float) -> None:
    """γ c(T, z) ≤ ℓ(T) − ℓ(z) ≤ 2M: T is at least as good as staying."""
    there = moved(theta, z, gamma)
    paid = gamma * float((there - z).square().sum())
    assert paid <= float(waves(theta, there) - waves(theta, z)) + 1e-9
    assert paid <= 2 * MOST


def test_the_printed_bound_on_that_cost_is_false() -> None:
    """γ c(T, z) ≤ ℓ(z), as printed: where ℓ = 0 and its slope is not, the data move all the same."""
    z = torch.full((1, 3), torch.pi / 2, dtype=torch.float64)
    theta = torch.zeros(1, 3, dtype=torch.float64)
    assert float(waves(theta, z)) == pytest.approx(0, abs=1e-12)
    assert float((moved(theta, z, 1.0) - z).square().sum()) > 0.1


@given(z=points, theta=points, gamma=gammas)
def test_the_level_is_the_size_of_the_gradient(z: Tensor, theta: Tensor, gamma: float) -> None:
    """T − z = ∇ℓ(T)/2γ: c(T, z) = ‖∇ℓ(T)‖²/4γ², so a small ρ̂ means small gradients near the data."""
    there = moved(theta, z, gamma)
    slope = -A * torch.sin(there + theta)
    assert float((there - z).square().sum()) == pytest.approx(
        float(slope.square().sum()) / (4 * gamma**2), rel=1e-5, abs=1e-10
    )


def test_nothing_moves_only_where_there_is_no_way_up() -> None:
    """ρ̂ > 0 unless ∇ℓ = 0; in a box also where ∇ℓ points out of it."""
    theta, gamma = torch.zeros(1, 3, dtype=torch.float64), 1.0
    top, slope = theta.clone(), theta + 0.5
    assert float((moved(theta, top, gamma) - top).abs().max()) < 1e-12
    assert float((moved(theta, slope, gamma) - slope).square().sum()) > 1e-3
    box = Box(0.5, 1.0)  # the loss rises towards 0
    assert float((moved(theta, slope, gamma, box) - slope).abs().max()) < 1e-12


@given(z=points, first=points, second=points, gamma=gammas)
def test_the_transport_cost_is_lipschitz_in_theta(
    z: Tensor, first: Tensor, second: Tensor, gamma: float
) -> None:
    """lemma:c-is-not-bad: |c(T₁, z) − c(T₂, z)| ≤ L_c L_zθ/μ ‖θ₁ − θ₂‖, μ = 2γ − a. As ‖T − z‖ ≤ a√3/2γ,
    c is a√3/γ-Lipschitz where it is asked."""
    costs = [float((moved(theta, z, gamma) - z).square().sum()) for theta in (first, second)]
    constant = A * 3**0.5 / gamma * A / (2 * gamma - A)
    assert abs(costs[0] - costs[1]) <= constant * float((first - second).norm()) + 1e-6


@given(z=points, theta=points)
def test_a_large_penalty_is_a_penalty_on_gradients(z: Tensor, theta: Tensor) -> None:
    """φ_γ = ℓ + ‖∇ℓ‖²/4γ + O(γ⁻²): the remainder is at most a‖∇ℓ‖²/8γ² · 2γ/(2γ − a)."""
    gamma, slope = 50.0, A * torch.sin(z + theta)
    square = float(slope.square().sum())
    gained = float(surrogate(theta, z, gamma) - waves(theta, z))
    assert abs(gained - square / (4 * gamma)) <= A * square / (8 * gamma**2) * 1.1 + 1e-10


@given(z=points, theta=points, other=points)
def test_the_remainder_in_theta_has_a_square(z: Tensor, theta: Tensor, other: Tensor) -> None:
    """|ℓ(θ′) − ℓ(θ) − ∇_θ ℓ·(θ′ − θ)| ≤ (L_θθ/2)‖θ′ − θ‖²."""
    step, slope = other - theta, -A * torch.sin(z + theta)
    remainder = waves(other, z) - waves(theta, z) - (slope * step).sum()
    assert abs(float(remainder)) <= A / 2 * float(step.square().sum()) + 1e-9


@given(z=points, theta=points, bias=points, noise=points, gamma=gammas, size=st.floats(0.01, 0.5))
def test_one_step_descends_but_for_bias_and_noise(
    z: Tensor, theta: Tensor, bias: Tensor, noise: Tensor, gamma: float, size: float
) -> None:
    """F(θ − αg) ≤ F(θ) − α∇F·g + (Lα²/2)‖g‖² for any g (eqn:intermediate-progress). For g = ∇F + b ± ξ the
    mean of both is at most F − α∇F·(∇F + b) + (Lα²/2)(‖∇F + b‖² + ‖ξ‖²) (eq:final-progress,
    eqn:expectation-single-step). L = a + a²/(2γ − a), lemma:smoothness."""
    smoothness = A + A**2 / (2 * gamma - A)
    gradient = -A * torch.sin(moved(theta, z, gamma) + theta)
    before, afters = float(surrogate(theta, z, gamma)), []
    for sign in (1, -1):
        taken = gradient + bias + sign * noise
        afters.append(float(surrogate(theta - size * taken, z, gamma)))
        most = before - size * float((gradient * taken).sum())
        most += smoothness * size**2 / 2 * float(taken.square().sum())
        assert afters[-1] <= most + 1e-6
    meant = gradient + bias
    most = before - size * float((gradient * meant).sum())
    most += smoothness * size**2 / 2 * float(meant.square().sum() + noise.square().sum())
    assert sum(afters) / 2 <= most + 1e-6


def test_derivatives_of_cross_entropy_in_the_logits() -> None:
    """Gradient p − e_y, Hessian diag p − ppᵀ."""
    logits = torch.tensor([0.3, -1.2, 2.0, 0.7], dtype=torch.float64)
    label = torch.tensor([1])

    def loss(at: Tensor) -> Tensor:
        return certus.CrossEntropy()(at[None], label).sum()

    chances = logits.exp() / logits.exp().sum()
    wanted = chances - torch.eye(4, dtype=torch.float64)[1]
    torch.testing.assert_close(torch.autograd.functional.jacobian(loss, logits), wanted)
    hessian = torch.diag(chances) - chances[:, None] * chances[None]
    torch.testing.assert_close(torch.autograd.functional.hessian(loss, logits), hessian)


def test_jacobians_of_layers_multiply_and_their_differences_telescope() -> None:
    """lemma:chain-rule and eqn:telescope: J = D₃W₃ D₂W₂ D₁W₁, and J(x) − J(y) is the sum over the layers of
    (later factors at x) (difference of this one) (earlier ones at y)."""
    torch.manual_seed(0)
    weights = [torch.randn(4, 4, dtype=torch.float64) for _ in range(3)]

    def forward(x: Tensor) -> Tensor:
        for weight in weights:
            x = torch.tanh(weight @ x)
        return x

    def factors(x: Tensor) -> list[Tensor]:
        found = []
        for weight in weights:
            x = torch.tanh(weight @ x)
            found.append(torch.diag(1 - x**2) @ weight)
        return found

    x, y = torch.randn(2, 4, dtype=torch.float64)
    at_x, at_y = factors(x), factors(y)
    jacobians = [torch.autograd.functional.jacobian(forward, point) for point in (x, y)]
    torch.testing.assert_close(jacobians[0], at_x[2] @ at_x[1] @ at_x[0])
    terms = [
        at_x[2] @ at_x[1] @ (at_x[0] - at_y[0]),
        at_x[2] @ (at_x[1] - at_y[1]) @ at_y[0],
        (at_x[2] - at_y[2]) @ at_y[1] @ at_y[0],
    ]
    torch.testing.assert_close(jacobians[0] - jacobians[1], terms[0] + terms[1] + terms[2])


def test_without_truncation_the_proximal_step_is_a_sign_method() -> None:
    """Equal deviations d of m coordinates: z⁰ + β sign; (a/2)β² + (m/2)(d − β)² has β = md/(a + m)."""
    origin = torch.tensor([[1.0, 2.0, -1.0]], dtype=torch.float64)
    signs = torch.tensor([[1.0, -1.0, 1.0]], dtype=torch.float64)
    weight = torch.tensor([0.5], dtype=torch.float64)
    found = prox_sup(origin + 2 * signs, origin, weight)
    torch.testing.assert_close(found, origin + 3 * 2 / 3.5 * signs)
    # A small deviation is left as it is: there the step is not a sign method.
    mixed = origin + torch.tensor([[2.0, -0.1, 2.0]], dtype=torch.float64)
    beta = 2 * 2 / 2.5
    moves = torch.tensor([[beta, -0.1, beta]], dtype=torch.float64)
    torch.testing.assert_close(prox_sup(mixed, origin, weight), origin + moves)
