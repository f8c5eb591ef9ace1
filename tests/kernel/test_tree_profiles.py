"""Losses and errors of trees: φ̄_γ and costs of errors against every cell of small ensembles."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from certus.kernel.passes import Refused
from certus.kernel.rules import DualBounds, over_labels
from certus.kernel.statement import Statement
from certus.kernel.tree_profiles import Profiles, TreeLoss, TreeProblem
from tests.kernel.tree_oracle import Array, Case, random_case, random_proof

CLIP = 3.0


def true_losses(loss: TreeLoss, scores: Array, target: float) -> Array:
    """(cells,) ℓ, written as in a textbook."""
    if loss is TreeLoss.SQUARED:
        return np.asarray((scores[:, 0] - target) ** 2)
    if loss is TreeLoss.ABSOLUTE:
        return np.abs(scores[:, 0] - target)
    if loss is TreeLoss.PROBABILITIES:
        return np.asarray(np.minimum(-np.log(np.maximum(scores[:, int(target)], 1e-12)), CLIP))
    logits = np.concatenate([np.zeros((len(scores), 1)), scores], 1) if scores.shape[1] == 1 else scores
    return np.asarray(np.logaddexp.reduce(logits, 1) - logits[:, int(target)])


def wrong(scores: Array, target: int, rounding: float = 0.0) -> Array:
    """(cells,) whether another class is ahead or within the rounding of both scores."""
    logits = np.concatenate([np.zeros((len(scores), 1)), scores], 1) if scores.shape[1] == 1 else scores
    count = 1 if scores.shape[1] == 1 else 2
    others = np.delete(logits, target, 1).max(1)
    return np.asarray(others >= logits[:, target] - count * rounding)


def profiles(case: Case, loss: TreeLoss, target: float, seed: int) -> Profiles:
    random, rows = np.random.default_rng(seed), case.row[None]
    labelled = loss in (TreeLoss.SOFTMAX, TreeLoss.PROBABILITIES)
    targets = torch.tensor([int(target)]) if labelled else torch.tensor([float(target)], dtype=torch.float64)
    problem = TreeProblem(case.ensemble, case.prices, loss, rows, targets)
    directions, offsets = problem.scores
    values = torch.einsum("nko,co->nkc", directions, torch.tensor(case.scores)) + offsets[:, :, None]
    start, steps = values[:, :, :1], torch.linspace(0, 1, 9).double()
    levels = (start + (values.amax(2, keepdim=True) - start) * steps).cummax(2).values
    bounds = Profiles.trivial(problem, levels)
    for score in range(offsets.shape[1]):
        bounds.raise_by(0, score, random_proof(random, case.ensemble, case.prices))
    return bounds


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize(
    ("loss", "outputs"),
    [("softmax", 1), ("softmax", 3), ("probabilities", 3), ("squared", 1), ("absolute", 1)],
)
def test_no_cell_is_above_the_bounds(loss: str, outputs: int, largest: bool) -> None:
    kind, useful, exact = TreeLoss(loss), 0, 0
    for seed in range(6):
        case = random_case(
            seed,
            outputs=outputs,
            largest=largest,
            rounding=1e-3 * (seed % 2),
            probabilities=kind is TreeLoss.PROBABILITIES,
        )
        target = seed % max(2, outputs) if outputs > 1 or kind is TreeLoss.SOFTMAX else 0.3
        bounds = profiles(case, kind, target, seed)
        losses = true_losses(kind, case.scores, target)
        clip = CLIP if kind is TreeLoss.PROBABILITIES else None
        for gamma in (0.1, 1.0, 20.0):
            level = bounds.dual([gamma], clip=clip)[0]
            with np.errstate(invalid="ignore"):
                truth = np.where(np.isinf(case.costs), -math.inf, losses - gamma * case.costs).max()
            assert float(level.bound[0]) >= truth, (seed, gamma)
            nothing = Profiles.trivial(bounds.problem, bounds.levels).dual([gamma], clip=clip)[0]
            useful += float(level.bound[0]) < float(nothing.bound[0]) * (1 - 1e-9)
            weighed = bounds.dual([gamma], torch.full((1,), 2.0).double(), clip)[0]
            if clip is None:
                assert (
                    float(weighed.bound[0]) >= (2 * losses - gamma * case.costs)[case.costs < math.inf].max()
                )
        samples = bounds.samples()
        assert float(samples.loss[0]) >= losses[0]
        if samples.error_cost is not None:
            cost = case.costs[wrong(case.scores, int(target), 1e-3 * (seed % 2))].min(initial=math.inf)
            assert float(samples.error_cost[0]) <= cost * (1 + 1e-9), seed
            exact += math.isclose(float(samples.error_cost[0]), cost, rel_tol=1e-6) and cost > 0
    assert useful > 3


def test_ties_are_errors_and_roundings_count() -> None:
    """One tree, g = 1 at the row and g = 0, or 0.5, beyond x = 1: an error from a rounding of .5 on."""
    case = random_case(1, columns=1, trees=1, depth=1)
    for beyond, rounding, reached in ((0.0, 0.0, True), (0.5, 0.4, False), (0.5, 0.5, True)):
        value = torch.zeros_like(case.ensemble.value)
        ensemble = replace(
            case.ensemble,
            threshold=torch.ones_like(case.ensemble.threshold),
            value=value + torch.tensor([[0.0], [1.0], [beyond]]).double(),
            bias=torch.zeros(1).double(),
            rounding=torch.full((1,), rounding).double(),
        )
        assert ensemble.left.tolist() == [1, -1, -1]
        prices = replace(
            *(case.prices,),
            move=torch.ones(1).double(),
            gap=torch.full((1,), math.inf).double(),
            discrete=torch.tensor([False]),
        )
        problem = TreeProblem(
            ensemble, prices, TreeLoss.SOFTMAX, torch.zeros(1, 1).double(), torch.tensor([1])
        )
        bounds = Profiles.trivial(problem, torch.zeros(1, 1, 1).double())
        bounds.raise_by(0, 0, random_proof(np.random.default_rng(0), ensemble, prices, 1))
        cost = float(bounds.samples().error_cost)  # type: ignore[arg-type]
        assert cost == (pytest.approx(1.0) if reached else math.inf)
        assert cost <= 1 or not reached


def test_labels_with_a_price() -> None:
    case = random_case(4, outputs=3)
    case.prices = replace(case.prices, label_price=0.05)
    parts = []
    for label in range(3):
        parts.append(profiles(case, TreeLoss.SOFTMAX, label, 0).dual([1.0])[0])
    whole = over_labels(parts[0], parts[1:])
    assert float(whole.bound) >= max(float(part.bound) - 0.05 for part in parts)
    with pytest.raises(Refused, match="leave out labels"):
        DualBounds.unknown(1.0, 1).fill(slice(0, 1), parts[0])
    assert float(profiles(case, TreeLoss.SOFTMAX, 0, 0).samples().error_cost) <= 0.05  # type: ignore[arg-type]


def test_profiles_that_were_constructed_prove_nothing() -> None:
    bounds = profiles(random_case(2), TreeLoss.SOFTMAX, 0, 0)
    assert Statement.of(bounds.samples(), bounds.dual([1.0])).evidence == "proven"
    forged = replace(bounds, costs=bounds.costs + 1)
    for use in (forged.samples, lambda: forged.dual([1.0]), lambda: bounds.dual([math.inf])):
        with pytest.raises(Refused):
            use()
    with pytest.raises(Refused, match="levels"):
        Profiles.trivial(bounds.problem, bounds.levels.flip(2))


def test_a_proof_about_one_score_raises_no_other() -> None:
    """Counted from the end, the score of the loss of probabilities would pass for one of an error."""
    case = random_case(3, outputs=3, probabilities=True)
    bounds = profiles(case, TreeLoss.PROBABILITIES, 0, 0)
    proof = random_proof(np.random.default_rng(0), case.ensemble, case.prices)
    for row, score in ((0, -1), (0, 3), (-1, 0), (1, 0)):
        with pytest.raises(Refused, match="score"):
            bounds.raise_by(row, score, proof)


@pytest.mark.parametrize(
    "change", [{"rows": torch.full((1, 3), math.inf).double()}, {"targets": torch.tensor([2])}]
)
def test_bad_rows_are_refused(change: dict[str, Any]) -> None:
    case = random_case(2)
    problem = TreeProblem(case.ensemble, case.prices, TreeLoss.SOFTMAX, case.row[None], torch.tensor([1]))
    with pytest.raises(Refused):
        replace(problem, **change)
