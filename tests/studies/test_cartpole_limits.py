"""Cart-pole with other angles and masses: what is trained and tested, and the tables over agents."""

from __future__ import annotations

import math
from typing import Any

import pytest

from certus.mdp.cartpole import ORIGINAL, CartPole, variations
from certus.mdp.policies import run_trials
from certus.mdp.tabular import fit_cartpole
from studies.cartpole.limits import (
    GYMNASIUM_DEGREES,
    MASSES_TRIED,
    limits_text,
    measure_limit,
    measure_mass,
)
from studies.cartpole.study import STUDY
from studies.study import Scale
from studies.workspace import Workspace

SYSTEMS = list(variations())


def test_gymnasium_ends_an_episode_at_12_degrees() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make("CartPole-v1").unwrapped
    assert env.theta_threshold_radians == pytest.approx(math.radians(GYMNASIUM_DEGREES), rel=1e-12)
    assert math.radians(24) == ORIGINAL.angle_limit


def test_agents_are_trained_and_tested_at_the_same_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    trained: list[CartPole] = []
    tested: list[CartPole] = []

    def record_fit(learner: Any, seed: int, system: CartPole) -> Any:
        assert learner.covering.upper[0] == system.angle_limit  # the cells reach as far
        trained.append(system)
        return fit_cartpole(learner, seed, system)

    def record_trials(policy: Any, system: CartPole, **options: Any) -> Any:
        tested.append(system)
        return run_trials(policy, system, **options)

    monkeypatch.setattr("studies.cartpole.limits.fit_cartpole", record_fit)
    monkeypatch.setattr("studies.cartpole.limits.run_trials", record_trials)
    common = {"seed": 0, "gamma": 50.0, "episodes": 3, "trials": 2}
    measure_limit(Workspace(tmp_path), {**common, "degrees": 12.0})
    assert {system.angle_limit for system in trained + tested} == {math.radians(12)}
    assert len(trained) == 2
    assert len(tested) == 14
    trained.clear()
    tested.clear()
    measure_mass(Workspace(tmp_path), {**common, "mass": 0.5})
    assert {system.pole_mass for system in trained} == {0.5}
    assert sorted(system.pole_mass for system in tested) == [0.5, 0.5, 1.0, 1.0]


def test_the_tables_show_each_agents_range() -> None:
    measured: dict[str, Any] = {}
    for seed, length in enumerate((100.0, 200.0, 390.0)):
        lengths = {"nominal": dict.fromkeys(SYSTEMS, length), "robust": dict.fromkeys(SYSTEMS, 400.0)}
        measured[f"seed-{seed}"] = {agent: {"lengths": own} for agent, own in lengths.items()}
        measured[f"narrow-{seed}"] = {"lengths": lengths}
        for mass in MASSES_TRIED:
            measured[f"mass-{mass:g}-{seed}"] = {"mass": mass, "lengths": lengths}
    text = limits_text(measured)
    row = "230 (100, 200, 390) | 400 (400, 400, 400) | 230 (100, 200, 390) | 400 (400, 400, 400)"
    assert f"| strong g | {row} |" in text
    assert f"| 0.1 kg | {row} |" in text


def test_the_page_has_both_limits_and_three_masses() -> None:
    names = [part.name for part in STUDY.parts(Scale.FULL)]
    assert [name for name in names if name.startswith("narrow-")] == [f"narrow-{seed}" for seed in range(20)]
    assert sum(name.startswith("mass-") for name in names) == 8 * len(MASSES_TRIED)
