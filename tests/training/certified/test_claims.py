"""Certified training with layers or a cost of the user's: what its proof assumes, and the alarm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from certus import SquaredL2
from certus.bounds import RULES, SmoothnessBound, rule
from certus.costs import Bregman
from certus.data import Samples
from certus.errors import ClaimError, ContradictionError
from certus.kernel.pointwise import Pointwise, scalar
from certus.training import Fit, fit
from certus.training.certified import CertifiedSet, CertifiedTraining


class Wave(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return torch.tanh(inputs)


class Grown(SquaredL2):
    strong_convexity = 200.0


@pytest.fixture(autouse=True)
def my_rule() -> Iterator[None]:
    rule(Wave)(lambda module, shape: Pointwise(scalar("tanh"), shape))
    yield
    del RULES[Wave]


def model(units: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), units, nn.Linear(8, 3))


def trained(network: nn.Module) -> Fit:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, 4, generator=generator)
    data = Samples(inputs, torch.randint(3, (40,), generator=generator))
    return fit(network, data, certified=CertifiedTraining(1.0), epochs=1, batch_size=20)


def test_the_proof_names_what_it_assumes() -> None:
    plain, mine = (trained(model(units)).proof for units in (nn.Tanh(), Wave()))
    assert plain is not None
    assert mine is not None
    assert (plain.evidence, plain.assumptions) == ("proven", ())
    assert (mine.evidence, mine.assumptions) == ("assumed", ("the rule of Wave (layer 1)",))
    assert mine.curvature == plain.curvature


def test_a_cost_of_ones_own() -> None:
    network = model(nn.Tanh())
    with pytest.raises(ClaimError, match="Grown is refuted: it claims strong convexity 200"):
        CertifiedSet(network, 1.0, input_shape=(4,), cost=Grown())
    squares = Bregman(lambda z: (z**2).flatten(1).sum(1), 2.0)
    certified = CertifiedSet(network, 1.0, input_shape=(4,), cost=squares)
    certified(network)
    assert certified.prove().assumptions == ("the modulus 2.0 of Bregman",)


def test_a_bound_below_what_is_there_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SmoothnessBound, "curvature", property(lambda bound: 1e-6))
    with pytest.raises(ContradictionError, match=r"the loss has curvature .* and at most 1e-06 at all"):
        trained(model(nn.Tanh()))
