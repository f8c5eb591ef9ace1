"""Merged statements, beside the statement about all samples, exact fractions and a linear program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch import Tensor

from certus.certificates.confidence import error_means
from certus.kernel.concentration import random_order
from certus.kernel.evidence import Evidence, mark
from certus.kernel.passes import Refused
from certus.kernel.rules import DualBounds, SampleBounds
from certus.kernel.statement import PopulationBounds, Statement

SIZES, GAMMAS, RHOS = (3, 17, 40), (0.3, 1.0, 5.0), (0.0, 1e-3, 0.05, 0.7)
CLIP, GRID = 4.0, (0.5, 3.0)


def sample(seed: int, sizes: Sequence[int] = SIZES) -> tuple[list[Tensor], list[Tensor]]:
    """Losses and costs of errors, part by part."""
    rng = np.random.default_rng(seed)
    losses = [torch.from_numpy(rng.exponential(0.4, size)) for size in sizes]
    costs = [torch.from_numpy(rng.exponential(1.0, size) * (rng.random(size) > 0.2)) for size in sizes]
    return losses, costs


def stated(
    losses: Tensor,
    costs: Tensor | None,
    gammas: Sequence[float] = GAMMAS,
    population: PopulationBounds | None = None,
) -> Statement:
    """ℓ = |x| on the line: φ_γ = ℓ + 1/4γ."""
    bounds = mark(SampleBounds(losses, costs, 1.0))
    levels = [mark(level(losses, gamma)) for gamma in gammas]
    if population is not None:
        population = mark(replace(population, samples=bounds))
    return Statement.of(bounds, levels, population=population)


def level(losses: Tensor, gamma: float) -> DualBounds:
    return DualBounds(gamma, losses + 0.25 / gamma, torch.zeros(len(losses), dtype=torch.int64))


def populations(losses: Tensor, costs: Tensor | None, seed: int = 0, confidence: float = 0.9) -> Statement:
    bounds = mark(SampleBounds(losses, costs, 1.0))
    levels = [mark(level(losses, gamma)) for gamma in GAMMAS]
    people = PopulationBounds.of(
        bounds,
        levels,
        confidence=confidence,
        seed=seed,
        clip=CLIP,
        inequality="hoeffding",
        claims={},
        error_claims={},
    )
    return Statement.of(bounds, levels, population=people)


@pytest.mark.parametrize("seed", range(4))
def test_merged_parts_are_the_whole(seed: int) -> None:
    losses, costs = sample(seed)
    parts = [stated(*pair) for pair in zip(losses, costs, strict=True)]
    merged, whole = Statement.merged(parts), stated(torch.cat(losses), torch.cat(costs))
    assert merged.evidence is Evidence.PROVEN
    assert merged.samples == whole.samples == sum(SIZES)
    assert merged.error_costs is not None
    assert whole.error_costs is not None
    assert torch.equal(merged.error_costs, whole.error_costs)
    for rho in RHOS:
        assert merged.loss(rho)[1] == whole.loss(rho)[1]
        assert merged.loss(rho)[0] == pytest.approx(whole.loss(rho)[0], rel=1e-12)
        assert merged.error(rho, 0.8) == whole.error(rho, 0.8)


@pytest.mark.parametrize("seed", range(4))
def test_merged_means_are_at_least_the_exact_ones(seed: int) -> None:
    losses, costs = sample(seed)
    parts = [stated(*pair) for pair in zip(losses, costs, strict=True)]
    merged, count = Statement.merged(parts), sum(SIZES)
    values = [merged.clean_loss, *(merged.means[gamma] for gamma in GAMMAS)]
    owns = [[part.clean_loss for part in parts]]
    owns += [[part.means[gamma] for part in parts] for gamma in GAMMAS]
    for value, own in zip(values, owns, strict=True):
        exact = sum(size * Fraction(mean) for size, mean in zip(SIZES, own, strict=True)) / count
        # Twice the rounding of a product, a sum of three, and a division.
        assert exact * (1 + Fraction(8, 2**53)) <= Fraction(value) <= exact * (1 + Fraction(1, 10**13))


def test_a_shift_may_spend_everything_in_one_part() -> None:
    """Two halves, one of them nearly wrong: a linear program moves more than the mean of their bounds."""
    near, far = torch.full((20,), 0.01).double(), torch.full((20,), 10.0).double()
    parts = [stated(near, near), stated(far, far)]
    rho = 0.005
    masses = np.full(40, 1 / 40)
    costs = torch.cat([near, far]).numpy()
    solved = linprog(-masses, A_ub=(masses * costs)[None], b_ub=[rho], bounds=(0, 1))
    gammas = [100.0, 0.1]
    halves = sum(part.error(rho, gamma) for part, gamma in zip(parts, gammas, strict=True)) / 2
    merged = Statement.merged(parts)
    assert min(merged.error(rho, gamma) for gamma in (*gammas, 0.0)) >= -solved.fun - 1e-12
    assert halves == pytest.approx(0.25, abs=0.01)
    assert -solved.fun > 0.49


def test_only_shared_gammas_remain() -> None:
    losses, costs = sample(0)
    parts = [stated(losses[0], costs[0], (0.3, 1.0)), stated(losses[1], costs[1], (1.0, 5.0))]
    assert list(Statement.merged(parts).means) == [1.0]
    other = [parts[0], stated(losses[1], costs[1], (5.0,))]
    assert Statement.merged(other).loss(0.1)[0] == math.inf


def test_a_part_that_is_stated_proves_nothing() -> None:
    losses, costs = sample(0)
    parts = [stated(*pair) for pair in zip(losses, costs, strict=True)]
    loose = [*parts[:2], replace(parts[2])]
    assert Statement.merged(loose).evidence is Evidence.STATED
    assert Statement.merged(loose).loss(0.1) == Statement.merged(parts).loss(0.1)


def test_assumptions_of_any_part_remain() -> None:
    losses, costs = sample(0)
    parts = [stated(*pair) for pair in zip(losses, costs, strict=True)]
    assumed = mark(replace(parts[1], assumptions=("a claim",)))
    assert Statement.merged([parts[0], assumed]).evidence is Evidence.ASSUMED


def test_a_population_of_merged_parts() -> None:
    """Hoeffding's margin for all rows, beside the formula; errors beside betting on all costs at once."""
    losses, costs = sample(1)
    parts = [populations(*pair) for pair in zip(losses, costs, strict=True)]
    count, above = sum(SIZES), 0.8 * (1 - 0.9) / 2
    order = random_order(count, 0)
    claims = error_means(torch.cat(costs)[order], GRID, above / 2)
    merged = Statement.merged(parts, claims, len(GAMMAS))
    people = merged.population
    assert people is not None
    assert people.evidence is Evidence.PROVEN
    for gamma in GAMMAS:
        margin = CLIP * math.sqrt(math.log(len(GAMMAS) / above) / (2 * count))
        exact = float((torch.cat(losses) + 0.25 / gamma).mean()) + margin
        assert min(CLIP, exact) * (1 - 1e-12) <= people.means[gamma] <= exact * (1 + 1e-10)
    assert dict(people.error_means) == claims
    assert people.error_margin == pytest.approx(math.sqrt(math.log(2 / above) / (2 * count)), rel=1e-9)
    whole = populations(torch.cat(losses), torch.cat(costs))
    for rho in RHOS:
        # The mean of φ̄ is above that of min(φ̄, B).
        assert merged.population_loss(rho) >= whole.population_loss(rho) * (1 - 1e-11)


