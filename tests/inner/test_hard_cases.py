"""Cases that once went wrong: ill-conditioned costs, other types, extreme scales, NaN among labels."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import certus
from certus import WRM, Box, SquaredL2
from certus.costs import Bregman, Cost, LabelCost, Mahalanobis, Masked, SquaredLp, SquaredSup, WeightedL2
from certus.domains import Ball, Domain, Unbounded
from certus.inner import BarzilaiBorwein, PaperAscent, Status

DOUBLE = torch.float64
STEEP = torch.tensor([1.0, 1e4], dtype=DOUBLE)


@pytest.mark.parametrize(
    ("cost", "domain"),
    [
        (Mahalanobis(torch.diag(STEEP)), Box(-10.0, 10.0)),
        (Mahalanobis(torch.diag(STEEP)), Ball(0.0, 10.0)),
        (WeightedL2(STEEP), Ball(0.0, 10.0)),
    ],
    ids=["matrix-box", "matrix-ball", "weights-ball"],
)
def test_ill_conditioned_costs_are_not_called_converged_too_soon(cost: Cost, domain: Domain) -> None:
    """ℓ = z₁ with weight 1 on it: φ = 1/4γ, however heavy the other coordinate is."""
    start = torch.zeros(1, 2, dtype=DOUBLE)
    wrm = WRM(1.0, cost=cost, domain=domain, maximizer=BarzilaiBorwein(1e-3, 30))
    found = wrm.solve(lambda z: z[:, 0], start)
    assert found.status[0] == Status.MAX_STEPS or float(found.value) == pytest.approx(0.25, abs=1e-3)
    assert found.gap[0] >= 0.25 - found.value[0] - 1e-9


def test_a_masked_matrix_is_solved_on_its_free_block() -> None:
    matrix = torch.tensor([[2.0, 0.5, 30.0], [0.5, 1.0, 20.0], [30.0, 20.0, 1e4]], dtype=DOUBLE)
    cost = Masked(Mahalanobis(matrix), torch.tensor([True, True, False]))
    slope = torch.tensor([1.0, -1.0, 5.0], dtype=DOUBLE)
    found = WRM(1.0, cost=cost).solve(
        lambda z: z @ slope, torch.zeros(1, 3, dtype=DOUBLE), curvature_bound=0.0
    )
    block, free = matrix[:2, :2], slope[:2]
    assert float(found.value) == pytest.approx(float(free @ torch.linalg.solve(block, free)) / 4)
    assert found.gradients[0] == 2
    assert found.inputs[0, 2] == 0
    assert float(found.gap) < 1e-12


def test_bounds_are_of_the_inputs_type() -> None:
    """0.1 in float64 is not 0.1 in float32."""
    points = torch.tensor([[0.0, 1.0]], dtype=DOUBLE)
    assert Box(0.1, 0.9).project(points).tolist() == [[0.1, 0.9]]
    found = WRM(1e-3, domain=Box(0.0, 0.1)).solve(lambda z: 1e3 * z.sum(1), torch.zeros(1, 1, dtype=DOUBLE))
    assert float(found.value) <= 100 - 1e-3 * 0.01 + 1e-12
    center = Ball(0.1, 0.2)
    inside = torch.full((1, 1), 0.1, dtype=DOUBLE)
    assert (center.project(inside + 5) - 0.3).abs().max() < 1e-15


def test_normalised_pixels_are_inside_their_own_bounds() -> None:
    pixels = torch.rand(20, 1, 4, 4, generator=torch.Generator().manual_seed(0)).round()
    normalised = (pixels - 0.1307) / 0.3081
    assert Box((0 - 0.1307) / 0.3081, (1 - 0.1307) / 0.3081).contains(normalised).all()
    assert not Box(0.0, 1.0).contains(torch.tensor([[1.00001]])).any()


def test_far_points_are_projected_in_float32() -> None:
    found = WRM(1e-20, domain=Ball(torch.tensor([-1.0, -1.0]), 5.0)).solve(
        lambda z: z.sum(1), torch.zeros(1, 2), curvature_bound=0.0
    )
    # The farthest point along (1, 1) from the centre: −2 + 5√2.
    assert float(found.value) == pytest.approx(5.0711, abs=1e-3)
    infinite = Ball(0.0, 2.0).project(torch.tensor([[torch.inf, 0.0]]))
    torch.testing.assert_close(infinite, torch.tensor([[2.0, 0.0]]))


def test_solutions_can_be_inputs() -> None:
    domain = Ball(1000.0, 1e-2)
    found = WRM(1e-3, domain=domain).solve(lambda z: z.sum(1), torch.full((1, 8), 1000.0))
    assert domain.contains(found.inputs).all()


def test_gaps_in_float32_with_an_ill_conditioned_matrix() -> None:
    """φ − ℓ = gᵀM⁻¹g/4γ for a linear loss; the gap after one gradient must not be less."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        basis, _ = torch.linalg.qr(torch.randn(4, 4, dtype=DOUBLE, generator=generator))
        matrix = (basis * torch.tensor([1e-6, 1e-3, 1.0, 1.0], dtype=DOUBLE)) @ basis.T
        matrix = ((matrix + matrix.T) / 2).float()
        if torch.linalg.eigvalsh(matrix.double())[0] <= 0:
            continue
        slope = torch.randn(4, generator=generator)
        truth = float(slope.double() @ torch.linalg.solve(matrix.double(), slope.double())) / 4
        wrm = WRM(1.0, cost=Mahalanobis(matrix), maximizer=BarzilaiBorwein(0.0, 1))
        found = wrm.solve(
            functools.partial(torch.matmul, other=slope), torch.zeros(1, 4), curvature_bound=0.0
        )
        assert float(found.value + found.gap) >= truth * (1 - 1e-4)


