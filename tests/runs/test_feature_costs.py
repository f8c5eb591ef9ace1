"""Prices of columns: against brute force on a small table, and recorded in the run."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import certus as library
from certus.certificates import certify
from certus.costs import Masked, WeightedL2
from certus.datasets import load
from certus.errors import ArgumentError
from certus.runs.factory import default_cost, named_feature, priced_cost
from certus.runs.sensitivity import move_feature
from certus.runs.settings import column_costs
from certus.runs.shifts import shifted_features
from tests.cli.test_cli import certus, refused

TRAIN = ("train", "csv:people.csv", "--epochs", "3", "--model", "mlp:3:elu", "--gamma", "2", "-o", "run")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of two numbers and a category."""
    place = tmp_path_factory.mktemp("people")
    rng = np.random.default_rng(0)
    rows = []
    for at in range(60):
        age, rate, town = rng.normal(40, 10), rng.normal(2, 1), ("Bern", "Chur")[at % 2]
        rows.append(f"{age:.4f},{rate:.4f},{town},{'yes' if age / 10 + rate + (at % 2) > 6.5 else 'no'}")
    (place / "people.csv").write_text("\n".join(["age,rate,town,bought", *rows]) + "\n")
    return place


def test_the_cost_of_a_move(people: Path) -> None:
    data = load(f"csv:{people}/people.csv")
    assert data.feature_names == ("age", "rate", "town=Bern", "town=Chur")
    cost = priced_cost(data, {"town": 3.0, "rate": 2.0, "age": math.inf})
    origin = torch.tensor([[0.0, 0.0, 1.0, 0.0]])
    other_town, other_rate, other_age = origin.clone(), origin.clone(), origin.clone()
    other_town[0, 2:] = torch.tensor([0.0, 1.0])
    other_rate[0, 1], other_age[0, 0] = -2.0, 0.1
    assert float(cost(other_town, origin)) == pytest.approx(3)
    assert float(cost(other_rate, origin)) == pytest.approx(8)
    assert float(cost(other_age, origin)) == math.inf
    weights = data.weights
    assert weights is not None
    assert torch.equal(priced_cost(data, {}).weights, weights)  # type: ignore[attr-defined]


def test_a_run_with_prices_against_brute_force(people: Path) -> None:
    """Rows on a fine grid of the box, at the prices as they were typed; parts of a category are no rows."""
    done = certus(*TRAIN, "--feature-cost", "town=0.3,age=inf,rate=2", folder=people)
    assert done.returncode == 0, done.stderr
    kept = json.loads((people / "run/run.json").read_text())["settings"]
    assert kept["feature_cost"] == "town=0.3,age=inf,rate=2"
    trained = library.load_run(people / "run")
    assert trained.data.units.endswith("at the feature costs town=0.3,age=inf,rate=2")
    rows = trained.data.test[:4]
    found = certify(
        trained.loss.model,
        rows,
        rho=0.05,
        gammas=(4.0, 0.5),
        cost=trained.cost,
        domain=trained.domain,
        gamma_rounds=0,
        local_radii=1,
    )
    rates, shares = np.linspace(-4, 4, 161), np.linspace(0, 1, 11)
    moves = np.array(list(itertools.product(rates, shares, shares)))
    for index, row in enumerate(rows.inputs.double().numpy()):
        points = np.concatenate([np.full((len(moves), 1), row[0]), moves], 1)
        points[:, 1] += row[1]
        away = (points - row) ** 2
        costs = 2 * away[:, 1] + 0.15 * (away[:, 2] + away[:, 3])
        with torch.no_grad():
            outputs = trained.loss.model.double()(torch.from_numpy(points))
        label = rows.targets[index].expand(len(points))
        real = (points[:, 2:].sum(1) == 1) & np.isin(points[:, 2], (0, 1))
        losses = torch.nn.functional.cross_entropy(outputs, label, reduction="none").numpy()
        for level in found.dual_values:
            best = float((losses - level.gamma * costs)[real].max())
            attained = float(level.loss[index] - level.gamma * level.transport_cost[index])
            assert attained <= float(level.bound[index])
            assert best <= float(level.bound[index])
            assert abs(attained - best) < 1e-3  # of the grid's own coarseness


