"""Networks as people write them: no ascent exceeds a bound on curvature, slope or loss."""

from __future__ import annotations

import pytest
import torch

import certus
from certus.attacks import GradientAttack
from certus.errors import UnsupportedError
from certus.losses import ModelLoss
from tests.smoothness.attacked import attack_network
from tests.smoothness.image_networks import Made
from tests.smoothness.zoo import KINKED_ZOO, REFUSED_ZOO, SMOOTH_ZOO, Animal

QUICK = ("mlp", "densenet", "tangled", "resnet18")
"""The rest takes a second or two each."""

ALL = SMOOTH_ZOO | KINKED_ZOO


def attack_animal(animal: Animal, *, steps: int, full: bool = False) -> None:
    model, shape = animal.make(full=full), animal.full_shape if full else animal.shape
    made = Made(model, shape, 3, animal.full_depth if full else animal.depth)
    assert attack_network(made, 0, steps).violations == []
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(4, *shape, generator=generator, dtype=torch.float64)
    targets = torch.arange(4) % 3
    found = certus.certify(model, (points, targets), rho=0.04, balls=1, refine=0, attack_steps=3)
    attack = GradientAttack(0.2, 2, steps)
    losses = ModelLoss(model, certus.CrossEntropy())
    moved = attack(losses, points, targets)
    with torch.no_grad():
        assert float(losses(moved, targets).mean()) <= found.bound(0.04)


@pytest.mark.parametrize("name", QUICK)
def test_a_quick_share(name: str) -> None:
    attack_animal(ALL[name], steps=6)


@pytest.mark.soak
@pytest.mark.parametrize("name", ALL)
def test_all_of_them(name: str) -> None:
    attack_animal(ALL[name], steps=20)


@pytest.mark.soak
@pytest.mark.parametrize("name", ALL)
def test_all_of_them_in_full_size(name: str) -> None:
    attack_animal(ALL[name], steps=4, full=True)


@pytest.mark.parametrize("name", REFUSED_ZOO)
def test_what_has_no_rule_is_named_with_its_line(name: str) -> None:
    animal, function, code = REFUSED_ZOO[name]
    with pytest.raises(UnsupportedError, match=function) as caught:
        certus.input_smoothness(animal.make(), input_shape=animal.shape)
    assert "zoo.py:" in str(caught.value)
    assert code in str(caught.value)