def test_a_modulus_with_few_digits_is_rounded_down() -> None:
    """γ = 1 and L⁺ = 1.9999999 leave μ = 1e-7, which float32 would round up."""
    bound, start = 1.9999999, torch.ones(1, 1)
    found = WRM(1.0, maximizer=BarzilaiBorwein(0.0, 1)).solve(
        lambda z: bound / 2 * z[:, 0] ** 2, start, curvature_bound=bound
    )
    slope = bound
    assert float(found.gap) >= slope**2 / (2 * (2 - bound)) * 0.999


@pytest.mark.parametrize("cost", [SquaredSup(), SquaredLp(1.0)], ids=str)
def test_costs_without_modulus_have_no_bound(cost: Cost) -> None:
    assert cost.strong_convexity == 0
    found = WRM(1.0, cost=cost).solve(lambda z: z.sum(1), torch.zeros(2, 3), curvature_bound=0.0)
    assert torch.isinf(found.gap).all()


def test_gaps_overflow_to_infinity_not_nan() -> None:
    for cost in (SquaredL2(), WeightedL2(torch.ones(2))):
        wrm = WRM(1.0, cost=cost, maximizer=BarzilaiBorwein(0.0, 1))
        found = wrm.solve(lambda z: 1e30 * z.sum(1), torch.zeros(1, 2), curvature_bound=0.0)
        assert torch.isinf(found.gap).all()


@pytest.mark.parametrize("domain", [Unbounded(), Box(-2.0, 2.0), Ball(0.0, 2.0)], ids=["all", "box", "ball"])
def test_gaps_with_light_weights(domain: Domain) -> None:
    """A norm below the Euclidean one: ‖v‖ = 0.3‖v‖₂. The loss −(z − 1)²/2 has its supremum in closed form."""
    weights, gamma = torch.full((1,), 0.09, dtype=DOUBLE), 1.0
    start = torch.full((1, 1), -1.0, dtype=DOUBLE)
    summit = (1 - 2 * 0.09 * gamma) / (1 + 2 * 0.09 * gamma)
    truth = -((summit - 1) ** 2) / 2 - gamma * 0.09 * (summit + 1) ** 2
    for cost in (WeightedL2(weights), Mahalanobis(torch.diag(weights))):
        wrm = WRM(gamma, cost=cost, domain=domain, maximizer=BarzilaiBorwein(0.0, 1))
        # Curvature −1 in L2 is −1/0.09 in this norm.
        found = wrm.solve(lambda z: -((z[:, 0] - 1) ** 2) / 2, start, curvature_bound=-1 / 0.09)
        assert float(found.value) <= truth <= float(found.value + found.gap) + 1e-12


