"""Training with a cost of changing labels: which settings are refused, and what moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from certus.costs import LabelCost, SquaredL2
from certus.domains import Unbounded
from certus.errors import ArgumentError
from certus.inner import WRM, BarzilaiBorwein
from certus.runs.factory import build_method, load_data
from certus.runs.loaded_run import load_run, recorded_rho_hat
from certus.runs.settings import Settings
from certus.runs.train_run import start_run, train_run

GAMMA, PRICE = 2.0, 0.1


def settings(**options: Any) -> Settings:
    given: dict[str, Any] = {
        "data": "rings",
        "model": "toy",
        "gamma": GAMMA,
        "label_cost": PRICE,
        "epochs": 1,
    } | options
    return Settings(**given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_cost": 0.0}, "`label_cost` must be positive and at most"),
        ({"label_cost": -1.0}, "`label_cost` must be positive and at most"),
        ({"label_cost": float("nan")}, "`label_cost` must be positive and at most"),
        ({"label_cost": float("inf")}, "`label_cost` must be positive and at most"),
        ({"method": "erm", "gamma": None}, "`label_cost` must be left out for erm; got 0.1"),
        ({"certified": True}, "`label_cost` must be left out with --certified"),
        ({"noise": 0.1}, "`label_cost` must be left out with noise"),
    ],
)
def test_refused_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        settings(**options)


def test_the_method_has_the_price_and_the_classes() -> None:
    method = build_method(settings(), SquaredL2(), Unbounded(), classes=7)
    assert isinstance(method, WRM)
    assert method.label_cost == LabelCost(PRICE, 7)
    with pytest.raises(ArgumentError, match=r"must be left out for targets that are no classes; got 0\.1"):
        build_method(settings(), SquaredL2(), Unbounded())


def test_labels_move_where_that_is_worth_its_price(tmp_path: Path) -> None:
    """ρ̂ of the run, from the two labels' own problems: max(φ(y₀), φ(1 − y₀) − γ·price)."""
    chosen = settings(measure_all=True)
    run = start_run(tmp_path / "run", chosen, load_data(chosen))
    train_run(run)
    trained = load_run(tmp_path / "run")
    data = trained.data.train
    wrm = WRM(GAMMA, maximizer=BarzilaiBorwein(1e-4, 32))
    own, other = (wrm.solve(trained.loss, data.inputs, labels) for labels in (data.targets, 1 - data.targets))
    flips = other.value - GAMMA * PRICE > own.value
    cost = torch.where(flips, other.transport_cost + PRICE, own.transport_cost)
    assert flips.any()
    assert trained.rho_hat == pytest.approx(cost.double().mean().item(), rel=1e-3)
    assert recorded_rho_hat(trained.run, 2.0) is None  # it is no squared distance
