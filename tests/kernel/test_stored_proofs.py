"""Proofs of tree ensembles from files: each row, label and score gets its own, fixed searches first."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from certus.kernel.tree_profiles import SPLITS, Profiles, TreeLoss, TreeProblem, proven_bounds
from certus.kernel.trees import Proof
from tests.kernel.margins import near
from tests.kernel.tree_oracle import random_case, random_proof

GAMMAS = [0.2, 2.0]
Entry = tuple[int, int, int, int, Proof]


def case(seed: int, price: float = math.inf) -> TreeProblem:
    drawn = random_case(seed, outputs=3)
    rows = torch.from_numpy(drawn.rows[[0, len(drawn.rows) // 2]])
    prices = replace(drawn.prices, label_price=price)
    return TreeProblem(drawn.ensemble, prices, TreeLoss.SOFTMAX, rows, torch.tensor([2, 0]))


def proofs_of(problem: TreeProblem, labels: int) -> list[Entry]:
    """Two proofs for each label, row and score, the first one fixed; partitions of different sizes."""
    drawn, entries = np.random.default_rng(1), list[Entry]()
    for label in range(labels):
        for row in range(2):
            for score in range(2):
                for early in (1, 0):
                    proof = random_proof(drawn, problem.ensemble, problem.cost, 1 + (row + score) % 3)
                    entries.append((label, row, score, early, proof))
    return entries


def stored(entries: list[Entry], levels: int) -> dict[str, Tensor]:
    proofs = [proof for *_, proof in entries]
    parts = [proof.partition for proof in proofs]
    sizes = [[len(part.feature), len(part.sets)] for part in parts]
    return {
        "proofs": torch.tensor([[*entry[:4], *size] for entry, size in zip(entries, sizes, strict=True)]),
        "levels": torch.tensor([levels]),
        **{name: torch.cat([getattr(part, name) for part in parts]) for name in SPLITS},
        "sets": torch.cat([part.sets for part in parts]),
        "slope": torch.cat([proof.slope for proof in proofs]),
        "weight": torch.cat([proof.weight for proof in proofs]),
    }


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("weights", [None, [1.0, 0.5, 2.0]])
@pytest.mark.parametrize("price", [math.inf, 0.3])
def test_each_proof_raises_its_own_cost(seed: int, weights: list[float] | None, price: float) -> None:
    problem, labels = case(seed, price), 1 if price == math.inf else 3
    entries = proofs_of(problem, labels)
    proven = proven_bounds(problem, stored(entries, 5), GAMMAS, 1.5, weights)
    assert len(proven) == 2
    for fixed, (samples, duals) in zip((True, False), proven, strict=True):
        profiles = []
        for shift in range(labels):
            other = replace(problem, targets=torch.tensor([(2 + shift) % 3, shift % 3]))
            profile = Profiles.trivial(other, other.levels(5))
            for label, row, score, early, proof in entries:
                if label == shift and (early or not fixed):
                    profile.raise_by(row, score, proof)
            profiles.append(profile)
        prices = [
            None
            if weights is None
            else torch.tensor([weights[k] for k in each.problem.targets], dtype=torch.float64)
            for each in profiles
        ]
        own = profiles[0].samples(prices[0])
        assert torch.equal(samples.loss, own.loss)
        assert own.error_cost is not None
        assert samples.error_cost is not None
        assert torch.equal(samples.error_cost, own.error_cost)
        bounds = [each.dual(GAMMAS, weight, 1.5) for each, weight in zip(profiles, prices, strict=True)]
        for place, (dual, gamma) in enumerate(zip(duals, GAMMAS, strict=True)):
            first, *others = (each[place].bound for each in bounds)
            for moved in others:
                first = torch.maximum(first, moved - gamma * price)
            assert dual.gamma == gamma
            assert bool((dual.bound >= first).all())
            assert dual.bound.tolist() == near(first.tolist(), rel=1e-11)


def test_levels_lie_between_the_row_and_the_top() -> None:
    problem = case(0)
    levels = problem.levels(4)
    for part in range(4):
        between = problem.start + (problem.top - problem.start) * part / 4
        assert torch.allclose(levels[:, :, part], between, rtol=1e-14, atol=1e-14)
    assert bool((levels[:, :, 0] == problem.start).all())


def test_labels_that_are_predicted() -> None:
    problem = case(0)
    best = problem.ensemble.scores(problem.rows).argmax(1)
    assert replace(problem, targets=best).predicts
    assert not replace(problem, targets=(best + 1) % 3).predicts
    assert not replace(problem, targets=torch.stack([best[0], (best[1] + 1) % 3])).predicts


def test_ties_are_predictions() -> None:
    """As far as the rounding of the library's scores may hide them."""
    problem = case(0)
    ensemble = problem.ensemble
    flat = replace(ensemble, value=torch.zeros_like(ensemble.value), bias=torch.zeros_like(ensemble.bias))
    assert replace(problem, ensemble=flat).predicts
    bias = torch.tensor([0.0, 0.0, -1.0], dtype=torch.float64)
    for rounding, predicted in ((0.3, True), (0.2, False)):
        rounded = replace(flat, bias=bias, rounding=torch.full_like(bias, rounding))
        assert replace(problem, ensemble=rounded).predicts is predicted


def test_costs_of_predictions_by_label() -> None:
    """One for each other label, and none for the label itself."""
    problem = case(0)
    profiles = Profiles.trivial(problem, problem.levels(3))
    profiles.error_costs.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    costs = profiles.class_costs
    assert costs is not None
    assert costs.tolist() == [[1.0, 2.0, math.inf], [math.inf, 3.0, 4.0]]
    samples = replace_price(profiles, 1.5).samples()
    assert samples.error_cost is not None
    assert samples.error_cost.tolist() == [1.0, 1.5]


def replace_price(profiles: Profiles, price: float) -> Profiles:
    problem = replace(profiles.problem, cost=replace(profiles.problem.cost, label_price=price))
    other = Profiles.trivial(problem, profiles.levels)
    other.error_costs.copy_(profiles.error_costs)
    return other
