"""Studies of agents at a small size: pairs by hand, and pictures against the numbers of single seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes

from certus.errors import ArgumentError
from certus.mdp.cartpole import variations
from studies.cartpole import deep, gammas, pendulum, schedules
from studies.cartpole import study as pole_agents
from studies.cartpole.pairs import (
    MeanEstimate,
    estimate_mean,
    gain_text,
    outcome_of_gains,
    pair_figure,
    pair_table,
    pair_verdict,
    paired_gain,
)
from studies.study import Outcome, Scale, Study
from studies.workspace import Workspace
from tests.pictures import line_of, words_of

PAIRS = [
    {"nominal": {"easy": 1.0, "hard": 1.0}, "robust": {"easy": 1.0, "hard": 3.0}},
    {"nominal": {"easy": 3.0, "hard": 2.0}, "robust": {"easy": 2.0, "hard": 4.0}},
    {"nominal": {"easy": 2.0, "hard": 3.0}, "robust": {"easy": 3.0, "hard": 5.0}},
]


def small(study: Study, folder: Path, begin: str = "", **sizes: Any) -> dict[str, Any]:
    """The parts of a quick look whose names begin so, smaller still."""
    chosen = [part for part in study.parts(Scale.QUICK) if part.name.startswith(begin)]
    return {part.name: part.measure(Workspace(folder), {**part.settings, **sizes}) for part in chosen}


def heights(axes: Axes) -> list[list[float]]:
    """Of the marks of every line with error bars."""
    lines = [one.lines[0] for one in axes.containers]  # type: ignore[attr-defined]  # of error bars
    return [np.asarray(line.get_ydata(), dtype=np.float64).tolist() for line in lines]


def test_intervals() -> None:
    found = estimate_mean([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (found.mean, found.error) == pytest.approx((3.0, (2.5 / 5) ** 0.5))
    assert found.high - 3.0 == pytest.approx(2.776445 * found.error, rel=1e-6)  # t of 4 degrees, 97.5%
    assert estimate_mean([2.0]).high == np.inf
    with pytest.raises(ArgumentError, match="`confidence` must lie strictly between"):
        estimate_mean([1.0], confidence=1.0)
    with pytest.raises(ArgumentError, match="`values` must not be empty"):
        estimate_mean([])


def test_gains_are_paired_by_seed() -> None:
    """On the hard system every seed gains 2; on the easy one 0, −1 and 1: t₂(0.975) = 4.302653 by a table."""
    assert paired_gain(PAIRS, "hard") == MeanEstimate(2.0, 0.0, 2.0, 2.0)
    easy = paired_gain(PAIRS, "easy")
    assert (easy.mean, easy.error) == pytest.approx((0.0, 1 / 3**0.5))
    assert (easy.low, easy.high) == pytest.approx((-4.302653 / 3**0.5, 4.302653 / 3**0.5))
    verdict = pair_verdict(PAIRS, "Better?", 1)
    assert verdict.outcome is Outcome.PARTLY
    assert [one.value for one in verdict.ours.values()] == [0.0, 2.0]
    assert "| easy | 2.0 ± 0.6 | 2.0 ± 0.6 | +0.0 [−2.5, 2.5] |" in pair_table(PAIRS, 1)
    assert gain_text(MeanEstimate(-3.0, 1.0, -5.0, -0.01), 1) == "−3.0 [−5.0, 0.0]"


@pytest.mark.parametrize(
    ("intervals", "outcome"),
    [
        ([(1, 2), (0.1, 3)], Outcome.YES),
        ([(1, 2), (0, 3)], Outcome.PARTLY),
        ([(-1, 2), (0, 3)], Outcome.NO),
        ([(1, 2), (-2, -1)], Outcome.NO),
    ],
)
def test_gains_decide_by_their_intervals(intervals: list[tuple[float, float]], outcome: Outcome) -> None:
    gains = [MeanEstimate((low + high) / 2, 1.0, low, high) for low, high in intervals]
    assert outcome_of_gains(gains) is outcome


def test_a_pair_is_drawn_as_it_is() -> None:
    axes = pair_figure(PAIRS, "score").axes[0]
    np.testing.assert_allclose(heights(axes), [[2.0, 2.0], [2.0, 4.0]])


@pytest.mark.parametrize(
    ("study", "sizes"),
    [
        (pendulum.STUDY, {"episodes": 1, "trials": 1, "bins": [3, 3]}),
        (deep.STUDY, {"steps": 102, "environments": 2, "trials": 2}),
    ],
    ids=lambda value: value.name if isinstance(value, Study) else "",
)
def test_pairs_are_measured_and_shown(study: Study, sizes: dict[str, Any], tmp_path: Path) -> None:
    measured = small(study, tmp_path, **sizes)
    assert set(measured) == {"seed-0", "seed-1"}
    assert all(list(found) == ["nominal", "robust"] for found in measured.values())
    assert study.text is not None
    assert "| strong g |" in study.text(measured)
    (verdict,) = study.verdicts(measured)
    assert len(verdict.ours) == 7


def test_a_sweep_is_drawn_as_it_was_measured(tmp_path: Path) -> None:
    study = gammas.STUDY
    measured = small(study, tmp_path, episodes=2, trials=2)
    left, right = study.pictures[0].draw(measured).axes
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
    assert study.text is not None
    assert "| over the covering, 100000 |" in study.text(measured)
    for robust, outcome in ((2.0, Outcome.YES), (1.0, Outcome.NO)):
        measured["nominal"]["worst-case value"]["0.0001"] = [1.0]
        measured["round-50"]["worst-case value"]["0.0001"] = [robust]
        assert study.verdicts(measured)[1].outcome is outcome


def test_schedules_are_drawn_as_they_were_measured(tmp_path: Path) -> None:
    study = schedules.STUDY
    measured = small(study, tmp_path, share=1e-3, trials=1)
    figure = study.pictures[0].draw(measured)
    points = [height for axes in figure.axes for line in heights(axes) for height in line]
    wanted = [
        np.mean(one["lengths"][system])
        for one in measured.values()
        for system in ("original", "short", "strong g")
    ]
    assert sorted(points) == pytest.approx(sorted(wanted))
    assert study.text is not None
    assert study.text(measured).count("| × 0.9995, 16,000 |") == 6
    assert [one.ours["schedules"].value for one in study.verdicts(measured)] == [8, 8]
    for one in measured.values():  # 50 is better everywhere, 100 worse in one schedule
        shift = {None: 0, 200.0: 0, 100.0: 1, 50.0: 1}[one["gamma"]]
        if one["gamma"] == 100.0 and one["rate"] == 0.1 and one["episodes"] == 16000:
            shift = -1
        one["lengths"]["strong g"] = [10.0 + shift, 20.0 + shift]
    assert [one.outcome for one in study.verdicts(measured)] == [Outcome.NO, Outcome.YES]


def test_agents_of_cart_pole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = pole_agents.STUDY
    measured = small(study, tmp_path, "seed", episodes=50, trials=4, grid_trials=1)
    for found in (measured["seed-0"]["nominal"], measured["seed-1"]["robust"]):
        for system, length in found["lengths"].items():
            early = found["fell"][system] + found["ran off"][system]
            assert (early == 0) == (length == 400)
    assert study.text is not None
    assert "| strong g |" in study.text(measured)
    shown: list[Any] = []
    monkeypatch.setattr(pole_agents, "_EPISODES", 2)
    monkeypatch.setattr(
        pole_agents,
        "animate",
        lambda policies, system, path, seed: shown.append((*policies, system, path, seed)),
    )
    study.animations[0].write(measured, tmp_path / "animation.gif")
    lengths = sorted((measured[f"seed-{seed}"]["nominal"]["lengths"]["strong g"], seed) for seed in range(3))
    assert shown == [
        ("nominal", "robust", variations()["strong g"], tmp_path / "animation.gif", lengths[1][1])
    ]
    assert "training episode" in words_of(study.pictures[0].draw(measured))
