"""What dogs says of numbers that nobody measured: each claim holds, and each can fail."""

from __future__ import annotations

from typing import Any

import pytest

from studies import dogs
from studies.dog_heads import HEADS, spoken_condition
from studies.dog_pixels import PIXEL_METHODS
from studies.dog_statements import dog_statements

Found = dict[str, Any]
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


def test_all_that_can_be_compared_agrees(measured: Found) -> None:
    found = dog_statements(measured)
    assert [one.agrees for one in found] == [None, True, None, True, True, True, None, True]
    assert [bool(one.reason) for one in found] == [one.agrees is None for one in found]
    words = [one.measured for one in found]
    assert "1,200 + 300 photographs" in words[FEATURES]
    assert "calls 80% of 30 dogs a breed of dogs, and 10% of what is none" in words[FEATURES]
    assert words[PROVEN].startswith("Of ERM's head L⁺ ≤ 30.01 is proven. WRM is trained at γ = 15.01; ")
    assert "L⁺ ≤ 29.01, below 2γ. ρ̂ = 0.004, test error 18.0%." in words[PROVEN]
    assert words[STEPS] == "f goes from 2 to 3 in 20 steps; divided by γ, to 3 in 20 steps."
    assert words[HEADS_ATTACKED].endswith("PGM 30.0% / 40.0% / 50.0%; WRM 30.0% / 40.0% / 50.0%.")


def test_proven_numbers_are_rounded_to_the_safe_side(measured: Found) -> None:
    """30.001/2 = 15.0005; 8.1/(2·10⁵) = 4.05·10⁻⁵; and 150.01 is no bound of 150.0."""
    found = dog_statements(measured)
    assert "the head trained so here is 150.1 (822.5" in found[ENOUGH].measured
    assert found[ENOUGH].measured.endswith("proven is L⁺ ≤ 30.01. Every γ > 15.01 would do.")
    assert "next to nothing: features of length 4 by at most 0.000041." in found[MOVES].measured
    far = changed(measured, "head-paper", slope=8.1e5)
    assert "That moves features of length 4 by at most 4.050000. Test" in dog_statements(far)[MOVES].measured
    assert dogs.REPRODUCTION.text is not None
    page = dogs.REPRODUCTION.text(measured)
    assert "| ERM |  | 30.01 | 150.1 |  | 20.0% |" in page
    assert "| WRM, γ = 10⁵ | 100000 | 30.01 | 150.1 | 0.004 | 19.0% |" in page
    assert "| WRM, proven γ | 15.01 | 29.01 | 150.1 | 0.004 | 18.0% |" in page


@pytest.mark.parametrize("above", [1.0, 1e-2, 1e-4, 1e-8])
def test_the_printed_digits_satisfy_the_condition(above: float) -> None:
    bound = 2 * 15.0160005 - above
    gamma, curvature, larger = (float(shown) for shown in spoken_condition(15.0160005, bound, 99.0))
    assert 2 * gamma > curvature
    assert gamma <= 15.0160005
    assert curvature >= bound
    assert larger == 99.0


@pytest.mark.parametrize(
    ("part", "what", "claim", "said", "reason"),
    [
        ("head-paper", {"curvature": 2e5}, ENOUGH, "γ > 100000.00 would do", "2γ = 2·10⁵ is not above"),
        ("head-proven", {"curvature": 99.0}, PROVEN, "L⁺ ≤ 99.00, not below 2γ", "steeper; 1 tries"),
        ("head-proven", {"curvature": 30.032001}, PROVEN, "not below 2γ", "steeper"),  # 2γ itself
        (
            "ascent",
            {"printed": [2.0, -7.0], "divided": [2.0, 1.9]},
            STEPS,
            "f goes from 2 to -7 in 1 steps, and then leaves the numbers; divided by γ, to 2 in 1 steps",
            "steps must be below 1/γ",
        ),
        (
            "ascent",
            {"proven": {"gamma": 1.5, "gain": [0.0, *(0.94 for _ in range(19)), 1.0]}},
            CONVERGES,
            "at γ = 1.5 it rises by 1 in the mean, and the last ten of 20 steps make 6.0% of that (at rest",
            "it has not come to rest",
        ),
        (
            "ascent",
            {"proven": {"gamma": 1.5, "gain": [0.0, *(-1.0 for _ in range(20))]}},
            CONVERGES,
            "it does not rise (-1) in the mean.",
            "f does not rise",
        ),
        ("pixels-wrm", attacks(0.36, 0.6), COMPETITIVE, "at most 6.0 points on 25 photographs", "γ = 1 is"),
        ("pixels-wrm", attacks(0.3, 0.66), COMPETITIVE, "an error is up to 10).", "at most 10.0 points."),
    ],
)
def test_each_claim_can_fail(
    part: str, what: Found, claim: int, said: str, reason: str, measured: Found
) -> None:
    found = dog_statements(changed(measured, part, **what))
    assert found[claim].agrees is False
    assert said in found[claim].measured
    assert reason in found[claim].reason
    assert [one.agrees for one in found].count(False) == 1


@pytest.mark.parametrize("kind", ["printed", "divided"])
def test_one_reading_of_the_steps_that_climbs_is_enough(kind: str, measured: Found) -> None:
    falls = changed(measured, "ascent", printed=[2.0, 1.0], divided=[2.0, 1.0])
    assert dog_statements(falls)[STEPS].agrees is False
    assert dog_statements(changed(falls, "ascent", **{kind: [2.0, 2.1]}))[STEPS].agrees is True


def test_another_try_is_told(measured: Found) -> None:
    again = dog_statements(measured | {"head-proven": head(20.0, 39.0, 0.2, tries=2)})[PROVEN]
    assert "trained at γ = 20, at try 2; of the head that comes out L⁺ ≤ 39.00, below 2γ" in again.measured


@pytest.mark.parametrize(
    ("rho", "phi", "why", "end"),
    [
        (0.3, 2.2, "γ = 1 is too small for this network. Before", "ρ = 0.3, and the others' budget is 0.25"),
        (0.2, 2.2, "not known. Before", "training then ends near guessing (φ = 2.20, ln 10 = 2.30)"),
        (0.3, 1.0, "γ = 1 is too small", "training then ends better than guessing (φ = 1.00"),
    ],
)
def test_why_wrm_is_behind_is_drawn_from_the_data(
    rho: float, phi: float, why: str, end: str, measured: Found
) -> None:
    moves = {"start": {"rho": rho, "phi": 3.0}, "end": {"rho": 0.1, "phi": phi}}
    behind = measured | {"pixels-wrm": attacks(0.9, 0.9), "moves": moves}
    reason = dog_statements(behind)[COMPETITIVE].reason
    assert reason.startswith(why)
    assert end in reason