def test_one_feature_alone_moves_in_its_own_units(people: Path) -> None:
    """Whatever moving it costs, and a frozen one too."""
    certus(*TRAIN[:-1], "frozen", "--feature-cost", "town=0.3,age=inf,rate=2", folder=people)
    trained = library.load_run(people / "frozen")
    plain, rows = replace(trained, cost=default_cost(trained.data)), trained.data.test[:6]
    for name in ("town", "age"):
        one = named_feature(trained.data, name)
        first, second = (
            move_feature(run, rows, one, 0.02, attack_steps=0).bracket for run in (trained, plain)
        )
        assert first == second
        assert first.loss_low < first.loss_high


def test_refusals(people: Path) -> None:
    line = TRAIN[:-1]
    for text, message in (
        ("town=0.3,street=2", "`--feature-cost` must be one of age, rate, town; got 'street'"),
        ("town", "`--feature-cost` must be COLUMN=COST, several separated by commas; got 'town'"),
        ("town=0", "`--feature-cost` must be positive, or inf to keep the column fixed; got 'town=0'"),
        ("town=nan", "`--feature-cost` must be positive, or inf to keep the column fixed; got 'town=nan'"),
        ("town=1,town=2", "`--feature-cost` must name each column once; got 'town=1,town=2'"),
        ("age=inf,rate=inf,town=inf", "`--feature-cost` must leave at least one feature free to move"),
    ):
        refused(certus(*line, "other", "--feature-cost", text, folder=people), message)
    refused(
        certus("train", "digits", "--gamma", "2", "--feature-cost", "age=2", folder=people),
        "`--feature-cost` must be left out except for a table, whose features have names; got digits.",
    )
    refused(
        certus(*line, "other", "--cost", "linf", "--feature-cost", "age=2", folder=people),
        "`--feature-cost` must be left out with --cost linf",
    )


def test_prices_as_they_are_typed() -> None:
    assert column_costs("") == {}
    assert column_costs('town=3, "a,b"=2,x=y=inf') == {"town": 3.0, "a,b": 2.0, "x=y": math.inf}
    with pytest.raises(ArgumentError, match=r"`feature_cost` must be positive"):
        column_costs("town=-1")
    assert isinstance(Masked(WeightedL2(torch.ones(2)), torch.tensor([True, False])).unmasked, WeightedL2)


def test_the_move_of_a_column_is_shown_for_any_cost(people: Path) -> None:
    data = load(f"csv:{people}/people.csv")
    here, there = data.train.inputs, data.train.inputs.clone()
    there[:, 0] += 0.5
    there[:, 2:] = torch.tensor([1.0, 0.0])
    share = float((here[:, 3] == 1).double().mean())
    for prices in ({}, {"age": 4.0, "town": 3.0}):
        found = {
            one.feature: one for one in shifted_features(data, here, there, priced_cost(data, dict(prices)))
        }
        assert found["age"].moved == pytest.approx(0.5, rel=1e-5)
        assert found["town"].moved == pytest.approx(share)
        assert found["town"].cost == pytest.approx(share * prices.get("town", 1.0))


def test_a_run_with_a_frozen_column_has_no_distance(people: Path) -> None:
    done = certus(*TRAIN[:-1], "frozen_age", "--feature-cost", "age=inf", folder=people)
    assert done.returncode == 0, done.stderr
    shift = certus(
        "distance", "csv:people.csv@train", "csv:people.csv@test", "--run", "frozen_age", folder=people
    )
    refused(shift, "`--run` must freeze no column: rows that differ in one are infinitely far apart")
