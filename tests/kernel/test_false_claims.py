"""Claims and data that would prove too much are refused: each was accepted once."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from certus.certificates.confidence import betting
from certus.data import random_order
from certus.kernel.costs import Domain, Lp
from certus.kernel.error_rates import error_gains
from certus.kernel.evidence import mark
from certus.kernel.graph import Graph, Node
from certus.kernel.losses import Softmax
from certus.kernel.majorants import constants
from certus.kernel.operators import Dense
from certus.kernel.passes import Refused
from certus.kernel.problem import Problem, Values
from certus.kernel.radial import neighborhoods
from certus.kernel.rules import DualBounds, Proposal, SampleBounds, dual_bounds, over_labels
from certus.kernel.statement import ChangeBounds, PopulationBounds, Statement, failure_shares
from certus.kernel.tree_profiles import TreeLoss, TreeProblem
from certus.kernel.trees import Ensemble, Prices

ONE = torch.ones(1, dtype=torch.float64)
NONE = torch.full((1,), math.inf, dtype=torch.float64)


def bounds(clip: float | None) -> tuple[SampleBounds, DualBounds]:
    """Bounds of 40 samples, and at γ = 2, of losses that are clipped."""
    losses = torch.linspace(0, 1, 40, dtype=torch.float64)
    costs = torch.linspace(0.1, 2, 40, dtype=torch.float64)
    capped = losses if clip is None else losses.clamp_max(clip)
    rules = torch.zeros(40, dtype=torch.int64)
    return mark(SampleBounds(losses, costs, 1.0)), mark(DualBounds(2.0, capped + 0.1, rules, clip))


def population(clip: float | None, **options: Any) -> PopulationBounds:
    sample, level = bounds(clip)
    return PopulationBounds.of(
        *(sample, [level]),
        confidence=0.9,
        seed=0,
        clip=1.0,
        inequality="hoeffding",
        **{"claims": {}, "error_claims": {}} | options,
    )


def test_bounds_of_losses_that_are_clipped_lower_say_nothing_of_the_population() -> None:
    assert population(1.0).clip == population(None).clip == population(2.0).clip == 1.0
    with pytest.raises(Refused):
        population(0.5)


def test_every_gamma_of_the_grid_of_error_rates_has_its_share_of_delta() -> None:
    """Also those whose means are not given: the others may have been chosen after the data were seen."""
    costs = bounds(None)[0].error_cost
    assert costs is not None
    above = failure_shares(0.9, True)[0]
    claim = betting(error_gains(costs[random_order(40, 0)], 0.5), 1.0, above / 2)
    alone = population(None, error_claims={0.5: claim})
    assert alone.error_means[0.5] == pytest.approx(claim, rel=1e-9)
    with pytest.raises(Refused, match="a mean of at most"):
        population(None, error_claims={0.5: claim}, error_grid=4)


@pytest.mark.parametrize("price", [(0.0, 1.0), (1.0, 0.0)])
def test_prices_of_trees_are_positive(price: tuple[float, float]) -> None:
    with pytest.raises(Refused, match="must be positive"):
        Prices(price[0] * ONE, price[1] * ONE, torch.zeros(1, dtype=torch.bool))


@pytest.mark.parametrize("discrete", [True, False])
def test_codes_of_categories_move_by_whole_changes(discrete: bool) -> None:
    """Otherwise a code of 0.9 would be charged a whole change, and cost (0.1)²."""
    leaf = torch.tensor([0, -1, -1])
    flags = torch.zeros(3, dtype=torch.bool)
    zeros = torch.zeros(3, dtype=torch.float64)
    values = torch.tensor([[0.0], [3.0], [-3.0]], dtype=torch.float64)
    ensemble = Ensemble(
        roots=torch.tensor([0]),
        feature=leaf,
        threshold=zeros,
        left=torch.tensor([1, -1, -1]),
        right=torch.tensor([2, -1, -1]),
        missing_left=flags,
        category_set=leaf,
        sets=torch.tensor([[True, False]]),
        value=values,
        bias=0 * ONE,
        rounding=0 * ONE,
        columns=1,
    )
    prices = Prices(ONE, NONE, torch.tensor([discrete]))
    rows, labels = 0.0 * ONE[None], torch.tensor([1])
    if discrete:
        TreeProblem(ensemble, prices, TreeLoss.SOFTMAX, rows, labels)
        return
    with pytest.raises(Refused):
        TreeProblem(ensemble, prices, TreeLoss.SOFTMAX, rows, labels)


def test_no_rows_prove_no_mean() -> None:
    """The mean of nothing is NaN, which is no bound."""
    nodes = (Node((), (1,)), Node((0,), (1,), Dense(ONE[None], None)))
    nothing = torch.empty(0, 1, dtype=torch.float64)
    problem = Problem.of(Graph(nodes), None, Lp(shape=(1,)), Domain(), (nothing, nothing))
    with pytest.raises(Refused, match="samples are needed"):
        ChangeBounds.of(problem, [nothing], 1.0)


def two(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@pytest.mark.parametrize("domain", [Domain(two(5, 5), two(6, 6)), Domain(center=two(5, 5), radius=1.0)])
def test_samples_lie_in_the_domain(domain: Domain) -> None:
    """At a point of Z the gap rule proves φ_γ ≤ −200 of a sample outside, whose loss ln 2 costs nothing."""
    layer = Dense(torch.tensor([[1.0, 0.0], [-1.0, 0.5]], dtype=torch.float64), None)
    graph, labels = Graph((Node((), (2,)), Node((0,), (2,), layer))), torch.tensor([0])
    problem = Problem.of(graph, Softmax(), Lp(shape=(2,)), domain, (two(0, 0)[None], labels))
    with pytest.raises(Refused, match="samples must lie in the domain"):
        Values.at(problem)
    Values.at(problem.about(two(5, 6)[None], labels))


def test_what_vanishes_does_not_move_a_sample_however_far() -> None:
    """A slope of 10⁻¹⁷⁰ is lost as a square, and the next layer raises it by 10⁵⁷."""
    first, last = Dense(two(1e-170, 1e-170)[None], None), Dense(two(1e57, -1e57)[:, None], None)
    graph = Graph((Node((), (2,)), Node((0,), (1,), first), Node((1,), (2,), last)))
    origin, labels = two(0, 0)[None], torch.tensor([1])
    problem = Problem.of(graph, Softmax(), Lp(shape=(2,)), Domain(), (origin, labels))
    values = Values.at(problem)
    around = neighborhoods(problem, values, constants(problem, values), two(0, 1), [])
    level = dual_bounds(around, 1e-300, Proposal.at(problem, 1e-300, origin))
    statement = Statement.of(SampleBounds.at(around), [level])
    far = origin + math.sqrt(1e226 / 2)
    assert float(problem.losses(far)) > 2.8
    for rho in (1e226, 1.1e30, math.inf, math.nan):
        with pytest.raises(Refused, match="rho"):
            statement.loss(rho)
        with pytest.raises(Refused, match="rho"):
            statement.error(rho, 0.0)
    assert statement.certified(1.1e15) == 0
    assert statement.loss(1e30)[0] >= float(problem.losses(origin + math.sqrt(1e30 / 2)))


def test_a_label_that_may_change_counts_in_every_statement() -> None:
    """The bounds under a sample's own label alone were taken for all of φ_γ."""
    layer = Dense(torch.tensor([[3.0], [-3.0]], dtype=torch.float64), None)
    graph, origin = Graph((Node((), (1,)), Node((0,), (2,), layer))), ONE[None]
    problem = Problem.of(
        graph, Softmax(), Lp(shape=(1,), label_price=0.01), Domain(), (origin, torch.tensor([0]))
    )
    both = [problem, problem.relabelled(torch.tensor([1]))]
    around = [
        neighborhoods(each, values, constants(each, values), two(0, 1), [])
        for each in both
        for values in [Values.at(each)]
    ]
    own, other = (dual_bounds(each, 9.0, Proposal.at(each.problem, 9.0, origin)) for each in around)
    with pytest.raises(Refused, match="about the same samples"):
        Statement.of(SampleBounds.at(around[0]), [own])
    statement = Statement.of(SampleBounds.at(around[0]), [over_labels(own, [other])])
    changed = float(Values.at(both[1]).loss)  # at a cost of 0.01
    assert statement.loss(0.01)[0] >= changed > 5
