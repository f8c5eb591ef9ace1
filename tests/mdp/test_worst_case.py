"""Worst-case values against a linear program at every state, and policies that save and reload."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from certus.errors import ArgumentError
from certus.mdp import Covering, load_policy, worst_case_values
from certus.mdp.policies import DeepPolicy, NetworkShape, QNetwork, TabularPolicy
from certus.runs import RunError
from certus.storage.tensors import save_tensors
from tests.oracles import worst_case_by_linear_program


@pytest.mark.parametrize("rho", [0.0, 0.02, 0.3, 5.0])
def test_values_solve_the_robust_equation(rho: float) -> None:
    generator = np.random.default_rng(0)
    places = generator.uniform(0, 1, 6)
    rewards = generator.uniform(0, 1, 6)
    following = generator.integers(6, size=(6, 3))
    costs = (places[:, None] - places) ** 2
    values = worst_case_values(
        following, rewards, costs, rho=rho, discount=0.7, gammas=np.linspace(0, 30, 1501), tolerance=1e-4
    )
    for state in range(6):
        worst = -worst_case_by_linear_program(-values, costs[:, following[state]].T, rho)
        assert values[state] == pytest.approx(rewards[state] + 0.7 * worst, abs=2e-3)


def test_fewer_penalties_only_lower_the_value() -> None:
    following = np.array([[1], [2], [0]])
    rewards, places = np.array([1.0, 0.5, 0.0]), np.array([0.0, 0.4, 1.0])
    costs = (places[:, None] - places) ** 2
    fine = worst_case_values(
        following, rewards, costs, rho=0.1, discount=0.7, gammas=np.geomspace(0.1, 1e4, 200)
    )
    coarse = worst_case_values(following, rewards, costs, rho=0.1, discount=0.7, gammas=[1.0, 10.0])
    assert (coarse <= fine + 1e-2).all()


def test_policies_come_back(tmp_path: Path) -> None:
    grid = Covering((-1.0, -1.0), (1.0, 1.0), (3, 2))
    observations = np.random.default_rng(0).uniform(-1, 1, (50, 4))
    table = np.random.default_rng(1).normal(size=(6, 2))
    torch.manual_seed(0)
    for policy in (
        TabularPolicy(table, grid, (2, 3)),
        DeepPolicy(QNetwork(NetworkShape(2, (1.0, 2.0, 3.0, 4.0), hidden=8))),
    ):
        policy.save(str(tmp_path / "policy.safetensors"))
        back = load_policy(str(tmp_path / "policy.safetensors"))
        assert type(back) is type(policy)
        np.testing.assert_array_equal(back.actions(observations), policy.actions(observations))
    plain = TabularPolicy(table, grid)
    plain.save(tmp_path / "plain.safetensors")
    assert load_policy(tmp_path / "plain.safetensors").actions(observations[:, :2]).shape == (50,)


def test_files_that_are_no_policies(tmp_path: Path) -> None:
    save_tensors(tmp_path / "other.safetensors", {"weights": torch.zeros(2)}, {"kind": "other"})
    with pytest.raises(ArgumentError, match="`path` must name a saved policy"):
        load_policy(tmp_path / "other.safetensors")
    with pytest.raises(RunError, match="Cannot read"):
        load_policy(tmp_path / "missing.safetensors")