def test_masked_gaps_count_the_free_coordinates_only() -> None:
    slope = torch.tensor([3.0, 100.0], dtype=DOUBLE)
    cost = Masked(SquaredL2(), torch.tensor([True, False]))
    wrm = WRM(1.0, cost=cost, maximizer=BarzilaiBorwein(0.0, 1))
    found = wrm.solve(lambda z: z @ slope, torch.zeros(1, 2, dtype=DOUBLE), curvature_bound=0.0)
    assert float(found.gap) == pytest.approx(9 / 4)


@pytest.mark.parametrize(
    "maximizer", [BarzilaiBorwein(1e-10, 200), PaperAscent(60)], ids=["default", "paper"]
)
def test_potentials_that_are_steeper_than_their_modulus(maximizer: certus.inner.Maximizer) -> None:
    """h = 50‖z‖² with the valid but modest claim of modulus 1: φ = ‖slope‖²/200γ."""
    cost = Bregman(lambda z: 50 * (z**2).sum(1), modulus=1.0)
    slope = torch.tensor([3.0, 4.0], dtype=DOUBLE)
    found = WRM(1.0, cost=cost, maximizer=maximizer).solve(
        lambda z: z @ slope, torch.zeros(1, 2, dtype=DOUBLE)
    )
    assert float(found.value) == pytest.approx(25 / 200)


def test_p_close_to_one() -> None:
    slope = torch.tensor([2.0, 1.9999, 0.5])
    exact = float(SquaredLp(1.0 + 1e-6).norm.dual(slope[None])) ** 2 / 4
    value = certus.inner.robust_surrogate(
        lambda z: z @ slope, torch.zeros(1, 3), gamma=1.0, cost=SquaredLp(1.0 + 1e-6)
    )
    assert float(value) == pytest.approx(exact, rel=1e-3)


def two_labels(z: Tensor, y: Tensor) -> Tensor:
    """Steep but low for label 1, flat for label 0."""
    return torch.where(y == 1, 10 * z[:, 0] - 30, 0 * z[:, 0])


def test_an_unfinished_label_leaves_the_sample_unfinished() -> None:
    wrm = WRM(1.0, label_cost=LabelCost(0.1, 2), maximizer=BarzilaiBorwein(1e-3, 1))
    found = wrm.solve(two_labels, torch.zeros(1, 2), torch.tensor([0]))
    assert found.status[0] == Status.MAX_STEPS
    assert found.gap[0] > 1
    assert found.gradients[0] == 2


@pytest.mark.parametrize("broken", [0, 1])
def test_a_label_that_is_nan_never_wins(broken: int) -> None:
    def loss(z: Tensor, y: Tensor) -> Tensor:
        return torch.where(y == broken, torch.nan, z.sum(1))

    wrm = WRM(1.0, label_cost=LabelCost(0.1, 2))
    found = wrm.solve(loss, torch.zeros(1, 2), torch.tensor([0]))
    assert torch.isfinite(found.value).all()
    assert found.status[0] == Status.NONFINITE
    assert torch.isinf(found.gap).all()


def test_batches_of_nan_leave_gamma_alone() -> None:
    wrm = WRM(rho=0.1)
    wrm.solve(lambda z: z.sum(1), torch.zeros(4, 2))
    before = wrm.gamma
    for _ in range(3):
        wrm.solve(lambda z: z.sum(1) * torch.nan, torch.zeros(4, 2))
    assert wrm.gamma == before


def test_half_a_batch_of_nan_counts_the_other_half() -> None:
    def loss(z: Tensor) -> Tensor:
        return torch.where(z[:, 1] > 0, torch.nan, 2 * z[:, 0])

    inputs = torch.tensor([[0.0, -1.0], [0.0, 1.0]])
    wrm = WRM(rho=0.25)
    wrm.solve(loss, inputs)
    assert wrm.gamma == pytest.approx(2.0)  # slope 2: (2/2γ)² = ρ


