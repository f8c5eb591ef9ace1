"""Studies of agents at a small size: pairs by hand, and pictures against the numbers of single seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from certus.mdp.cartpole import variations
from certus.mdp.evaluation import MeanEstimate
from studies import pendulum, pole_agents, pole_gammas, pole_networks, pole_schedules
from studies.agent_pairs import (
    decided,
    pair_figure,
    pair_table,
    paired_gain,
    spoken_decisions,
    spoken_gain,
)
from studies.reproduction import Extent, Reproduction
from studies.workshop import Workshop
from tests.pictures import line_of, words_of

PAIRS = [
    {"nominal": {"easy": 1.0, "hard": 1.0}, "robust": {"easy": 1.0, "hard": 3.0}},
    {"nominal": {"easy": 3.0, "hard": 2.0}, "robust": {"easy": 2.0, "hard": 4.0}},
    {"nominal": {"easy": 2.0, "hard": 3.0}, "robust": {"easy": 3.0, "hard": 5.0}},
]


def small(of: Reproduction, folder: Path, begin: str = "", **sizes: Any) -> dict[str, Any]:
    """The parts of a quick look whose names begin so, smaller still."""
    chosen = [part for part in of.parts(Extent.QUICK) if part.name.startswith(begin)]
    return {part.name: part.measure(Workshop(folder), {**part.settings, **sizes}) for part in chosen}


def heights(axes: Axes) -> list[list[float]]:
    """Of the marks of every line with error bars."""
    lines = [one.lines[0] for one in axes.containers]  # type: ignore[attr-defined]  # of error bars
    return [np.asarray(line.get_ydata(), dtype=np.float64).tolist() for line in lines]


def test_gains_are_paired_by_seed() -> None:
    """On the hard system every seed gains 2; on the easy one 0, −1 and 1: t₂(0.975) = 4.302653 by a table."""
    assert paired_gain(PAIRS, "hard") == MeanEstimate(2.0, 0.0, 2.0, 2.0)
    easy = paired_gain(PAIRS, "easy")
    assert (easy.mean, easy.error) == pytest.approx((0.0, 1 / 3**0.5))
    assert (easy.low, easy.high) == pytest.approx((-4.302653 / 3**0.5, 4.302653 / 3**0.5))
    assert list(decided(PAIRS)) == ["hard"]
    assert (
        spoken_decisions(PAIRS, 1) == "On 1 of 2 systems a 95% interval leaves 0 out: hard: +2.0 [2.0, 2.0]."
    )
    assert "| easy | 2.0 ± 0.6 | 2.0 ± 0.6 | +0.0 [−2.5, 2.5] |" in pair_table(PAIRS, 1)
    assert spoken_gain(MeanEstimate(-3.0, 1.0, -5.0, -0.01), 1) == "−3.0 [−5.0, 0.0]"


def test_a_pair_is_drawn_as_it_is() -> None:
    axes = pair_figure(PAIRS, "score").axes[0]
    np.testing.assert_allclose(heights(axes), [[2.0, 2.0], [2.0, 4.0]])


@pytest.mark.parametrize(
    ("of", "sizes"),
    [
        (pendulum.REPRODUCTION, {"episodes": 1, "trials": 1, "bins": [3, 3]}),
        (pole_networks.REPRODUCTION, {"steps": 102, "environments": 2, "trials": 2}),
    ],
    ids=lambda value: value.name if isinstance(value, Reproduction) else "",
)
def test_pairs_are_measured_and_told(of: Reproduction, sizes: dict[str, Any], tmp_path: Path) -> None:
    measured = small(of, tmp_path, **sizes)
    assert set(measured) == {"seed-0", "seed-1"}
    assert all(list(found) == ["nominal", "robust"] for found in measured.values())
    assert of.text is not None
    assert "| strong g |" in of.text(measured)
    (statement,) = of.statements(measured)
    assert "of 7 systems" in statement.measured


def test_a_sweep_is_drawn_as_it_was_measured(tmp_path: Path) -> None:
    of = pole_gammas.REPRODUCTION
    measured = small(of, tmp_path, episodes=2, trials=2)
    left, right = of.pictures[0].draw(measured).axes
    wanted = [
        [np.mean(measured[name]["lengths"][system]) for name in ("round-100", "round-50")]
        for system in ("original", "short", "strong g")
    ]
    np.testing.assert_allclose(heights(left), wanted)
    for name, label in (("nominal", "nominal"), ("round-50", "robust, γ = 50")):
        values = measured[name]["worst-case value"]
        assert line_of(right, label)[0] == pytest.approx([0, 0.01])
        assert line_of(right, label)[1] == pytest.approx([np.mean(value) for value in values.values()])
    assert "worst-case value" not in measured["cover-100000"]
    assert of.text is not None
    assert "| over the covering, 100000 |" in of.text(measured)


def test_schedules_are_drawn_as_they_were_measured(tmp_path: Path) -> None:
    of = pole_schedules.REPRODUCTION
    measured = small(of, tmp_path, share=1e-3, trials=1)
    figure = of.pictures[0].draw(measured)
    points = [height for axes in figure.axes for line in heights(axes) for height in line]
    wanted = [
        np.mean(one["lengths"][system])
        for one in measured.values()
        for system in ("original", "short", "strong g")
    ]
    assert sorted(points) == pytest.approx(sorted(wanted))
    assert of.text is not None
    assert of.text(measured).count("| × 0.9995, 16,000 |") == 6
    better = of.statements(measured)[0].measured
    assert "of 8 schedules" in better


def test_agents_of_cart_pole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = pole_agents.REPRODUCTION
    measured = small(of, tmp_path, "seed", episodes=50, trials=4, grid_trials=1)
    for found in (measured["seed-0"]["nominal"], measured["seed-1"]["robust"]):
        for system, length in found["lengths"].items():
            early = found["fell"][system] + found["ran off"][system]
            assert (early == 0) == (length == 400)
    assert of.text is not None
    assert "| strong g |" in of.text(measured)
    shown: list[Any] = []
    monkeypatch.setattr(pole_agents, "_EPISODES", 2)
    monkeypatch.setattr(
        pole_agents,
        "animate",
        lambda policies, system, path, seed: shown.append((*policies, system, path, seed)),
    )
    of.films[0].write(measured, tmp_path / "film.gif")
    lengths = sorted((measured[f"seed-{seed}"]["nominal"]["lengths"]["strong g"], seed) for seed in range(3))
    assert shown == [("nominal", "robust", variations()["strong g"], tmp_path / "film.gif", lengths[1][1])]
    assert "training episode" in words_of(of.pictures[0].draw(measured))
