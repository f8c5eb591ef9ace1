"""Ensembles of trees: bounds on the cost of a score against every cell of small ensembles."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from certus.kernel.passes import Refused
from certus.kernel.trees import Proof, least_costs
from tests.kernel.tree_oracle import Case, no_partition, random_case, random_proof

ONE = np.ones(1)


def bound(case: Case, levels: list[float], random: np.random.Generator, splits: int = 3) -> np.ndarray:
    proof = random_proof(random, case.ensemble, case.prices, splits)
    score = torch.ones(1, dtype=torch.float64), 0.0
    given = torch.tensor(levels, dtype=torch.float64)
    return least_costs(case.ensemble, case.prices, case.row, score, given, proof).numpy()


@pytest.mark.parametrize("seed", range(12))
def test_scores_are_those_of_the_walk(seed: int) -> None:
    case = random_case(seed, outputs=2)
    assert np.allclose(case.ensemble.scores(torch.tensor(case.rows)).numpy(), case.scores, atol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_every_row_is_in_the_box_of_its_leaf_alone(seed: int) -> None:
    case = random_case(seed)
    paths, rows = case.ensemble.paths, torch.tensor(case.rows)[::7]
    inside = (paths.low < rows[:, None]) & (rows[:, None] <= paths.high)
    for place, column in enumerate(paths.categorical.tolist()):
        codes = rows[:, column].nan_to_num(0.0).long()
        inside[:, :, column] = paths.codes[:, place][:, codes].T
    inside = torch.where(rows[:, None].isnan(), paths.gaps, inside).all(2)
    leaves = case.ensemble.leaves(rows)
    assert torch.equal(inside, (paths.node == leaves[:, :, None]).any(1))


@pytest.mark.parametrize("largest", [False, True])
def test_any_multipliers_are_a_proof(largest: bool) -> None:
    """Hundreds of ensembles with numbers, categories and gaps: no bound is above the truth."""
    useful, exact = 0, 0
    for seed in range(30):
        case, random = random_case(seed, largest=largest), np.random.default_rng(seed)
        values = np.unique(case.scores[:, 0])
        levels = [*random.choice(values, 4), float(values.max()) + 1e-9]
        bounds = bound(case, levels, random)
        truth = np.array([case.least_cost(ONE, 0.0, level - 1e-12) for level in levels])
        assert (bounds <= truth * (1 + 1e-9)).all(), (seed, bounds, truth)
        useful += int((bounds > 0).sum())
        exact += int(np.isclose(bounds, truth, rtol=1e-6)[truth > 0].sum())
    assert useful > 30
    assert exact > 5


def test_thresholds_and_roundings_at_their_last_bits() -> None:
    """A row on a threshold goes left at no cost; one beyond it pays nothing for the closure."""
    case = random_case(1, columns=1, trees=1, depth=1)
    edge = next(node.threshold for node in case.trees[0].nodes() if node.children)
    leaves = [node.value for node in case.trees[0].nodes() if node.value is not None]
    assert case.trees[0].children is not None
    assert not bool(case.ensemble.category_set.max() >= 0)
    left, right = float(leaves[0][0]), float(leaves[1][0])
    prices = replace(
        case.prices,
        move=torch.ones(1).double(),
        gap=torch.full((1,), math.inf).double(),
        discrete=torch.tensor([False]),
    )
    bias = float(case.ensemble.bias[0])
    high, other = (left, right) if left > right else (right, left)
    assert high != other
    for x, inside in ((edge, left), (np.nextafter(edge, 9), right), (np.nextafter(edge, -9), left)):
        row = torch.tensor([x], dtype=torch.float64)
        assert float(case.ensemble.scores(row[None])) == pytest.approx(inside + bias, abs=1e-15)
        score = torch.ones(1, dtype=torch.float64), 0.0
        level = torch.tensor([high + bias - 1e-15, high + bias + 1e-9], dtype=torch.float64)
        proof = random_proof(np.random.default_rng(0), case.ensemble, prices, 0)
        reached = least_costs(case.ensemble, prices, row, score, level, proof)
        assert float(reached[0]) <= (x - edge) ** 2
        assert float(reached[1]) == math.inf


@pytest.mark.parametrize("name", ["slope", "weight"])
@pytest.mark.parametrize("wrong", [-1e-9, math.nan, 1.5, math.inf])
def test_forged_multipliers_are_refused(name: str, wrong: float) -> None:
    case = random_case(11, largest=False)
    proof = random_proof(np.random.default_rng(0), case.ensemble, case.prices)
    values = getattr(proof, name).clone()
    values.view(-1)[-1] = wrong
    if (name, wrong) == ("slope", 1.5):
        return
    score, levels = (torch.ones(1, dtype=torch.float64), 0.0), torch.zeros(1, dtype=torch.float64)
    least_costs(case.ensemble, case.prices, case.row, score, levels, proof)
    with pytest.raises(Refused):
        least_costs(case.ensemble, case.prices, case.row, score, levels, replace(proof, **{name: values}))


def test_weights_of_a_column_sum_to_its_share_at_most() -> None:
    case = random_case(11)
    proof = random_proof(np.random.default_rng(0), case.ensemble, case.prices)
    score, levels = (torch.ones(1, dtype=torch.float64), 0.0), torch.zeros(1, dtype=torch.float64)
    forged = [
        replace(proof, weight=proof.weight * 1.5),
        replace(proof, weight=proof.weight[:-1]),
        replace(proof, weight=proof.weight[:, :-1]),
        replace(proof, slope=proof.slope[:-1]),
        replace(proof, partition=case.ensemble),
    ]
    for each in forged:
        with pytest.raises(Refused):
            least_costs(case.ensemble, case.prices, case.row, score, levels, each)
    sup = replace(case.prices, largest=True)
    with pytest.raises(Refused, match="share"):
        least_costs(case.ensemble, sup, case.row, score, levels, proof)


def test_without_multipliers_the_distance_counts() -> None:
    case = random_case(5)
    proof = random_proof(np.random.default_rng(0), case.ensemble, case.prices)
    proof = Proof(no_partition(case.ensemble), proof.slope[:1] * 0, proof.weight[:1] * 0)
    score = torch.ones(1, dtype=torch.float64), 0.0
    levels = torch.tensor([float(case.scores.min()), 1e6], dtype=torch.float64)
    assert least_costs(case.ensemble, case.prices, case.row, score, levels, proof).tolist() == [0.0, math.inf]