def test_the_floor_holds_from_the_first_batch() -> None:
    seen = []

    def loss(z: Tensor) -> Tensor:
        seen.append(z)
        return (0 * z).sum(1)

    wrm = WRM(rho=0.1, gamma_min=5.0)
    wrm.solve(loss, torch.zeros(2, 2))
    assert wrm.gamma == 5.0


def test_one_large_excess_moves_gamma_by_a_bounded_step() -> None:
    wrm = WRM(rho=1e-6)
    wrm.load_state_dict({"gamma": 0.5})
    wrm.solve(lambda z: 10 * z.sum(1), torch.zeros(3, 2))
    assert isinstance(wrm.gamma, float)
    assert 0.5 < wrm.gamma <= 0.5 * 1.2


def test_the_first_guess_ignores_the_domain() -> None:
    """A box would hide how far a linear loss wants to go, and the guess would be far too small."""
    wrm = WRM(rho=0.25, domain=Box(-0.01, 0.01))
    wrm.solve(lambda z: 2 * z[:, 0], torch.zeros(4, 2))
    assert wrm.gamma == pytest.approx(2.0 * 0.905, rel=0.02)  # then one step down: the box allows less than ρ


def test_the_papers_schedule_does_not_wander_past_nan() -> None:
    """Once a step has met NaN, the sample stays where it was, whatever comes after."""
    seen: list[float] = []

    def loss(z: Tensor) -> Tensor:
        seen.append(float(z[0, 0].detach()))
        return torch.where(z[:, 0] > 0.9, torch.nan, 2 * z[:, 0])

    found = WRM(1.0, maximizer=PaperAscent(4)).solve(loss, torch.zeros(1, 2))
    assert found.inputs[0, 0] == 0
    assert found.status[0] == Status.NONFINITE


def test_results_can_be_modified_by_the_caller() -> None:
    targets, inputs = torch.tensor([0, 1]), torch.zeros(2, 2)
    for maximizer in (BarzilaiBorwein(), PaperAscent(2)):

        def spoil(step: int, point: Tensor, value: Tensor) -> None:
            point.zero_()
            value.zero_()

        loss = certus.ModelLoss(nn.Linear(2, 2))
        wrm = WRM(1.0, maximizer=maximizer)
        expected = wrm.solve(loss, inputs, targets)
        found = wrm.solve(loss, inputs, targets, callback=spoil)
        torch.testing.assert_close(found.value, expected.value)
        torch.testing.assert_close(found.inputs, expected.inputs)
        assert found.targets is not None
        found.targets.fill_(9)
        found.inputs.fill_(9)
        assert targets.tolist() == [0, 1]
        assert (inputs == 0).all()


def test_nothing_returned_carries_a_graph() -> None:
    weights = torch.ones(2, requires_grad=True)
    gamma = torch.ones(1, requires_grad=True)
    found = WRM(gamma, cost=WeightedL2(weights)).solve(lambda z: z.sum(1), torch.zeros(1, 2))
    for name in ("inputs", "value", "transport_cost", "gap", "gradient_norm"):
        assert not getattr(found, name).requires_grad


class Trainer:
    """Hides its model behind an attribute of its own, and a method."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(self.net(x), y, reduction="none")

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return self.loss(x, y)


def through(models: list[nn.Module], x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(models[0](x), y, reduction="none")


def test_a_model_is_found_wherever_a_loss_hides_it() -> None:
    """A method, a callable object, a partial over a list, a default argument: none is missed."""
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))
    trainer = Trainer(net)
    losses: list[Any] = [
        trainer.loss,
        trainer,
        functools.partial(through, [net]),
        lambda x, y, hidden=trainer: hidden.loss(x, y),
    ]
    inputs, targets = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1] * 3)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    state = torch.get_rng_state()
    for loss in losses:
        WRM(1.0).solve(loss, inputs, targets)
        assert all(module.training for module in net.modules())
        assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
        assert torch.equal(torch.get_rng_state(), state)
