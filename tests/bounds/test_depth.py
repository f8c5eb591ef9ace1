"""Bounds get looser with depth: what was measured on 2,000 random networks, and how it is summed up."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from benchmarks.random_networks import summary

ROOT = Path(__file__).parents[2]


@pytest.fixture
def committed() -> list[dict[str, Any]]:
    content = json.loads((ROOT / "benchmarks/results/random_networks.json").read_text())
    return list(content["by_depth"])


@pytest.mark.parametrize("of", ["curvature", "lipschitz"])
def test_every_quartile_rises_with_depth(of: str, committed: list[dict[str, Any]]) -> None:
    assert [row["depth"] for row in committed] == [1, 2, 3, 4]
    for quartile in ("first_quartile", "median", "third_quartile"):
        ratios = [row[f"{of}_{quartile}"] for row in committed]
        assert ratios[0] >= 1
        assert all(deeper > 1.5 * shallower for shallower, deeper in pairwise(ratios))


def test_the_table_that_readers_see_is_of_these_numbers(committed: list[dict[str, Any]]) -> None:
    page = (ROOT / "docs/how_loose.md").read_text()
    for row in committed:
        assert f"| {row['depth']} | {row['networks']} | " in page
    assert "| 1 | 496 | 7.3 (2.8 to 36) | 2.6 (1.7 to 5.5) |" in page
    assert committed[0]["curvature_median"] == pytest.approx(7.3, abs=0.05)
    assert committed[3]["curvature_median"] == pytest.approx(12_267, abs=0.5)
    assert "| 4 | 519 | 12,267 (448 to 1,324,069) | 108 (12 to 863) |" in page


def test_ratios_are_summed_up_by_depth() -> None:
    """The quartiles of 1, 2, 3 are 1, 2, 3."""
    rows = [
        {"depth": depth, "bounds": 5, "smallest": ratio, "curvature": 10**depth * ratio, "lipschitz": ratio}
        for depth in (1, 2)
        for ratio in (3.0, 1.0, 2.0)
    ]
    found = summary(rows)
    assert (found["networks"], found["bounds"]) == (6, 30)
    shallow, deep = found["by_depth"]
    quartiles = [
        "curvature_first_quartile",
        "curvature_median",
        "curvature_third_quartile",
        "lipschitz_median",
    ]
    assert [shallow[name] for name in quartiles] == [10, 20, 30, 2]
    assert [deep[name] for name in quartiles] == [100, 200, 300, 2]
    assert (deep["depth"], deep["networks"], deep["bounds"], deep["smallest_ratio"]) == (2, 3, 15, 1.0)
