"""WRM as a method: γ that follows ρ, states, label costs, several processes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import certus
from certus import WRM, Box, CrossEntropy, ModelLoss, SquaredL2
from certus.costs import Cost, LabelCost, Masked, SquaredLp
from certus.inner import BarzilaiBorwein
from tests.forks import exit_code, start

PRECISE = BarzilaiBorwein(tolerance=1e-10, max_gradients=200)


def waves(z: Tensor) -> Tensor:
    return torch.cos(z + 1).sum(1)


def sample(count: int, seed: int) -> Tensor:
    return torch.randn(count, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "cost", [SquaredL2(), SquaredLp(1.5), Masked(SquaredL2(), torch.tensor([True, True, False]))], ids=str
)
def test_gamma_follows_rho(cost: Cost) -> None:
    """After some batches the mean transport cost on fresh data is ρ."""
    rho = 0.05
    wrm = WRM(rho=rho, cost=cost, maximizer=PRECISE)
    assert wrm.gamma is None
    for seed in range(60):
        wrm.solve(waves, sample(200, seed))
    fresh = wrm.eval().solve(waves, sample(5000, 999))
    assert float(fresh.transport_cost.mean()) == pytest.approx(rho, rel=0.05)


def test_the_first_guess_is_exact_for_a_linear_loss() -> None:
    slope = torch.tensor([1.0, 2.0, 2.0], dtype=torch.float64)
    wrm = WRM(rho=0.25)
    found = wrm.solve(lambda z: z @ slope, sample(10, 0))
    # ‖slope‖²/4γ² = ρ, so γ = 3/(2·0.5), and the update leaves it there.
    torch.testing.assert_close(found.transport_cost, torch.full((10,), 0.25, dtype=torch.float64))
    assert wrm.gamma == pytest.approx(3.0)


def test_gamma_moves_against_the_derivative_and_only_in_training() -> None:
    """The derivative of γρ + E[φ_γ] is ρ − E[c(T_γ, Z)]; a step of descent has the opposite sign."""
    wrm = WRM(rho=0.05)
    wrm.solve(waves, sample(50, 0))
    for gamma, larger in ((0.55, True), (20.0, False)):
        wrm.load_state_dict({"gamma": gamma})
        wrm.eval().solve(waves, sample(50, 1))
        assert wrm.gamma == gamma
        wrm.train().solve(waves, sample(50, 1))
        assert isinstance(wrm.gamma, float)
        assert (wrm.gamma > gamma) == larger


def test_a_floor_that_binds_is_reported() -> None:
    """A bounded domain cannot be moved by more than its size."""
    wrm = WRM(rho=100.0, domain=Box(-1.0, 1.0), gamma_min=0.2)
    assert not wrm.at_floor
    for seed in range(40):
        wrm.solve(waves, sample(20, seed).clamp(-1, 1))
    assert wrm.gamma == 0.2
    assert wrm.at_floor


def test_a_loss_without_slope_gives_a_finite_gamma() -> None:
    wrm = WRM(rho=0.1)
    wrm.solve(lambda z: (0 * z).sum(1), sample(5, 0))
    assert isinstance(wrm.gamma, float)
    assert 0 < wrm.gamma < math.inf


def test_states_go_out_and_back_in() -> None:
    moving = WRM(rho=0.05)
    moving.solve(waves, sample(50, 0))
    other = WRM(rho=0.05)
    other.load_state_dict(moving.state_dict())
    assert other.gamma == moving.gamma
    assert other.rho == 0.05
    fixed = WRM(2.0)
    assert fixed.state_dict() == {}
    assert fixed.rho is None
    assert not fixed.at_floor
    fixed.load_state_dict({})


def test_labels_move_when_that_is_cheaper() -> None:
    """φ = max over labels of φ(x₀, y) − γ·price·1{y ≠ y₀}, each by itself; a high price moves none."""
    torch.manual_seed(0)
    loss = ModelLoss(nn.Linear(3, 4).double(), CrossEntropy())
    inputs, targets, gamma = sample(12, 0), torch.arange(12) % 4, 2.0
    by_label = torch.stack(
        [
            certus.inner.robust_surrogate(
                loss, inputs, torch.full_like(targets, y), gamma=gamma, maximizer=PRECISE
            )
            for y in range(4)
        ],
        dim=1,
    ).detach()
    for price in (0.1, 0.4, 50.0):
        penalty = gamma * price * (torch.arange(4) != targets[:, None])
        expected, best = (by_label - penalty).max(1)
        wrm = WRM(gamma, maximizer=PRECISE, label_cost=LabelCost(price, classes=4))
        found = wrm.solve(loss, inputs, targets)
        torch.testing.assert_close(found.value, expected)
        assert found.targets is not None
        assert torch.equal(found.targets, best)
        assert (found.gradients >= 4).all()
    assert torch.equal(best, targets)


def test_a_label_cost_bounds_the_gap_of_all_labels() -> None:
    torch.manual_seed(1)
    loss = ModelLoss(nn.Linear(3, 4).double(), CrossEntropy())
    inputs, targets = sample(12, 1), torch.arange(12) % 4
    # Linear softmax: curvature at most half the largest squared distance of two rows, and 1/4 of D².
    weight = loss.model.get_parameter("weight").detach()
    curvature = float(torch.cdist(weight, weight).max() ** 2 / 4)
    gamma = curvature  # 2γ > L⁺
    labels = LabelCost(0.1, classes=4)
    exact = WRM(gamma, maximizer=PRECISE, label_cost=labels).solve(loss, inputs, targets)
    short = WRM(gamma, maximizer=BarzilaiBorwein(0.0, 1), label_cost=labels)
    rough = short.solve(loss, inputs, targets, curvature_bound=curvature)
    assert (rough.value <= exact.value + 1e-9).all()
    assert (rough.value + rough.gap >= exact.value - 1e-9).all()


def test_training_with_wrm_lowers_the_surrogate() -> None:
    """The loop of the README on the paper's rings, for a few steps."""
    torch.manual_seed(0)
    data = certus.datasets.rings(train=512, calibration=1, test=1)
    loss = ModelLoss(certus.models.toy_mlp())
    optimizer = torch.optim.Adam(loss.model.parameters(), lr=0.02)
    wrm = WRM(2.0)
    with torch.no_grad():
        before = certus.inner.robust_surrogate(loss, data.train.inputs, data.train.targets, gamma=2.0).mean()
    for _ in range(80):
        moved = wrm(loss, data.train.inputs, data.train.targets)
        loss(moved, data.train.targets).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        after = certus.inner.robust_surrogate(loss, data.train.inputs, data.train.targets, gamma=2.0).mean()
    assert after < 0.8 * before


def _follow(rank: int, address: str, folder: str) -> None:
    """One of two processes, each with its own half of the batches."""
    torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    wrm = WRM(rho=0.05, maximizer=PRECISE)
    for seed in range(5):
        wrm.solve(waves, sample(40, seed)[rank::2])
    torch.save(wrm.gamma, Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def test_processes_agree_on_gamma(tmp_path: Path) -> None:
    """γ of two processes with half a batch each equals γ of one with the whole batch."""
    address = f"file://{tmp_path / 'meeting'}"
    processes = [start(_follow, rank, address, str(tmp_path)) for rank in range(2)]
    assert [exit_code(process) for process in processes] == [0, 0]
    alone = WRM(rho=0.05, maximizer=PRECISE)
    for seed in range(5):
        alone.solve(waves, sample(40, seed))
    for rank in range(2):
        gamma = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert gamma == pytest.approx(alone.gamma, rel=1e-12)
