"""Samples on the boundary of Z, other precisions, and constants that fit no loss."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import certus
from certus.bounds.norm_proposals import claim_norms
from certus.domains import Ball
from certus.kernel.costs import Domain, Lp
from certus.kernel.graph import Graph, Node
from certus.kernel.losses import Softmax
from certus.kernel.majorants import constants
from certus.kernel.operators import Diagonal
from certus.kernel.passes import Refused
from certus.kernel.problem import Problem, Values
from certus.kernel.radial import neighborhoods
from certus.kernel.rounding import mean_up
from certus.kernel.rules import Proposal, bounds_by_rule
from certus.kernel.smoothing import GammaDesign, smoothed_values


@pytest.mark.parametrize("p", [2.0, math.inf, 1.0])
@pytest.mark.parametrize(("start", "target"), list(product((0.0, 0.4, 1.0), (-1.0, 0.01, 0.99, 2.0))))
def test_a_squared_error_grows_on_both_sides(p: float, start: float, target: float) -> None:
    """At a face of the box the output may still fall where it may not rise: F(x) = x on [0, 1]."""
    identity = Diagonal(torch.ones(1, dtype=torch.float64), None, (1,))
    graph = Graph((Node((), (1,)), Node((0,), (1,), identity)))
    data = torch.tensor([[start]], dtype=torch.float64), torch.tensor([[target]], dtype=torch.float64)
    lower, upper = torch.tensor([0.0, 1.0], dtype=torch.float64)
    problem = Problem.of(graph, None, Lp(shape=(1,), p=p), Domain(lower, upper), data)
    values = Values.at(problem)
    edges = torch.tensor([0.0, 0.3, 1.0, 2.0], dtype=torch.float64)
    around = neighborhoods(problem, values, constants(problem, values), edges, [2])
    moved = torch.linspace(0, 1, 1001, dtype=torch.float64)
    for gamma in (0.3, 1.5, 8.0):
        truth = float(((moved - target) ** 2 - gamma * (moved - start) ** 2).max())
        for point in (start, 0.0, 1.0):
            bounds = bounds_by_rule(around, Proposal.at(problem, gamma, torch.full_like(data[0], point)))
            assert all(truth <= float(bound) * (1 + 1e-12) for bound in bounds.values())
            assert gamma < 1 or min(map(float, bounds.values())) < math.inf


def affine() -> Problem:
    """x ↦ (x₁, x₂)·(1/3, −0.7), with a squared error."""
    factors = torch.tensor([1 / 3, -0.7], dtype=torch.float64)
    graph = Graph((Node((), (2,)), Node((0,), (2,), Diagonal(factors, None, (2,)))))
    inputs = torch.tensor([[0.1, 0.2], [3.3, -1.7]], dtype=torch.float64)
    problem = Problem.of(graph, None, Lp(shape=(2,)), Domain(), (inputs, torch.full_like(inputs, 7.1)))
    claim_norms(problem.graph)
    return problem


def test_proposals_in_float32_are_taken_as_exact_numbers() -> None:
    problem = affine()
    values = Values.at(problem)
    edges = torch.tensor([0.0, 1.0, 10.0], dtype=torch.float64)
    around = neighborhoods(problem, values, constants(problem, values), edges, [])
    single = (problem.inputs + 0.123456789).float()
    bounds = [
        bounds_by_rule(around, Proposal.at(problem, 2.0, points)) for points in (single, single.double())
    ]
    for rule, bound in bounds[0].items():
        assert torch.equal(bound, bounds[1][rule])
    assert not any(bool(torch.isnan(bound).any()) for bound in bounds[0].values())


def test_costs_and_means_in_float32() -> None:
    scales = torch.tensor([0.1, 0.3])
    assert Lp(shape=(2,), scales=scales).rounding == Lp(shape=(2,), scales=scales.double()).rounding
    whitening = Lp(shape=(2,), scales=scales).whitening
    assert whitening is not None
    assert whitening.dtype == torch.float64
    numbers = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    assert mean_up(numbers) >= math.fsum(numbers.tolist()) / 1000


@pytest.mark.parametrize(
    "wrong",
    [
        {"smoothing": -0.5},
        {"smoothing": 1.5},
        {"scale": -1.0},
        {"slope": -1.0},
        {"slope": 2.0},
        {"offset": math.nan},
        {"spread": math.inf},
    ],
    ids=str,
)
def test_constants_that_fit_no_loss_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="constants of the loss"):
        Softmax(**wrong)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int32, torch.int64])
def test_counts_of_any_integers(kind: torch.dtype) -> None:
    """uint8 would be a mask."""
    design = GammaDesign(1.0, np.array([0.0, 0.25, 1.0]))
    counts: Tensor = torch.tensor([0, 2, 1], dtype=kind)
    assert smoothed_values([design], counts).tolist() == [[0.0, 1.0, 0.25]]


def test_samples_that_a_ball_holds_within_its_tolerance() -> None:
    layer = nn.Linear(1, 2, dtype=torch.float64)
    layer.weight.data = torch.tensor([[100.0], [-100.0]], dtype=torch.float64)
    data = torch.tensor([[1 + 9e-7]], dtype=torch.float64), torch.tensor([1])
    certificate = certus.certify(layer, data, rho=0.01, domain=Ball(0.0, 1.0), progress=False)
    assert certificate.lower(0.01) <= certificate.bound(0.01)
