"""Verdicts of dogs on made-up numbers: each holds for some, and fails for others."""

from __future__ import annotations

from typing import Any

import pytest

from studies.dogs import study as dogs
from studies.dogs.attacks import PIXEL_METHODS
from studies.dogs.heads import HEADS, condition_text
from studies.dogs.study import dog_verdicts
from studies.study import Outcome, Verdict

Found = dict[str, Any]
YES, NONE = Outcome.YES, Outcome.NOT_COMPARABLE
FEATURES, ENOUGH, MOVES, PROVEN, STEPS, CONVERGES, HEADS_ATTACKED, COMPETITIVE = range(8)


def head(gamma: float | None, curvature: float, error: float, tries: int = 1) -> Found:
    return {
        "gamma": gamma,
        "rho_hat": None if gamma is None else 0.004,
        "curvature": curvature,
        "printed_bound": 150.01,
        "slope": 8.1,
        "test_error": error,
        "tried": [[gamma, curvature]] * tries,
    }


def attacks(*errors: float) -> Found:
    """The same errors under both attacks, on 25 photographs."""
    rows = [
        {"strength": float(place), "error": error, "low": 0.0, "high": 1.0}
        for place, error in enumerate(errors)
    ]
    return {"C_2": 5.0, "samples": 25, "epsilon": 0.5, "pgm": rows, "wrm": rows}


@pytest.fixture
def measured() -> Found:
    """As if all went as the paper says."""
    settled = [0.0, *(1.0 for _ in range(20))]
    return {
        "features": {
            "train": 1200,
            "test": 300,
            "mean_length": 4.0,
            "dogs": 30,
            "dogs_as_breeds": 0.8,
            "others_as_breeds": 0.1,
        },
        "head-erm": head(None, 30.001, 0.2),
        "head-paper": head(1e5, 30.001, 0.19),
        "head-proven": head(15.0160005, 29.001, 0.18),
        "ascent": {
            "printed": [2.0, *(3.0 for _ in range(20))],
            "divided": [2.0, *(3.0 for _ in range(20))],
            "proven": {
                "gamma": 15.0160005,
                "gain": settled,
                "mean": settled,
                "standard_error": [0.1] * 21,
            },
        },
        **{f"attack-{name}": attacks(0.1, 0.3 + 0.1 * place) for place, name in enumerate(HEADS)},
        **{f"pixels-{name}": attacks(0.3, 0.6) for name in PIXEL_METHODS},
        "pixels-wrm": attacks(0.34, 0.6),
        "pixels-gentle": attacks(0.3, 0.7),
        "moves": {"start": {"rho": 4.0, "phi": 3.0}, "end": {"rho": 0.1, "phi": 2.2}},
    }


def changed(measured: Found, part: str, **what: Any) -> Found:
    return measured | {part: measured[part] | what}


def value(verdict: Verdict, name: str) -> float | None:
    return verdict.ours[name].value


def test_all_that_can_be_compared_agrees(measured: Found) -> None:
    found = dog_verdicts(measured)
    assert [one.outcome for one in found] == [NONE, YES, NONE, YES, YES, YES, NONE, NONE]
    assert value(found[ENOUGH], "smallest γ that would do") == 15.0005
    assert value(found[MOVES], "moved by") == pytest.approx(4.05e-5)
    assert value(found[HEADS_ATTACKED], "strongest WRM, WRM, proven γ") == 0.5


def test_pixels_are_shown_and_not_judged(measured: Found) -> None:
    """γ = 1 is in units that the paper does not give."""
    pixels = dog_verdicts(changed(measured, "pixels-wrm", **attacks(0.36, 0.66)))[COMPETITIVE]
    assert pixels.outcome is NONE
    assert value(pixels, "farthest behind, in points") == pytest.approx(6.0)


def test_proven_numbers_are_rounded_to_the_safe_side(measured: Found) -> None:
    """30.001/2 = 15.0005; and 150.01 is no bound of 150.0."""
    found = dog_verdicts(measured)
    proven = ("the paper's bound", "L⁺", "smallest γ that would do")
    assert {found[ENOUGH].ours[name].side for name in proven} == {"at most"}
    assert dogs.STUDY.text is not None
    page = dogs.STUDY.text(measured)
    assert "| ERM |  | 30.01 | 150.1 |  | 20.0% |" in page
    assert "| WRM, γ = 10⁵ | 100000 | 30.01 | 150.1 | 0.004 | 19.0% |" in page
    assert "| WRM, proven γ | 15.01 | 29.01 | 150.1 | 0.004 | 18.0% |" in page


@pytest.mark.parametrize("above", [1.0, 1e-2, 1e-4, 1e-8])
def test_the_printed_digits_satisfy_the_condition(above: float) -> None:
    bound = 2 * 15.0160005 - above
    gamma, curvature, larger = (float(shown) for shown in condition_text(15.0160005, bound, 99.0))
    assert 2 * gamma > curvature
    assert gamma <= 15.0160005
    assert curvature >= bound
    assert larger == 99.0


@pytest.mark.parametrize(
    ("part", "what", "claim", "name", "number"),
    [
        ("head-paper", {"curvature": 2e5}, ENOUGH, "smallest γ that would do", 1e5),
        ("head-proven", {"curvature": 99.0}, PROVEN, "L⁺", 99.0),
        ("head-proven", {"curvature": 30.032001}, PROVEN, "L⁺", 30.032001),  # 2γ itself
        ("ascent", {"printed": [2.0, -7.0], "divided": [2.0, 1.9]}, STEPS, "after steps", 1),
        (
            "ascent",
            {"proven": {"gamma": 1.5, "gain": [0.0, *(0.94 for _ in range(19)), 1.0]}},
            CONVERGES,
            "share of the last ten steps",
            0.06,
        ),
        (
            "ascent",
            {"proven": {"gamma": 1.5, "gain": [0.0, *(-1.0 for _ in range(20))]}},
            CONVERGES,
            "rise",
            -1.0,
        ),
    ],
)
def test_each_claim_can_fail(
    part: str, what: Found, claim: int, name: str, number: float, measured: Found
) -> None:
    found = dog_verdicts(changed(measured, part, **what))
    assert found[claim].outcome is Outcome.NO
    assert value(found[claim], name) == pytest.approx(number)
    assert [one.outcome for one in found].count(Outcome.NO) == 1


@pytest.mark.parametrize("kind", ["printed", "divided"])
def test_one_reading_of_the_steps_that_climbs_is_enough(kind: str, measured: Found) -> None:
    falls = changed(measured, "ascent", printed=[2.0, 1.0], divided=[2.0, 1.0])
    assert dog_verdicts(falls)[STEPS].outcome is Outcome.NO
    assert dog_verdicts(changed(falls, "ascent", **{kind: [2.0, 2.1]}))[STEPS].outcome is YES


def test_tries_are_counted(measured: Found) -> None:
    again = dog_verdicts(measured | {"head-proven": head(20.0, 39.0, 0.2, tries=2)})[PROVEN]
    assert (again.outcome, value(again, "tries")) == (YES, 2)
