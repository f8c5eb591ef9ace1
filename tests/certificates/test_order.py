"""The order of a file must not matter: betting takes the samples in the random order of a seed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import Tensor, nn

import certus
from certus.certificates import Population, betting
from certus.data import Samples, random_order
from tests.certificates.problems import dual_values, sample_values

SEEDS = range(10)


def harder_half_first(count: int = 400) -> Tensor:
    """Losses of a file whose first half is three times as hard as its second."""
    return torch.cat([torch.full((count // 2,), 0.6), torch.full((count // 2,), 0.2)]).double()


def population(losses: Tensor, seed: int) -> Population:
    """ℓ = x on the line: φ_γ(x) = x + 1/4γ, T_γ(x) = x + 1/2γ at cost 1/4γ²."""
    gamma, nothing = 4.0, torch.zeros_like(losses)
    level = dual_values(gamma, losses + 0.25 / gamma, nothing + 0.25 / gamma**2, losses + 0.5 / gamma)
    return Population.of(
        [level],
        sample_values(losses),
        confidence=0.95,
        clip=1.0,
        inequality="betting",
        rhos=(0.01, 0.02),
        seed=seed,
    )


def test_a_telling_order_makes_betting_contradict_itself() -> None:
    """What ``Population`` must not do: bet on the rows as they are stored."""
    losses = harder_half_first()
    assert 1 - betting(1 - losses, 1.0, 0.025) > float(losses.mean()) > betting(losses.flip(0), 1.0, 0.025)


def test_as_stored_the_sides_would_cross(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = harder_half_first()
    for module in ("certus.certificates.population", "certus.kernel.statement"):
        monkeypatch.setattr(f"{module}.random_order", lambda count, seed: torch.arange(count))
    assert population(losses, 0).loss_low(0.0) > float(losses.mean())
    assert population(losses.flip(0), 0).loss(0.0) < float(losses.mean()) + 0.25 / 4


@pytest.mark.parametrize("seed", SEEDS)
def test_no_contradiction_from_a_telling_order(seed: int) -> None:
    losses = harder_half_first()
    for stored in (losses, losses.flip(0)):
        found = population(stored, seed)
        for rho in (0.0, 0.01, 0.02, 0.1):
            assert found.loss_low(rho) <= float(losses.mean()) + math.sqrt(rho) <= found.loss(rho)


def test_a_sorted_file_fails_as_seldom_as_stated() -> None:
    """Coins of probability .3, stored sorted: as they are stored, betting is wrong every time."""
    rng, failure, count, repetitions = np.random.default_rng(0), 0.2, 60, 300
    failures = {"stored": 0, "permuted": 0}
    for seed in range(repetitions):
        stored = torch.from_numpy(np.sort((rng.random(count) < 0.3) * 1.0))
        failures["stored"] += betting(stored, 1.0, failure) < 0.3
        failures["permuted"] += betting(stored[random_order(count, seed)], 1.0, failure) < 0.3
    assert failures["permuted"] <= binom.ppf(0.999, repetitions, failure)
    assert failures["stored"] > repetitions * 0.9


def hard_first() -> tuple[nn.Module, Samples]:
    """A linear network that errs on the first half of its data, and knows the second by heart."""
    model = nn.Sequential(nn.Linear(1, 2, bias=False))
    model[0].weight.data = torch.tensor([[-1.0], [1.0]])
    inputs = torch.cat([torch.linspace(-0.4, 0.1, 150), torch.linspace(1.0, 2.0, 150)]).unsqueeze(1)
    return model, Samples(inputs, torch.ones(300, dtype=torch.long))


def test_certify_takes_the_order_of_its_seed() -> None:
    """In the order of the file the population's loss would be at least .826 and at most .612 at ρ = .001."""
    model, data = hard_first()
    found = [
        certus.certify(
            model,
            data,
            rho=[0.001, 0.01],
            confidence=0.95,
            seed=seed,
            attack_steps=0,
            local_radii=0,
            gamma_rounds=0,
        ).curve()
        for seed in (0, 1)
    ]
    for one in (*found[0], *found[1]):
        losses = (one.population_loss_low, one.loss_low, one.loss_high, one.population_loss)
        rates = (one.population_error_low, one.error_low, one.error_high, one.population_error)
        for values in (losses, rates):
            known = [value for value in values if value is not None]
            assert len(known) == 4
            assert known == sorted(known)
    assert found[0][0].population_loss != found[1][0].population_loss


def test_the_seed_is_checked() -> None:
    model, data = hard_first()
    with pytest.raises(
        certus.errors.ArgumentError,
        match=r"`seed` must be a whole number, at least 0 and less than 2\^63; got -3",
    ):
        certus.certify(model, data, rho=0.01, confidence=0.95, seed=-3)
