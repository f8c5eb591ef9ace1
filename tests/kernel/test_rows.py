"""Bounds over rows of a table, against all of its rows: every value of a column, numbers on a fine grid."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from certus import Certificate, certify
from certus.bounds.analysis import Analysis
from certus.costs import Masked, WeightedL2
from certus.data import EncodedColumn, RowEncoding, Samples
from certus.kernel.check import NotProven, check
from certus.kernel.costs import Domain, Lp
from certus.kernel.graph import Graph, Node
from certus.kernel.majorants import constants
from certus.kernel.operators import Dense
from certus.kernel.passes import Refused
from certus.kernel.problem import Problem, Values
from certus.kernel.radial import Neighborhoods, neighborhoods
from certus.kernel.rows import cheapest_combinations, with_columns
from certus.kernel.rules import Proposal, Rule, SampleBounds, dual_bounds

EDGES = torch.cat([torch.zeros(1), torch.logspace(-2, 1, 40)]).double()
GRID = torch.linspace(-3, 3, 301).double()
INF = math.inf
WITH_NUMBERS = 1.4  # the largest ratio of proven to exact, in the median of tables with a number


def groups_of(numbers: int, sizes: list[int]) -> list[tuple[int, ...]]:
    ends = list(itertools.accumulate(sizes, initial=numbers))
    return [tuple(range(start, end)) for start, end in itertools.pairwise(ends)]


def random_case(seed: int, numbers: int) -> tuple[nn.Module, Tensor, Tensor, list[tuple[int, ...]], Tensor]:
    """A network, encoded rows, labels, the groups of their columns, and weights of the cost."""
    rng = np.random.default_rng([7, seed, numbers])
    groups = groups_of(numbers, rng.integers(2, 4, 2 + seed % 2).tolist())
    width = groups[-1][-1] + 1
    torch.manual_seed(seed)
    unit = (nn.Softplus, nn.Tanh, nn.ReLU)[seed % 3]()
    network = nn.Sequential(nn.Linear(width, 5), unit, nn.Linear(5, 2)).double()
    with torch.no_grad():
        for part in network.parameters():
            part.mul_(float(rng.uniform(1, 3)))
    inputs = torch.zeros(6, width, dtype=torch.float64)
    inputs[:, :numbers] = torch.from_numpy(rng.normal(size=(6, numbers)))
    for group in groups:
        for row in range(5):  # the last row has unknown values
            inputs[row, group[int(rng.integers(len(group)))]] = 1
    weights = torch.ones(width, dtype=torch.float64)
    for place, group in enumerate(groups):
        equal = (seed + place) % 2 == 0
        weights[list(group)] = torch.from_numpy(rng.choice([0.15, 0.5, 1.0], 1 if equal else len(group)))
    return network, inputs, network(inputs).argmax(1), groups, weights


def bounded(
    network: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    groups: list[tuple[int, ...]],
    weights: Tensor,
    columns: bool = True,
    factor: float = 1.0,
) -> Neighborhoods:
    problem = Analysis(network, input_shape=tuple(inputs.shape[1:]), cost=WeightedL2(weights)).problem
    limited = torch.zeros(len(weights), dtype=torch.bool)
    limited[[place for group in groups for place in group]] = True
    domain = Domain(torch.where(limited, 0.0, -INF).double(), torch.where(limited, 1.0, INF).double())
    problem = (
        with_columns(problem, groups if columns else []).settled(domain, INF, None).about(inputs, targets)
    )
    if factor != 1:  # what wrong prices would prove
        assert problem.columns is not None
        problem = replace(problem, columns=problem.columns._replace(weights=factor * problem.columns.weights))
    values = Values.at(problem)
    return neighborhoods(problem, values, constants(problem, values), EDGES, [10])


def rows_near(row: Tensor, groups: list[tuple[int, ...]], weights: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """All rows near one, with their costs: a change costs the weights of both values."""
    numbers = groups[0][0]
    grid = GRID.unsqueeze(1) if numbers else torch.zeros(1, 0, dtype=torch.float64)
    for choice in itertools.product(*(range(len(group) + 1) for group in groups)):
        moved, price = row.repeat(len(grid), 1), 0.0
        moved[:, :numbers] += grid
        for group, value in zip(groups, choice, strict=True):
            new = torch.zeros(len(group), dtype=torch.float64)
            if value < len(group):
                new[value] = 1
            before, own = row[list(group)], weights[list(group)]
            # An unknown value counts as the dearest one.
            both = [
                float(own[part.argmax()]) if part.sum() > 0 else float(own.max()) for part in (before, new)
            ]
            price += sum(both) * (not torch.equal(new, before))
            moved[:, list(group)] = new
        yield moved, (grid**2 * weights[:numbers]).sum(1) + price


def true_values(
    network: nn.Module,
    row: Tensor,
    label: Tensor,
    gamma: float,
    groups: list[tuple[int, ...]],
    weights: Tensor,
) -> tuple[float, float]:
    """sup ℓ − γc̃ over the rows near one, and the least cost of an error."""
    best, nearest = -INF, INF
    for rows, costs in rows_near(row, groups, weights):
        with torch.no_grad():
            outputs = network(rows)
        losses = nn.functional.cross_entropy(outputs, label.expand(len(rows)), reduction="none")
        best = max(best, float((losses - gamma * costs).max()))
        wrong = outputs.argmax(1) != label
        nearest = min(nearest, float(costs[wrong].min()) if bool(wrong.any()) else INF)
    return best, nearest


def violations(seeds: range, numbers: int, factor: float = 1.0) -> tuple[int, int]:
    """How many bounds are wrong, and how many the rule of rows proves, at prices times a factor."""
    wrong = by_rows = 0
    for seed in seeds:
        network, inputs, targets, groups, weights = random_case(seed, numbers)
        around = bounded(network, inputs, targets, groups, weights, factor=factor)
        costs = SampleBounds.at(around).error_cost
        assert costs is not None
        for gamma in (0.5, 4.0):
            level = dual_bounds(around, gamma, Proposal.at(around.problem, gamma, inputs))
            by_rows += int((level.rule == Rule.ROWS).sum())
            for row, label, bound, cost in zip(inputs, targets, level.bound, costs, strict=True):
                best, nearest = true_values(network, row, label, gamma, groups, weights)
                wrong += (best > bound + 1e-9) + (nearest < cost - 1e-9)
    return wrong, by_rows


@pytest.mark.parametrize("numbers", [0, 1])
def test_bounds_hold_over_all_rows(numbers: int) -> None:
    wrong, by_rows = violations(range(3), numbers)
    assert wrong == 0
    assert by_rows > 5


@pytest.mark.soak
@pytest.mark.parametrize("numbers", [0, 1])
def test_200_networks_over_all_rows(numbers: int) -> None:
    assert violations(range(200), numbers)[0] == 0


def tightness(seeds: range, numbers: int) -> tuple[float, float]:
    """Medians of the proven share of errors over the exact one, and of the proven loss over the exact one.

    Both are of all rows of a table within ρ = 0.3 of the mean, by listing all rows near each.
    """
    errors, losses = [], []
    for seed in seeds:
        network, inputs, targets, groups, weights = random_case(seed, numbers)
        around = bounded(network, inputs, targets, groups, weights)
        costs = SampleBounds.at(around).error_cost
        assert costs is not None
        nearest, grid = [], [0.1, 0.3, 1.0, 3.0, 10.0]
        duals = torch.zeros(2, len(grid))
        for at, gamma in enumerate(grid):
            level = dual_bounds(around, gamma, Proposal.at(around.problem, gamma, inputs))
            pairs = [
                true_values(network, row, label, gamma, groups, weights)
                for row, label in zip(inputs, targets, strict=True)
            ]
            nearest = [cost for _, cost in pairs]
            duals[0, at] = float(level.bound.mean()) + 0.3 * gamma
            duals[1, at] = float(np.mean([best for best, _ in pairs])) + 0.3 * gamma
        losses.append(float(duals[0].min() / duals[1].min()))
        shares = [knapsack(part, 0.3) for part in (costs.tolist(), nearest)]
        errors.append(shares[0] / shares[1] if shares[1] > 0 else (1.0 if shares[0] == 0 else INF))
    return float(np.median(errors)), float(np.median(losses))


def knapsack(costs: list[float], rho: float) -> float:
    """The largest share of errors for a mean cost of rho, in fractions of a row."""
    left, share = rho * len(costs), 0.0
    for cost in sorted(costs):
        part = 1.0 if cost <= left else left / cost
        left, share = left - part * cost if part == 1 else 0.0, share + part
    return share / len(costs)


def test_all_combinations_without_numbers_are_exact() -> None:
    errors, losses = tightness(range(2), 0)
    assert errors <= 1.0 + 1e-6
    assert losses <= 1.01


@pytest.mark.soak
def test_200_tables_against_the_truth() -> None:
    """The ratio of what is proven to what is exact, in the median of 200 tables, without and with numbers."""
    assert max(tightness(range(200), 0)) <= 1.1
    errors, losses = tightness(range(200), 1)
    print(f"with a number: errors {errors:.3f}, losses {losses:.3f}")
    assert max(errors, losses) <= WITH_NUMBERS


def test_what_is_not_listed_costs_more_than_what_is() -> None:
    """With a short list, against all combinations by hand; the rest is bounded from below."""
    network, inputs, targets, groups, weights = random_case(1, 0)
    problem = bounded(network, inputs, targets, groups, weights).problem
    for most in (1, 4, 20, 200):
        listed = cheapest_combinations(problem, most)
        for row, rows, prices, beyond in zip(inputs, *listed, strict=True):
            everything = sorted(
                float(cost) for _, costs in rows_near(row, groups, weights) for cost in costs
            )[1:]
            assert prices.tolist() == pytest.approx(everything[:most])
            rest = everything[most] if most < len(everything) else INF
            assert float(beyond) == pytest.approx(rest)
            assert float(beyond) <= rest
            paid = {
                tuple(moved.tolist()): float(cost)
                for near, costs in rows_near(row, groups, weights)
                for moved, cost in zip(near, costs, strict=True)
            }
            assert [paid[tuple(moved.tolist())] for moved in rows] == pytest.approx(prices.tolist())
            assert len({tuple(moved.tolist()) for moved in rows}) == len(rows)


def test_few_listed_combinations_leave_bounds_that_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cheapest_combinations, "__defaults__", (3,))
    wrong, by_rows = violations(range(3), 0)
    assert wrong == 0
    assert by_rows > 0


def test_a_price_that_is_too_high_is_noticed() -> None:
    assert violations(range(3), 0, factor=3.0)[0] > 0


def test_samples_that_are_no_rows_keep_the_bounds_of_the_hull() -> None:
    network, inputs, targets, groups, weights = random_case(1, 1)
    parts = inputs.clone()
    parts[:, groups[0][0]] = 0.5
    hull = bounded(network, parts, targets, groups, weights, columns=False)
    around = bounded(network, parts, targets, groups, weights)
    for other in (hull, around):
        level = dual_bounds(other, 2.0, Proposal.at(other.problem, 2.0, parts))
        assert not bool((level.rule == Rule.ROWS).any())
    assert torch.equal(SampleBounds.at(hull).error_cost, SampleBounds.at(around).error_cost)  # type: ignore[arg-type]


def test_columns_need_one_weight_and_freedom() -> None:
    network, _, _, groups, weights = random_case(0, 1)

    def kept(cost: object) -> tuple[tuple[int, ...], ...]:
        problem: Problem = Analysis(network, input_shape=(len(weights),), cost=cost).problem  # type: ignore[arg-type]
        columns = with_columns(problem, groups).columns
        return () if columns is None else columns.groups

    assert kept(WeightedL2(weights)) == tuple(groups)
    uneven, free = weights.clone(), torch.ones(len(weights), dtype=torch.bool)
    uneven[groups[0][0]] *= 2
    assert kept(WeightedL2(uneven)) == tuple(groups)
    free[list(groups[1])] = False
    assert groups[1] not in kept(Masked(WeightedL2(weights), free))


def test_a_certificate_over_rows_is_checked_from_its_files(tmp_path: Path) -> None:
    """With its columns; without them, or without the word that it is about rows, it does not follow."""
    network, inputs, targets, groups, weights = random_case(0, 0)
    columns = tuple(EncodedColumn(f"c{group[0]}", "category", group) for group in groups)
    encoding = RowEncoding(columns, torch.zeros(len(weights)).double(), torch.ones(len(weights)).double())
    samples = Samples(inputs, targets, encoding=encoding)
    options: dict[str, Any] = {"rho": 0.05, "cost": WeightedL2(weights), "attack_steps": 2, "local_radii": 1}
    certificate = certify(network, samples, **options)
    assert certificate.over_rows
    hull = certify(network, (inputs, targets), **options)
    assert certificate.bound(0.05) <= hull.bound(0.05)
    assert certificate.error_bound(0.05) < hull.error_bound(0.05)  # type: ignore[operator]
    path = tmp_path / "certificate.json"
    certificate.save(path, include_data=True)
    assert check(path).verified
    assert Certificate.load(path).over_rows

    graph, content = tmp_path / "graph.json", json.loads(path.read_text())
    whole = json.loads(graph.read_text())
    content.pop("checksum", None)
    for drop in ("columns", "over_rows"):
        graph.write_text(json.dumps({name: part for name, part in whole.items() if name != drop}))
        forged = {name: part for name, part in content.items() if name != drop}
        forged["check"]["files"]["graph.json"] = hashlib.sha256(graph.read_bytes()).hexdigest()
        path.write_text(json.dumps(forged))
        with pytest.raises(NotProven):
            check(path)
    graph.write_text(json.dumps(whole | {"columns": [[0, 0]]}))
    forged["check"]["files"]["graph.json"] = hashlib.sha256(graph.read_bytes()).hexdigest()
    path.write_text(json.dumps(forged))
    with pytest.raises(Refused, match="columns"):
        check(path)


def test_values_outside_of_the_domain_leave_an_infinite_bound_infinite() -> None:
    """A squared error has no bound at a small γ; a value that Z excludes does not turn it into NaN."""
    graph = Graph((Node((), (3,)), Node((0,), (1,), Dense(torch.tensor([[3.0, 1.0, 1.0]]).double(), None))))
    domain = Domain(upper=torch.tensor([INF, 1.0, 0.0]).double())
    data = torch.tensor([[0.5, 1.0, 0.0]]).double(), torch.zeros(1).double()
    problem = with_columns(Problem.of(graph, None, Lp(shape=(3,)), domain, data), [(1, 2)])
    values = Values.at(problem)
    around = neighborhoods(problem, values, constants(problem, values), EDGES, [])
    for gamma, finite in ((1.0, False), (100.0, True)):
        bound = dual_bounds(around, gamma, Proposal.at(problem, gamma, problem.inputs)).bound
        assert torch.isfinite(bound).tolist() == [finite]
        assert not bool(bound.isnan().any())
