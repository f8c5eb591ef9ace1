"""``smoothing``: a small measurement, its page, and the rivals against what they should be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import norm

from certus.certificates.confidence import betting
from certus.kernel.smoothing import GammaDesign
from certus.smoothing.voting import IDEAL_VOTE, ONE_DRAW
from studies.smoothing import (
    RIVAL_LEVELS,
    STUDY,
    _majorant,
    clopper_bounds,
    majorant_bounds,
    smoothing_text,
    smoothing_verdicts,
)
from studies.study import Outcome, Scale
from studies.workspace import Workspace
from tests.pictures import line_of

SIGMA = 0.25


def test_a_small_measurement_is_shown_and_drawn(tmp_path: Path) -> None:
    study = STUDY
    sizes = {"epochs": 2, "draws": 10, "samples": 20, "calibration": 20, "read": 20}
    quick = study.parts(Scale.QUICK)
    measured = {part.name: part.measure(Workspace(tmp_path), {**part.settings, **sizes}) for part in quick}
    assert list(measured) == ["digits-noisy", "digits-plain"]
    assert len(list((tmp_path / "networks").iterdir())) == 1, "both parts share it"
    rows = measured["digits-noisy"]["bounds"]
    assert [row["kind"] for row in rows] == ["error"] * 7 + ["ideal vote"] * 7
    assert all(0 < row[name] <= 1 for row in rows for name in ("ours", "clopper", "affine"))
    distances = [row["distance"] for row in rows[:7]]
    assert [one["distance"] for one in measured["digits-plain"]["brackets"]] == distances
    assert study.text is not None
    text = study.text(measured)
    assert "## digits" in text
    assert "| without noise, by its layers" in text
    axes = study.pictures[0].draw(measured).axes[0]
    for label, name in (("ours", "ours"), ("Clopper–Pearson per sample", "clopper")):
        assert line_of(axes, label) == (distances, [row[name] for row in rows[:7]])


def test_where_ours_is_not_the_least() -> None:
    rows = [
        {"kind": "error", "distance": 0.1, "ours": 0.25, "clopper": 0.375, "affine": 0.3125},
        {"kind": "error", "distance": 0.2, "ours": 0.5, "clopper": 0.625, "affine": 0.4375},
    ]
    noisy = {
        "model": "mlp:8",
        "parameters": 1234,
        "epochs": 2,
        "sigma": 0.25,
        "draws": 10,
        "seconds of training": 90.0,
        "rows": {"test": {"words": "all 20 rows"}, "calibration": {"words": "10 rows"}},
        "mean error in noise": 0.1,
        "bounds": rows,
        "predictions per second": 5000,
        "megabytes of noisy copies": 4.0,
        "seconds of planning": 0.5,
        "share of planning": 0.25,
    }
    text = smoothing_text({"digits-noisy": noisy})
    line = next(one for one in text.splitlines() if one.startswith("| error: ours"))
    assert [cell.strip() for cell in line.split("|")[2:-1]] == ["**0.250**", "0.500"]
    (verdict,) = smoothing_verdicts({"digits-noisy": noisy})
    assert verdict.outcome is Outcome.PARTLY
    assert [one.value for one in verdict.ours.values()] == [2, 1, 0.5, 0.625, 0.4375]
    for affine, outcome in ((0.75, Outcome.YES), (0.125, Outcome.NO)):
        changed = noisy | {"bounds": [row | {"affine": affine} for row in rows]}
        assert smoothing_verdicts({"digits-noisy": changed})[0].outcome is outcome
    vacuous = noisy | {"bounds": [row | {"ours": 1.0} for row in rows]}
    assert smoothing_verdicts({"digits-noisy": vacuous})[0].outcome is Outcome.NOT_COMPARABLE


def test_the_majorant_is_the_least_concave_one() -> None:
    """Against the best chord over the place, by brute force."""
    random = np.random.default_rng(0)
    points = np.sort(random.uniform(0, 1, 60))
    values = np.sort(random.uniform(0, 1, 60))
    all_points, all_values = np.append(points, 1.0), np.append(values, 1.0)
    for at in (points[3], 0.31, 0.77):
        chords = [
            y + (v - y) * (at - x) / (u - x) if u > x else max(y, v)
            for x, y in zip(all_points, all_values, strict=True)
            for u, v in zip(all_points, all_values, strict=True)
            if x <= at <= u
        ]
        assert _majorant(points, values, at) == pytest.approx(max(chords))


def test_rivals_of_samples_that_never_or_always_err() -> None:
    """h = 0: what is left is a bet on no errors, and F there; h = 1: nothing is below 1."""
    none, every = torch.zeros(300, dtype=torch.int64), torch.full((300,), 50)
    designs = [GammaDesign(16.0, np.linspace(0, 1, 51))]
    low = majorant_bounds(ONE_DRAW, none, 50, SIGMA, 0.05)
    mean = betting(torch.zeros(300), 1.0, 0.05)
    steep = max(low)
    assert mean <= low[steep] <= mean + 0.02
    assert min(majorant_bounds(ONE_DRAW, every, 50, SIGMA, 0.05).values()) == pytest.approx(1)
    found = clopper_bounds(designs, IDEAL_VOTE, none, none, 50, SIGMA, 0.05)[16.0]
    # With κ = 1 an ideal vote is worth 1 − κa² near a = Φ⁻¹(h̄), h̄ the Clopper–Pearson bound for no errors.
    best = min(
        betting(torch.full((300,), max(0.0, 1 - norm.ppf(1 - level ** (1 / 50)) ** 2)), 1.0, 0.05) + level
        for level in RIVAL_LEVELS
    )
    assert found == pytest.approx(best, abs=0.02)
