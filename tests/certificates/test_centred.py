"""Margins stay below their quadratic around each sample, wherever one looks; radii hold against attacks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from certus import CrossEntropy, ModelLoss, SquaredL2, Unbounded, WeightedL2, certify
from certus.attacks import nearest_error
from certus.certificates.centred import centred_bends
from certus.certificates.problem import Problem
from certus.costs import Cost
from certus.data import Split
from certus.models import LogCosh, SmoothAbs, certified_mlp


def problem(kind: type[nn.Module], cost: Cost, seed: int, front: bool = False) -> Problem:
    torch.manual_seed(seed)
    if front:
        model = certified_mlp(5, [16], 4, basis=torch.linalg.qr(torch.randn(5, 3)).Q.T.contiguous())
        model.get_buffer("3.sharpness").copy_(10 ** torch.empty(16).uniform_(-1, 1.5))
    else:
        model = nn.Sequential(
            nn.Linear(5, 16), kind(10 ** torch.empty(16).uniform_(-1, 1.5)), nn.Linear(16, 4)
        )
    data = Split(2 * torch.randn(6, 5), torch.randint(0, 4, (6,)))
    return Problem.of(model, data, CrossEntropy(), cost, Unbounded(), None, None)


def margins(made: Problem, points: Tensor) -> Tensor:
    outputs = made.outputs(points)
    return outputs - outputs.gather(1, made.targets.unsqueeze(1))


@pytest.mark.parametrize("kind", [LogCosh, SmoothAbs])
@pytest.mark.parametrize(
    "cost", [SquaredL2(), WeightedL2(torch.tensor([1.0, 4.0, 0.2, 3.0, 1.0]))], ids=["l2", "weighted"]
)
@pytest.mark.parametrize("front", [False, True])
def test_margins_stay_below_their_quadratic(kind: type[nn.Module], cost: Cost, front: bool) -> None:
    """Random moves of all sizes, in the cost's norm: 6 samples × 4 classes × 1,000 moves."""
    made = problem(kind, cost, 0, front)
    leaf = made.inputs.clone().requires_grad_()
    start = margins(made, leaf)
    slopes = torch.stack(
        [torch.autograd.grad(start[:, k].sum(), leaf, retain_graph=True)[0] for k in range(4)], 1
    )
    bends = centred_bends(made, start.detach(), torch.ones_like(start))
    assert bends is not None
    assert bool(torch.isfinite(bends).all())
    tightest = 0.0
    generator = torch.Generator().manual_seed(1)
    for _ in range(1_000):
        u = torch.randn(6, 5, dtype=torch.float64, generator=generator)
        u = (
            u
            / u.norm(dim=1, keepdim=True)
            * 10 ** torch.empty(6, 1).double().uniform_(-2, 1, generator=generator)
        )
        move = cost.whiten(u)
        with torch.no_grad():
            rise = margins(made, made.inputs + move) - start - (slopes * move.unsqueeze(1)).sum(2)
        square = (u**2).sum(1, keepdim=True) / 2
        assert bool((rise <= bends * square + 1e-9).all())
        tightest = max(tightest, float((rise / (bends * square).clamp_min(1e-12)).max()))
    assert tightest > 0.3  # the bound is no bluff


def test_radii_hold_against_the_nearest_errors_found() -> None:
    """No error is found nearer than the certified radius, and the radii beat the Lipschitz ones."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 16), LogCosh(5.0), nn.Linear(16, 4)).double()
    data = Split(torch.randn(80, 5).double(), torch.zeros(80, dtype=torch.long))
    with torch.no_grad():
        data = Split(data.inputs, model(data.inputs).argmax(1))
    found = certify(model, data, rho=0.1, balls=0, refine=0, attack_steps=0)
    assert found.error_floor is not None
    near = nearest_error(ModelLoss(model), data.inputs, data.targets, norm=2.0, steps=20, rounds=8)
    distance = (near.inputs - data.inputs).norm(dim=1)
    with torch.no_grad():
        wrong = model(near.inputs).argmax(1) != data.targets
    assert int(wrong.sum()) > 20
    assert bool((found.error_floor.sqrt()[wrong] <= distance[wrong] + 1e-9).all())
    assert float(found.error_floor.sqrt()[wrong].mean()) > 0.4 * float(distance[wrong].mean())


def test_other_networks_have_none() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ELU(), nn.Linear(8, 3))
    data = Split(torch.randn(3, 5), torch.zeros(3, dtype=torch.long))
    made = Problem.of(model, data, CrossEntropy(), SquaredL2(), Unbounded(), None, None)
    ones = torch.ones(3, 3, dtype=torch.float64)
    assert centred_bends(made, ones, ones) is None
