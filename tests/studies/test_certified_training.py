"""``certified-training`` on small images, and its tables against means by hand."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from certus.errors import UnsupportedError
from studies import workspace
from studies.certified_training import STUDY, certified_text, certified_verdicts, draw_errors
from studies.study import Outcome, Scale
from studies.workspace import Workspace, require_inputs
from tests.pictures import line_of

SMALL = {"model": "certified-mlp:8:logcosh:4", "translate": 0}
TRIALS = ("clipped 0.05", "clipped 0.10", "unclipped 0.05", "unclipped 0.10")


def test_a_small_study_is_measured_and_shown(tmp_path: Path) -> None:
    measured = {}
    for part in STUDY.parts(Scale.QUICK):
        options = {**part.settings["options"], **SMALL}
        settings = {**part.settings, "data": "digits", "images": 10, "options": options}
        measured[part.name] = part.measure(Workspace(tmp_path), settings)
    ours = {name.rpartition("-")[2]: one for name, one in measured.items() if "-wrm-certified-" in name}
    assert list(ours) == ["attacks", "strong", "certificate", "certified"]
    assert ours["attacks"]["bound"]["curvature"] < 3
    for name in TRIALS:
        assert ours["strong"]["strong"][name] >= ours["strong"]["same"][name] >= 0
    for level in ours["certificate"]["certificate"]:
        assert level["error attacked"] <= level["error certified"]
        assert level["loss attacked"] <= level["loss certified"]
        assert level["error certified"] <= ours["certified"]["certified"][str(level["rho"])] + 1e-9
    text = certified_text(measured)
    assert "## digits" in text
    assert "| ERM, unconstrained | 1 |" in text
    assert "| 100 components, 1,024 log cosh units, temperature 0.7 |" in text


def seeds(plan: str, curvature: float, *errors: float) -> dict[str, Any]:
    """Three seeds of one network, whose errors under every attack are given."""
    made = {}
    for seed, error in enumerate(errors, 1):
        about = {"data": "mnist", "plan": plan, "seed": seed}
        bound, clean = {"curvature": curvature + seed, "paper": 9.0}, {"error": error / 2, "loss": 0.5}
        under = dict.fromkeys(TRIALS, error)
        level = {"rho": 0.01, "error attacked": error, "error certified": error + 0.25}
        level |= {"loss attacked": 0.25, "loss certified": 0.75}
        made[f"mnist-{plan}-{seed}-attacks"] = {**about, "bound": bound, "clean": clean, "pgm": under}
        made[f"mnist-{plan}-{seed}-strong"] = {**about, "strong": under, "same": under}
        made[f"mnist-{plan}-{seed}-certified"] = {**about, "certified": {"0.01": error + 0.5}}
        made[f"mnist-{plan}-{seed}-certificate"] = {**about, "certificate": [level, level]}
    made[f"mnist-{plan}-1-auto"] = {
        "data": "mnist",
        "plan": plan,
        "seed": 1,
        "auto": {"clipped 0.05": 0.4375, "clipped 0.10": 0.6875},
    }
    return made


def test_tables_are_means_over_the_seeds_and_bounds_the_largest() -> None:
    measured = seeds("wrm-certified", 0.0, 0.125, 0.25, 0.75) | seeds("erm", 100.0, 0.5, 0.75, 1.0)
    text = certified_text(measured)
    assert "| WRM, certified | 3 | 3.000 | 0.1875 | 0.3750 | 0.3750 | 0.3750 | 0.3750 |" in text
    assert "| ERM, unconstrained | 3 | 103.000 | 0.3750 | 0.7500 |" in text
    assert "| WRM, certified | 0.4375 | 0.1250 | 0.6875 | 0.1250 |" in text, "AutoAttack beside its own seed"
    assert "| WRM, certified | 0.3750 – 0.6250 |" in text
    wishes, worst = certified_verdicts(measured)
    numbers = {name: one.value for name, one in wishes.ours.items()}
    assert (numbers["clean error"], numbers["ERM's"]) == (0.1875, 0.375)
    assert (numbers["under PGM-∞ 0.1"], numbers["ERM's, under PGM-∞ 0.1"]) == (0.375, 0.75)
    assert [one.value for one in worst.ours.values()] == [0.375, 0.625, 0.25, 0.75]
    strengths, values = line_of(draw_errors(measured).axes[0], "ERM, unconstrained")
    assert strengths == [0.0, 0.05, 0.1]
    assert values == pytest.approx([0.375, 0.75, 0.75])


@pytest.mark.parametrize(
    ("curvature", "errors", "outcome"),
    [
        (-0.5, (0.125, 0.125, 0.125), Outcome.YES),  # 2.5 on the third seed
        (0.0, (0.125, 0.125, 0.125), Outcome.PARTLY),  # 3 is not below 2γ
        (-0.5, (0.25, 0.25, 0.25), Outcome.PARTLY),  # clean error 0.125
        (0.0, (0.75, 0.75, 0.75), Outcome.NO),
    ],
)
def test_three_wishes_can_fail(curvature: float, errors: tuple[float, ...], outcome: Outcome) -> None:
    measured = seeds("wrm-certified", curvature, *errors) | seeds("erm", 100.0, 0.75, 0.75, 0.75)
    assert certified_verdicts(measured)[0].outcome is outcome


@pytest.mark.parametrize(("side", "outcome"), [(0.75, Outcome.YES), (0.76, Outcome.NO)])
def test_attained_above_proven_is_a_no(side: float, outcome: Outcome) -> None:
    measured = seeds("wrm-certified", 0.0, 0.125) | seeds("erm", 100.0, 0.5)
    measured["mnist-wrm-certified-1-certificate"]["certificate"][1]["loss attacked"] = side
    assert certified_verdicts(measured)[1].outcome is outcome


def test_autoattack_is_asked_for_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(workspace, "version", missing)
    monkeypatch.setattr(workspace, "load", lambda name: None)
    with pytest.raises(
        UnsupportedError, match="certified-training needs torchattacks: pip install --no-deps"
    ):
        require_inputs(STUDY, Scale.FULL)
    require_inputs(STUDY, Scale.QUICK)
