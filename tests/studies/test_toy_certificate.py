"""What is said of the certificate on the rings, by made-up numbers: every verdict can be another."""

from __future__ import annotations

from typing import Any

import pytest

from studies.reproduction import Comparison
from studies.toy_certificate_claims import certificate_claims

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


def claim(found: Numbers, which: int) -> Comparison:
    """A reason stands exactly where the two do not agree."""
    said = certificate_claims(found)[which]
    assert bool(said.reason) != (said.agrees is True)
    return said


def test_made_up_so_that_the_paper_is_right(found: Numbers) -> None:
    bound, tight = (claim(found, which) for which in (BOUND, TIGHT))
    assert (bound.agrees, tight.agrees) == (True, True)
    assert bound.measured == "It is above what is attained on the test data at all 5 ρ that were tried."
    assert tight.measured == (
        "At ρ = 0.110, where ρ̂_n is 0.100, it is 0.420 against 0.400, which is attained: +5.0%."
    )


@pytest.mark.parametrize(
    ("group", "number", "changed", "words"),
    [
        ("bracket", 1, {"at_least": 0.625}, "at 1 of 5 ρ, by 4.0% at most (ρ = 0.200)."),
        ("adversary", 0, {"worst_case": 1.5}, "at 1 of 5 ρ, by 20.0% at most (ρ = 0.500)."),
        ("adversary", 1, {"worst_case": 0.44}, "at 1 of 5 ρ, by 4.5% at most (ρ = 0.110)."),
    ],
)
def test_what_is_attained_may_be_above_the_certificate(
    group: str, number: int, changed: Numbers, words: str, found: Numbers
) -> None:
    """By the search for a bracket, or at T_γ of the test data."""
    found[group][number] |= changed
    said = claim(found, BOUND)
    assert said.agrees is False
    assert said.measured == f"It is below what is attained on the test data {words}"
    assert said.reason.startswith("it is about the training data, and ε_n is left out.")


def test_the_worst_of_several_is_told(found: Numbers) -> None:
    found["bracket"][1]["at_least"] = 0.625
    found["adversary"][0]["worst_case"] = 1.5
    assert "at 2 of 5 ρ, by 20.0% at most (ρ = 0.500)." in claim(found, BOUND).measured


@pytest.mark.parametrize(("worst_case", "word"), [(0.44, "nowhere"), (0.45, "nowhere"), (0.405, "still")])
def test_the_mean_over_the_test_data_may_explain_it(worst_case: float, word: str, found: Numbers) -> None:
    """The line through T_2 of the test data, which touches it: worst case − 2·0.11 at ρ = 0."""
    found["bracket"][1]["at_least"] = 0.61
    found["adversary"][1]["worst_case"] = worst_case
    own = worst_case - 0.22
    assert claim(found, BOUND).reason.endswith(
        f"own mean of φ, {own:.4f} in place of 0.2000, it would {word} be below."
    )


def test_without_the_same_penalty_nothing_is_explained(found: Numbers) -> None:
    found["bracket"][1]["at_least"] = 0.7
    found["adversary"][1]["gamma"] = 2.1
    assert claim(found, BOUND).reason == "it is about the training data, and ε_n is left out."


@pytest.mark.parametrize(
    ("changed", "agrees", "words", "reason"),
    [
        ({"worst_case": 0.44}, True, "0.420 against 0.440, which is attained: −4.5%.", ""),
        ({"worst_case": 0.5}, False, "−16.0%", "not known; it is below what is attained, so no bound there."),
        ({"worst_case": 0.35}, False, "+20.0%", "not known; it is above what is attained."),
        ({"rho": 0.21}, None, "At ρ = 0.010, where", "no γ that was tried moves the test data by about ρ̂_n."),
    ],
)
def test_the_certificate_may_be_loose(
    changed: Numbers, agrees: bool | None, words: str, reason: str, found: Numbers
) -> None:
    found["adversary"][1] |= changed
    said = claim(found, TIGHT)
    assert (said.agrees, said.reason) == (agrees, reason)
    assert words in said.measured
