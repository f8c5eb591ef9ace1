"""What is said of the certificate on the rings, by made-up numbers: every verdict can be another."""

from __future__ import annotations

from typing import Any

import pytest

from studies.study import Outcome, Verdict
from studies.toy.study import certificate_verdicts

Numbers = dict[str, Any]
BOUND, TIGHT = range(2)


@pytest.fixture
def found() -> Numbers:
    """The line 0.2 + 2ρ is above all that is attained, and by 5% at ρ = 0.11."""
    return {
        "rho_hat": 0.1,
        "intercept": 0.2,
        "adversary": [
            {"gamma": 1.0, "rho": 0.5, "worst_case": 1.0},
            {"gamma": 2.0, "rho": 0.11, "worst_case": 0.4},
            {"gamma": 4.0, "rho": 0.01, "worst_case": 0.15},
        ],
        "bracket": [
            {"rho": 0.0, "at_least": 0.1, "at_most": 0.1},
            {"rho": 0.2, "at_least": 0.55, "at_most": 0.9},
        ],
    }


def claim(found: Numbers, which: int) -> Verdict:
    return certificate_verdicts(found)[which]


def values(verdict: Verdict) -> list[float | None]:
    return [one.value for one in verdict.ours.values()]


def test_made_up_so_that_the_paper_is_right(found: Numbers) -> None:
    bound, tight = (claim(found, which) for which in (BOUND, TIGHT))
    assert (bound.outcome, tight.outcome) == (Outcome.YES, Outcome.YES)
    assert values(bound) == [5, 0, 0.0]
    assert values(tight) == pytest.approx([0.1, 0.11, 0.42, 0.4, 0.05])


@pytest.mark.parametrize(
    ("group", "number", "changed", "by"),
    [
        ("bracket", 1, {"at_least": 0.625}, 0.04),
        ("adversary", 0, {"worst_case": 1.5}, 0.2),
        ("adversary", 1, {"worst_case": 0.44}, 1 - 0.42 / 0.44),
    ],
)
def test_attained_values_may_exceed_the_certificate(
    group: str, number: int, changed: Numbers, by: float, found: Numbers
) -> None:
    """By the search for a bracket, or at T_γ of the test data."""
    found[group][number] |= changed
    said = claim(found, BOUND)
    assert said.outcome is Outcome.PARTLY
    assert values(said) == pytest.approx([5, 1, by])


def test_the_worst_of_several_is_shown(found: Numbers) -> None:
    found["bracket"][1]["at_least"] = 0.625
    found["adversary"][0]["worst_case"] = 1.5
    assert values(claim(found, BOUND)) == pytest.approx([5, 2, 0.2])


@pytest.mark.parametrize(
    ("changed", "outcome", "difference"),
    [
        ({"worst_case": 0.44}, Outcome.YES, -0.02 / 0.44),
        ({"worst_case": 0.3}, Outcome.PARTLY, 0.4),
        ({"worst_case": 0.56}, Outcome.PARTLY, -0.25),
        ({"worst_case": 0.2}, Outcome.NO, 1.1),
        ({"rho": 0.21}, Outcome.NOT_COMPARABLE, 0.22 / 0.15 - 1),  # then ρ = 0.01 is the nearest to ρ̂ = 0.1
    ],
)
def test_the_certificate_may_be_loose(
    changed: Numbers, outcome: Outcome, difference: float, found: Numbers
) -> None:
    found["adversary"][1] |= changed
    said = claim(found, TIGHT)
    assert said.outcome is outcome
    assert said.ours["difference"].value == pytest.approx(difference)
