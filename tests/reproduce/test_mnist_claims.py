"""What the MNIST results say of made-up numbers: each claim holds for some, and fails for others."""

from __future__ import annotations

import re
from typing import Any

import pytest

from certus.attacks.outcomes import wilson
from certus.reproduce import mnist_bounds, mnist_gamma
from certus.reproduce.mnist_networks import MNIST_METHODS
from certus.reproduce.mnist_sup_claims import difference_of_shares, sup_claims
from certus.reproduce.mnist_sweeps import attack_claims, curve_of
from tests.reproduce.made_up import sweep_of


def test_seeds_become_their_mean_and_range() -> None:
    curve = curve_of([sweep_of("erm", 0, 0.0, 0.2, 0.4), sweep_of("erm", 1, 0.1, 0.4, 0.5)], "2", False)
    assert curve is not None
    assert curve.values == pytest.approx([0.05, 0.3, 0.45])
    assert (curve.low, curve.high) == ([0.0, 0.2, 0.4], [0.1, 0.4, 0.5])


@pytest.mark.parametrize(
    ("changed", "agrees"),
    [
        ({}, True),
        ({"fgm": (0.0, 0.1, 0.1)}, False),
        ({"pgm": (0.0, 0.6, 0.4)}, False),
        ({"erm": (0.0, 0.1, 0.1)}, False),
    ],
)
def test_claims_about_attacks(changed: dict[str, tuple[float, ...]], agrees: bool) -> None:
    errors = dict.fromkeys(MNIST_METHODS, (0.0, 0.3, 0.4)) | {"erm": (0.0, 0.5, 0.9), "wrm": (0.5, 0.2, 0.3)}
    measured = {f"pgm-{name}-0": sweep_of(name, 0, *values) for name, values in (errors | changed).items()}
    claims = attack_claims(measured, {"pgm": "fig:mnist"}, "so.", above=0.05)
    assert [one.agrees for one in claims] == [agrees] * 2


WINS = {"wrm": (0.01, 0.2, 0.8), "fgm": (0.02, 0.3, 0.7), "ifgm": (0.02, 0.4, 0.9), "pgm": (0.02, 0.3, 0.8)}


SATURATED = dict.fromkeys(WINS, (0.02, 0.96, 1.0)) | {"wrm": (0.01, 0.9, 1.0)}


def family_of_errors(
    name: str, errors: dict[str, tuple[float, float, float]], half: float = 0.0, attack: str = "pgm"
) -> dict[str, Any]:
    """Made up: the error rates of four networks, clean and under two attacks."""
    found: dict[str, Any] = {}
    for method, values in errors.items():
        found[f"{name}:{attack}-{method}-0"] = sweep_of(method, 0, *values, half=half)
        found[f"{name}:network-{method}-0"] = {"test_error": values[0], "test_images": 10000}
    return found


@pytest.mark.parametrize(
    ("changed", "half", "agrees"),
    [
        ({}, 0.0, [True, True, True]),
        ({"wrm": (0.03, 0.2, 0.8)}, 0.0, [False, True, True]),
        ({"wrm": (0.019, 0.2, 0.8)}, 0.0, [None, True, True]),  # 10 of 10,000 images tell nothing
        ({"wrm": (0.01, 0.35, 0.8)}, 0.0, [True, False, True]),
        ({"wrm": (0.01, 0.2, 0.6)}, 0.0, [True, True, False]),
        (SATURATED, 0.0, [True, True, False]),  # the largest attack that tells is the small one
        ({}, 0.069, [True, True, True]),  # 0.1 is more than √2 · 0.069
        ({}, 0.072, [True, None, None]),
    ],
    ids=["agrees", "clean", "unclear-clean", "small", "large", "saturated", "clear", "unclear"],
)
def test_each_claim_about_the_large_budget_can_fail(
    changed: dict[str, tuple[float, float, float]], half: float, agrees: list[bool | None]
) -> None:
    found = family_of_errors("large", WINS | changed, half)
    claims = sup_claims(found, {"large": "fig:x"})
    clean, small, large = agrees
    assert [one.agrees for one in claims] == [clean, small, large, small, large]
    assert all(bool(one.reason) != bool(one.agrees) for one in claims)


