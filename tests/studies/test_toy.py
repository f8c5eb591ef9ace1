"""The boundary of networks that are known: a circle, an ellipse, none; and training side by side."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from certus.data import Samples
from certus.datasets import load
from certus.inner import WRM, BarzilaiBorwein, PaperAscent
from certus.losses import ModelLoss
from certus.models import toy_mlp
from studies.study import Scale
from studies.toy.networks import ASCENTS, FARTHEST, TOY_GAMMA, boundary_radii, radii_of_fgm
from studies.toy.side_by_side import SideBySide, train_side_by_side
from studies.toy.study import STUDY


class Conic(nn.Module):
    """Class 1 outside x²/a² + y²/b² = 1."""

    def __init__(self, a: float, b: float) -> None:
        super().__init__()
        self.squares = torch.tensor([a**2, b**2])

    def forward(self, points: Tensor) -> Tensor:
        outside = (points**2 / self.squares).sum(1) - 1
        return torch.stack([torch.zeros_like(outside), outside], 1)


def test_a_circle() -> None:
    torch.testing.assert_close(boundary_radii(Conic(1.5, 1.5)), torch.full((360,), 1.5), atol=1e-4, rtol=0)


def test_an_ellipse() -> None:
    angles = torch.arange(360) * (2 * math.pi / 360)
    truth = 1 / (angles.cos() ** 2 / 4 + angles.sin() ** 2 / 1).sqrt()
    torch.testing.assert_close(boundary_radii(Conic(2.0, 1.0)), truth, atol=1e-3, rtol=0)


def test_no_boundary_within_reach() -> None:
    assert boundary_radii(Conic(9.0, 9.0)).tolist() == pytest.approx([FARTHEST] * 360)


def _networks(count: int, activation: type[nn.Module] = nn.ELU) -> list[nn.Sequential]:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return [toy_mlp(activation) for _ in range(count)]


def _steepen(model: nn.Sequential) -> None:
    """Make the loss steep enough that points move far."""
    nn.init.normal_(next(model.parameters()), std=2.0, generator=torch.Generator().manual_seed(1))


def _train_alone(model: nn.Sequential, data: Samples, steps: int, epochs: int) -> nn.Sequential:
    """Algorithm 1 as the paper prints it, with full batches: x ← x + (x₀ + ∇ℓ(x)/2γ − x)/√t, then Adam."""
    loss = nn.CrossEntropyLoss(reduction="none")
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * (1 + math.cos(math.pi * epoch / epochs)) / 2
        moved = data.inputs.clone()
        for step in range(1, steps + 1):
            moved.requires_grad_()
            (slope,) = torch.autograd.grad(loss(model(moved), data.targets).sum(), moved)
            moved = (moved + (data.inputs + slope / (2 * TOY_GAMMA) - moved) / math.sqrt(step)).detach()
        optimizer.zero_grad()
        loss(model(moved), data.targets).mean().backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("activation", [nn.ELU, nn.ReLU])
def test_networks_side_by_side_are_trained_as_alone(activation: type[nn.Module]) -> None:
    """In float64, so that the order of sums does not matter."""
    data = load("rings").train[torch.arange(50)]
    data = Samples(data.inputs.double(), data.targets)
    wrm = WRM(TOY_GAMMA, maximizer=PaperAscent(4))
    together = train_side_by_side(
        [model.double() for model in _networks(3, activation)],
        data,
        lambda loss, inputs, targets: wrm.perturb(loss, inputs, targets).inputs,
        classes=2,
        epochs=6,
        batch_size=50,
        learning_rate=0.01,
        cosine=True,
        seeds=range(3),
    )
    for model, start in zip(together, _networks(3, activation), strict=True):
        alone = _train_alone(start.double(), data, steps=4, epochs=6)
        for own, other in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-9)


def test_ascents_side_by_side_are_those_of_each_network() -> None:
    """Also the adaptive one, which drops samples of different networks at different times."""
    data, models = load("rings").train[torch.arange(200)], _networks(3)
    for model in models:
        _steepen(model)
    together = SideBySide(models, 2)
    ascent = WRM(TOY_GAMMA, maximizer=BarzilaiBorwein(1e-5, 50))
    solved = ascent.solve(together, *together.for_all([data] * 3))
    for number, model in enumerate(models):
        alone = ascent.solve(ModelLoss(model), data.inputs, data.targets)
        part = solved.value[200 * number : 200 * (number + 1)]
        torch.testing.assert_close(part, alone.value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ascent", ["paper", "adaptive"])
def test_fgm_moves_by_the_root_of_the_level_of_wrm(ascent: str) -> None:
    """ε² = ρ̂_n(θ_WRM), each network by its own [eqn:fgm-fair]."""
    models, train = _networks(2), load("rings").train
    _steepen(models[1])
    for radius, model in zip(radii_of_fgm(models, ascent), models, strict=True):
        maximizer = PaperAscent(15) if ascent == "paper" else BarzilaiBorwein(1e-4, 32)
        wrm = WRM(TOY_GAMMA, maximizer=maximizer)
        moved = wrm.solve(ModelLoss(model), train.inputs, train.targets).inputs
        level = (moved - train.inputs).square().sum(1).mean()
        assert float(radius) == pytest.approx(math.sqrt(float(level)), rel=1e-3)


def test_networks_come_back_as_they_went_in() -> None:
    models = _networks(2)
    for number, model in enumerate(models):
        again = SideBySide(models, 2).network(number)
        for own, other in zip(again.parameters(), model.parameters(), strict=True):
            assert torch.equal(own, other)


def test_all_seeds_have_the_ascent_and_the_schedule_of_the_page() -> None:
    parts = {part.name: part.settings for part in STUDY.parts(Scale.FULL)}
    assert ASCENTS["paper"] == PaperAscent(15)
    for name in ("relu", "elu", "certificate"):
        assert (parts[name]["ascent"], parts[name]["schedule"]) == ("paper", "cosine")
        assert (parts[name]["seeds"], parts[name]["epochs"]) == (24, 30)
    assert len(load("rings").train) == 10_000
