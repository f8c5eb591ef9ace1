"""Verdicts of mnist-bounds on the paper's own numbers, and on numbers that contradict it."""

from __future__ import annotations

from typing import Any

import pytest

from studies.mnist import bounds as mnist_bounds
from studies.mnist.bounds_verdicts import (
    FIFTH_TABLE,
    LONGER,
    PAPER_TABLES,
    SMOOTHED,
    STRIDES,
    bounds_verdicts,
    wishes_of,
)
from studies.study import Outcome, Scale

Rows = dict[str, dict[str, Any]]
YES, PARTLY, NO, NONE = Outcome.YES, Outcome.PARTLY, Outcome.NO, Outcome.NOT_COMPARABLE
RATIOS, TOP, BOTTOM, FALLS, CLEAN, ROBUST, TABLES, FIFTH = range(8, 16)


def row(table: str, name: str, bar: float, clean: float, *errors: float) -> dict[str, Any]:
    """Made up: kept in the box, errors are half as many; the tightest bound is that of the paper's rule."""
    method = "erm" if "ERM" in name else "wrm"
    return {
        "table": table,
        "row": name,
        "method": method,
        "gamma": None if method == "erm" else float(name) if table != FIFTH_TABLE else 1.5,
        "bounds": {"paper": bar},
        "needed": bar / 2,
        "clean_error": clean,
        "strengths": [0.0, 0.05, 0.1, 0.15, 0.2],
        "samples": 10000,
        "errors": {"unclipped": [clean, *errors], "clipped": [clean, *(error / 2 for error in errors)]},
    }


@pytest.fixture
def rows() -> Rows:
    """As if we had measured what the paper prints; strides apart change γ̄ a thousandfold."""
    rows = {
        f"{table}-{name}": row(table, name, *numbers)
        for table, printed in PAPER_TABLES.items()
        for name, numbers in printed.items()
    }
    apart = {table: {"ERM": 1000 * printed["ERM"][0]} for table, printed in PAPER_TABLES.items()}
    return rows | {STRIDES: apart}


def test_the_paper_agrees_with_itself_but_for_a_misprint(rows: Rows) -> None:
    """Large γ are said to be robust in its fourth table, where they err as much as ERM."""
    claims = bounds_verdicts(rows)
    assert [one.outcome for one in claims] == [YES] * ROBUST + [NO, YES, NONE]
    assert claims[ROBUST].paper == {"γ = 1000": 0.436, "ERM": 0.433}
    assert len({one.name for one in claims}) == len(claims)


def test_one_more_row_is_inside_than_the_paper_counts() -> None:
    """2γ > γ̄ is the condition, not γ > γ̄."""
    inside = {
        factor: [
            (table[-1], name)
            for table, printed in PAPER_TABLES.items()
            for name, (bar, *_) in printed.items()
            if name != "ERM" and factor * float(name) > bar
        ]
        for factor in (1, 2)
    }
    assert set(inside[2]) - set(inside[1]) == {("1", "1e+06"), ("4", "500")}


@pytest.mark.parametrize(
    ("where", "changed", "claim", "outcome"),
    [
        ("1-ERM", {"bounds": {"paper": 9.8e5}}, 0, NO),
        ("1-ERM", {"bounds": {"paper": 1.1e6}}, 0, PARTLY),
        ("1-ERM", {"bounds": {"paper": 1.7e6}}, 0, YES),
        ("1-ERM", {"bounds": {"paper": 4.1e6}}, 0, NO),
        ("1-ERM", {"clean_error": 0.07}, 1, YES),  # one of 30 cells
        ("1-ERM", {"errors": {"unclipped": [0.07, 0.9, 0.9, 0.9, 0.9]}}, 1, PARTLY),  # four of 30
        ("4-1", {"errors": {"unclipped": [0.117, 0.43, 1, 1, 1]}}, TOP, NONE),
        ("4-1", {"errors": {"unclipped": [0.117, 0.5, 1, 1, 1]}}, TOP, NO),
        ("4-1000", {"errors": {"unclipped": [0.115, 0.49, 1, 1, 1]}}, BOTTOM, NONE),
        ("4-1000", {"errors": {"unclipped": [0.115, 0.30, 1, 1, 1]}}, BOTTOM, NO),
        ("4-1000", {"errors": {"unclipped": [0.115, 0.30, 1, 1, 1]}}, ROBUST, YES),
        ("3-ERM", {"bounds": {"paper": 8e3}}, FALLS, NO),
        ("3-1", {"bounds": {"paper": 5e3}}, RATIOS, NO),  # ERM's is 5.06e3
        ("1-1", {"bounds": {"paper": 2e6}}, RATIOS, NO),
        ("4-1000", {"errors": {"unclipped": [0.115, 0.485, 1, 1, 1]}}, ROBUST, NONE),
        ("4-100", {"clean_error": 0.09}, CLEAN, NO),
        (
            "2-10000",
            {"errors": {"unclipped": [0.048, 0.3, 0.75, 1, 1]}},
            TABLES,
            NO,
        ),
        ("2-10000", {"errors": {"unclipped": [0.048, 0.3, 0.76, 1, 1]}}, TABLES, YES),
        ("2-1000", {"errors": {"unclipped": [0.048, 0.3, 0.7, 1, 1]}}, TABLES, YES),  # γ is below
    ],
)
def test_each_claim_can_fail(
    where: str, changed: dict[str, Any], claim: int, outcome: Outcome, rows: Rows
) -> None:
    one = rows[f"tab:mnist-extra{where}"]
    if "errors" in changed:
        changed = {"errors": one["errors"] | changed["errors"]}
    found = bounds_verdicts(rows | {f"tab:mnist-extra{where}": one | changed})[claim]
    assert found.outcome is outcome


