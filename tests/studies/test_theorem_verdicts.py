"""What generalization and convergence say of made-up numbers: every verdict can be another."""

from __future__ import annotations

from typing import Any

import pytest

from studies import convergence, generalization
from studies.convergence import NORM_BOUND
from studies.study import Outcome, Verdict

Numbers = dict[str, Any]
YES, NO, NONE = Outcome.YES, Outcome.NO, Outcome.NOT_COMPARABLE


def level_rows(*rows: tuple[int, float, float, float]) -> Numbers:
    """(n, mean deviation, the paper's bound, share of trials that missed ours); two samples of each size."""
    return {
        "levels": {
            "levels": [0.01, 0.03],
            "rows": [
                {
                    "count": count,
                    "mean_deviation": mean,
                    "largest": [mean, 4 * mean],
                    "uniform": uniform,
                    "fixed": 8.01 * mean,
                    "missed": missed,
                }
                for count, mean, uniform, missed in rows
            ],
        }
    }


def values(verdict: Verdict) -> list[float | None]:
    return [one.value for one in verdict.ours.values()]


@pytest.mark.parametrize(
    ("rows", "outcome", "numbers"),
    [
        (
            [(100, 0.01, 0.5, 0), (10_000, 0.001, 0.1201, 0)],
            YES,
            [10_000, 0.1201, 0.004, 0.02, 0, 10_000],
        ),
        (
            [(100, 0.01, 0.5, 0), (10_000, 0.001, 0.126, 0)],
            NONE,  # no sample can exceed r² = 0.125
            [10_000, 0.126, 0.004, 0.02, 0, None],
        ),
        (
            [(100, 0.01, 0.039, 0), (10_000, 0.001, 0.1, 0)],
            NO,
            [10_000, 0.1, 0.004, 0.02, 1, 100],
        ),
    ],
)
def test_the_bound_on_levels(
    rows: list[tuple[int, float, float, float]], outcome: Outcome, numbers: list[float | None]
) -> None:
    found = generalization.STUDY.verdicts(level_rows(*rows))[0]
    assert found.outcome is outcome
    assert values(found) == numbers


@pytest.mark.parametrize(
    ("last", "outcome", "power"),
    [(0.001, YES, -0.5), (0.0026, NO, -0.2925), (0.0004, NO, -0.699), (0.02, NO, 0.1505)],
)
def test_the_rate_of_levels(last: float, outcome: Outcome, power: float) -> None:
    """A hundred times the samples: a tenth of the deviation."""
    found = generalization.STUDY.verdicts(level_rows((100, 0.01, 0.5, 0), (10_000, last, 0.1, 0)))[1]
    assert found.outcome is outcome
    assert found.ours["p"].value == pytest.approx(power, abs=1e-4)


@pytest.mark.parametrize(("missed", "outcome"), [(0.05, NONE), (0.06, NO)])
def test_the_bound_for_one_network(missed: float, outcome: Outcome) -> None:
    """The most trials that failed at any n."""
    found = generalization.STUDY.verdicts(level_rows((100, 0.01, 0.5, missed), (10_000, 0.001, 0.1, 0.01)))[2]
    assert found.outcome is outcome
    assert values(found) == pytest.approx([0.00801, 0.1 / 0.00801, missed])


def test_covering_numbers_are_computed_not_measured() -> None:
    """(1 + ln 10)(√(710218/60000) + √(3/60000)) = 11.39, by hand."""
    found = generalization.STUDY.verdicts(level_rows((100, 0.01, 0.5, 0), (10_000, 0.001, 0.1, 0)))[3]
    assert found.outcome is NONE
    assert found.ours["ε_n of the MNIST network"].value == pytest.approx(11.39, abs=0.005)


def test_the_table_of_levels_rounds_bounds_up() -> None:
    text = generalization.STUDY.text
    assert text is not None
    page = text(level_rows((100, 0.01, 0.5001, 0), (10_000, 0.001, 0.1201, 0)))
    assert "| 100 | 0.01 | 0.04 | 0.081 | 0.501 |" in page
    assert "| 10,000 | 0.001 | 0.004 | 0.0081 | 0.121 |" in page


def run(steps: int, square: float, bound: float, value: float, **others: float) -> Numbers:
    return {
        "steps": steps,
        "step_size": 0.1,
        "mean_square": square,
        "accuracy": 1e-9,
        "bound": bound,
        "largest_norm": 1.5,
        "average_value": value,
        "gradients": 50,
        **others,
    }


@pytest.fixture
def runs() -> Numbers:
    """Mean squares that fall like 1/√T at last, gaps that fall like 1/T; the bound is ten times as large."""
    return {
        "exact-100": run(100, 0.04, 0.8, 1.0 + 0.4),
        "exact-400": run(400, 0.04, 0.4, 1.0 + 0.4),
        "exact-10000": run(10_000, 0.008, 0.0801, 1.0 + 0.016),
        "rough-1": run(400, 0.03, 0.9, 1.3, accuracy=0.151, gradients=1),
        "rough-2": run(400, 0.035, 0.5, 1.3, accuracy=0.001, gradients=2),
        "best": {"value": 1.0, "gradient_norm": 1e-6, "norm": 9.0},
        "deeper": {
            "along": [
                {"epoch": 0, "parameter_smoothness": 5.99, "cross_smoothness": 2.0, "gradient": 1.0},
                {"epoch": 1, "parameter_smoothness": 4.0, "cross_smoothness": 3.09, "gradient": 7.0},
            ]
        },
    }


def test_statements_about_convergence(runs: Numbers) -> None:
    bound, order, accuracy, convex, smooth = convergence.STUDY.verdicts(runs)
    assert [one.outcome for one in (bound, order, accuracy, convex, smooth)] == [YES] + [NONE] * 4
    assert values(bound) == pytest.approx([10_000, 0.008, 0.0801, 5, 0, 10, 0.04, 0.0801, 1.5], rel=0.002)
    assert values(order) == pytest.approx([0, -0.5], abs=1e-9)
    assert values(accuracy) == pytest.approx([400, 0.151, 0.01, 0.5, 0.04])
    assert values(convex) == pytest.approx([0, -1], abs=1e-9)
    assert values(smooth)[2:] == [5.99, 3.09, 7.0]


@pytest.mark.parametrize(
    ("changed", "outcome", "above"),
    [
        ({"mean_square": 0.41}, NO, 1),
        ({"bound": 0.001}, NO, 1),
        ({"largest_norm": NORM_BOUND}, YES, 0),
        ({"largest_norm": NORM_BOUND + 0.1}, NONE, 0),
        ({"largest_norm": 9.0, "mean_square": 0.41}, NONE, 1),
        ({"bound": 0.0401}, YES, 0),
        ({"mean_square": 0.09}, YES, 0),
    ],
)
def test_the_bound_on_gradients_can_be_broken(
    changed: Numbers, outcome: Outcome, above: int, runs: Numbers
) -> None:
    found = convergence.STUDY.verdicts(runs | {"exact-400": runs["exact-400"] | changed})[0]
    assert found.outcome is outcome
    assert found.ours["above the bound"].value == above


def test_the_table_of_runs(runs: Numbers) -> None:
    text = convergence.STUDY.text
    assert text is not None
    page = text(runs)
    assert "| 10,000 | exact | 0.1 | 1.1e-9 | 0.008 | 0.081 | 0.016 |" in page
    assert "9.00" in page
    assert "outside" not in text(runs | {"best": runs["best"] | {"norm": 2.0}})
