"""A transport cost of one's own: --cost FILE.py:FACTORY."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from certus.costs import Mahalanobis, Masked, SquaredL2, WeightedL2
from certus.errors import ArgumentError, UnsupportedError
from certus.runs.factory import build_cost, load_data
from certus.runs.loaded_run import load_run
from certus.runs.settings import Settings
from certus.runs.train_run import start_run, train_run

SOURCE = """
import torch
from certus.costs import Bregman, Mahalanobis, Masked, SquaredL2

def matrix(shape):
    assert shape == (2,)
    return Mahalanobis(torch.tensor([[2.0, 1.0], [1.0, 3.0]]))

def first_only(shape):
    return Masked(SquaredL2(), torch.tensor([True, False]))

def number(shape):
    return 3.0

class Mine(SquaredL2):
    pass

def own_class(shape):
    return Mine()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "costs.py"
    path.write_text(SOURCE)
    return path


def settings(cost: str, **options: Any) -> Settings:
    given: dict[str, Any] = {"data": "rings", "model": "toy", "gamma": 2.0, "epochs": 1} | options
    return Settings(cost=cost, **given)


def test_a_run_is_trained_with_it_and_needs_the_file_no_more(file: Path, tmp_path: Path) -> None:
    chosen = settings(f"{file}:matrix")
    run = start_run(tmp_path / "run", chosen, load_data(chosen))
    file.unlink()
    train_run(run)
    trained = load_run(tmp_path / "run")
    assert isinstance(trained.cost, Mahalanobis)
    moved = torch.tensor([[1.0, 2.0]])
    assert trained.cost(moved, torch.zeros(1, 2)).item() == pytest.approx(2 + 2 * 2 + 3 * 4)
    assert trained.rho_hat is not None
    assert trained.rho_hat > 0


def test_a_masked_cost_keeps_coordinates_fixed(file: Path) -> None:
    chosen = settings(f"{file}:first_only")
    cost = build_cost(chosen, load_data(chosen))
    assert isinstance(cost, Masked)
    assert cost(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.zeros(2, 2)).tolist() == [9.0, torch.inf]


@pytest.mark.parametrize(
    ("factory", "error", "message"),
    [
        ("number", ArgumentError, "`cost` must be a Cost that .*number returns"),
        ("missing", ArgumentError, "`cost` must name a function of .*costs.py"),
        ("own_class", UnsupportedError, "Mine holds code and cannot be stored"),
    ],
)
def test_what_a_run_cannot_store_is_refused(
    factory: str, error: type[Exception], message: str, file: Path
) -> None:
    chosen = settings(f"{file}:{factory}")
    with pytest.raises(error, match=message):
        build_cost(chosen, load_data(chosen))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    chosen = settings(f"{tmp_path / 'none.py'}:matrix")
    with pytest.raises(ArgumentError, match=r"`cost` must name a file that can be read; got .*none\.py"):
        build_cost(chosen, load_data(chosen))


@pytest.mark.parametrize(
    ("cost", "options", "message"),
    [
        ("l3", {}, "`cost` must be natural, l1, linf or FILE.py:FACTORY; got 'l3'"),
        ("a.py:b", {"certified": True}, "`cost` must be left out with --certified"),
        ("a.py:b", {"method": "erm", "gamma": None}, "`cost` must be left out for erm"),
        ("a.py:b", {"noise": 0.1}, "`cost` must be natural with noise"),
        ("a.py:b", {"feature_cost": "x=2"}, "`feature_cost` must be left out with --cost a.py:b"),
    ],
)
def test_refused_settings(cost: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        settings(cost, **options)


def test_names_mean_what_they_did() -> None:
    data = load_data(settings("natural"))
    assert isinstance(build_cost(settings("natural"), data), SquaredL2 | WeightedL2)
