"""``experiments.smoothing``: a small measurement, its page, and the rivals against what they should be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy.stats import norm

from certus.certificates.proven.concentration import betting
from certus.certificates.smoothing.ballots import IDEAL_VOTE, ONE_DRAW
from certus.certificates.smoothing.leading import Stake
from certus.figures.canvas import COLOURS
from experiments._smoothing_page import write_page
from experiments._smoothing_rivals import LEVELS, _majorant, affine, clopper
from tests.pictures import line_of, pixels_of
from tests.scripts import Script, read

SIGMA = 0.25


def test_a_small_measurement_is_written_and_resumed(
    script: Script, tmp_path: Path, drawn: list[Figure]
) -> None:
    runs, output = tmp_path / "runs", tmp_path / "page"
    options = ("--entries", "digits", "--share", 0.05, "--draws", 10, "--runs", runs, "--output", output)
    script("experiments.smoothing", *options)
    found = read(output / "table.json")["entries"]["digits"]
    rows = found["noisy"]["bounds"]
    assert [row["kind"] for row in rows] == ["error"] * 7 + ["ideal vote"] * 7
    assert all(0 < row[name] <= 1 for row in rows for name in ("ours", "clopper", "affine"))
    assert [one["distance"] for one in found["plain"]["brackets"]] == [row["distance"] for row in rows[:7]]
    text = (output / "README.md").read_text()
    assert "## digits" in text
    assert "without noise, by its layers" in text
    for label, name in (("ours", "ours"), ("Clopper–Pearson per sample", "clopper")):
        told = [row["distance"] for row in rows[:7]], [row[name] for row in rows[:7]]
        assert line_of(drawn[0].axes[0], label) == told
    assert pixels_of(output / "bounds.png")[COLOURS[0]] > 100
    assert not (runs / "digits" / "unfinished").exists()
    # What was measured is not measured again.
    before = (runs / "digits" / "measured.json").read_bytes()
    script("experiments.smoothing", *options, "--resume")
    assert (runs / "digits" / "measured.json").read_bytes() == before


def test_the_page_says_where_ours_is_not_the_least(tmp_path: Path) -> None:
    rows = [
        {"kind": "error", "distance": 0.1, "ours": 0.25, "clopper": 0.375, "affine": 0.3125},
        {"kind": "error", "distance": 0.2, "ours": 0.5, "clopper": 0.625, "affine": 0.4375},
    ]
    noisy = {
        "model": "mlp:8",
        "parameters": 1234,
        "epochs": 2,
        "seconds of training": 90.0,
        "rows": {"test": {"words": "all 20 rows"}, "calibration": {"words": "10 rows"}},
        "mean error in noise": 0.1,
        "bounds": rows,
        "predictions per second": 5000,
        "megabytes of noisy copies": 4.0,
        "seconds of planning": 0.5,
        "share of planning": 0.25,
    }
    content = {"measured": {"options": {"sigma": 0.25, "draws": 10}}, "entries": {"digits": {"noisy": noisy}}}
    write_page(tmp_path, content, (0.1, 0.2))
    text = (tmp_path / "README.md").read_text()
    assert "Ours is below both, but for error at 0.2." in text
    line = next(one for one in text.splitlines() if one.startswith("| error: ours"))
    assert [cell.strip() for cell in line.split("|")[2:-1]] == ["**0.250**", "0.500"]
    assert "25.0% of the time" in text
    assert json.loads((tmp_path / "table.json").read_text()) == content


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
    stakes = [Stake(16.0, np.linspace(0, 1, 51))]
    low = affine(ONE_DRAW, none, 50, SIGMA, 0.05)
    mean = betting(torch.zeros(300), 1.0, 0.05)
    steep = max(low)
    assert mean <= low[steep] <= mean + 0.02
    assert min(affine(ONE_DRAW, every, 50, SIGMA, 0.05).values()) == pytest.approx(1)
    found = clopper(stakes, IDEAL_VOTE, none, none, 50, SIGMA, 0.05)[16.0]
    # With κ = 1 an ideal vote is worth 1 − κa² near a = Φ⁻¹(h̄), h̄ the Clopper–Pearson bound for no errors.
    best = min(
        betting(torch.full((300,), max(0.0, 1 - norm.ppf(1 - level ** (1 / 50)) ** 2)), 1.0, 0.05) + level
        for level in LEVELS
    )
    assert found == pytest.approx(best, abs=0.02)