def test_merged_populations_hold_as_often_as_they_say() -> None:
    """Many samples of a distribution with a rare large loss: a bound on its mean at one γ."""
    rng, failures, truth = np.random.default_rng(5), 0, 0.2 * 0.9 + 3.0 * 0.1 + 0.25
    for _ in range(200):
        rows = torch.from_numpy(rng.choice([0.2, 3.0], p=[0.9, 0.1], size=60))
        merged = Statement.merged([populations(part, None, confidence=0.5) for part in rows.split(20)], {}, 3)
        assert merged.population is not None
        failures += merged.population.means[1.0] < truth
    assert failures <= 100 + 4 * 7  # half of 200, and four standard deviations


def test_what_cannot_be_merged() -> None:
    losses, costs = sample(0)
    whole = [stated(*pair) for pair in zip(losses, costs, strict=True)]
    for parts in (
        [],
        [whole[0], mark(replace(whole[1], unit_cost=2.0))],
        [whole[0], mark(replace(whole[1], clip=1.0))],
        [whole[0], mark(replace(whole[1], weights=torch.ones(SIZES[1])))],
    ):
        with pytest.raises(Refused, match="one cost and one clip"):
            Statement.merged(parts)
    with pytest.raises(Refused, match="all have costs"):
        Statement.merged([whole[0], stated(losses[1], None)])
    with pytest.raises(Refused, match="every part needs population bounds"):
        Statement.merged(whole, {}, 3)
    people = [populations(losses[0], costs[0]), populations(losses[1], costs[1], seed=1)]
    with pytest.raises(Refused, match="different confidences, seeds or clips"):
        Statement.merged(people, {}, 3)
    with pytest.raises(Refused, match="the number of all values of gamma"):
        Statement.merged(people[:1], {}, 2)