@pytest.mark.parametrize(
    ("short", "words"),
    [
        (None, "Shorter steps were not tried."),
        (0.8, r"It turns on the attack's start and step.* the difference is \+10.0% \(95%: \+10.0%"),
        (0.6, r"It does not turn on the attack's start and step.* the difference is -10.0%"),
    ],
)
def test_a_disagreement_on_large_attacks_is_tried_with_a_weaker_one(short: float | None, words: str) -> None:
    found = family_of_errors("large", WINS | {"wrm": (0.01, 0.2, 0.6)})
    if short is not None:
        found |= family_of_errors("large", WINS | {"wrm": (0.01, 0.2, short)}, attack="short-ifgm")
    claims = sup_claims(found, {"large": "fig:x"})
    assert [one.agrees for one in claims[2::2]] == [False, False]
    assert all(re.match(words, one.reason) for one in claims[2::2])


def test_newcombes_interval() -> None:
    """His example 1996, method 10: 56 of 70 and 48 of 80 differ by 0.0524 to 0.3339."""
    gap = difference_of_shares(wilson(56, 70), wilson(48, 80))
    assert (gap.value, gap.low, gap.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


@pytest.mark.parametrize(("name", "others"), [("small", []), ("large", [None])])
def test_where_all_err_always_there_is_nothing_to_compare(name: str, others: list[None]) -> None:
    errors = dict.fromkeys(WINS, (0.9, 0.96, 1.0))
    claims = sup_claims(family_of_errors(name, errors), {name: "fig:x"})
    assert [one.agrees for one in claims] == [*others, None, None]
    assert [one.reason for one in claims[len(others) :]] == ["there is nothing to compare."] * 2


@pytest.mark.parametrize(("strongest", "agrees"), [(0.74, True), (0.76, False)])
def test_wrm_matches_only_if_it_does_at_every_strength(strongest: float, agrees: bool) -> None:
    errors = WINS | {"wrm": (0.01, 0.2, strongest)}
    claims = sup_claims(family_of_errors("small", errors), {"small": "fig:x"})
    assert [one.agrees for one in claims] == [agrees] * 2
    assert all(bool(one.reason) != agrees for one in claims)


@pytest.mark.parametrize(
    ("errors", "agrees"),
    [
        ([0.30, 0.27, 0.25, 0.24], [None, True, True]),
        ([0.95, 0.05, 0.05, 0.05], [None, False, True]),  # a cliff before γ_adv
        ([0.30, 0.29, 0.28, 0.05], [None, True, False]),  # beyond it; but gains do not diminish
    ],
)
def test_claims_about_many_gammas(errors: list[float], agrees: list[bool | None]) -> None:
    measured = {
        f"gamma-{share}": {"gamma": share * 9.2147, "rows": [{"error": error, "rho_test": 1.0}]}
        for share, error in zip((0.16, 0.08, 0.04, 0.01), errors, strict=True)
    }
    assert [one.agrees for one in mnist_gamma.REPRODUCTION.statements(measured)] == agrees


@pytest.mark.parametrize(("bar", "agrees"), [(1.97e6, True), (5e6, True), (1e7, False), (1e5, False)])
def test_the_papers_bound_must_be_alike(bar: float, agrees: bool) -> None:
    errors = {"unclipped": [0.0, 0.5], "clipped": [0.0, 0.5]}
    common = {"table": "tab:mnist-extra1", "errors": errors, "strengths": [0.0, 0.1], "clean_error": 0.0}
    erm = common | {"method": "erm", "gamma": None, "bounds": {"paper": bar}, "needed": bar / 9}
    wrm = common | {"method": "wrm", "gamma": 1.0, "bounds": {"paper": bar}, "needed": bar / 9}
    first, second, *_ = mnist_bounds.REPRODUCTION.statements({"a": erm, "b": wrm})
    assert (first.agrees, second.agrees) == (agrees, False)
    assert second.reason