def test_where_no_gamma_is_above_the_bound_nothing_is_said_of_it(rows: Rows) -> None:
    far = {name: one if name == STRIDES else one | {"bounds": {"paper": 1e9}} for name, one in rows.items()}
    assert (bounds_verdicts(far)[BOTTOM].outcome, bounds_verdicts(far)[BOTTOM].ours) == (NONE, {})


def test_other_trainings_stand_beside_it_and_decide_nothing(rows: Rows) -> None:
    longer = row("tab:mnist-extra1", LONGER, 9.59e5, 0.012, 0.4, 0.8, 1, 1)
    smoothed = row("tab:mnist-extra1", SMOOTHED, 4e4, 0.013, 0.3, 0.5, 1, 1)
    rows["tab:mnist-extra1-ERM"] |= {"clean_error": 0.07, "bounds": {"paper": 8.4e4}}
    rows[STRIDES]["tab:mnist-extra1"] |= {"ERM": 1.296e6, LONGER: 1.5e7}
    bar, errors, *_ = bounds_verdicts(rows | {"longer": longer, "smoothed": smoothed})
    assert {name: one.value for name, one in bar.ours.items()} == {
        "γ̄ by the paper's rule": 8.4e4,
        "by the tightest of ours": 1.97e6,
        f"{LONGER}, by the paper's rule": 9.59e5,
        f"{SMOOTHED}, by the paper's rule": 4e4,
        "ERM, strides apart": 1.296e6,
        f"{LONGER}, strides apart": 1.5e7,
    }
    assert errors.ours[f"{LONGER}, ε = 0.05"].value == 0.4
    assert errors.ours[f"{SMOOTHED}, ε = 0"].value == 0.013
    assert (bar.outcome, errors.outcome) == (NO, YES)
    assert [errors.ours[name].value for name in ("cells", "within 5 points")] == [30, 29]


def test_the_papers_column_is_that_of_the_strength(rows: Rows) -> None:
    """A quick look begins at 0.1."""
    for name, one in rows.items():
        if name != STRIDES:
            sides = {side: errors[::2] for side, errors in one["errors"].items()}
            one |= {"strengths": [0.0, 0.1, 0.2], "errors": sides}
    claims = bounds_verdicts(rows)
    assert claims[ROBUST].paper == {"γ = 1000": 0.846, "ERM": 0.852}
    assert [one.outcome for one in claims[:RATIOS]] == [YES] * RATIOS


def test_a_tenth_is_not_less_than_a_tenth() -> None:
    """In binary 1 − 0.9 is."""
    erm = row(FIFTH_TABLE, "net, ERM", 2.0, 0.3, 0.9, 1, 1, 1)
    assert wishes_of(row(FIFTH_TABLE, "net, WRM", 2.0, 1 - 0.9, 0.9, 1, 1, 1), erm) == ["γ"]
    assert wishes_of(row(FIFTH_TABLE, "net, WRM", 2.0, 0.0999, 0.9, 1, 1, 1), erm) == ["γ", "clean"]


@pytest.mark.parametrize(
    ("gain", "bar", "counts", "outcome"),
    [
        (0.1, 2.0, [1, 1, 1], YES),
        (0.09, 2.0, [1, 1, 0], PARTLY),
        (0.1, 3.1, [1, 0, 0], NO),  # γ is below
    ],
)
def test_the_fifth_table(gain: float, bar: float, counts: list[int], outcome: Outcome, rows: Rows) -> None:
    erm = row(FIFTH_TABLE, "net, ERM", bar, 0.02, 0.2, 0.6, 0.8, 1)
    wrm = row(FIFTH_TABLE, "net, WRM", bar, 0.02, 0.2, 0.6 - gain - 1e-9, 0.8, 1)
    verdict = bounds_verdicts(rows | {"a": erm, "b": wrm})[FIFTH]
    assert verdict.outcome is outcome
    assert [one.value for one in verdict.ours.values()] == counts


def test_a_better_clean_error_is_not_robustness() -> None:
    erm = row(FIFTH_TABLE, "net, ERM", 2.0, 0.3, 0.9, 1, 1, 1)
    wrm = row(FIFTH_TABLE, "net, WRM", 2.0, 0.02, 0.9, 1, 1, 1)
    assert wishes_of(wrm, erm) == ["γ", "clean"]


def test_the_page_at_the_papers_scale(rows: Rows) -> None:
    """Every part of it has its row; clipped errors come second, and the paper's own in brackets."""
    parts = mnist_bounds.STUDY.parts(Scale.FULL)
    found = {
        part.name: row(part.settings["table"], part.settings["row"], 10.0, 0.01, 0.2, 0.4, 0.6, 0.8)
        for part in parts
        if part.name != STRIDES
    }
    text = mnist_bounds.STUDY.text
    assert text is not None
    page = text(found | {STRIDES: rows[STRIDES]})
    assert "| tab:mnist-extra4 | ERM | 5.76e+5 | 576 |" in page
    assert len(parts) == 33
    assert page.count("0.200 / 0.100") == 32
    assert (
        "| 1 | 10.0 (1.23e+06) | 10.00 | clean | 0.010 (0.015) | 0.200 / 0.100 (0.112) | 0.400 / 0.200 "
        in page
    )
    assert "| 10 | 10.0 (6.56e+03) | 10.00 | γ, clean | 0.010 (0.046) | 0.200 / 0.100 (0.303) |" in page
    assert "| the paper's CNN, ERM | 10.0 | 10.00 | – | 0.010 | 0.200 / 0.100 |" in page
